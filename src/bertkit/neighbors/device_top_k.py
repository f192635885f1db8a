"""Exact nearest neighbors by dot product on a GPU, with the contract of `bertkit.neighbors.top_k`.

torch.topk does not define which of equal scores it returns. Therefore some more than ``k`` are computed and ordered by
score and id: if the last of them is below the k-th, all that equal the k-th are among them; if not, numpy computes the
query again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bertkit.device import full_float32, receive, send
from bertkit.errors import DataError
from bertkit.later import Tensor, torch
from bertkit.neighbors.device_rows import DeviceRows, as_integers, largest, queries_at_once
from bertkit.neighbors.exact import check_shapes, top_k

SPARE = 64
"""Number of scores in addition to ``k``."""
_DTYPES = {"mps": (np.float32,)}


class Corpus:
    """Vectors that are compared with the queries of one or more calls, on a device.

    A GPU keeps them between the calls if they take at most a third of its free memory; if not, they are sent in chunks
    for every 1,024 queries, and may be larger than its memory.

    Args:
        embeddings: as in `bertkit.neighbors.top_k`.
        device: on the CPU numpy computes the scores; also those in dtypes that the device lacks, as MPS float64.
    """

    def __init__(self, embeddings: np.ndarray, device: torch.device) -> None:
        self._embeddings = embeddings
        self._rows = None if device.type == "cpu" else DeviceRows(device)

    def top_k(self, query_embeddings: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As `bertkit.neighbors.top_k`."""
        dtype = np.result_type(query_embeddings, self._embeddings, np.float32)
        if self._rows is None or dtype not in _DTYPES.get(self._rows.device.type, (np.float32, np.float64)):
            return top_k(query_embeddings, self._embeddings, k)
        return device_top_k(query_embeddings, self._embeddings, k, self._rows)


def device_top_k(
    query_embeddings: np.ndarray, corpus_embeddings: np.ndarray, k: int, rows: DeviceRows
) -> tuple[np.ndarray, np.ndarray]:
    """As `bertkit.neighbors.top_k`, on a device. Nothing waits for it before the results of 1,024 queries are copied.

    Args:
        rows: for this corpus alone.
    """
    check_shapes(query_embeddings, corpus_embeddings, k)
    dtype = np.result_type(query_embeddings, corpus_embeddings, np.float32)
    k = min(k, len(corpus_embeddings))
    scores = np.empty((len(query_embeddings), k), dtype)
    corpus_ids = np.empty(scores.shape, np.int64)
    if scores.size == 0:
        return scores, corpus_ids
    corpus = corpus_embeddings.astype(np.result_type(corpus_embeddings, np.float16), copy=False)
    number = min(k + SPARE, len(corpus))
    at_once = queries_at_once(number)
    for start in range(0, len(scores), at_once):
        part = slice(start, start + at_once)
        queries = query_embeddings[part].astype(dtype)
        packed = receive(_computed(queries, corpus, number, rows))().numpy()
        if packed[:, -1].any():
            raise DataError(f"top_k: a score of query {start + packed[:, -1].argmax()} is not a number")
        values = packed[:, :number].astype(f"i{dtype.itemsize}").view(dtype)
        scores[part], corpus_ids[part] = values[:, :k], packed[:, number : number + k]
        tied = np.flatnonzero((values[:, k - 1] == values[:, -1]) & (number < len(corpus)))
        if len(tied):
            scores[start + tied], corpus_ids[start + tied] = top_k(queries[tied], corpus, k)
    return scores, corpus_ids


def _computed(queries: np.ndarray, corpus: np.ndarray, number: int, rows: DeviceRows) -> Tensor:
    """(num_queries, 2 * number + 1) int64: scores, best first, as bits; their ids; whether a score is not a number."""
    sent = send(torch.from_numpy(queries), rows.device)
    is_wrong = torch.zeros(len(queries), dtype=torch.bool, device=rows.device)

    def products() -> Iterator[Tensor]:
        for part in rows.parts(corpus, len(queries)):
            with full_float32():
                scores = sent @ part.to(sent.dtype).T  # (Q, E) @ (E, n) -> (Q, n)
            is_wrong.logical_or_(scores.isnan().any(1))
            yield scores

    scores, ids = largest(products(), number)
    ids, order = ids.sort(dim=1)
    scores, order = (scores.gather(1, order) + 0.0).sort(dim=1, descending=True, stable=True)  # -0.0 equals 0.0
    return as_integers(scores, ids.gather(1, order), is_wrong[:, None])
