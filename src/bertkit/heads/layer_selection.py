"""Layer selection: one layer, or a sum, mean or concatenation of several.

Shape letters: T total_tokens, D hidden_size, S selected layers.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal, Self, cast

from bertkit.errors import UsageError
from bertkit.later import Tensor
from bertkit.transformer import EncoderOutput
from bertkit.transformer.kernels.arrays import library_of

NAMED_LAYERS = {
    "last": "concat:-1",
    "second-to-last": "concat:-2",
    "embedding": "concat:0",
    "sum-last-4": "sum:-4,-3,-2,-1",
    "concat-last-4": "concat:-4,-3,-2,-1",
    "sum-all": "sum:all",
}
"""Names of the selections in table 7 of the BERT paper (Devlin et al. 2018), in the general notation.

The general notation is "sum:", "mean:" or "concat:" and comma-separated layer numbers, or
"all" for every encoder layer. 0 is the embedding, 1 the first encoder layer, -1 the last.
"""

_Way = Literal["sum", "mean", "concat"]
_SPELLED_OUT = re.compile(r"(sum|mean|concat):(all|-?\d+(?:,-?\d+)*)")


@dataclass(frozen=True)
class LayerSelection:
    """Selected layers, and how their hidden states are combined for each token."""

    text: str  # as requested
    way: _Way
    layers: tuple[int, ...] | None  # None: every encoder layer

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse one of NAMED_LAYERS, or the general notation.

        Raises:
            UsageError: it is neither.
        """
        selected = _parsed(text) if isinstance(text, str) else None
        if selected is None:
            raise UsageError(
                f"layers={text!r}: expected one of {', '.join(NAMED_LAYERS)}, or sum:, mean: or concat: with layer "
                "numbers, as in concat:-2,-1, or with all"
            )
        return cls(text, *selected)

    @property
    def is_last(self) -> bool:
        """Whether only the last layer is selected, so that no others need to be kept."""
        return self.layers == (-1,)

    def indices(self, num_layers: int) -> list[int]:
        """(S,) indices of the layers in ``hidden_states`` of an encoder with ``num_layers`` layers.

        Raises:
            UsageError: the encoder has no such layer.
        """
        if self.layers is None:
            return list(range(1, num_layers + 1))
        for layer in self.layers:
            if not -num_layers <= layer <= num_layers:
                raise UsageError(f"layers={self.text!r} needs {abs(layer)} encoder layers, this model has {num_layers}")
        return [layer if layer >= 0 else num_layers + 1 + layer for layer in self.layers]

    def num_vectors(self, num_layers: int) -> int:
        """Width of the selected vector, in multiples of the hidden size."""
        indices = self.indices(num_layers)
        return len(indices) if self.way == "concat" else 1

    def of(self, encoded: EncoderOutput) -> Tensor:
        """Combined hidden states (T, D), or (T, S * D) for a concatenation; ``encoded`` holds all hidden states unless
        `is_last`.

        Raises:
            UsageError: the encoder has no such layer.
        """
        if self.is_last:
            return encoded.last_hidden_state
        states = encoded.hidden_states
        assert states is not None  # as documented for the caller
        chosen = [states[index] for index in self.indices(len(states) - 1)]
        if len(chosen) == 1:
            return chosen[0]
        if self.way == "concat":
            return library_of(chosen[0]).concatenate(chosen, -1)
        stacked = library_of(chosen[0]).stack(chosen)  # (S, T, D)
        return stacked.sum(0) if self.way == "sum" else stacked.mean(0)


@cache
def _parsed(text: str) -> tuple[_Way, tuple[int, ...] | None] | None:
    match = _SPELLED_OUT.fullmatch(NAMED_LAYERS.get(text, text))
    if match is None:
        return None
    way, layers = match.groups()
    numbers = None if layers == "all" else tuple(int(number) for number in layers.split(","))
    return cast(_Way, way), numbers
