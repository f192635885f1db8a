"""Basic tokenization and WordPiece over a vocabulary (Devlin et al. 2018, section 3; Wu et al. 2016, section 4.1).

Basic tokenization drops control characters, turns every kind of white space into a space, puts spaces around CJK
characters, for uncased vocabularies decomposes (NFD), drops accents and lower-cases, and splits at white space and
punctuation. WordPiece then takes the longest entry that starts the word, repeatedly; a word that cannot be
split, or is longer than 100 characters, becomes [UNK] as a whole.

This file hands texts to the compiled engine: bytes in, arrays out, on several threads for large inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.tokenizer.added_tokens import NO_MARKS, AddedToken, Finder
from bertkit.tokenizer.characters import Characters, load_characters
from bertkit.tokenizer.encoding import Pieces
from bertkit.tokenizer.engine import tokenize
from bertkit.tokenizer.layout import BERT_PAIRS, PairTemplate
from bertkit.tokenizer.matching import build_trie
from bertkit.tokenizer.normal_text import normalize_texts
from bertkit.tokenizer.parts import Joined, Room, borders, in_order
from bertkit.tokenizer.vocabulary import Vocabulary
from bertkit.tokenizer.workspaces import CACHE_BYTES, Workspaces, num_processors

MAX_CHARACTERS_PER_WORD = 100


@dataclass(frozen=True)
class Normalization:
    """Text normalization before splitting. Defaults are those of an uncased BERT."""

    lowercase: bool = True
    strip_accents: bool | None = None  # None: as lowercase
    split_cjk: bool = True  # each CJK character becomes a word

    def characters(self) -> Characters:
        strip_accents = self.lowercase if self.strip_accents is None else self.strip_accents
        return load_characters(self.lowercase, strip_accents, self.split_cjk)


class _Part(NamedTuple):
    """Some texts, for one thread; arrays as engine.py describes them."""

    data: np.ndarray  # (num_bytes,) uint8
    bounds: np.ndarray  # (num_texts + 1,) int64
    marks: np.ndarray  # (num_marks + 1, 3) int64
    characters: Characters


@dataclass(frozen=True)
class WordPiece:
    """WordPiece tokenizing engine of one vocabulary; threads may share it.

    ``added_tokens`` are matched as whole words before anything else. The last ``num_added`` entries of the vocabulary
    are only added tokens: words are never split into them.
    """

    vocabulary: Vocabulary
    normalization: Normalization = Normalization()
    added_tokens: tuple[AddedToken, ...] = ()
    max_characters_per_word: int = MAX_CHARACTERS_PER_WORD
    template: PairTemplate = BERT_PAIRS
    num_added: int = 0

    @property
    def pieces(self) -> tuple[str, ...]:
        """The entries that words are split into, by id."""
        return self.vocabulary.tokens[: len(self.vocabulary) - self.num_added]

    def tokenize(
        self,
        texts: Sequence[str],
        *,
        special_tokens_in_text: bool = False,
        first_index: int = 0,
        with_spans: bool = True,
        num_threads: int | None = None,
    ) -> Pieces:
        """Tokenize texts, with [CLS] and [SEP] around each.

        A literal "[MASK]" in a text is that special token only if ``special_tokens_in_text``; otherwise it is text.

        Args:
            first_index: index of the first text in errors.
            with_spans: compute the span of each token in its text.
            num_threads: maximum number of threads; None: one for each processor.

        Raises:
            UsageError: a text that is not a str.
            DataError: a str that is not valid Unicode (an unpaired surrogate).
        """
        texts = list(texts)
        raw, normalized = self._special_finders if special_tokens_in_text else self._finders
        try:
            num_characters = np.fromiter(map(len, texts), np.int64, len(texts))
        except TypeError:
            explain_bad_text(texts, first_index)
            raise

        def part(first: int, last: int) -> _Part:
            try:
                encoded = list(map(str.encode, texts[first:last]))
            except (TypeError, UnicodeEncodeError):
                explain_bad_text(texts[first:last], first_index + first)
                raise
            bounds = _starts(np.fromiter(map(len, encoded), np.int64, len(encoded)))
            data = b"".join(encoded)
            return _Part(np.frombuffer(data, np.uint8), bounds, raw.marks(data, bounds), self._characters)

        return self._tokenize_parts(part, borders(_starts(num_characters)), with_spans, num_threads, normalized)[0]

    def tokenize_bytes(
        self, data: np.ndarray, bounds: np.ndarray, *, with_spans: bool = True, num_threads: int | None = None
    ) -> tuple[Pieces, np.ndarray]:
        """Tokenize texts in one array of bytes, such as a memory-mapped file, without special tokens in texts.

        Bytes that are not UTF-8 become replacement characters, as with Python's ``errors="replace"``, which cleaning
        removes.

        Args:
            data: (num_bytes,) uint8.
            bounds: (num_texts + 1,) int64, first byte of each text; texts are contiguous.
            with_spans: compute the span of each token in its text.
            num_threads: maximum number of threads; None: one for each processor.

        Returns:
            The tokens, and (num_texts,) int64 number of runs of bytes of each text that are not UTF-8.
        """
        data = np.ascontiguousarray(data, np.uint8).view()
        data.setflags(write=False)  # like that of str, so that code is compiled once
        bounds = np.array(bounds, np.int64)

        def part(first: int, last: int) -> _Part:
            return _Part(data, bounds[first : last + 1], NO_MARKS, self._characters)

        return self._tokenize_parts(part, borders(bounds), with_spans, num_threads, None)

    def normalize(self, text: str) -> str:
        """The text before splitting: cleaned, and for an uncased vocabulary lowercased without accents."""
        data = text.encode()
        bounds = np.array([0, len(data)])
        return normalize_texts(np.frombuffer(data, np.uint8), bounds, NO_MARKS, self._characters).data.decode()

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Pieces joined to words and words to text, as in the published decoder."""
        tokens = [self.vocabulary.token(token_id) for token_id in ids]
        if skip_special_tokens:
            special = {token.content for token in self.added_tokens if token.special}
            special |= set(self.vocabulary.special.spellings())
            tokens = [token for token in tokens if token not in special]
        return join_pieces(tokens)

    def __getstate__(self) -> dict[str, Any]:
        """The state without lazily built members, some of which belong to one process."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _tokenize_parts(
        self,
        part: Callable[[int, int], _Part],
        borders: list[int],
        with_spans: bool,
        num_threads: int | None,
        normalized: Finder | None,
    ) -> tuple[Pieces, np.ndarray]:
        """The tokens of the texts between consecutive borders, one thread each, concatenated as they arrive."""

        def work(first: int, last: int, room: Room) -> tuple[np.ndarray, ...]:
            if normalized:
                return self._tokenize_normalized(part(first, last), normalized, room)
            return self._tokenize_part(part(first, last), with_spans, self._workspaces, room)

        num_parts = len(borders) - 1
        num_threads = min(num_threads or num_processors(), num_parts) if num_parts > 1 else 1
        cu_seqlens, num_invalid = np.empty(borders[-1] + 1, np.int64), np.empty(borders[-1], np.int64)
        input_ids, spans = Joined(num_parts), Joined(num_parts, (3,))
        results = in_order(work, borders, num_threads)
        for (first, last), (ids, spans_of_part, texts) in zip(pairwise(borders), results, strict=True):
            cu_seqlens[first:last] = texts[:-1, 0] + input_ids.length
            num_invalid[first:last] = texts[:-1, 1]
            input_ids.append(ids)
            if with_spans:
                spans.append(spans_of_part)
        cu_seqlens[-1] = input_ids.length
        return Pieces(input_ids.whole(), cu_seqlens, spans.whole() if with_spans else None), num_invalid

    def _tokenize_part(
        self, part: _Part, with_spans: bool, workspaces: Workspaces, room: Room
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One call of the engine: its ids, spans and texts, which are in ``room``."""
        data, bounds, marks, characters = part
        ids, spans = room.arrays(int(bounds[-1] - bounds[0]) + 2 * (len(bounds) - 1), with_spans)
        texts = np.empty((len(bounds), 2), np.int64)
        pages, forms, form_letters, _, first_other = characters
        with workspaces.lend() as workspace:
            while True:
                num_pieces = tokenize(
                    data, bounds, marks, pages, forms, form_letters, first_other, self._trie, *self._special_ids,
                    workspace.cache, workspace.normal, workspace.word, ids, spans, texts,
                )  # fmt: skip
                if num_pieces >= 0:
                    break
                workspace.normal = np.empty((4 * len(workspace.normal), 4), np.int64)
            workspace.shrink()
        return ids[:num_pieces], spans[:num_pieces], texts

    def _tokenize_normalized(
        self, part: _Part, finder: Finder, room: Room
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `_tokenize_part`, with added tokens matched after normalization: texts are normalized first, and the
        engine gets normalized text. Spans are mapped back to the original text."""
        normal = normalize_texts(*part)
        marks = np.concatenate([normal.marks[:-1], finder.marks(normal.data, normal.bounds)])
        data, marks = np.frombuffer(normal.data, np.uint8), marks[np.argsort(marks[:, 0])]
        part = _Part(data, normal.bounds, marks, load_characters(None, None, split_cjk=False))
        ids, spans, texts = self._tokenize_part(part, True, self._workspaces_of_normal_text, room)
        inside = np.flatnonzero(spans[:, 2] >= 0)  # not [CLS] and [SEP]
        first_characters = np.repeat(normal.first_characters[:-1], np.diff(texts[:, 0]))[inside]
        spans[inside, 0] = normal.offsets[first_characters + spans[inside, 0], 0]
        spans[inside, 1] = normal.offsets[first_characters + spans[inside, 1] - 1, 1]
        return ids, spans, texts

    @cached_property
    def _characters(self) -> Characters:
        return self.normalization.characters()

    @cached_property
    def _trie(self) -> np.ndarray:
        return build_trie(self.pieces)

    @cached_property
    def _special_ids(self) -> tuple[int, int, int]:
        """Ids of [UNK], [CLS] and [SEP]."""
        names = self.vocabulary.special
        return self.vocabulary.id(names.unk), self.vocabulary.id(names.cls), self.vocabulary.id(names.sep)

    @cached_property
    def _workspaces(self) -> Workspaces:
        return Workspaces(self.max_characters_per_word, CACHE_BYTES // 2 if self._special_finders[1] else CACHE_BYTES)

    @cached_property
    def _workspaces_of_normal_text(self) -> Workspaces:
        """Separate workspaces, as the same run may have other pieces there."""
        return Workspaces(self.max_characters_per_word, CACHE_BYTES // 2)

    @cached_property
    def _finders(self) -> tuple[Finder, Finder]:
        """Finders of added tokens that match in every text: before and after normalization."""
        roles = self.vocabulary.special.spellings()
        return self._make_finders(
            [token for token in self.added_tokens if not token.special or token.content not in roles]
        )

    @cached_property
    def _special_finders(self) -> tuple[Finder, Finder]:
        """The same, including special tokens."""
        stated = {token.content for token in self.added_tokens}  # with flags
        present = [t for t in self.vocabulary.special.spellings() if t in self.vocabulary and t not in stated]
        named = [AddedToken(token, normalized=False, special=True) for token in present]
        return self._make_finders([*named, *self.added_tokens])

    def _make_finders(self, tokens: Sequence[AddedToken]) -> tuple[Finder, Finder]:
        def finder(normalized: bool, spell: Callable[[str], str]) -> Finder:
            chosen = [token for token in tokens if token.normalized == normalized]
            return Finder(chosen, [self.vocabulary.id(token.content) for token in chosen], spell)

        return finder(False, str), finder(True, self.normalize)


def join_pieces(tokens: Sequence[str]) -> str:
    """Text from pieces: continuations are joined to their word, and so is English punctuation
    (``tokenizers``' decoders::wordpiece with ``cleanup``)."""
    joined = []
    for position, token in enumerate(tokens):
        if position:
            token = token[2:] if token.startswith("##") else " " + token
        for apart, together in _CLEANUP:
            token = token.replace(apart, together)
        joined.append(token)
    return "".join(joined)


_CLEANUP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def _starts(lengths: np.ndarray) -> np.ndarray:
    """(n + 1,) int64: the start of each byte or character, and the end of the last."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def explain_bad_text(texts: Sequence[str], first_index: int) -> None:
    """Raise UsageError or DataError for the first text that is not a str or not valid Unicode."""
    for index, text in enumerate(texts, start=first_index):
        if not isinstance(text, str):
            raise UsageError(f"text {index} is {type(text).__name__} ({text!r:.40}): expected str") from None
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {index} is not valid Unicode: it has an unpaired surrogate at character {error.start}; decode "
                "the original bytes with errors='replace'"
            ) from None
