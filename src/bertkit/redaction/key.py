"""The key of a redaction: what each placeholder stands for."""

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from bertkit.errors import DataError, UsageError, checked_path
from bertkit.files.formats import check_format
from bertkit.files.json_files import read_json
from bertkit.files.whole_files import whole_file

FORMAT = 1
PLACEHOLDER = re.compile(r"\[([A-Z][A-Z0-9_]{0,63})_(\d{1,12})_([0-9a-f]{8})\]")
"""A placeholder that a key reverses: kind, number and id of the key."""

LONGEST = 88
"""Of a placeholder, in characters."""


def pieces_of_text(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces of a stream of text.

    Raises:
        UsageError: bytes, or something else that is not text.
    """
    for piece in pieces if isinstance(pieces, Iterable) else [pieces]:
        if not isinstance(piece, str):
            raise UsageError(f"a stream of text has {type(piece).__name__} ({piece!r:.40}): expected pieces of str")
        yield piece


class Key:
    """Placeholders and what they stand for; equal values have the same placeholder.

    A file of it contains what was redacted: only its owner can read it.
    """

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        self._values = dict[str, str]()  # by placeholder
        self._placeholders = dict[tuple[str, str], str]()  # by kind and value
        self._counts = dict[str, int]()  # by kind

    def __len__(self) -> int:
        """Number of placeholders."""
        return len(self._values)

    @classmethod
    def read(cls, path: str | Path) -> "Key":
        """The key of a file.

        Raises:
            DataError: no such file, or none that `write` wrote.
        """
        path = checked_path("the key file", path)
        content = read_json(path)
        if content is None:
            raise DataError(f"{path}: no such key file")
        if "bertkit_redaction_key" not in content:
            raise DataError(f"{path} is not a key file: expected one that redact wrote with --key")
        check_format(content["bertkit_redaction_key"], FORMAT, path, "update bertkit", DataError)
        key, own_id, values = cls(), content.get("id"), content.get("placeholders")
        if not isinstance(own_id, str) or not isinstance(values, dict):
            raise DataError(f"{path} lacks the id or the placeholders of a key: restore the file")
        key.id = own_id
        for placeholder, value in values.items():
            match = PLACEHOLDER.fullmatch(placeholder)
            if match is None or match[3] != key.id or not isinstance(value, str):
                raise DataError(
                    f"{path}: {placeholder!r:.99} is no placeholder of this key, with a text: restore the file"
                )
            key._keep(match[1], int(match[2]), placeholder, value)
        return key

    def write(self, path: str | Path) -> None:
        """Write a file that only its owner can read, whole or not at all."""
        content = {"bertkit_redaction_key": FORMAT, "id": self.id, "placeholders": self._values}
        with whole_file(path, is_private=True) as temporary:
            temporary.write_text(
                json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", newline="\n"
            )

    def placeholder(self, kind: str, value: str) -> str:
        """The placeholder of a value, such as ``[EMAIL_3_9f02c11d]``."""
        if known := self._placeholders.get((kind, value)):
            return known
        number = self._counts.get(kind, 0) + 1
        placeholder = f"[{kind}_{number}_{self.id}]"
        self._keep(kind, number, placeholder, value)
        return placeholder

    def value(self, placeholder: str) -> str:
        """What a placeholder stands for.

        Raises:
            UsageError: it is of another key, or not in this one.
        """
        try:
            return self._values[placeholder]
        except KeyError:
            match = PLACEHOLDER.fullmatch(placeholder)
            other = match[3] if match else None
            reason = f"of key {other}, and this is key {self.id}" if other != self.id else "not in this key"
            raise UsageError(f"{placeholder} is {reason}: give the key file that was written with the text") from None

    def restore(self, pieces: Iterable[str]) -> Iterator[str]:
        """A stream of text with the values of its placeholders.

        Raises:
            UsageError: as `value`, and of pieces that are no str.
        """
        waiting = ""
        for piece in pieces_of_text(pieces):
            waiting += piece
            bracket = waiting.rfind("[")
            is_open = bracket >= 0 and "]" not in waiting[bracket:] and len(waiting) - bracket < LONGEST
            whole, waiting = (waiting[:bracket], waiting[bracket:]) if is_open else (waiting, "")
            yield PLACEHOLDER.sub(lambda match: self.value(match[0]), whole)
        yield PLACEHOLDER.sub(lambda match: self.value(match[0]), waiting)

    def _keep(self, kind: str, number: int, placeholder: str, value: str) -> None:
        self._values[placeholder] = value
        self._placeholders[kind, value] = placeholder
        self._counts[kind] = max(number, self._counts.get(kind, 0))
