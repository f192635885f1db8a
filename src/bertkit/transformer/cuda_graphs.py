"""CUDA graphs for small batches: an encoder's kernels are recorded once for each shape, and replayed.

A small batch computes for less time than its kernels take to be started one by one. Recordings know no lengths: only
encoders whose attention reads cumulative lengths on the device may be recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from bertkit.batch import Batch
from bertkit.device import product_dtype
from bertkit.later import F, nn, torch
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.choices import capability_of, kernel_for
from bertkit.transformer.kernels.row_invariance import row_count

Result = TypeVar("Result")

MOST_ROWS = 512
"""Tokens of the largest batch that is recorded."""

_INPUTS = ("input_ids", "token_type_ids", "position_ids", "cu_seqlens")
_RECORDING = threading.Lock()
"""torch records one graph at a time in a process."""


class Recording(NamedTuple):
    """One recorded shape."""

    inputs: Batch  # read by every replay
    output: EncoderOutput  # written by every replay
    replay: Callable[[], object]


def can_be_recorded(encoder: Any, precision: str) -> bool:
    """True for an encoder on a CUDA device whose attention at this precision is `varlen_attention`."""
    weight = encoder.embeddings.word.weight
    if weight.device.type != "cuda":
        return False
    bias = encoder.distance_bias(1)
    dtype, head_dim = product_dtype(precision, weight.dtype), encoder.config.layer(0).head_dim
    return kernel_for("cuda", capability_of(weight.device), dtype, head_dim, bias) == "varlen"


def record_graph(encode: Callable[[Batch], EncoderOutput], batch: Batch) -> Recording:
    """Record ``encode`` for batches of one shape."""
    inputs = replace(batch, **{name: getattr(batch, name).clone() for name in _INPUTS})
    output, replay, _ = record_graph_of(partial(encode, inputs), inputs.input_ids.device)
    return Recording(inputs, output, replay)


def record_graph_of(
    work: Callable[[], Result], device: torch.device, pool: Any = None
) -> tuple[Result, Callable[[], object], Any]:
    """Record work on a CUDA device: its result, the function that computes it again, and its pool of memory.

    Args:
        pool: of an earlier recording, never replayed at the same time, whose memory is used again; None: a new one.
    """
    with _RECORDING, torch.cuda.device(device):
        stream = _stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # the first calls of a library allocate its workspaces
            work()
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            result = work()
    return result, graph.replay, graph.pool()


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all recordings on a device: torch's default is of the device that recorded first, and each
    further stream needs more workspaces."""
    return torch.cuda.Stream(device)


class GraphedEncoder:
    """A prepared encoder that replays recordings for batches of up to MOST_ROWS tokens.

    Args:
        record: `record_graph`, or a replacement in tests.
    """

    def __init__(self, prepared: Any, record: Callable[..., Recording] = record_graph) -> None:
        self.prepared, self._record = prepared, record
        self._recordings: dict[tuple[int, int, bool], Recording] = {}
        self._lock = threading.Lock()  # a recording's inputs and output are shared by the calling threads

    def fits(self, encoder: nn.Module) -> bool:
        """True if the weights are unchanged since preparation."""
        return self.prepared.fits(encoder)

    @torch.inference_mode()
    def __call__(
        self, batch: Batch, *, with_hidden_states: bool = False, with_pooled: bool = True, first_only: bool = False,
        rows: Any = None,
    ) -> EncoderOutput:  # fmt: skip
        """As `PreparedEncoder`."""
        num_tokens, max_positions = len(batch.input_ids), self.prepared.encoder.config.max_position_embeddings
        if with_hidden_states or num_tokens > MOST_ROWS or batch.num_positions > max_positions:
            return self.prepared(
                batch, with_hidden_states=with_hidden_states, with_pooled=with_pooled, first_only=first_only
            )
        num_rows, num_sequences = row_count(num_tokens), 1 << (len(batch) - 1).bit_length()
        filled, key = _filled_up(batch, num_rows, num_sequences, max_positions), (num_rows, num_sequences, with_pooled)
        with self._lock:
            if key not in self._recordings:
                self._recordings[key] = self._record(partial(self.prepared, with_pooled=with_pooled), filled)
            inputs, output, replay = self._recordings[key]
            for name in _INPUTS:
                getattr(inputs, name).copy_(getattr(filled, name))
            replay()
            pooled = None if output.pooled is None else output.pooled[-len(batch) :].clone()
            return EncoderOutput(output.last_hidden_state[:num_tokens].clone(), pooled)


def _filled_up(batch: Batch, num_rows: int, num_sequences: int, max_positions: int) -> Batch:
    """The batch in a shape: rows after the last sequence, and empty sequences before the first."""
    longest = min(num_rows, max_positions)
    cu_seqlens = F.pad(batch.cu_seqlens, (num_sequences - len(batch), 0))
    filled = replace(batch.filled(num_rows), padded_mask=None)
    return replace(filled, cu_seqlens=cu_seqlens, max_seqlen=longest, num_positions=longest)
