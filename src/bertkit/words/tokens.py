"""Tokenizers of static encoders: the compiled WordPiece engine, or the tokenizers library."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from bertkit.executor import num_threads
from bertkit.tokenizer import Vocabulary
from bertkit.tokenizer.chunks import CachingLibrary
from bertkit.tokenizer.library import Engine, LibraryTokenizer, encode_in_parts
from bertkit.tokenizer.published import tokenizer_json
from bertkit.tokenizer.vocabulary import CONTINUATION, SpecialTokens
from bertkit.tokenizer.wordpiece import Normalization, WordPiece

HIDDEN = "\uffff"
"""Prefix of entries that cannot occur in text."""


class TokenIds(NamedTuple):
    """Concatenated ids of texts, each with ``num_around`` special tokens at both ends."""

    ids: np.ndarray  # (T,) int32
    cu_seqlens: np.ndarray  # (N + 1,) int64
    num_around: int

    def inside(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids without special tokens, and the index of the text of each."""
        texts = np.repeat(np.arange(len(self.cu_seqlens) - 1), np.diff(self.cu_seqlens))
        kept = np.ones(len(self.ids), np.bool_)
        if self.num_around:
            kept[self.cu_seqlens[:-1]] = kept[self.cu_seqlens[1:] - 1] = False
        return self.ids[kept], texts[kept]


class Tokens(Protocol):
    """Tokenizer of a static encoder."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Entries by id."""

    @property
    def unk_id(self) -> int:
        """The id of [UNK]; -1 without one."""

    def ids(self, texts: Sequence[str], first_index: int = 0) -> TokenIds:
        """The ids of texts; ``first_index`` is the index of the first text in errors."""

    def definition(self) -> str:
        """The content of a tokenizer.json."""

    def unknown_words(self, text: str, length: int) -> list[str]:
        """The words that are [UNK] among the first ``length`` tokens of a text; [] without whole words."""


@dataclass(frozen=True)
class EngineTokens:
    """The engine of a model, or that of whole words; special tokens in a text are treated as text.

    Attributes:
        content: the tokenizer.json that the engine was read from; "" to write one.
    """

    engine: Engine
    content: str = field(default="", repr=False)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.engine.vocabulary

    @property
    def unk_id(self) -> int:
        return self.vocabulary.id(name) if (name := self.vocabulary.special.unk) in self.vocabulary else -1

    def ids(self, texts: Sequence[str], first_index: int = 0) -> TokenIds:
        pieces = self.engine.tokenize(texts, first_index=first_index, with_spans=False, num_threads=num_threads())
        return TokenIds(pieces.input_ids, pieces.cu_seqlens, 1)

    def definition(self) -> str:
        if isinstance(self.engine, LibraryTokenizer):
            return self.engine.definition
        return self.content or json.dumps(tokenizer_json(self.engine), ensure_ascii=False)

    def unknown_words(self, text: str, length: int) -> list[str]:
        if isinstance(self.engine, LibraryTokenizer):
            return []
        pieces = self.engine.tokenize([text])
        assert pieces.spans is not None
        unknown = np.flatnonzero(pieces.input_ids[: 1 + length] == self.unk_id)  # after [CLS]
        return [text[start:end] for start, end, _ in pieces.spans[unknown].tolist()]


@dataclass(frozen=True)
class LibraryTokens:
    """Other kinds of ``tokenizer.json``, run by the tokenizers library."""

    content: str = field(repr=False)
    vocabulary: Vocabulary
    unk_id: int
    library: CachingLibrary = field(repr=False, compare=False)

    def unknown_words(self, text: str, length: int) -> list[str]:
        return []

    def ids(self, texts: Sequence[str], first_index: int = 0) -> TokenIds:
        ids, lengths, _ = zip(*encode_in_parts(self.library, texts, first_index, with_spans=False), strict=True)
        return TokenIds(np.concatenate(ids), np.cumsum(np.concatenate([[0], *lengths])), 0)

    def definition(self) -> str:
        return self.content


def whole_words(words: Sequence[str]) -> EngineTokens:
    """Tokenizer of whole words: splits at white space and punctuation as BERT does, and lowercases if no word has a
    capital letter; accents are kept."""
    lowercase = not any(word != word.lower() for word in words)
    taken = set(words)
    names = [name if name not in taken else HIDDEN + name for name in ("[UNK]", HIDDEN + "[CLS]", HIDDEN + "[SEP]")]
    special = SpecialTokens(unk=names[0], cls=names[1], sep=names[2])
    # An entry after "##" would be a piece of longer words.
    entries = [HIDDEN + word if word.startswith(CONTINUATION) else word for word in words]
    engine = WordPiece(Vocabulary((*entries, *names), special), Normalization(lowercase, strip_accents=False))
    return EngineTokens(engine)
