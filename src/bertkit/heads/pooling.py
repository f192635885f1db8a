"""Pooling: hidden states of tokens to one vector for each text.

A text may be encoded in several windows. Pooling therefore has two steps: `pool_windows` sums over the tokens that each
window owns, and `finish` turns the sums of all windows of a text into its vector, so that every token counts once.
Shape letters: T total_tokens, W windows (sequences of the batch), N texts, D width of the selected layers.
"""

import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.errors import MissingHeadError, UsageError
from bertkit.heads.layer_selection import LayerSelection
from bertkit.transformer import EncoderOutput

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
    owned: Tensor,
    num_before: Tensor,
    skipped: Tensor,
) -> tuple[Tensor, Tensor]:
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
    states = layers.of(encoded)
    if pooling == "cls":
        return states[batch.first_tokens + skipped], states.new_ones(len(owned))
    if pooling == "last":
        return states[batch.cu_seqlens[1:].long() - 1], states.new_ones(len(owned))
    if pooling == "pooler":
        if encoded.pooled is None:
            raise MissingHeadError("this model was saved without its pooler: choose another pooling")
        return encoded.pooled, states.new_ones(len(owned))
    if states.dtype != torch.float64:
        states = states.float()  # a sum in 16 bits, or a number of tokens above 256, would be rounded
    lengths = (owned[:, 1] - owned[:, 0]).to(states.dtype)
    owned = batch.first_tokens[:, None] + owned  # in the packed row
    if pooling == "max":
        return _reduced(states, "max", owned), lengths
    if pooling == "weighted-mean":
        tokens = torch.arange(len(states), device=states.device)
        window = torch.searchsorted(owned[:, 1].contiguous(), tokens, right=True).clamp(max=len(owned) - 1)
        weights = (tokens + (num_before - owned[:, 0])[window] + 1).to(states.dtype)
        return _reduced(states * weights[:, None], "sum", owned), _reduced(weights, "sum", owned)
    return _reduced(states, "sum", owned), lengths


def _reduced(values: Tensor, reduce: str, owned: Tensor) -> Tensor:
    """The sum or maximum over the owned tokens of each window: (T, ...) to (W, ...).

    Tokens between them form segments too, so that no shape depends on numbers on a GPU, which would be waited for.
    """
    ends = torch.cat([owned.new_zeros(1), owned.flatten(), owned.new_full((1,), len(values))])
    lengths = ends.diff()
    if values.device.type == "mps":  # torch has no segment_reduce there
        return torch.segment_reduce(values.cpu(), reduce, lengths=lengths.cpu(), unsafe=True)[1::2].to(values.device)
    return torch.segment_reduce(values, reduce, lengths=lengths, unsafe=True)[1::2]


def finish(pooling: str, values: Tensor, weights: Tensor) -> Tensor:
    """(N, D) accumulated values and (N,) weights to the (N, D) vectors of the texts."""
    if pooling == "max":
        return values
    divisor = weights.sqrt() if pooling == "mean-sqrt-len" else weights
    return values / divisor[:, None]


def sequence_vectors(pooling: str, encoded: EncoderOutput, batch: Batch) -> Tensor:
    """(W, D): the vector of each sequence, from the last layer, by one or several poolings; raises as
    `pool_windows`."""
    none = torch.zeros_like(batch.first_tokens)
    owned = torch.stack([none, batch.cu_seqlens.diff().long()], dim=1)
    vectors = []
    for name in poolings_of(pooling):
        values, weights = pool_windows(name, _LAST, encoded, batch, owned, none, none)
        vectors.append(values if name in ("cls", "last", "pooler") else finish(name, values, weights))
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=1)
