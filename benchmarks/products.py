"""Speed of matrix products on one core, compared with oneDNN's and with the peak of the processor.

    python benchmarks/products.py [--rounds 3] [--out benchmarks/results]

The peak is that of a loop of fused multiplications and additions in registers. Seconds are of processor time.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import report

NUM_ROWS = 1_024
SHAPES = {
    "MiniLM": [(1_152, 384), (384, 384), (1_536, 384), (384, 1_536)],
    "BERT-base": [(2_304, 768), (768, 768), (3_072, 768), (768, 3_072)],
}
"""Outputs and inputs of the products of a layer."""
_FEW_ROWS = 12
_SECONDS = 0.25  # for each shape


def main() -> None:
    results, options = report.begin(
        "products", argparse.ArgumentParser(description=__doc__.partition("\n")[0]), threads=1
    )
    peak = _peak()
    rows = [
        _row(model, num_rows, shape, peak, options.rounds)
        for num_rows in (NUM_ROWS, _FEW_ROWS)
        for model, shapes in SHAPES.items()
        for shape in shapes
    ]
    results["products"] = rows
    table = report.markdown_table(
        ["product", *list(rows[0])[1:]], *([str(cell) for cell in row.values()] for row in rows)
    )
    about = "GFLOP/s or GOP/s, and the share of the peak in float32 (%)."
    report.finish(results, "\n".join([*report.heading("Products on one core", results), table, "", about]), options.out)


def _row(model: str, num_rows: int, shape: tuple[int, int], peak: Callable[[], float], rounds: int) -> dict:
    import numpy as np
    import torch

    from bertkit.transformer.kernels.linear import (
        CompiledBFloat16Linear,
        CompiledInt8Linear,
        CompiledLinear,
        OneDNNLinear,
        has_fast_bfloat16,
    )

    torch.set_num_threads(1)
    weight, bias, x = torch.randn(shape), torch.zeros(shape[0]), torch.randn(num_rows, shape[1])
    given = weight, bias, x
    values = np.random.default_rng(0).integers(0, 256, (num_rows, shape[1]), np.uint8)
    *short, short_x = (each.bfloat16() for each in given)
    compiled, onednn, rounded = (
        CompiledLinear(weight, bias),
        OneDNNLinear(weight, bias),
        CompiledInt8Linear(weight, bias),
    )
    short_compiled = CompiledBFloat16Linear(*short)
    operations = 2 * num_rows * shape[0] * shape[1]
    calls: dict[str, Callable[[], object]] = {
        "bertkit": lambda: compiled(x),
        "oneDNN": lambda: onednn(x),
        "bertkit bfloat16": lambda: short_compiled(short_x),
        "bertkit int8": lambda: rounded.multiply(values),
    }
    if has_fast_bfloat16():
        short_onednn = OneDNNLinear(*short)
        calls["oneDNN bfloat16"] = lambda: short_onednn(short_x)
    fastest, peaks = dict.fromkeys(calls, 0.0), []
    for _ in range(rounds):
        peaks.append(peak())
        for name, call in calls.items():
            fastest[name] = max(fastest[name], operations / 1e9 / _seconds(call))
    row = {"product": f"{model}, {num_rows} x {shape[1]} x {shape[0]}", "peak": round(max(peaks), 1)}
    row |= {name: round(speed, 1) for name, speed in fastest.items()}
    return row | {f"{name} %": round(100 * fastest[name] / max(peaks)) for name in ("bertkit", "oneDNN")}


def _seconds(call: Callable[[], object]) -> float:
    """Processor time of a call: the shortest of many."""
    call()
    seconds, end = [], time.thread_time() + _SECONDS
    while (start := time.thread_time()) < end:
        call()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def _peak() -> Callable[[], float]:
    """A function that measures the GFLOP/s of fused multiplications and additions without memory."""
    import numpy as np

    from bertkit.compiled import compiled
    from bertkit.transformer.kernels.llvm_vectors import has_wide_registers
    from bertkit.transformer.kernels.vectors import WIDTH, broadcast, fma, store

    is_wide = has_wide_registers()

    @compiled
    def loop(num_steps, factor, sums):
        f = broadcast(factor)
        a0 = a1 = a2 = a3 = a4 = a5 = b0 = b1 = b2 = b3 = b4 = b5 = f
        for _ in range(num_steps):
            a0, a1, a2 = fma(a0, f, f), fma(a1, f, f), fma(a2, f, f)
            a3, a4, a5 = fma(a3, f, f), fma(a4, f, f), fma(a5, f, f)
            if is_wide:  # these take the other registers
                b0, b1, b2 = fma(b0, f, f), fma(b1, f, f), fma(b2, f, f)
                b3, b4, b5 = fma(b3, f, f), fma(b4, f, f), fma(b5, f, f)
        store(sums, 0, ((a0 + a1) + (a2 + a3) + (a4 + a5)) + ((b0 + b1) + (b2 + b3) + (b4 + b5)))

    num_steps, sums = 1_000_000, np.empty(WIDTH, np.float32)
    operations = num_steps * (12 if is_wide else 6) * 2 * WIDTH
    return lambda: operations / 1e9 / _seconds(lambda: loop(num_steps, np.float32(0.5), sums))


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


if __name__ == "__main__":
    main()
