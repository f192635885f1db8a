"""One run of an encoder for the sequences of several calls."""

import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.tokenizer.ragged import ranges
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.interface import EncoderOutput


class SharedRun:
    """One encoder run over a packed batch; each call reads its own sequences."""

    def __init__(self, packed: Batch) -> None:
        self._packed = packed
        self._outputs: dict[tuple[tuple[str, bool], ...], EncoderOutput] = {}
        self._bounds = packed.cu_seqlens.cpu().numpy().astype(np.int64)

    def rows(self, numbers: np.ndarray, forward: Callable[[], Tensor]) -> Tensor:
        """``forward()``, in which the output of the encoder is that for these sequences, in order."""
        starts, ends, device = self._bounds[numbers], self._bounds[numbers + 1], self._packed.input_ids.device
        self._tokens: slice | Tensor = slice(int(starts[0]), int(ends[-1]))
        self._sequences: slice | Tensor = slice(int(numbers[0]), int(numbers[-1]) + 1)
        if (numbers[1:] != numbers[:-1] + 1).any():
            self._tokens = torch.from_numpy(ranges(starts, ends - starts)).to(device)
            self._sequences = torch.from_numpy(numbers).to(device)
        _thread.shared = self
        try:
            return forward()
        finally:
            _thread.shared = None

    def output(self, encoder: PreparedEncoder, **options: bool) -> EncoderOutput:
        """The encoder's output for the chosen sequences; computed for all sequences at the first call with these
        options."""
        key = tuple(sorted(options.items()))
        if key not in self._outputs:
            self._outputs[key] = encoder(self._packed, **options)
        whole, tokens = self._outputs[key], self._tokens
        return EncoderOutput(
            whole.last_hidden_state[tokens],
            None if whole.pooled is None else whole.pooled[self._sequences],
            None if whole.hidden_states is None else [hidden[tokens] for hidden in whole.hidden_states],
        )


class SharedEncoder:
    """A prepared encoder that, inside a shared batch, returns each call's part of the shared run."""

    def __init__(self, prepared: PreparedEncoder) -> None:
        self._prepared = prepared

    def fits(self, encoder: nn.Module) -> bool:
        """See `PreparedEncoder.fits`."""
        return self._prepared.fits(encoder)

    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False
    ) -> EncoderOutput:
        """See `PreparedEncoder.__call__`."""
        options = {"with_hidden_states": with_hidden_states, "with_pooled": with_pooled, "first_only": first_only}
        shared = _thread.shared
        return self._prepared(batch, **options) if shared is None else shared.output(self._prepared, **options)


class _Thread(threading.local):
    shared: SharedRun | None = None


_thread = _Thread()
