"""The same bits in any batch on a GPU, a part of `gpu.py`: checks, and the price beside torch's kernels in one run."""

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from models import BERT_BASE, MINILM, published_folder

import bertkit
from bertkit import Model, Tokenizer
from bertkit.architectures import ARCHITECTURES, prepare
from bertkit.device import GPU_PRECISIONS
from bertkit.inference.equality import check_equality
from bertkit.locate import locate
from bertkit.transformer.kernels.choices import BATCH_INVARIANT

FAMILIES = {"bert": {}, "modernbert": {}, "mpnet": {}, "eurobert": {"num_key_value_heads": 4},
            "qwen3": {"num_key_value_heads": 4}, "deberta-v2": {}}  # fmt: skip
BOUNDS = {"float32": 1e-4, "bfloat16": 1e-1, "float16": 2e-2}
"""Maximum allowed differences of hidden states from float32 on the CPU, relative to the largest."""
SHAPES = ((384, 1_152), (384, 1_536), (1_536, 384), (768, 2_304), (768, 3_072), (3_072, 768))
"""Inputs and outputs of the products of MiniLM and BERT-base."""
ROW_COUNTS, NUM_TURNS = (1, 16, 512, 32_768), 5


@contextmanager
def asked(value: str) -> Iterator[None]:
    """The environment variable that asks for the same bits."""
    before = os.environ.get(BATCH_INVARIANT)
    os.environ[BATCH_INVARIANT] = value
    try:
        yield
    finally:
        os.environ.pop(BATCH_INVARIANT)
        if before is not None:
            os.environ[BATCH_INVARIANT] = before


def checks(device: str, passages: Sequence[str], quick: bool) -> Iterator[dict[str, Any]]:
    """Texts whose bits depend on the batch, with these kernels and with torch's; families whose hidden states do, or
    differ from the CPU's; rows of torch's norms that do; the time of texts, and of each product, relative to torch's,
    medians of turns."""
    if not device.startswith("cuda") or importlib.util.find_spec("triton") is None:
        yield {"kernels": "need CUDA and triton"}
        return
    for precision in GPU_PRECISIONS:
        for value, name in (("1", "asked for"), ("0", "not asked for")):
            with asked(value):
                check = check_equality(precision, device)
            yield {f"{name}, {precision}, different texts of {check.num_texts}": check.num_different}
            if value == "1":
                yield {f"{precision} holds": check.num_different == 0}
    yield _norms(device)
    for name, changes in FAMILIES.items():
        yield _family(name, changes, device, passages[:20])
    for name in (MINILM,) if quick else (MINILM, BERT_BASE):
        for precision in ("bfloat16", "float32"):
            yield _price(published_folder(name), name, precision, device, passages)
    for shape in SHAPES[: 1 if quick else None]:
        yield _products(shape, device)


def _norms(device: str) -> dict[str, Any]:
    """Whether torch's norms, which remain, give a row the same bits in any number of rows."""
    found: dict[str, Any] = {}
    for width in (128, 384, 768, 1_023):
        for dtype in (torch.float32, torch.bfloat16):
            x, weight = torch.randn(4_096, width, device=device).to(dtype), torch.randn(width, device=device).to(dtype)
            for name, norm in (
                ("layer norm", partial(F.layer_norm, normalized_shape=(width,), weight=weight, bias=weight)),
                ("RMS norm", partial(F.rms_norm, normalized_shape=(width,), weight=weight, eps=1e-6)),
            ):
                together = norm(x)
                parts = ((0, 1), (4, 5), (8, 40), (100, 1_100))
                same = all(torch.equal(norm(x[start:end].clone()), together[start:end]) for start, end in parts)
                found[f"{name} holds"] = found.get(f"{name} holds", True) and same
    return found


