"""Steps of generation for a few rows: bit-identical to layers one after the other, on any number of threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_few_rows import LINEAR, after_delay, must_exist, require, supported
from test_generation import TEXTS, bert_decoder, bert_pair, gpt2, marian
from torch import Tensor

from bertkit.errors import UsageError
from bertkit.generation import GenerationSettings, Generator, SequenceToSequence, decoding, load_generator
from bertkit.transformer import Encoder, PreparedDecoder, Qwen3Config
from bertkit.transformer.few_rows import prepared
from bertkit.transformer.few_rows.layers import encode_few_rows
from bertkit.transformer.few_rows.prepared import FewRows
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.cached_attention import CachedAttention
from bertkit.transformer.kernels.dispatch import kernels_for, linear_for
from bertkit.transformer.kernels.linear import CompiledBFloat16Linear, PlainLinear
from bertkit.transformer.kernels.llvm_vectors import has_fused_multiplication
from bertkit.transformer.prepared import float_steps

pytestmark = pytest.mark.full

BERT = {"hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4}
MARIAN = {"d_model": 128, "encoder_ffn_dim": 64, "decoder_ffn_dim": 192}
MAKERS: dict[str, Callable[[Path], Any]] = {
    "gpt2": lambda folder: gpt2(folder, n_embd=192, n_head=6),
    "bert": lambda folder: bert_decoder(folder, **BERT),
    "marian, relu": lambda folder: marian(folder, 0, **MARIAN, encoder_attention_heads=4, decoder_attention_heads=8),
    "marian, silu": lambda folder: marian(folder, 1, **MARIAN, encoder_attention_heads=4, decoder_attention_heads=2),
    "encoder-decoder": lambda folder: bert_pair(folder, **BERT),
}
DRAW = np.random.default_rng(3)
PROMPTS = [DRAW.integers(5, 90, length) for length in (1, 31, 3, 17, 2)]
PARENTS = [[0, 1, 2, 3, 4], [4, 4, 1, 0, 2, 2, 2], [*range(7)] * 2, [6], [0], [0, 0]]
"""Rows that continue in steps of 5, 7, 14, 1, 1 and 2 rows."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("generators")
    for number, make in enumerate(MAKERS.values()):
        make(folder / str(number))
    return {name: folder / str(number) for number, name in enumerate(MAKERS)}


