"""Static encoders: a text vector is the average of token vectors that do not depend on context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from bertkit.checkpoint import SentenceSettings
from bertkit.device import device_of
from bertkit.errors import OverLengthError, UnknownWordsWarning, UsageError, check_type, checked_path, warn
from bertkit.executor import executor, map_on_cores
from bertkit.inference import EmbedOptions, InferenceReport
from bertkit.inference.embed import kept_components, prompt_of
from bertkit.inference.runner import bar_of, chunks, text_length
from bertkit.later import torch
from bertkit.tokenizer.tokenizer import as_items, refuse_one_text
from bertkit.words.averages import average
from bertkit.words.finite import row_not_finite
from bertkit.words.ngrams import ngram_rows
from bertkit.words.tokens import TokenIds, Tokens

Weighting = Literal["plain", "sif", "idf"]
_NO_LIMIT = 1 << 40
_SIF = 1e-4  # Arora et al. 2017, section 3: between 1e-3 and 1e-4


@dataclass(frozen=True, eq=False)
class StaticEncoder:
    """A static encoder of word vectors, or of token vectors from sentence-transformers or model2vec.

    It has the embedding interface of `Model`, for search, evaluation and features. N vectors of D components, V tokens.

    Attributes:
        tokens: tokenizer of texts to ids.
        vectors: (N, D) float32.
        rows: (V,) int32, index of the vector of each token, -1 without one.
        weights: (V,) float32, factor of the vector of each token in averages.
        settings: normalization and prompts, as in a sentence encoder.
        skip_unknown: omit [UNK] from averages, as model2vec does; sentence-transformers includes its vector.
        max_length: maximum number of tokens of a text to average; None: all.
        max_characters: maximum number of characters of a text to read; None: all.
        ngrams: (num_ngrams, D) float32 vectors of character n-grams for unknown words; or None.
    """

    tokens: Tokens
    vectors: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    settings: SentenceSettings = field(default_factory=SentenceSettings)
    skip_unknown: bool = True
    max_length: int | None = None
    max_characters: int | None = None
    ngrams: np.ndarray | None = field(default=None, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> StaticEncoder:
        """Open word vectors.

        Args:
            path: a file of word2vec (text or binary), GloVe or fastText (``.vec``); the folder of a spaCy pipeline, of
                a sentence-transformers ``StaticEmbedding`` or of model2vec, also by the import name of its package or
                its name on the hub.

        Raises:
            DataError: a line with a wrong number of columns, NaN, no words, another kind of file.
            CheckpointError: no such folder, or one that cannot be read.
        """
        from bertkit.words.opening import open_static

        return open_static(path)

    @classmethod
    def of_words(cls, words: Sequence[str], vectors: np.ndarray, rows: np.ndarray | None = None) -> StaticEncoder:
        """Create an encoder from words and (num_words, D) vectors; with (num_words,) ``rows`` words may share vectors.

        Args:
            rows: index of the vector of each word, negative without one; None: the vectors are those of the words.

        Raises:
            UsageError: no words, a repeated word, a str as the words, different numbers of words and vectors, NaN or
                infinity, or a row that is not the index of a vector.
        """
        from bertkit.words.opening import of_words

        encoder = of_words(words, vectors, rows)
        if (row := row_not_finite(encoder.vectors)) is not None:
            raise UsageError(f"vector {row}: a number is NaN or infinite; correct it, or remove the word")
        return encoder

    @property
    def precision(self) -> str:
        """ "float32", the stored precision."""
        return "float32"

    @property
    def precision_reason(self) -> str:
        """Empty: no precision is chosen by trial."""
        return ""

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return device_of(self.vectors)

    @property
    def sentence_settings(self) -> SentenceSettings:
        """Normalization and prompts as published."""
        return self.settings

    @property
    def embedding_dim(self) -> int:
        """Number of components of a vector."""
        return self.vectors.shape[1]

    def __repr__(self) -> str:
        return f"StaticEncoder({int((self.rows >= 0).sum())} tokens, {self.embedding_dim} dimensions)"

    @cached_property
    def words(self) -> list[str]:
        """The tokens that have a vector, in the order of their ids."""
        entries = self.tokens.vocabulary.tokens
        return [entries[token].removeprefix("\uffff") for token in np.flatnonzero(self.rows >= 0).tolist()]

    @cached_property
    def _word_ids(self) -> dict[str, int]:
        return dict(zip(self.words, np.flatnonzero(self.rows >= 0).tolist(), strict=True))

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find_row(word) >= 0

    def find_row(self, word: str) -> int:
        """The row of ``vectors`` for a word as given, else lowercased, else as the tokenizer reads it: that of many
        models removes accents. -1 without one."""
        for spelling in (word, word.lower()):
            if spelling in self._word_ids:
                return int(self.rows[self._word_ids[spelling]])
        ids, _ = self.tokens.ids([word]).inside()
        return int(self.rows[ids[0]]) if len(ids) == 1 and ids[0] != self.tokens.unk_id else -1

    def row_of(self, word: str) -> int:
        """As `find_row`, for a word that has a vector.

        Raises:
            UsageError: it has no vector, or is no str.
        """
        check_type("a word", word, str)
        row = self.find_row(word)
        if row < 0:
            raise UsageError(f"{word!r} has no vector among the {len(self._word_ids):,} words: give another word")
        return row

    def vector(self, word: str) -> np.ndarray:
        """(D,) float32 vector of a word, without its weight.

        With n-grams, the vector of an unknown word is the mean of its n-gram vectors.

        Raises:
            UsageError: it has no vector.
        """
        check_type("a word", word, str)
        if self.ngrams is not None and word not in self:
            return self.ngrams[ngram_rows(word.lower(), len(self.ngrams))].mean(axis=0)
        return self.vectors[self.row_of(word)].copy()

    @overload
    def similarity(self, a: str, b: str) -> float: ...
    @overload
    def similarity(self, a: Sequence[str], b: Sequence[str]) -> np.ndarray: ...
    def similarity(self, a: Any, b: Any) -> Any:
        """The cosine of two texts, or (len(a), len(b)) float32 cosines of two lists; 0 without known words."""
        first = self.embed(as_items(a), normalize=True)
        second = self.embed(as_items(b), normalize=True)
        scores = first @ second.T
        return float(scores[0, 0]) if isinstance(a, str) and isinstance(b, str) else scores

    def embed(self, texts: str | Iterable[str], *, report: InferenceReport | None = None, **options: Any) -> np.ndarray:
        """Texts to vectors, as `Model.embed`.

        Args:
            texts: any iterable of str, or one str.
            report: filled with the numbers of tokens, unknown tokens, texts without a known token (``num_empty``) and
                cut texts. Without it, unknown words emit an UnknownWordsWarning, and cuts a TruncationWarning.
            options: fields of `EmbedOptions`: normalize, dimensions, prompt, prompt_name, max_length, on_long ("window"
                includes all tokens, also beyond max_length), progress.

        Returns:
            (num_texts, D) float32; (D,) for one str. Zeros for a text without a known word.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            UsageError: an option that is unknown or does not apply.
        """
        counts = InferenceReport() if report is None else report
        parts = [vectors for _, vectors in self.embed_stream(as_items(texts), report=counts, **options)]
        width = min(width or self.embedding_dim for width in kept_components(EmbedOptions.of(**options), self.settings))
        vectors = np.concatenate(parts) if parts else np.empty((0, width), np.float32)
        if report is None:
            counts.warn_of_cuts("choose on_long='window' to include all tokens")
            if counts.num_unknown:
                warn(
                    f"{counts.num_unknown} of {counts.num_tokens} tokens have no vector and were skipped in the "
                    "averages",
                    UnknownWordsWarning,
                )
        return vectors[0] if isinstance(texts, str) else vectors

    def embed_stream(
        self, texts: Iterable[str], *, report: InferenceReport, **options: Any
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """`embed` in bounded memory: yields a few thousand texts at a time with their (n, D) vectors, in order."""
        chosen = self._options(options)
        with bar_of(texts, "embedding", "texts", chosen.progress) as bar:
            for chunk in chunks(texts, text_length):
                yield chunk, self._embed_chunk(chunk, chosen, report)
                bar.update(len(chunk))

    def weighted(self, by: Weighting, texts: Iterable[str] | None = None, *, smoothing: float = _SIF) -> StaticEncoder:
        """The encoder with other token weights.

        Args:
            by: "plain", all 1; "sif", smoothing / (smoothing + p) with the probability p of a token (Arora et al.
                2017, without the removal of the common component); "idf", log((1 + N) / (1 + n)) + 1 for n of N texts
                that contain it.
            texts: texts for counting tokens. Without it, "sif" assumes tokens in order of frequency, as in files of
                word vectors and published vocabularies, with probabilities proportional to 1 / rank (Zipf).
            smoothing: the constant of "sif", above 0.

        Raises:
            UsageError: "idf" without texts, another name, a str or a table instead of texts, or a smoothing that is not
                above 0 and finite.
        """
        num_tokens = len(self.rows)
        if by == "plain":
            return replace(self, weights=np.ones(num_tokens, np.float32))
        if by not in ("sif", "idf"):
            raise UsageError(f"weighted({by!r}): expected 'plain', 'sif' or 'idf'")
        if not 0 < smoothing < np.inf:
            raise UsageError(f"smoothing={smoothing!r}: expected a finite number above 0, such as {_SIF}")
        if texts is None and by == "idf":
            raise UsageError("weighted('idf') counts the texts that contain each token: pass texts")
        counts, in_texts, num_texts = np.zeros(num_tokens, np.int64), np.zeros(num_tokens, np.int64), 0
        if texts is None:
            share = 1 / np.arange(2.0, num_tokens + 2)
        else:
            refuse_one_text(texts)
            for chunk in chunks(texts, text_length):
                ids, number = self.tokens.ids(chunk, num_texts).inside()
                counts += np.bincount(ids, minlength=num_tokens)
                pairs = np.unique(number * num_tokens + ids)
                in_texts += np.bincount(pairs % num_tokens, minlength=num_tokens)
                num_texts += len(chunk)
            share = counts.astype(np.float64)
        if by == "idf":
            weights = np.log((1 + num_texts) / (1 + in_texts)) + 1
        else:
            weights = smoothing / (smoothing + share / max(share.sum(), 1e-300))
        return replace(self, weights=weights.astype(np.float32))

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder that sentence-transformers opens as a ``StaticEmbedding``, atomically.

        Weights are multiplied into the vectors. Unknown words get a zero vector, which changes the length of averages
        but not their cosines.

        Raises:
            UsageError: it exists and is not empty, unless ``overwrite``.
        """
        from bertkit.words.static_folder import write_static_folder

        write_static_folder(self, checked_path("the folder to write", directory), overwrite=overwrite)

    def _options(self, options: dict[str, Any]) -> EmbedOptions:
        chosen, default = EmbedOptions.of(**options), EmbedOptions()
        for name in ("pooling", "layers", "stride"):
            if getattr(chosen, name) not in (getattr(default, name), "mean" if name == "pooling" else None):
                raise UsageError(f"{name}={getattr(chosen, name)!r}: a static encoder averages its vectors; omit it")
        if chosen.dimensions is not None and chosen.dimensions > self.embedding_dim:
            raise UsageError(f"dimensions={chosen.dimensions}: these vectors have {self.embedding_dim}")
        return chosen

    def _embed_chunk(self, texts: list[str], options: EmbedOptions, report: InferenceReport) -> np.ndarray:
        prompt = prompt_of(options, self.settings)
        max_length = options.max_length or self.max_length or _NO_LIMIT
        whole = options.on_long == "window"
        given = [prompt + text for text in texts] if prompt else texts
        limit = None if whole or options.on_long == "error" else self.max_characters
        read = given if limit is None else [text[:limit] for text in given]
        tokens = self.tokens.ids(read, report.num_texts)
        sums, counts = self.average(tokens, _NO_LIMIT if whole else max_length)
        shorter = [index for index in range(len(texts)) if len(read[index]) < len(given[index])]
        if shorter:  # also count tokens beyond max_characters
            lengths = np.diff(self.tokens.ids([given[index] for index in shorter]).cu_seqlens) - 2 * tokens.num_around
            counts[shorter, 2] = lengths - counts[shorter, 0]
        if self.ngrams is not None:
            self._add_unknown(read, sums, counts)
        cut = np.flatnonzero(counts[:, 2])
        if len(cut) and options.on_long == "error":
            index = report.num_texts + int(cut[0])
            problem = f"has {int(counts[cut[0]].sum() - counts[cut[0], 1])} tokens, more than the {max_length} read"
            remedy = "choose on_long='truncate' or on_long='window'"
            raise OverLengthError(f"text {index} {problem}: {remedy}", index, problem)
        report.num_texts += len(texts)
        report.num_tokens += int(counts[:, 0].sum())
        report.num_unknown += int(counts[:, 1].sum())
        report.num_empty += int((counts[:, 0] - counts[:, 1] == self._num_known(prompt)).sum())
        report.num_texts_cut += len(cut)
        report.num_tokens_cut += int(counts[:, 2].sum())
        before, after = kept_components(options, self.settings)
        vectors = sums[:, :before]
        if self.settings.normalize if options.normalize is None else options.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return np.ascontiguousarray(vectors[:, :after])

    def _num_known(self, prompt: str) -> int:
        """Number of tokens of a prompt with a vector."""
        if not prompt:
            return 0
        sums, counts = self.average(self.tokens.ids([prompt]))
        if self.ngrams is not None:
            self._add_unknown([prompt], sums, counts)
        return int(counts[0, 0] - counts[0, 1])

    def _add_unknown(self, texts: list[str], sums: np.ndarray, counts: np.ndarray) -> None:
        """Add the n-gram vectors of unknown words to the averages."""
        for text in np.flatnonzero(counts[:, 1]).tolist():
            words = self.tokens.unknown_words(texts[text], int(counts[text, 0]))
            if words:
                known = int(counts[text, 0] - counts[text, 1])
                added = np.sum([self.vector(word) for word in words], axis=0)
                sums[text] = (sums[text] * known + added) / (known + len(words))
                counts[text, 1] -= len(words)

    def average(self, tokens: TokenIds, max_length: int = _NO_LIMIT) -> tuple[np.ndarray, np.ndarray]:
        """(N, D) float32 averages of the vectors of N texts, and (N, 3) int64 tokens read, unknown, cut."""
        num_texts = len(tokens.cu_seqlens) - 1
        sums, counts = np.zeros((num_texts, self.embedding_dim), np.float32), np.empty((num_texts, 3), np.int64)
        edges = np.linspace(0, num_texts, min(4 * executor().num_threads, max(num_texts // 64, 1)) + 1).astype(int)

        def work(part: int) -> None:
            first, last = int(edges[part]), int(edges[part + 1])
            average(
                tokens.ids, tokens.cu_seqlens[first : last + 1], tokens.num_around, max_length, self.tokens.unk_id,
                self.skip_unknown, self.rows, self.weights, self.vectors, sums[first:last], counts[first:last],
            )  # fmt: skip

        list(map_on_cores(work, range(len(edges) - 1)))
        return sums, counts