def _family(name: str, changes: dict[str, int], device: str, passages: Sequence[str]) -> dict[str, Any]:
    """An encoder with initial weights: texts alone and together, and against float32 on the CPU."""
    tokenizer = Tokenizer.load(locate(MINILM))
    config = ARCHITECTURES[name].config.of_size(
        "base", num_hidden_layers=3, vocab_size=len(tokenizer.vocabulary), **changes
    )
    model, found = Model.create(config, tokenizer), {}
    encodings = tokenizer.encode_batch([one[: 20 + 97 * at] for at, one in enumerate(passages)], max_length=400,
                                       on_long="truncate")  # fmt: skip
    batch = bertkit.collate(encodings)
    expected = prepare(model.encoder, "float32")(batch).last_hidden_state
    model.encoder.to(device)
    for precision in GPU_PRECISIONS:
        with asked("1"):
            encoder = prepare(model.encoder, precision)
            together = encoder(batch.to(torch.device(device))).last_hidden_state.cpu()
            num_different = 0
            for encoding, in_batch in zip(encodings, together.split(batch.seqlens), strict=True):
                alone = encoder(bertkit.collate([encoding]).to(torch.device(device))).last_hidden_state.cpu()
                num_different += not torch.equal(alone, in_batch)
        largest = float((together - expected).abs().max() / expected.abs().max())
        found[f"{name}, {precision}, different texts of {len(passages)}"] = num_different
        found[f"{name}, {precision}, largest difference"] = largest
        found[f"{name}, {precision} holds"] = num_different == 0 and largest <= BOUNDS[precision]
    return found


def _price(folder: Any, name: str, precision: str, device: str, passages: Sequence[str]) -> dict[str, Any]:
    """Texts per second from strings to vectors, with torch's kernels and with these in turns, and of one short text."""
    works: dict[str, dict[str, Callable[[], Any]]] = {"texts": {}, "one text": {}}
    for value in ("0", "1"):
        model = bertkit.load(folder, device=device, precision=precision)
        works["texts"][value] = partial(model.embed, passages, on_long="truncate")
        works["one text"][value] = partial(model.embed, passages[0][:80])
    found: dict[str, Any] = {}
    for kind, of_kind in works.items():
        seconds = _medians(of_kind)
        number = len(passages) if kind == "texts" else 1
        found[f"{name}, {precision}, {kind} a second"] = number / seconds["1"]
        found[f"{name}, {precision}, {kind}, time relative to torch's kernels"] = seconds["1"] / seconds["0"]
    return found


def _products(shape: tuple[int, int], device: str) -> dict[str, Any]:
    """Each product relative to cuBLAS."""
    from bertkit.transformer.kernels.triton_products import multiply

    found: dict[str, Any] = {}
    num_inputs, num_outputs = shape
    for dtype in (torch.bfloat16, torch.float32):
        weight, bias = torch.randn(num_outputs, num_inputs), torch.randn(num_outputs)
        weight, bias = weight.to(device, dtype), bias.to(device, dtype)
        x = torch.randn(max(ROW_COUNTS), num_inputs).to(device, dtype)
        expected = multiply(x, weight, bias)
        for count in ROW_COUNTS:
            rows = x[7 : 7 + count]
            name = f"{count} x {num_inputs} x {num_outputs}, {dtype}".replace("torch.", "")
            found[f"{name} holds"] = torch.equal(multiply(rows, weight, bias), expected[7 : 7 + count])
            seconds = _medians(
                {"0": partial(_many, F.linear, rows, weight, bias, device),
                 "1": partial(_many, multiply, rows, weight, bias, device)}
            )  # fmt: skip
            found[f"{name}, time relative to cuBLAS"] = seconds["1"] / seconds["0"]
    return found


def _many(product: Callable[..., torch.Tensor], rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor,
          device: str) -> None:  # fmt: skip
    for _ in range(10):
        product(rows, weight, bias)
    torch.cuda.synchronize(device)


def _medians(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of each work in turns, with the environment variable that is its key."""
    seconds: dict[str, list[float]] = {value: [] for value in works}
    for turn in range(NUM_TURNS + 1):  # the first compiles
        for value, work in works.items():
            with asked(value):
                started = time.perf_counter()
                work()
                if turn:
                    seconds[value].append(time.perf_counter() - started)
    return {value: float(np.round(statistics.median(taken), 9)) for value, taken in seconds.items()}
