"""JSON files: read with type checks, written atomically."""

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.whole_files import whole_file

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no such file.

    Raises:
        CheckpointError: the file is not a JSON object.
    """
    content = read_json_value(path)
    if content is not None and not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a JSON {type(content).__name__}: expected an object")
    return content


def read_json_value(path: Path) -> Any:
    """Read any JSON value; None if there is no such file.

    Raises:
        CheckpointError: the file is not JSON, or holds an unpaired surrogate.
    """
    if not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
        refuse_pointer(path, text.encode())
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # a ValueError for one that is not half of a pair
        return value
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error}): fetch or save it again") from None


def refuse_pointer(path: Path, start: bytes) -> None:
    """Raise a CheckpointError for a file that begins as a pointer of Git LFS does."""
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path} is a pointer of Git LFS, without content: run git lfs pull in its folder")


def member(content: dict[str, Any], key: str, kind: type, where: Path, default: Any = None) -> Any:
    """The value of a key, with its type checked; ``default`` if it is absent or null.

    Args:
        kind: required type; ``float`` also accepts integers, up to the largest float.

    Raises:
        CheckpointError: it has another type.
    """
    value = content.get(key)
    if value is None:
        return default
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise CheckpointError(f"{where}: {key} is {value!r:.60}, expected {kind.__name__}")
    if kind is float and isinstance(value, int) and abs(value) > sys.float_info.max:
        raise CheckpointError(f"{where}: {key} is {value!r:.60}, expected at most {sys.float_info.max:.2g}")
    return value


def check_required_values(content: dict[str, Any], required: dict[str, tuple[Any, ...]], path: Path) -> None:
    """Check the keys whose other values are not supported.

    Raises:
        CheckpointError: one has another value.
    """
    for key, allowed in required.items():
        if key in content and content[key] not in allowed:
            raise CheckpointError(f"{path} has {key}={content[key]!r}; supported: {allowed[0]!r}")


def json_value(value: Any) -> Any:
    """Convert a value for JSON: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {name: json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name as they were before `json_value`: null is NaN.

    >>> numbers({"accuracy": 0.5, "spearman": None})
    {'accuracy': 0.5, 'spearman': nan}
    """
    return {name: math.nan if value is None else value for name, value in values.items()}


def json_lines(rows: Iterable[Any]) -> Iterator[str]:
    """Rows as JSON lines."""
    return (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write rows to a file as they come, atomically."""
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(json_lines(rows))


def write_json(path: Path, content: Any) -> None:
    """Write the JSON of `json_value`, indented, atomically."""
    with whole_file(path) as temporary:
        text = json.dumps(json_value(content), indent=2, ensure_ascii=False) + "\n"
        temporary.write_text(text, encoding="utf-8", newline="\n")