@pytest.fixture
def precision(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A precision of generation, with the products of a key of LINEAR."""
    require(request.param)
    kind, name = LINEAR[request.param], request.param.partition(" ")[0]
    if name == "int8" and linear_for(name).linear is not kind:
        pytest.skip("generation in int8 uses the fastest products")

    def kernels(precision: str, device: torch.device) -> Any:
        chosen = kernels_for(precision, device)
        return chosen._replace(linear=kind) if precision == name != "int8" else chosen

    monkeypatch.setattr(float_steps, "kernels_for", kernels)
    return name


every_kind = pytest.mark.parametrize("precision", LINEAR, indirect=True)


@pytest.fixture
def layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FewRows, "of_decoder", lambda layers: None)
    monkeypatch.setattr(decoding, "few_rows_of", lambda linear: None)


def logits_of_steps(generator: Generator, precision: str, prompts: list[np.ndarray]) -> list[Tensor]:
    inputs = [own[:20] for own in prompts] if isinstance(generator, SequenceToSequence) else prompts
    steps, draw = generator.decoding(inputs, precision), np.random.default_rng(4)
    logits = [steps.start(prompts)]
    for parents in PARENTS:
        logits.append(steps.step(draw.integers(5, 90, len(parents)), np.array(parents)))
    return logits


def prompts_of(number: int) -> list[np.ndarray]:
    """All PROMPTS, whose tokens are too many for a step of a few rows, or the start of each."""
    return PROMPTS if number == 0 else [own[:number] for own in PROMPTS]


@supported
@pytest.mark.every_processor
@every_kind
@pytest.mark.parametrize("name", MAKERS)
def test_logits_are_bit_identical_to_layers(
    folders: dict[str, Path], name: str, precision: str, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    rows, before = [], torch.get_num_threads()

    def counted(function: Any, *arguments: Any) -> np.ndarray:
        if function is not encode_few_rows:
            rows.append(None)
        elif isinstance(arguments[4], CachedAttention):  # not of an encoder
            rows.append(len(arguments[2].sums))
        return on_shared_threads(function, *arguments)

    on_shared_threads = prepared.on_shared_threads
    monkeypatch.setattr(prepared, "on_shared_threads", counted)
    generator, given = load_generator(folders[name]), {}
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        try:
            given[num_threads] = [logits_of_steps(generator, precision, prompts_of(each)) for each in (0, 3)]
        finally:
            torch.set_num_threads(before)
    must_exist(rows)
    assert {1, 2, 5, 7, 14} <= set(rows)
    assert None in rows  # the products with the vocabulary
    request.getfixturevalue("layer_by_layer")
    generator, rows[:] = load_generator(folders[name]), []
    expected = [logits_of_steps(generator, precision, prompts_of(each)) for each in (0, 3)]
    assert not any(rows)
    for each in given.values():
        for ours, theirs in zip(each, expected, strict=True):
            assert all(map(torch.equal, ours, theirs))


@supported
@every_kind
def test_threads_that_come_late_change_nothing(folders: dict[str, Path], precision: str) -> None:
    generator = load_generator(folders["marian, relu"])
    steps: Any = generator.decoding(PROMPTS[:3], precision)
    must_exist(steps.decoder._few_rows)
    few_rows, cache = steps.decoder._few_rows, steps.start_cache(3)
    hidden = torch.randn(4, 128, generator=torch.Generator().manual_seed(0)).to(steps.decoder.dtype)
    expected = None
    for repetition in range(20):
        cache.lengths[:] = 0  # each time the first step
        cache.begin(np.ones(3, np.int64))
        arguments = few_rows.arguments(hidden, cache)
        if expected is None:
            expected = encode_few_rows(*arguments)
            arguments = few_rows.arguments(hidden, cache)
        delays = [0.0, *np.random.default_rng(repetition).uniform(0, 0.002, size=5)]
        with ThreadPoolExecutor(len(delays)) as pool:
            for result in pool.map(partial(after_delay, encode_few_rows, arguments), delays):
                np.testing.assert_array_equal(result[1][:4], expected[1][:4])


@supported
@pytest.mark.usefixtures("one_thread")
def test_texts_are_those_of_layers(folders: dict[str, Path], request: Any) -> None:
    settings = [GenerationSettings(max_new_tokens=9, num_candidates=2), GenerationSettings(num_beams=3)]
    made = [[load_generator(folder).generate(TEXTS, each) for each in settings] for folder in folders.values()]
    request.getfixturevalue("layer_by_layer")
    assert made == [[load_generator(folder).generate(TEXTS, each) for each in settings] for folder in folders.values()]


@pytest.mark.parametrize(
    "changes", [{"n_embd": 72, "n_head": 3}, {"activation_function": "tanh", "n_embd": 192}], ids=str
)
def test_other_layers_are_left_to_the_kernels_of_any_size(tmp_path: Path, changes: dict[str, Any]) -> None:
    gpt2(tmp_path / "model", **changes)
    for precision in ("float32", "bfloat16", "int8"):
        steps: Any = load_generator(tmp_path / "model").decoding(PROMPTS, precision)
        assert steps.decoder._few_rows is None
        assert bool(steps.start(PROMPTS).isfinite().all())


@pytest.mark.skipif(not has_fused_multiplication(), reason="compiled products of bfloat16 need FMA")
@pytest.mark.every_processor
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_new", "silu", "relu", "tanh", "residual"])
@pytest.mark.parametrize(("num_outputs", "width"), [(64, 16), (201, 33), (128, 1_040)])
@pytest.mark.parametrize("inputs", range(1, CompiledBFloat16Linear.inputs + 1))
@torch.inference_mode()
def test_rows_of_compiled_products_of_bfloat16(
    inputs: int, num_outputs: int, width: int, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompiledBFloat16Linear, "inputs", inputs)  # in pairs and widened
    generator, before = torch.Generator().manual_seed(width), torch.get_num_threads()
    weight, bias, x, residual = (
        torch.randn(*shape, generator=generator).bfloat16()
        for shape in ((num_outputs, width), (num_outputs,), (203, width), (203, num_outputs))
    )
    options: dict[str, Any] = {} if activation == "residual" else {"activation": activation}
    added = residual if activation == "residual" else None
    linear, plain = CompiledBFloat16Linear(weight, bias), PlainLinear(weight.double(), bias.double())
    whole = linear(x, residual=added, **options)
    expected = plain(x.double(), residual=None if added is None else added.double(), **options)
    bound = 2**-8 if activation in (None, "residual", "relu") else 2**-6  # activations are of rounded numbers
    torch.testing.assert_close(whole.double(), expected, rtol=bound, atol=bound)
    for num_threads, sizes in ((1, (1, 2, 200)), (2, (3, 100, 100)), (3, (96, 97, 10))):
        torch.set_num_threads(num_threads)
        try:
            parts = zip(x.split(sizes), residual.split(sizes), strict=True)
            given = [linear(own, residual=None if added is None else other, **options) for own, other in parts]
        finally:
            torch.set_num_threads(before)
        assert torch.equal(torch.cat(given), whole)
        of_arrays = linear(array(x), residual=None if added is None else array(residual), **options)
        np.testing.assert_array_equal(of_arrays, array(whole))
    without, zeros = CompiledBFloat16Linear(weight, None), torch.zeros(num_outputs).bfloat16()
    assert torch.equal(without(x), CompiledBFloat16Linear(weight, zeros)(x))


def test_decoders_whose_layers_are_not_written_here_are_refused() -> None:
    config = Qwen3Config(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, head_dim=16
    )
    with pytest.raises(UsageError, match=r"positions=RotaryPositions.*gate='separate'.*others do not generate"):
        PreparedDecoder(Encoder(config))
