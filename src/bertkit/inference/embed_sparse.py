"""Learned sparse vectors of texts (SPLADE): a weight for each entry of the vocabulary.

Formal et al. 2021, "SPLADE v2": log(1 + relu) of the masked LM logits, the maximum over the tokens of a text. Shape
letters: N texts, T tokens, V vocab_size.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bertkit.batch import Batch
from bertkit.checkpoint import SparseSettings
from bertkit.errors import UsageError
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner, encoded_chunks, refuse_windows, text_length
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.transformer.kernels.arrays import Rows, floats, library_of, split

_TEXTS_AT_A_TIME = 256  # dense rows are 120 KB each at a vocabulary of 30,000
_TOKENS_PER_BATCH_ON_GPU = 8_192  # their logits take 1 GB at a vocabulary of 30,000


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Nonzero weights of N texts, concatenated."""

    starts: np.ndarray  # (N + 1,) int64: first weight of each text
    token_ids: np.ndarray  # (n,) int32, ascending in each text
    weights: np.ndarray  # (n,) float32
    vocab_size: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def dense(self) -> np.ndarray:
        """(N, vocab_size) float32."""
        rows = np.zeros((len(self), self.vocab_size), np.float32)
        rows[np.repeat(np.arange(len(self)), np.diff(self.starts)), self.token_ids] = self.weights
        return rows

    def scores(self, queries: "SparseVectors") -> np.ndarray:
        """(Q, N) float32 inner products of each query with each of these vectors."""
        if queries.vocab_size != self.vocab_size:
            raise UsageError(f"vectors of {queries.vocab_size} entries cannot be compared with {self.vocab_size}")
        results = np.empty((len(queries), len(self)), np.float32)
        weights_of_query = np.zeros(self.vocab_size, np.float32)
        text_of = np.repeat(np.arange(len(self)), np.diff(self.starts))
        for number in range(len(queries)):
            part = slice(queries.starts[number], queries.starts[number + 1])
            weights_of_query[queries.token_ids[part]] = queries.weights[part]
            products = weights_of_query[self.token_ids] * self.weights
            results[number] = np.bincount(text_of, weights=products, minlength=len(self))
            weights_of_query[queries.token_ids[part]] = 0
        return results


def embed_sparse(
    runner: Runner,
    settings: SparseSettings,
    texts: Iterable[str],
    *,
    as_queries: bool = False,
    on_long: OnLong = "truncate",
    prompt: str = "",
    report: InferenceReport | None = None,
) -> SparseVectors:
    """Sparse vectors of texts; as `Model.embed_sparse`.

    Raises:
        OverLengthError: a text is too long under ``on_long="error"``.
        UsageError: ``on_long="window"``, a str or a table instead of texts, or a query with a token without weight.
    """
    refuse_windows(on_long, "vectors for a text")
    refuse_one_text(texts)
    seen = InferenceReport() if report is None else report
    counts, ids, weights = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    table = settings.query_weights if as_queries else None
    limits = (runner.tokenizer.model_max_length, settings.max_seq_length if table is None else None)
    longest = min([runner.max_positions, *(limit for limit in limits if limit is not None)])
    most = None if runner.device.type == "cpu" else _TOKENS_PER_BATCH_ON_GPU

    def encode(texts: list[str], first: int) -> Encodings:
        given = [prompt + text for text in texts] if prompt else texts
        encodings = runner.tokenizer.encode_batch(
            given, max_length=longest, on_long=on_long, first_index=first, with_offsets=False
        )
        return encodings.after_prompts(runner.tokenizer.num_known(prompt)) if prompt else encodings

    def forward(batch: Batch, indices: np.ndarray) -> Rows:
        logits = runner.network.head_logits("masked_lm", runner.encoder(batch), batch)
        return _pooled(floats(logits) if runner.device.type == "cpu" else logits.float(), batch, settings)

    coming = encoded_chunks(
        texts, encode, seen, num_characters=text_length, doing="embedding", unit="texts", most=_TEXTS_AT_A_TIME
    )
    for chunk, encodings, bar in coming:
        if table is None:
            rows = floats(runner.run(encodings, forward, tokens_per_batch=most))
        else:
            rows = _looked_up(encodings, table)
        if (kept := settings.max_active_dims or rows.shape[1]) < rows.shape[1]:
            np.put_along_axis(rows, np.argpartition(np.abs(rows), -kept)[:, :-kept], 0, 1)
        row_of, columns = np.nonzero(rows)
        counts.append(np.bincount(row_of, minlength=len(chunk)))
        ids.append(columns.astype(np.int32))
        weights.append(rows[row_of, columns])
        bar.update(len(chunk))
    if report is None:
        seen.warn("shorten them to encode them in full")
    return SparseVectors(
        np.concatenate(counts).cumsum(), np.concatenate(ids), np.concatenate(weights), runner.network.config.vocab_size
    )


def _looked_up(encodings: Encodings, weights: np.ndarray) -> np.ndarray:
    """(N, V) weights of the tokens of each query, without [CLS] and [SEP].

    Raises:
        UsageError: a token that the table lacks, as those added by `Model.extend_vocabulary`.
    """
    rows, kept = np.zeros((len(encodings), len(weights)), np.float32), ~encodings.special_tokens_mask
    ids, row_of = encodings.input_ids[kept], np.repeat(np.arange(len(encodings)), encodings.seqlens)[kept]
    if (ids >= len(weights)).any():
        raise UsageError(
            f"a query has the token {ids.max()}, and the model's table has weights of {len(weights)}: new words of an "
            "inference-free model have none"
        )
    rows[row_of, ids] = weights[ids]
    return rows


def _pooled(logits: Rows, batch: Batch, settings: SparseSettings) -> Rows:
    """(T, V) logits to (N, V) weights."""
    library, parts = library_of(logits), split(logits, batch.seqlens)
    if settings.pooling == "max":  # which commutes with what follows
        return _activated(library.stack([library.amax(part, 0) for part in parts]), settings)
    return library.stack([library.sum(_activated(part, settings), 0) for part in parts])


def _activated(logits: Rows, settings: SparseSettings) -> Rows:
    library = library_of(logits)
    weights = library.log1p(library.clip(logits, 0, None))
    return library.log1p(weights) if settings.log_twice else weights
