"""Records the intermediate results of every layer of an encoder, for inspection.

Shape letters: T total_tokens, D hidden_size, H num_heads, K head_dim, L tokens of a sequence.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from bertkit.later import Tensor


@dataclass(eq=False)
class LayerRecord:
    """Intermediate results of one layer, in the order in which they are computed."""

    query: Tensor = field(init=False)  # (T, H, K), after rotary positions if the encoder has them
    key: Tensor = field(init=False)  # (T, H, K), as query
    value: Tensor = field(init=False)  # (T, H, K)
    attention_scores: list[Tensor] = field(init=False)  # for each sequence (H, L, L) before softmax, row = attending
    # token, column = attended; -inf outside a window
    attention_probs: list[Tensor] = field(init=False)  # the same after softmax, before dropout
    cross_attention_probs: list[Tensor] = field(init=False)  # of a decoder that attends to a source: for each sequence
    # (H, L, source tokens)
    attention_output: Tensor = field(init=False)  # (T, D), the contribution of attention to the residual stream
    feed_forward_output: Tensor = field(init=False)  # (T, D), the contribution of the feed-forward network


class Recorder:
    """Pass one to an encoder: ``encoder(batch, recorder=recorder)``, then read ``recorder.layers``.

    Recorded attention is written out in torch's own operations and takes memory for all probabilities; hidden states
    are the same to rounding. Layers that are not chosen are computed as without a recorder.

    Args:
        chosen: layers to record, counted from 1; None: all.
    """

    def __init__(self, chosen: Collection[int] | None = None) -> None:
        self.layers: list[LayerRecord] = []  # recorded in the last call, in order
        self._chosen = chosen

    def layer(self, number: int) -> LayerRecord | None:
        """The empty record of a layer, counted from 1; None if it is not to be recorded. Layer 1 begins a new call."""
        if number == 1:
            self.layers = []
        if self._chosen is not None and number not in self._chosen:
            return None
        self.layers.append(LayerRecord())
        return self.layers[-1]
