"""Speed of matrix products on this machine: an upper bound of the speed of an encoder."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

NUM_ROWS = 1_024
_SECONDS = 0.25  # for each shape


def load(
    hidden_size: int, intermediate_size: int, num_layers: int, is_gated: bool, threads: int
) -> Callable[[], float]:
    """A function that measures the seconds per token of the four products of every layer.

    Products are computed by oneDNN with packed weights and NUM_ROWS rows, separately on each core at the same time; in
    bfloat16, or in float32 on CPUs without fast instructions for bfloat16.
    """
    import torch

    from bertkit.transformer.kernels.linear import has_fast_bfloat16

    torch.set_num_threads(1)
    dtype = torch.bfloat16 if has_fast_bfloat16() else torch.float32
    product = torch.ops.mkldnn._linear_pointwise
    shapes = [  # outputs, inputs
        (3 * hidden_size, hidden_size),
        (hidden_size, hidden_size),
        ((1 + is_gated) * intermediate_size, hidden_size),
        (hidden_size, intermediate_size),
    ]

    def seconds_per_token(shape: tuple[int, int]) -> float:
        weight = torch.randn(shape, dtype=dtype)
        packed, bias = torch.ops.mkldnn._reorder_linear_weight(weight, NUM_ROWS), weight[:, 0].contiguous()
        x = torch.randn(NUM_ROWS, shape[1], dtype=dtype)
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < _SECONDS:
            product(x, packed, bias, "none", [], "")
            count += NUM_ROWS
        return elapsed / count / threads

    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def all_layers() -> float:
        return num_layers * sum(statistics.mean(pool.map(seconds_per_token, [shape] * threads)) for shape in shapes)

    all_layers()  # warm
    return all_layers
