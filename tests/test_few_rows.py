"""A few rows at a time: bit-identical to layers one after the other, on any number of threads."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
import torch
from random_models import our_model, randomize, vocabulary_tokens

from bertkit import Batch, Model, Tokenizer, collate
from bertkit.architectures import ARCHITECTURES
from bertkit.transformer import PreparedTransformer
from bertkit.transformer.few_rows import weights
from bertkit.transformer.few_rows.layers import encode_few_rows
from bertkit.transformer.few_rows.prepared import FewRows, are_few
from bertkit.transformer.few_rows.weights import offered_few_rows
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.dispatch import kernels_for, offered_linears
from bertkit.transformer.kernels.instruction_sets import instruction_sets
from bertkit.transformer.kernels.linear import (
    CompiledBFloat16Linear,
    CompiledInt8Linear,
    CompiledLinear,
    OneDNNInt8Linear,
    OneDNNLinear,
)
from bertkit.transformer.kernels.llvm_vectors import has_byte_products, has_fused_multiplication, has_wide_registers
from bertkit.transformer.kernels.product_tiles import PANEL
from bertkit.transformer.kernels.rows import read_rows
from bertkit.transformer.kernels.shared_steps import claim, finish, wait
from bertkit.transformer.prepared.encoder import in_row_counts
from bertkit.transformer.prepared.int8_steps import hidden_states_of

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]

LINEAR = {
    "float32": OneDNNLinear, "bfloat16": OneDNNLinear, "int8": OneDNNInt8Linear,
    "float32 compiled": CompiledLinear, "bfloat16 compiled": CompiledBFloat16Linear,
    "int8 compiled": CompiledInt8Linear,
}  # fmt: skip
OFFERED = {name: linear in offered_few_rows(name.partition(" ")[0]) for name, linear in LINEAR.items()}
IS_INTEL = not llvmlite.binding.get_host_cpu_name().startswith("znver")
supported = pytest.mark.skipif(not any(OFFERED.values()), reason="layers of a few rows need FMA")

PRODUCTS = [
    *(("float32", width) for width in (16, 48, 384, 768, 1536, 2064)),
    *(("bfloat16", width) for width in (32, 96, 384, 768, 1536, 2080)),
    *(("float32 compiled", width) for width in (16, 48, 768, 2064)),
    *(("bfloat16 compiled", width) for width in (32, 96, 768, 2080)),
]
NUM_LAYERS = 3
NUMBERS_OF_ROWS = [1, 2, 3, 4, 5, 12, 14, 47, 48]
LONG = "the cat walked on the green mat and sat there again "


def must_exist(result: object) -> None:
    """Require a result; skip where oneDNN packs weights or adds products of some shapes in an unknown order, but not on
    Intel."""
    if not result and not IS_INTEL:
        pytest.skip("oneDNN packs weights or adds products in an unknown order on this processor")
    assert result


def require(precision: str) -> None:
    if not OFFERED[precision]:
        pytest.skip(f"no layers of a few rows in {precision} on this processor")


def model_of(hidden_size: int = 128, intermediate_size: int = 512, **options: object) -> Model:
    sizes = {"hidden_size": hidden_size, "num_attention_heads": 4, "intermediate_size": intermediate_size}
    usual = {"num_hidden_layers": NUM_LAYERS, "max_position_embeddings": 128, "hidden_act": "gelu"}
    return our_model("encoder", 5, **sizes, **usual | options)


def prepared_pair(model: Model, precision: str = "float32") -> tuple[PreparedTransformer, PreparedTransformer]:
    """With and without layers for a few rows."""
    named = precision.partition(" ")[0]
    if LINEAR[precision] not in [choice.linear for choice in offered_linears(named)]:
        pytest.skip(f"{LINEAR[precision].__name__} does not run in {named} on this processor")
    kernels = kernels_for(named, torch.device("cpu"))._replace(linear=LINEAR[precision])
    fast, plain = (PreparedTransformer(model.encoder, named, kernels) for _ in range(2))
    plain.__dict__["_few_rows"] = None
    return fast, plain


@pytest.mark.skipif(not IS_INTEL or "ONEDNN_MAX_CPU_ISA" in os.environ, reason="oneDNN's choices are known on Intel")
def test_few_rows_are_offered_where_intel_processors_have_the_instructions() -> None:
    is_fused, offered = has_fused_multiplication(), [choice.linear for choice in offered_linears("float32")]
    is_usual = is_fused and OneDNNLinear in offered and PANEL == 64
    assert {
        "float32": is_usual,
        "bfloat16": is_usual and has_wide_registers("avx512bf16") and "amx-bf16" not in instruction_sets(),
        "int8": is_usual and has_byte_products(),
        "float32 compiled": is_fused,
        "bfloat16 compiled": is_fused,
        "int8 compiled": has_wide_registers("avx2"),
    } == OFFERED


@pytest.mark.full(sample=4)
@supported
@pytest.mark.every_processor
@pytest.mark.parametrize("num_rows", NUMBERS_OF_ROWS)
@pytest.mark.parametrize(("precision", "width"), PRODUCTS)
def test_product_is_bit_identical_to_linear_layers(num_rows: int, precision: str, width: int) -> None:
    require(precision)
    dtype = torch.float32 if precision.startswith("float32") else torch.bfloat16
    generator = torch.Generator().manual_seed(width)
    weight, bias, x, residual = (
        torch.randn(*shape, generator=generator).to(dtype)
        for shape in ((192, width), (192,), (num_rows, width), (num_rows, 192))
    )
    with torch.inference_mode():
        linear = LINEAR[precision](weight, bias)
        must_exist(weights.is_known(linear))
        product = partial(weights._multiply, weights.weights_of([linear]))
        assert torch.equal(product(x), linear(x))
        assert torch.equal(product(x, residual), linear(x, residual=residual))
    exact = x.double() @ weight.double().T + bias
    relative = 0 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(product(x).double(), exact, rtol=relative, atol=1e-6 * width)


@pytest.mark.full(sample=1)
@supported
@pytest.mark.every_processor
@pytest.mark.parametrize("num_rows", NUMBERS_OF_ROWS)
@pytest.mark.parametrize("width", [64, 384, 1536, 2112])
@torch.inference_mode()
def test_int8_product_is_bit_identical_to_oneDNN(num_rows: int, width: int) -> None:
    require("int8")
    generator = torch.Generator().manual_seed(width)
    linear = OneDNNInt8Linear(torch.randn(192, width, generator=generator), torch.zeros(192))
    values = torch.randint(0, 256, (num_rows, width), generator=generator, dtype=torch.uint8)
    values[0], values[-1] = 255, 0
    values = weights._with_both_ends(values)
    subtracts_after = weights._subtracts_after(192, width)
    must_exist(subtracts_after is not None)
    product = weights._multiply_int8(linear, values, bool(subtracts_after))
    assert torch.equal(product, linear.multiply(values))
    assert product.abs().max() > 0


@pytest.mark.full(sample=1)
@supported
@pytest.mark.every_processor
@pytest.mark.parametrize("num_rows", NUMBERS_OF_ROWS)
@pytest.mark.parametrize("width", [64, 384, 1536, 2112])
@torch.inference_mode()
def test_compiled_int8_product_is_bit_identical_to_linear_layers(num_rows: int, width: int) -> None:
    require("int8 compiled")
    generator = torch.Generator().manual_seed(width)
    bias, x = torch.randn(192, generator=generator), torch.randn(num_rows, width, generator=generator) * 3 + 1
    linear = CompiledInt8Linear(torch.randn(192, width, generator=generator), bias)
    expected = np.empty((num_rows, 192), np.float32)
    read_rows(linear(hidden_states_of(x).quantized), expected)
    np.testing.assert_array_equal(weights._multiply(weights.weights_of([linear]), x).numpy(), expected)


@supported
@pytest.mark.parametrize("subtracts_after", [False, True])
def test_int8_product_subtracts_the_zero_point_before_or_after_rounding_to_float32(subtracts_after: bool) -> None:
    require("int8")
    generator = torch.Generator().manual_seed(8)
    weight = torch.rand(64, 1536, generator=generator) + 1  # sums of 2^24 and more
    linear = OneDNNInt8Linear(weight, torch.zeros(64))
    values = weights._with_both_ends(torch.randint(0, 256, (14, 1536), generator=generator, dtype=torch.uint8))
    rounded = torch.round(weight / torch.from_numpy(linear.scales)[:, None])
    sums, offsets = values.double() @ rounded.double().T, 128 * rounded.double().sum(dim=1)
    difference = sums.float() - offsets.float() if subtracts_after else (sums - offsets).float()
    product = weights._multiply_int8(linear, values, subtracts_after)
    assert torch.equal(product, difference * torch.from_numpy(linear.scales))
    assert sums.max() > 2**24


@pytest.mark.full
@supported
@pytest.mark.every_processor
@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(128, 512), (64, 192), (576, 1088)], ids=str)
@pytest.mark.parametrize("precision", LINEAR)
def test_hidden_states_are_bit_identical_to_layers(precision: str, sizes: tuple[int, int], num_threads: int) -> None:
    require(precision)
    model, before = model_of(*sizes), torch.get_num_threads()
    fast, plain = prepared_pair(model, precision)
    encodings = model.tokenizer.encode_batch([*TEXTS, LONG, LONG * 2, LONG * 4])
    torch.set_num_threads(num_threads)
    try:
        for group in ([0], [1, 2], [3], [4], [5, 6], [7], [1, 3, 5], [8], [3, 8], [9]):
            batch = collate([encodings[index] for index in group])
            for first_only in (False, True):
                results, expected = (each(batch, first_only=first_only) for each in (fast, plain))
                rows = batch.first_tokens if first_only else slice(None)
                assert torch.equal(results.last_hidden_state[rows], expected.last_hidden_state[rows])
                assert torch.equal(results.pooled, expected.pooled)
    finally:
        torch.set_num_threads(before)
    must_exist(fast._few_rows)


@pytest.mark.full
@supported
@pytest.mark.every_processor
@pytest.mark.parametrize("precision", LINEAR)
def test_any_number_of_threads_packs_weights_in_one_layout(precision: str) -> None:
    """oneDNN would pack (384, 384) weights of int8 in other panels for eight threads or more."""
    require(precision)
    model, before = model_of(384, 768), torch.get_num_threads()
    batch = collate(model.tokenizer.encode_batch(TEXTS[:1]))
    torch.set_num_threads(1)
    try:
        must_exist(prepared_pair(model, precision)[0]._few_rows)
        torch.set_num_threads(16)
        fast, plain = prepared_pair(model, precision)
        assert torch.get_num_threads() == 16
        assert fast._few_rows is not None
        assert torch.equal(fast(batch).last_hidden_state, plain(batch).last_hidden_state)
    finally:
        torch.set_num_threads(before)


@pytest.mark.full
@supported
@pytest.mark.parametrize("architecture", ["mpnet", "albert", "electra", "distilbert", "roberta"])
def test_hidden_states_of_other_architectures_are_bit_identical_to_layers(architecture: str) -> None:
    config = ARCHITECTURES[architecture].config.of_size("tiny", vocab_size=99, num_hidden_layers=2, hidden_act="gelu")
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), [])
    randomize(model.network, 3)
    fast, plain = prepared_pair(model)
    must_exist(fast._few_rows)
    batch = collate(model.tokenizer.encode_batch(TEXTS[:2]))
    assert torch.equal(fast(batch).last_hidden_state, plain(batch).last_hidden_state)


@pytest.mark.full(sample=1)
@supported
@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu"])
@pytest.mark.parametrize("precision", LINEAR)
def test_hidden_states_with_other_activations_are_bit_identical_to_layers(precision: str, activation: str) -> None:
    require(precision)
    model = model_of(hidden_act=activation)
    fast, plain = prepared_pair(model, precision)
    must_exist(fast._few_rows)
    batch = collate(model.tokenizer.encode_batch(TEXTS[:2]))
    assert torch.equal(fast(batch).last_hidden_state, plain(batch).last_hidden_state)


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("precision", LINEAR)
@pytest.mark.parametrize(
    "options",
    [{"hidden_act": "tanh"}, {"hidden_size": 100}, {"hidden_size": 72}, {"intermediate_size": 500}],
    ids=str,
)
@torch.inference_mode()
def test_other_layers_are_left_to_the_kernels_of_any_size(precision: str, options: dict[str, object]) -> None:
    model = model_of(**options)
    prepared, _ = prepared_pair(model, precision)
    assert prepared._few_rows is None
    batch = collate(model.tokenizer.encode_batch(TEXTS[:1]))
    expected = model.encoder(batch).last_hidden_state
    largest = float(expected.abs().max())
    close = {"float32": 1e-5, "int8": 0.25 * largest}.get(precision.partition(" ")[0], 0.05 * largest)
    torch.testing.assert_close(prepared(batch).last_hidden_state, expected, rtol=0, atol=close)


@pytest.mark.parametrize("precision", LINEAR)
def test_processors_without_its_instructions_are_left_to_the_kernels_of_any_size(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("has_byte_products", "has_fused_multiplication", "has_wide_registers"):
        monkeypatch.setattr(weights, name, lambda *feature: False)
    assert prepared_pair(model_of(), precision)[0]._few_rows is None


@supported
def test_weights_in_another_layout_are_left_to_the_kernels_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    require("float32")
    layers, kept = prepared_pair(model_of())[0].layers, []
    must_exist(FewRows.of(layers))

    def address_of_rows(linear: OneDNNLinear) -> int:
        kept.append(torch.ones(linear.kind[1:3]))
        return kept[-1].data_ptr()

    for name, replaced in (
        ("address_of", address_of_rows),
        ("has_onednn", lambda operation: "data_ptr" not in operation),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(weights, name, replaced)
            weights._block.cache_clear()
            assert FewRows.of(layers) is None
    weights._block.cache_clear()
    assert FewRows.of(layers) is not None


@pytest.mark.full
@supported
@pytest.mark.parametrize("precision", LINEAR)
def test_threads_that_come_late_or_are_interrupted_change_nothing(precision: str) -> None:
    require(precision)
    fast, batch, expected = with_expected(precision)
    with torch.inference_mode():
        for repetition in range(20):  # with more threads than cores, the system interrupts them anywhere
            arguments = fast._few_rows.arguments(fast.steps.floats_of(fast.embeddings(batch)), batch)
            delays = [0.0, *np.random.default_rng(repetition).uniform(0, 0.002, size=5)]
            with ThreadPoolExecutor(len(delays)) as pool:
                results = list(pool.map(partial(after_delay, encode_few_rows, arguments), delays))
            for _, result in results:
                np.testing.assert_array_equal(result[: len(expected)], expected)


@pytest.mark.full
@supported
@pytest.mark.parametrize("precision", LINEAR)
def test_thread_that_comes_late_continues_from_any_layer(precision: str) -> None:
    require(precision)
    fast, batch, expected = with_expected(precision)
    with torch.inference_mode():
        arguments = fast._few_rows.arguments(fast.steps.floats_of(fast.embeddings(batch)), batch)
        encode_few_rows(*arguments)
        counters = arguments[2].counters
        is_used = counters > 0
        assert is_used.any()
        for layer in range(NUM_LAYERS + 1):  # earlier layers are computed, later ones wait for this thread
            counters[layer * len(counters) // NUM_LAYERS :] = 0
            _, result = encode_few_rows(*arguments)
            np.testing.assert_array_equal(result[: len(expected)], expected)
            np.testing.assert_array_equal(counters > 0, is_used)


def with_expected(precision: str) -> tuple[PreparedTransformer, Batch, np.ndarray]:
    """A prepared encoder, a batch of a few rows, and its hidden states layer by layer."""
    model = model_of()
    fast, plain = prepared_pair(model, precision)
    must_exist(fast._few_rows)
    batch = in_row_counts(collate(model.tokenizer.encode_batch(TEXTS[:1])))
    expected = plain(batch).last_hidden_state
    return fast, batch, array(expected.bfloat16() if precision.startswith("bfloat16") else expected)


def after_delay(function: Any, arguments: tuple, delay: float) -> tuple[np.ndarray, np.ndarray]:
    time.sleep(delay)
    return function(*arguments)


def test_every_unit_of_a_step_is_computed_once_before_the_next_step() -> None:
    counters, num_units, num_steps = np.zeros(20, np.int64), 7, 10
    computed = np.zeros((num_steps, num_units), np.int64)
    seen: list[bool] = []

    def run() -> None:
        for step in range(num_steps):
            while (unit := claim(counters, step)) < num_units:
                computed[step, unit] += 1
                finish(counters, step)
            wait(counters, step, num_units)
            seen.append(bool((computed[step] == 1).all()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 * num_steps and all(seen)
    assert (computed == 1).all()


@supported
@pytest.mark.parametrize(("precision", "most"), [("float32", 48), ("float32 compiled", 128), ("int8 compiled", 128)])
def test_numbers_of_rows_of_layers_in_one_function(precision: str, most: int) -> None:
    require(precision)
    layers = prepared_pair(model_of(), precision)[0].layers
    assert [are_few(number, layers) for number in (1, most, most + 1)] == [True, True, False]
    assert not are_few(1, [])
