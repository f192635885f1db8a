"""Row-invariant products: rows are bit-identical regardless of the number of rows.

Libraries choose the order of summation by the number of rows: oneDNN with AMX in bfloat16, MKL in float32. A vector
would then depend on the other texts in its batch. So products use only a few row counts, and each count is used for a
product only after its rows were bit-identical to those of a reference count, in this process, on this machine. Fewer
counts also limit memory: oneDNN keeps about 0.6 MB for every number of rows.

Shape letters: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from bertkit.executor import on_one_core
from bertkit.later import F, Tensor, torch

ROW_COUNTS = (
    8, 12, 14, 16, 24, 32, 48, 64, 80, 96, 112, 128,
    160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
)  # fmt: skip
"""Row counts of batches: from 64 rows on, at most a fifth is padding."""

_PRODUCT_COUNTS = (1, 2, 4, *ROW_COUNTS)
"""Row counts of products. The smallest are for generation, where a step has one row for each text and a product takes
as long as reading its weights."""

_REFERENCE_COUNTS = (64, 32, 16, 8)
"""Candidates for the reference count: the first one whose rows do not depend on their position is used."""

_ALIGNMENT = 64
"""Alignment in bytes: MKL gives equal bits only for inputs aligned to it, as torch's own tensors are."""

_NUM_DISTINCT_ROWS = 13
"""Number of distinct rows of a test input: coprime with the tiles of every kernel, so that a row occurs at each
position."""

_NUM_DISTINCT_OUTPUTS = 4_099
"""Number of distinct rows of a test weight, a prime number: for a vocabulary, drawing all rows would take seconds."""

Multiply = Callable[..., Tensor]
"""A function from (M, K) inputs, and optionally an (M, N) residual, to (M, N)."""

Probe = Callable[[], Multiply]
"""Creates a product of the same kind with `probe_weight`."""


