"""The nearest rows of a store on a GPU, proved as on the CPU.

Products in float32 have an error bound, as in `bertkit.neighbors.float32_scan`: with n dimensions and u = 2**-24 it is
n u for the product, n u / 2 for the length of the row, and some u for the rounding of the query, of factors and of the
bound, all relative to the length of the row. The device returns some more rows than the ``k`` nearest, those with the
largest upper bounds. If the last of them cannot be among the nearest, no other row can, and the CPU compares the
returned ones exactly. If it can, as with many equal rows, the query is left to a scan on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bertkit.device import full_float32, receive, send
from bertkit.later import Tensor, torch
from bertkit.neighbors.device_rows import DeviceRows, as_integers, largest, queries_at_once
from bertkit.neighbors.exact_scores import best
from bertkit.neighbors.int8_codes import Similarity
from bertkit.neighbors.proved import Nearest
from bertkit.neighbors.row_mask import RowMask

QUERIES_BEFORE_COPY = 32
"""Number of queries from which on the vectors are copied to the device: that takes as long as scans of the CPU for some
queries, and a command that searches once has one query."""

_UNIT = 2.0**-24
_SMALLEST, _LARGEST = 1e-12, 1e12
"""Lengths between which sums of squares in float32 neither overflow nor lose bits; other rows are always compared on
the CPU."""


class _Bounds(NamedTuple):
    """What makes products with rows upper bounds of similarities; each (num_rows,)."""

    factors: Tensor
    widths: Tensor  # half of the distance between the bounds
    is_unbounded: Tensor
    is_left_out: Tensor  # by the mask


class DeviceScan:
    """The vectors of a store on a device, copied after some queries; later searches copy only those that were added.

    The rows of one search are the first ones of the next, or the other way round.
    """

    def __init__(self, device: torch.device) -> None:
        self._rows, self._num_queries = DeviceRows(device), 0
        self._lengths = torch.empty(0, device=device)

    def nearest(
        self, queries: np.ndarray, rows: np.ndarray, k: int, similarity: Similarity, mask: RowMask
    ) -> list[Nearest | None]:
        """As `bertkit.neighbors.nearest`, exact regardless of the scan of the store. None for queries without a proof,
        which are all of the first ones, see QUERIES_BEFORE_COPY, and all if the rows do not fit into the device, see
        `DeviceRows`."""
        k, self._num_queries = min(k, mask.num_rows), self._num_queries + len(queries)
        is_worth_it = k and len(queries) and self._num_queries >= QUERIES_BEFORE_COPY
        kept = self._rows.kept(rows) if is_worth_it else None
        if kept is None:
            return [None] * len(queries)
        bounds = self._bounds(kept, similarity, mask)
        number = min(2 * k + 64, mask.num_rows)
        results: list[Nearest | None] = []
        at_once = queries_at_once(number)
        for start in range(0, len(queries), at_once):
            part = queries[start : start + at_once]
            packed = receive(self._computed(part, rows, bounds, number))().numpy()
            upper, widths = (packed[:, at : at + number].astype(np.int32).view(np.float32) for at in (0, number))
            with np.errstate(invalid="ignore"):
                lower = np.where(np.isinf(widths), -np.inf, upper - 2.0 * widths)
            thresholds = np.partition(lower, number - k, axis=1)[:, number - k]
            is_proved = (upper[:, -1] < thresholds) | (number == mask.num_rows)
            for index, positions in enumerate(packed[:, 2 * number :]):
                near = positions[upper[index] >= thresholds[index]]
                results.append(
                    Nearest(*best(part[index], rows, near, k, similarity), len(near)) if is_proved[index] else None
                )
        return results

    def _bounds(self, kept: Tensor, similarity: Similarity, mask: RowMask) -> _Bounds:
        lengths = self._lengths
        if len(lengths) < len(kept):
            added = torch.linalg.vector_norm(kept[len(lengths) :], dim=1)
            lengths = self._lengths = torch.cat([lengths, added])
        lengths = lengths[: len(kept)]
        error = (1.5 * kept.shape[1] + 16) * _UNIT * 1.01
        ones = torch.ones_like(lengths)
        factors, sizes = (1 / lengths, ones) if similarity == "cosine" else (ones, lengths)
        is_unbounded = ~((lengths > _SMALLEST) & (lengths < _LARGEST))  # NaN included
        widths = (error * sizes).masked_fill_(is_unbounded, torch.inf)
        bits = send(torch.from_numpy(mask.bits.view(np.uint8)), kept.device)
        flags = bits[:, None] & (1 << torch.arange(8, device=kept.device)).to(torch.uint8)
        return _Bounds(factors, widths, is_unbounded, flags.flatten()[: len(kept)] == 0)

    def _computed(self, queries: np.ndarray, rows: np.ndarray, bounds: _Bounds, number: int) -> Tensor:
        """Upper bounds, widths and positions of the rows with the largest upper bounds, (num_queries, 3 * number)."""
        exact = queries.astype(np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        unit = (exact / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        sent = send(torch.from_numpy(unit), self._rows.device)

        def uppers() -> Iterator[Tensor]:
            start = 0
            for part in self._rows.parts(rows, len(queries)):
                factors, widths, is_unbounded, is_left_out = (one[start : start + len(part)] for one in bounds)
                start += len(part)
                with full_float32():
                    products = sent @ part.T  # (Q, E) @ (E, n) -> (Q, n)
                upper = torch.addcmul(widths, products, factors)
                yield upper.masked_fill_(is_unbounded, torch.inf).masked_fill_(is_left_out, -torch.inf)

        upper, positions = largest(uppers(), number)
        return as_integers(upper, bounds.widths[positions], positions)
