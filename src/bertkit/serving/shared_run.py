"""One run of an encoder for the sequences of several calls."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.later import Tensor, torch
from bertkit.tokenizer.ragged import ranges
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.modules import nn


class SharedRun:
    """One encoder run over a packed batch; each call reads its own sequences."""

    def __init__(self, packed: Batch) -> None:
        self._packed = packed
        self._outputs: dict[tuple[tuple[str, bool], ...], EncoderOutput] = {}
        bounds: Any = packed.cu_seqlens
        self._bounds = (bounds if packed.is_in_arrays else bounds.cpu().numpy()).astype(np.int64)

    def rows(self, numbers: np.ndarray, forward: Callable[[], Tensor]) -> Tensor:
        """``forward()``, in which the output of the encoder is that for these sequences, in order."""
        starts, ends = self._bounds[numbers], self._bounds[numbers + 1]
        self._tokens: Any = slice(int(starts[0]), int(ends[-1]))
        self._sequences: Any = slice(int(numbers[0]), int(numbers[-1]) + 1)
        if (numbers[1:] != numbers[:-1] + 1).any():
            self._tokens, self._sequences = self._index(ranges(starts, ends - starts)), self._index(numbers)
        _thread.shared = self
        try:
            return forward()
        finally:
            _thread.shared = None

    def _index(self, numbers: np.ndarray) -> Any:
        """Indices of rows of the output."""
        ids = self._packed.input_ids
        return numbers if self._packed.is_in_arrays else torch.from_numpy(numbers).to(ids.device)

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
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False,
        rows: Any = None,
    ) -> EncoderOutput:  # fmt: skip
        """See `PreparedEncoder.__call__`."""
        options = {"with_hidden_states": with_hidden_states, "with_pooled": with_pooled, "first_only": first_only}
        if _thread.shared is None:
            return self._prepared(batch, rows=rows, **options)
        return _thread.shared.output(self._prepared, **options)


class _Thread(threading.local):
    shared: SharedRun | None = None


_thread = _Thread()
