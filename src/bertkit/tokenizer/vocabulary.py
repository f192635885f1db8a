"""A WordPiece vocabulary: token <-> id, the special tokens, and statistics of its entries."""

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bertkit.errors import DataError, UsageError, warn
from bertkit.files.formats import refuse_pointer
from bertkit.files.lines import TO_UTF8, other_encoding
from bertkit.files.whole_files import whole_file

CONTINUATION = "##"
"""Prefix of a piece that continues a word (Devlin et al. 2018, section 3)."""

_MARKER = re.compile(r"\[[A-Z0-9_]+\]")  # [CLS], [NUM]: no word of a text
_RESERVED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary; defaults as in the published BERT vocabularies."""

    pad: str = "[PAD]"  # fills padded rows
    unk: str = "[UNK]"  # a word without pieces in the vocabulary
    cls: str = "[CLS]"  # first token of every sequence
    sep: str = "[SEP]"  # ends each text
    mask: str = "[MASK]"  # replaces a token for the model to predict

    def spellings(self) -> tuple[str, ...]:
        return (self.pad, self.unk, self.cls, self.sep, self.mask)


@dataclass(frozen=True)
class VocabularyStatistics:
    """Counts of a vocabulary's entries by kind. The kinds are disjoint and sum to ``num_entries``."""

    num_entries: int
    num_special: int  # [PAD], [UNK], [CLS], [SEP], [MASK]
    num_reserved: int  # [unused0], [unused1], ...: rows of the embedding kept free for new words
    num_single_characters: int  # one character, "##" entries not counted
    num_whole_words: int  # at least two characters, starting a word
    num_continuations: int  # "##" pieces


