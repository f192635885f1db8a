"""Pooling: hidden states of tokens to one vector for each text.

A text may be encoded in several windows. Pooling therefore has two steps: `pool_windows` sums over the tokens that each
window owns, and `finish` turns the sums of all windows of a text into its vector, so that every token counts once.
Shape letters: T total_tokens, W windows (sequences of the batch), N texts, D width of the selected layers.
"""

from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import MissingHeadError, UsageError
from bertkit.heads.layer_selection import LayerSelection
from bertkit.later import Tensor, torch
from bertkit.transformer import EncoderOutput
from bertkit.transformer.kernels.arrays import Rows, as_given, library_of
from bertkit.transformer.kernels.inference import is_for_arrays

POOLINGS = ("mean", "cls", "max", "mean-sqrt-len", "weighted-mean", "last", "pooler")
"""Names of poolings:

- mean: of all tokens, [CLS] and [SEP] included (Reimers & Gurevych 2019)
- cls: the hidden state of [CLS]
- max: the largest value of each component over all tokens
- mean-sqrt-len: the sum over the square root of the number of tokens
- weighted-mean: tokens weighted by their position in the text, 1, 2, 3, ... (Muennighoff 2022)
- last: the hidden state of the last token, which is [SEP]
- pooler: tanh(dense([CLS])), the checkpoint's own pooler; last layer only

With cls, last and pooler, the vector of a long text is the mean over its windows. Names joined by "+", as in
"cls+mean", give concatenated vectors.
"""

_LAST = LayerSelection.parse("last")


def poolings_of(name: str) -> tuple[str, ...]:
    """Split a name such as "mean" or "cls+mean" into poolings.

    Raises:
        UsageError: an unknown or repeated pooling, or not a str.
    """
    names = tuple(name.split("+")) if isinstance(name, str) else ()
    if not names or len(set(names)) < len(names) or not set(names) <= set(POOLINGS):
        raise UsageError(f"pooling={name!r}: expected one of {', '.join(POOLINGS)}, or several as in cls+mean")
    return names


def pool_windows(
    pooling: str,
    layers: LayerSelection,
    encoded: EncoderOutput,
    batch: Batch,
    owned: Rows,
    num_before: Rows,
    skipped: Rows,
) -> tuple[Rows, Rows]:
    """Contribution of each window to the vector of its text, for one pooling.

    Args:
        encoded: the encoder's output for the W windows of ``batch``, with all hidden states unless ``layers.is_last``.
        owned: (W, 2) start and end of the tokens of each window that count.
        num_before: (W,) number of tokens of the text before the first one that counts.
        skipped: (W,) position in the window of the token used by "cls".

    Returns:
        (W, D) values and (W,) weights, to be summed over the windows of a text; for "max", the maximum of the values
        is taken instead.

    Raises:
        MissingHeadError: "pooler" for an encoder without one.
        UsageError: layers that the encoder lacks.
    """
    states: Any = layers.of(encoded)
    if pooling in ("cls", "last", "pooler"):
        if pooling == "pooler" and encoded.pooled is None:
            raise MissingHeadError("this model was saved without its pooler: choose another pooling")
        token = batch.first_tokens + skipped if pooling == "cls" else batch.cu_seqlens[1:] - 1
        values: Any = encoded.pooled if pooling == "pooler" else states[token]
        return values, library_of(values).ones_like(values[:, 0])
    if not isinstance(states, np.ndarray) and states.dtype != torch.float64:
        states = states.float()  # a sum in 16 bits, or a number of tokens above 256, would be rounded
    lengths = _numbers(owned[:, 1] - owned[:, 0], states)
    owned = batch.first_tokens[:, None] + owned  # in the packed row
    if pooling == "max":
        return _reduced(states, "max", owned), lengths
    if pooling == "weighted-mean":
        if isinstance(states, np.ndarray):
            tokens = np.arange(len(states))
            window = np.minimum(np.searchsorted(owned[:, 1], tokens, side="right"), len(owned) - 1)
        else:
            tokens = torch.arange(len(states), device=states.device)
            window = torch.searchsorted(owned[:, 1].contiguous(), tokens, right=True).clamp(max=len(owned) - 1)
        weights = _numbers(tokens + (num_before - owned[:, 0])[window] + 1, states)
        return _reduced(states * weights[:, None], "sum", owned), _reduced(weights, "sum", owned)
    return _reduced(states, "sum", owned), lengths


def _numbers(counts: Rows, states: Rows) -> Rows:
    """Integers in the dtype of hidden states."""
    return counts.astype(states.dtype) if isinstance(counts, np.ndarray) else counts.to(states.dtype)


def _reduced(values: Rows, reduce: str, owned: Rows) -> Rows:
    """The sum or maximum over the owned tokens of each window: (T, ...) to (W, ...).

    Tokens between them form segments too, so that no shape depends on numbers on a GPU, which would be waited for.
    """
    if isinstance(values, np.ndarray):
        combine, start = (np.maximum, -np.inf) if reduce == "max" else (np.add, 0)
        result = np.full((len(owned), *values.shape[1:]), start, values.dtype)
        has_tokens = owned[:, 1] > owned[:, 0]
        bounds = owned[has_tokens].ravel()
        bounds = bounds[: -1 if bounds[-1] == len(values) else None]
        result[has_tokens] = combine.reduceat(values, bounds)[::2]
        return result
    ends = torch.cat([owned.new_zeros(1), owned.flatten(), owned.new_full((1,), len(values))])
    lengths = ends.diff()
    if values.device.type == "mps":  # torch has no segment_reduce there
        return torch.segment_reduce(values.cpu(), reduce, lengths=lengths.cpu(), unsafe=True)[1::2].to(values.device)
    return torch.segment_reduce(values, reduce, lengths=lengths, unsafe=True)[1::2]


def finish(pooling: str, values: Tensor, weights: Tensor) -> Tensor:
    """(N, D) accumulated values and (N,) weights to the (N, D) vectors of the texts."""
    if pooling == "max":
        return values
    divisor = weights**0.5 if pooling == "mean-sqrt-len" else weights
    return values / divisor[:, None]


def sequence_vectors(pooling: str, encoded: EncoderOutput, batch: Batch) -> Tensor:
    """(W, D): the vector of each sequence, from the last layer, by one or several poolings; raises as
    `pool_windows`."""
    if is_for_arrays(encoded.last_hidden_state):
        vectors = sequence_vectors(pooling, encoded.as_arrays(), batch.as_arrays())
        return as_given(vectors, encoded.last_hidden_state)
    none, library = 0 * batch.first_tokens, library_of(batch.first_tokens)
    owned = library.stack([none, none + batch.cu_seqlens[1:] - batch.cu_seqlens[:-1]], 1)
    vectors = []
    for name in poolings_of(pooling):
        values, weights = pool_windows(name, _LAST, encoded, batch, owned, none, none)
        vectors.append(values if name in ("cls", "last", "pooler") else finish(name, values, weights))
    return vectors[0] if len(vectors) == 1 else library.concatenate(vectors, 1)
