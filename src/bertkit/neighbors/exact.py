"""Exact nearest neighbors by dot product: every query against every corpus vector, in bounded memory."""

import numpy as np

from bertkit.errors import DataError, UsageError, checked_count

QUERIES_AT_ONCE = 1024
SCORES_AT_ONCE = 2**23  # 32 MiB of float32


def top_k(query_embeddings: np.ndarray, corpus_embeddings: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` corpus vectors with the largest dot product for every query; the cosine if vectors have length 1.

    Exact: num_queries x num_corpus x embedding_dim multiplications by BLAS, then a partition instead of a sort. The
    corpus is read in chunks, so a memory-mapped array may be larger than memory; the scores of one chunk take 32 MiB
    (more only if ``k`` itself is larger).

    Args:
        query_embeddings: (num_queries, embedding_dim), any float dtype.
        corpus_embeddings: (num_corpus, embedding_dim), any float dtype; halves are compared in float32.
        k: number of results; all of the corpus if it has fewer.

    Returns:
        Scores, (num_queries, min(k, num_corpus)) float32, or float64 if an input is; best first. Row numbers of
        ``corpus_embeddings``, the same shape, int64; of equal scores the lower number comes first and is kept.

    Raises:
        UsageError: incompatible shapes, or ``k`` below 1.
        DataError: a score that is not a number.
    """
    check_shapes(query_embeddings, corpus_embeddings, k)
    dtype = np.result_type(query_embeddings, corpus_embeddings, np.float32)
    shape = len(query_embeddings), min(k, len(corpus_embeddings))
    scores, corpus_ids = np.empty(shape, dtype), np.empty(shape, np.int64)
    for start in range(0, len(query_embeddings), QUERIES_AT_ONCE):
        queries = slice(start, start + QUERIES_AT_ONCE)
        scores[queries], corpus_ids[queries] = _top_k(query_embeddings[queries].astype(dtype), corpus_embeddings, k)
    return scores, corpus_ids


def check_shapes(query_embeddings: np.ndarray, corpus_embeddings: np.ndarray, k: int) -> None:
    """Check the arguments of `top_k`.

    Raises:
        UsageError: incompatible shapes, or ``k`` below 1.
    """
    if query_embeddings.ndim != 2 or corpus_embeddings.ndim != 2:
        raise UsageError(
            f"top_k: expected (num_queries, embedding_dim) and (num_corpus, embedding_dim), got shapes "
            f"{query_embeddings.shape} and {corpus_embeddings.shape}; for one query, pass query[None]"
        )
    if query_embeddings.shape[1] != corpus_embeddings.shape[1]:
        raise UsageError(
            f"top_k: queries have {query_embeddings.shape[1]} dimensions, the corpus {corpus_embeddings.shape[1]}: "
            "embed both with the same model"
        )
    checked_count("k", k)


def _top_k(queries: np.ndarray, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    best_scores = np.empty((len(queries), 0), queries.dtype)
    best_ids = np.empty((len(queries), 0), np.int64)
    rows_at_once = max(k, SCORES_AT_ONCE // len(queries))
    for start in range(0, len(corpus), rows_at_once):
        chunk = np.asarray(corpus[start : start + rows_at_once], queries.dtype)
        scores = queries @ chunk.T  # (Q, E) @ (E, rows) -> (Q, rows)
        if np.isnan(scores).any():
            raise DataError(f"top_k: a score against corpus rows {start} to {start + len(chunk) - 1} is not a number")
        columns = _columns_of_largest(scores, k)
        # Earlier chunks have lower ids and come first, so the stable sort keeps ties in order of ids.
        scores = np.concatenate([best_scores, np.take_along_axis(scores, columns, axis=1)], axis=1)
        ids = np.concatenate([best_ids, columns + start], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best_scores = np.take_along_axis(scores, order, axis=1)
        best_ids = np.take_along_axis(ids, order, axis=1)
    return best_scores, best_ids


def _columns_of_largest(scores: np.ndarray, k: int) -> np.ndarray:
    """(Q, n) -> (Q, min(k, n)): the columns of the largest scores, ascending; the first ones among equals at the
    boundary."""
    num_rows, num_columns = scores.shape
    k = min(k, num_columns)
    smallest_kept = np.partition(scores, num_columns - k, axis=1)[:, num_columns - k]
    kept = scores >= smallest_kept[:, None]
    surplus = np.count_nonzero(kept, axis=1) - k
    for row in np.flatnonzero(surplus):
        tied = np.flatnonzero(scores[row] == smallest_kept[row])
        kept[row, tied[-surplus[row] :]] = False
    return np.nonzero(kept)[1].reshape(num_rows, k)