@dataclass(frozen=True)
class Vocabulary:
    """The entries of a vocabulary in id order.

    Raises:
        DataError: an entry occurs twice, or is not valid Unicode.
    """

    tokens: tuple[str, ...]
    special: SpecialTokens = SpecialTokens()
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(self.tokens))
        ids = {token: token_id for token_id, token in enumerate(self.tokens)}
        if len(ids) < len(self.tokens):
            token_id, token = next((number, one) for number, one in enumerate(self.tokens) if ids[one] != number)
            raise DataError(
                f"the vocabulary holds {token!r} twice, as id {token_id} and {ids[token]}: remove one of them"
            )
        if other := [one for one in self.tokens if not isinstance(one, str)]:
            raise UsageError(
                f"an entry of the vocabulary is {type(other[0]).__name__} ({other[0]!r:.40}): expected str"
            )
        try:
            "".join(self.tokens).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"the vocabulary holds the unpaired surrogate {error.object[error.start]!r}, which no text contains: "
                "remove its entry"
            ) from None
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def load(cls, path: str | Path, special: SpecialTokens | None = None) -> "Vocabulary":
        """Read a ``vocab.txt``: one entry per line, with the line number from 0 as id; UTF-8, with or without a byte
        order mark.

        Raises:
            DataError: the file is missing, empty or not UTF-8, or most entries have spaces or tabs, as in a table.
        """
        path = Path(path)
        try:
            # Python's text mode ends a line at \n, \r\n or \r alone, as published readers do; an entry may itself
            # be a Unicode space, so nothing else is stripped.
            refuse_pointer(path)
            with open(path, encoding="utf-8-sig") as file:
                tokens = [line.rstrip("\n") for line in file]
        except FileNotFoundError:
            raise DataError(f"no vocabulary at {path}: expected a vocab.txt or a model directory with one") from None
        except UnicodeDecodeError as error:
            advice = other_encoding(path.read_bytes()[:16]) or TO_UTF8
            raise DataError(f"{path} is not UTF-8 (byte {error.start}): {advice}") from None
        while tokens and not tokens[-1]:  # blank lines at the end
            tokens.pop()
        if not tokens:
            raise DataError(f"the vocabulary {path} is empty: expected one entry per line")
        spaced = [token for token in tokens if " " in token or "\t" in token]
        if len(spaced) > len(tokens) / 2:
            raise DataError(
                f"{len(spaced):,} of the {len(tokens):,} entries of {path} have spaces or tabs, such as "
                f"{spaced[0]!r:.60}, and match no word: expected one entry per line, and nothing else"
            )
        return cls(tuple(tokens), special or SpecialTokens())

    def save(self, path: str | Path) -> None:
        """Write a ``vocab.txt`` atomically."""
        with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(token + "\n" for token in self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def id(self, token: str) -> int:
        """The id of an entry.

        Raises:
            DataError: the vocabulary has no such entry.
        """
        try:
            return self._ids[token]
        except KeyError:
            raise DataError(f"the vocabulary of {len(self)} entries has no {token!r}") from None

    def token(self, token_id: int) -> str:
        """The entry with an id.

        Raises:
            DataError: the id is outside 0 .. len - 1.
        """
        return self.tokens[self.checked_id(token_id)]

    def checked_id(self, token_id: object) -> int:
        """An id as int, also from an integer of numpy or torch.

        Raises:
            DataError: the id is outside 0 .. len - 1; UsageError: it is no integer.
        """
        try:
            number = operator.index(token_id)  # type: ignore[arg-type]
        except TypeError:
            raise UsageError(f"an id is {type(token_id).__name__} ({token_id!r:.40}): expected int") from None
        if not 0 <= number < len(self.tokens):
            raise DataError(f"id {number} is outside the vocabulary's 0 .. {len(self) - 1}")
        return number

    def special_ids(self) -> frozenset[int]:
        """Ids of the special tokens that this vocabulary holds."""
        return frozenset(self._ids[token] for token in self.special.spellings() if token in self._ids)

    def uppercase_entries(self) -> list[str]:
        """Entries with uppercase letters, which lowercased text never has; special tokens and markers aside."""
        words = (token for token in self.tokens if token != token.lower() and not _MARKER.fullmatch(token))
        return [token for token in words if token not in self.special.spellings()]

    def guess_lowercase(self, path: Path, remedy: str) -> bool:
        """Whether texts are lowercased, where no file states it: not if 10 % of the entries have uppercase letters.

        If any entry has them, a UserWarning says what was chosen, with the remedy.
        """
        uppercase = self.uppercase_entries()
        if not uppercase:
            return True
        lowercase = len(uppercase) < len(self) / 10
        warn(
            f"{len(uppercase)} of the {len(self)} entries of {path} have uppercase letters, such as {uppercase[0]!r}, "
            f"and no setting states whether texts are lowercased: they {'are' if lowercase else 'are not'}; {remedy}",
        )
        return lowercase

    def statistics(self) -> VocabularyStatistics:
        kinds = [self._kind(token) for token in self.tokens]
        return VocabularyStatistics(
            num_entries=len(kinds),
            num_special=kinds.count("special"),
            num_reserved=kinds.count("reserved"),
            num_single_characters=kinds.count("character"),
            num_whole_words=kinds.count("word"),
            num_continuations=kinds.count("continuation"),
        )

    def _kind(self, token: str) -> str:
        if token in self.special.spellings():
            return "special"
        if _RESERVED.fullmatch(token):
            return "reserved"
        if token.startswith(CONTINUATION) and len(token) > len(CONTINUATION):
            return "continuation"
        return "character" if len(token) == 1 else "word"


def from_ids(ids: Iterable[tuple[str, int]], special: SpecialTokens) -> Vocabulary:
    """A vocabulary from (token, id) pairs in any order, as in a ``tokenizer.json``.

    Raises:
        DataError: the ids are not exactly 0 .. n - 1.
    """
    by_id = sorted(ids, key=lambda pair: pair[1])
    for expected, (token, token_id) in enumerate(by_id):
        if token_id != expected:
            raise DataError(
                f"the vocabulary's ids have a gap or a duplicate at {expected}: {token!r} has id {token_id}"
            )
    return Vocabulary(tuple(token for token, _ in by_id), special)
