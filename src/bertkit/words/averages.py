"""Averages of token vectors: the compiled inner loop of static encoders."""

import numpy as np

from bertkit.compiled import lean


@lean
def average(ids, cu_seqlens, num_around, max_length, unk_id, skip_unknown, rows, weights, vectors, sums, counts):
    """Compute the average vector of each text; zeros for a text without vectors.

    Args:
        ids: (num_tokens,) int32, the tokens of N texts.
        cu_seqlens: (N + 1,) int64, first token of each text.
        num_around: number of special tokens at each end of a text, such as [CLS] and [SEP].
        max_length: maximum number of tokens of a text.
        unk_id: id of [UNK], -1 without one.
        skip_unknown: omit [UNK] from the average, as tokens without a row.
        rows: (vocab_size,) int32, row of the vector of each token, -1 without one.
        weights: (vocab_size,) float32, factors of the vectors.
        vectors: (num_rows, D) float32.
        sums: output, (N, D) float32 zeros.
        counts: output, (N, 3) int64 numbers of tokens read, of these without a vector, and of tokens cut.
    """
    dim = vectors.shape[1]
    for text in range(len(cu_seqlens) - 1):
        first, end = cu_seqlens[text] + num_around, cu_seqlens[text + 1] - num_around
        counts[text, 2] = max(end - first - max_length, 0)
        end = min(end, first + max_length)
        number = 0
        for at in range(first, end):
            token = ids[at]
            row = rows[token]
            if row < 0 or (skip_unknown and token == unk_id):
                continue
            weight = weights[token]
            for column in range(dim):
                sums[text, column] += weight * vectors[row, column]
            number += 1
        counts[text, 0], counts[text, 1] = end - first, end - first - number
        if number:
            scale = np.float32(1) / np.float32(number)
            for column in range(dim):
                sums[text, column] *= scale