def row_count(num_rows: int) -> int:
    """The smallest of ROW_COUNTS that is at least ``num_rows``; above the largest, the next multiple of 128.

    >>> [row_count(num_rows) for num_rows in (1, 9, 33, 1000, 1025)]
    [8, 12, 48, 1024, 1152]
    """
    if num_rows > ROW_COUNTS[-1]:
        return -(-num_rows // 128) * 128
    return next(count for count in ROW_COUNTS if count >= num_rows)


def product_row_count(num_rows: int) -> int:
    """As `row_count`, for rows that are only multiplied: also 1, 2 and 4.

    >>> [product_row_count(num_rows) for num_rows in (1, 3, 9)]
    [1, 4, 12]
    """
    return next((count for count in _PRODUCT_COUNTS if count >= num_rows), row_count(num_rows))


def training_row_count(num_rows: int) -> int:
    """Row count of products in training: sixteen for each power of two, so that at most a sixteenth is padding.

    >>> [training_row_count(num_rows) for num_rows in (1, 31, 33, 700, 1025)]
    [1, 31, 34, 704, 1088]
    """
    step = 1 << max(0, num_rows.bit_length() - 5)
    return -(-num_rows // step) * step


def multiply_rows(kind: Hashable, multiply: Multiply, probe: Probe, *inputs: Tensor) -> Tensor:
    """``multiply(*inputs)`` on the CPU, with rows bit-identical regardless of the number of rows and threads.

    Args:
        kind: equal for products that a library computes in the same way: kernel, fused steps, shape.
        probe: called at the first product of a kind.
        inputs: with M rows each; the first is multiplied, others are added.

    Returns:
        (M, N).
    """
    num_threads, num_rows = torch.get_num_threads(), len(inputs[0])
    inputs = tuple(tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone() for tensor in inputs)
    plan = _plans.get((kind, num_threads, num_rows))
    if plan is None:
        checks = _Checks(kind, num_threads, probe, inputs)
        plan = _plan(checks, num_rows)
        checks.free_if_large()
        _plans[kind, num_threads, num_rows] = plan  # concurrent threads compute the same plan
    if plan == (num_rows,):
        return multiply(*inputs)
    if not plan:  # no count agrees with several threads
        with on_one_core():
            return multiply_rows(kind, multiply, probe, *inputs)
    parts, start = [], 0
    for count in plan:
        parts.append(multiply(*(_rows_of(tensor, start, count) for tensor in inputs)))
        start += count
    product = parts[0] if len(parts) == 1 else torch.cat(parts)
    return product[:num_rows]


class RowInvariant:
    """A layer that remembers calls that `multiply_rows` runs unchanged, as one product."""

    def __init__(self) -> None:
        self._direct: set[Hashable] = set()  # such calls, by everything that their plan depends on

    def _multiply_rows(
        self, call: Hashable, kind: Hashable, multiply: Multiply, probe: Probe, *inputs: Tensor
    ) -> Tensor:
        """As `multiply_rows`; calls that do not need it are added to ``_direct``, which callers check first."""
        product, num_rows = multiply_rows(kind, multiply, probe, *inputs), len(inputs[0])
        if _plans.get((kind, torch.get_num_threads(), num_rows)) == (num_rows,):
            self._direct.add(call)
        return product


def agrees_with_reference(
    kind: Hashable, multiply: Multiply, probe: Probe, counts: Iterable[int], *inputs: Tensor
) -> bool:
    """Whether another implementation of a product, of `probe_weight`, gives the bits of `multiply_rows`.

    Args:
        counts: numbers of rows that are compared.
        inputs: any, for their widths and dtypes.
    """
    checks = _Checks(kind, 1, probe, inputs)
    with on_one_core():
        return all(checks.equals_reference(multiply, count) for count in counts)


def probe_weight(num_outputs: int, width: int, dtype: torch.dtype) -> Tensor:
    """(N, K) random weights whose products with the rows of a probe are 0 up to rounding.

    The remainder depends on the order of summation in nearly every element, also after rounding to bfloat16; for
    products without cancellation, only about one element in a thousand would show it.
    """
    generator, num_distinct = torch.Generator().manual_seed(1), min(num_outputs, _NUM_DISTINCT_OUTPUTS)
    half = torch.randn(num_distinct, width // 2, generator=generator, dtype=torch.float64)
    distinct = _mirrored(half, width, -1).to(dtype)
    return distinct if num_distinct == num_outputs else distinct[torch.arange(num_outputs) % num_distinct]


_plans: dict[tuple[Hashable, int, int], tuple[int, ...]] = {}
"""(kind, threads, M) -> row counts whose sum is at least M; () if a single thread must compute."""

_tests: dict[Hashable, tuple[Multiply, list[Tensor]]] = {}
"""kind -> a product with `probe_weight` and the distinct rows of its inputs. Small ones are cached: creating weights
for each number of rows would fragment the heap, which takes more memory than one copy."""

_LARGE_BYTES = 32 * 2**20
"""Size from which a block of memory always returns to the system when it is freed: of the weights of a vocabulary."""

_references: dict[Hashable, tuple[int, Tensor]] = {}
"""kind -> the reference count, and its results for the distinct test rows on one thread."""

_agreed: dict[tuple[Hashable, int, int], bool] = {}
"""(kind, threads, count) -> whether the count is bit-identical to the reference."""


def _plan(checks: _Checks, num_rows: int) -> tuple[int, ...]:
    plan: list[int] = []
    rest = num_rows
    while rest > 0:
        filled, others = product_row_count(rest), [count for count in reversed(_PRODUCT_COUNTS) if count <= rest]
        larger = [count for count in _PRODUCT_COUNTS if count > filled]
        count = next((count for count in (filled, *others, *larger, 1) if checks.agrees(count)), None)
        if count is None:
            return ()
        plan.append(count)
        rest -= count
    return tuple(plan)


class _Checks:
    """Comparisons of one kind of product with its reference, each made once in a process.

    Args:
        inputs: any inputs, for their widths and dtypes.
    """

    def __init__(self, kind: Hashable, num_threads: int, probe: Probe, inputs: Sequence[Tensor]) -> None:
        self.kind, self.num_threads, self.probe, self.inputs = kind, num_threads, probe, inputs

    def _test(self) -> tuple[Multiply, list[Tensor]]:
        test = _tests.get(self.kind)
        if test is None:
            zeros = [tensor.new_zeros(_NUM_DISTINCT_ROWS, tensor.shape[1]) for tensor in self.inputs[1:]]
            test = _tests[self.kind] = self.probe(), [_probe_rows(self.inputs[0]), *zeros]
        return test

    def free_if_large(self) -> None:
        """Free the test weight if it is large; the next number of rows creates it again."""
        num_outputs, x = self._reference()[1].shape[1], self.inputs[0]
        if num_outputs * x.shape[1] * x.element_size() >= _LARGE_BYTES:
            _tests.pop(self.kind, None)

    def agrees(self, count: int) -> bool:
        """Whether products of ``count`` rows are bit-identical to the reference, on this number of threads."""
        key = (self.kind, self.num_threads, count)
        if key not in _agreed:
            reference_count, expected = self._reference()
            is_reference = self.num_threads == 1 and count == reference_count
            _agreed[key] = is_reference or _is_same(self._product(count), expected[_repeated(count)])
        return _agreed[key]

    def equals_reference(self, multiply: Multiply, count: int) -> bool:
        """Whether ``multiply`` of ``count`` probe rows is bit-identical to the reference."""
        _, inputs = self._test()
        _, expected = self._reference()
        rows = _repeated(count)
        return _is_same(multiply(*(tensor[rows] for tensor in inputs)), expected[rows])

    def _reference(self) -> tuple[int, Tensor]:
        if self.kind not in _references:
            with on_one_core(), torch.inference_mode():
                _references[self.kind] = self._find_reference()
        return _references[self.kind]

    def _find_reference(self) -> tuple[int, Tensor]:
        for count in _REFERENCE_COUNTS:
            if _is_same(self._product(count)[1:], self._product(count, start=1)[:-1]):
                return count, self._every_row(count)
        return 1, self._every_row(1)  # a single row has no position

    def _every_row(self, count: int) -> Tensor:
        """(_NUM_DISTINCT_ROWS, N), from products of ``count`` rows."""
        starts = range(0, _NUM_DISTINCT_ROWS, count)
        return torch.cat([self._product(count, start) for start in starts])[:_NUM_DISTINCT_ROWS]

    def _product(self, count: int, start: int = 0) -> Tensor:
        (multiply, inputs), rows = self._test(), _repeated(count, start)
        return multiply(*(tensor[rows] for tensor in inputs))


def _probe_rows(tensor: Tensor) -> Tensor:
    """(_NUM_DISTINCT_ROWS, K) random numbers of a tensor's width and dtype, which `probe_weight` cancels."""
    generator, width = torch.Generator().manual_seed(0), tensor.shape[1]
    shape = (_NUM_DISTINCT_ROWS, width // 2)
    if tensor.dtype == torch.uint8:
        return _mirrored(torch.randint(0, 256, shape, generator=generator), width, 1).to(tensor.dtype)
    return _mirrored(torch.randn(shape, generator=generator, dtype=torch.float64), width, 1).to(tensor.dtype)


def _mirrored(half: Tensor, width: int, sign: int) -> Tensor:
    """(n, K / 2) columns and their mirror image times ``sign``; with a column of zeros if K is odd."""
    order = torch.randperm(half.shape[1], generator=torch.Generator().manual_seed(2))
    return F.pad(torch.cat([half, sign * half[:, order]], dim=1), (0, width % 2))


def _repeated(count: int, start: int = 0) -> Tensor:
    """(count,) indices of the distinct rows, repeated."""
    return torch.arange(start, start + count) % _NUM_DISTINCT_ROWS


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two contiguous tensors have the same bits."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def filled_rows(rows: Tensor, count: int) -> Tensor:
    """(M, K) with zeros after the last row, up to ``count`` rows."""
    missing = count - len(rows)
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


def _rows_of(tensor: Tensor, start: int, count: int) -> Tensor:
    """Rows ``start`` to ``start + count``, zeros beyond the end."""
    rows = tensor[start : start + count]
    if len(rows) == count:
        return rows if rows.data_ptr() % _ALIGNMENT == 0 else rows.clone()
    return filled_rows(rows, count)
