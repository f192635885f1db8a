"""Generation with the cache of a GPU, in torch's own operations: equal to the compiled one, and without waiting.

The meta device stands for a GPU: it has shapes but no numbers, so every read of a number raises an error.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_device_copies import Copies
from test_generation import MAKERS, TEXTS, bert_pair, gpt2, marian
from torch import Tensor

from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.generation import (
    Causal,
    Ending,
    GenerationSettings,
    Generator,
    SequenceToSequence,
    completed,
    engine,
    generation_steps,
    load_generator,
)
from bertkit.transformer import PreparedTransformer
from bertkit.transformer.kernels.dispatch import kernels_for, plain_kernels
from bertkit.transformer.kernels.key_value_cache import CompiledKeyValueCache, PlainKeyValueCache
from bertkit.transformer.prepared import encoder as encoders
from bertkit.transformer.prepared import float_steps
from bertkit.transformer.prepared.decoder import PreparedDecoder

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = list(MAKERS)
DRAW = np.random.default_rng(3)
PROMPTS = [DRAW.integers(5, 90, length) for length in (1, 31, 3, 17, 2)]  # ids of every model
PARENTS = [[0, 1, 2, 3, 4], [4, 4, 1, 0, 2, 2, 2], [6, 0, 5, 2, 1], [3, 1], [1, 0, 1]]
"""Rows that continue, reordered, repeated and dropped."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("generators")
    for name, make in MAKERS.items():
        make(folder / name, 2)
    return {name: folder / name for name in NAMES}


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models use the kernels of a GPU on the CPU."""
    for module in (encoders, float_steps):
        monkeypatch.setattr(module, "kernels_for", lambda precision, device: plain_kernels(precision))


def logits_of_steps(generator: Generator, precision: str = "float32") -> list[Tensor]:
    """Logits after prompts of very different lengths, and after steps of PARENTS and then of the last rows, which
    outgrow the first capacity."""
    inputs = [own[:20] for own in PROMPTS] if isinstance(generator, SequenceToSequence) else PROMPTS
    decoding, draw = generator.decoding(inputs, precision), np.random.default_rng(4)
    logits = [decoding.start(PROMPTS)]
    for parents in (*PARENTS, *[[0, 1, 2]] * 3):
        logits.append(decoding.step(draw.integers(5, 90, len(parents)), np.array(parents)))
    return logits


def largest_difference(given: list[Tensor], expected: list[Tensor]) -> float:
    """Relative to the largest logit."""
    assert [one.shape for one in given] == [one.shape for one in expected]
    return float((torch.cat(given) - torch.cat(expected)).abs().max() / torch.cat(expected).abs().max())


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_plain_cache_equals_the_compiled_one(folders: dict[str, Path], name: str, request: Any) -> None:
    expected = logits_of_steps(load_generator(folders[name]))
    request.getfixturevalue("plain")
    for precision, bound in (("float32", 1e-5), ("bfloat16", 0.06), ("float16", 0.006)):
        given = largest_difference(logits_of_steps(load_generator(folders[name]), precision), expected)
        assert given <= bound and (given > 1e-5) == (precision != "float32"), (precision, given)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_generated_texts_are_equal(folders: dict[str, Path], name: str, request: Any) -> None:
    options: list[dict[str, Any]] = [{"num_candidates": 3}, {"num_beams": 3}, {"temperature": 0.8, "top_p": 0.9}]
    made = []
    for kernels in ("compiled", "plain"):
        if kernels == "plain":
            request.getfixturevalue("plain")
        generator = load_generator(folders[name])
        made += [[generator.generate(TEXTS * 4, GenerationSettings(14, **option)) for option in options]]
    for ours, expected in zip(itertools.chain(*made[1]), itertools.chain(*made[0]), strict=True):
        assert ours.text == expected.text and ours.num_tokens == expected.num_tokens
        assert ours.score == pytest.approx(expected.score, abs=1e-3)
        assert len(ours.candidates) == len(expected.candidates)
    assert max(one.num_tokens for one in made[0][0]) == 14


@pytest.mark.parametrize("kind", [PlainKeyValueCache, CompiledKeyValueCache])
def test_several_tokens_at_a_time(folders: dict[str, Path], kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        float_steps, "kernels_for", lambda precision, device: kernels_for(precision, device)._replace(cache=kind)
    )
    generator = load_generator(folders["bert"])
    assert isinstance(generator, Causal)
    decoder = PreparedDecoder(generator.model.network.encoder)
    whole = decoder(np.concatenate(PROMPTS), np.array([1, 31, 3, 17, 2]), decoder.start(5))
    (of_first, of_second), cache = ([PROMPTS[1], PROMPTS[3]], decoder.start(2))
    parts = []
    for first, second in ((slice(5), slice(1)), (slice(5, 6), slice(1, 9)), (slice(6, 31), slice(9, 17))):
        new = of_first[first], of_second[second]
        hidden = decoder(np.concatenate(new), np.array([len(one) for one in new]), cache)
        parts += hidden.split([len(one) for one in new])
    given = torch.cat([*parts[::2], *parts[1::2]])
    torch.testing.assert_close(given, torch.cat([whole[1:32], whole[35:52]]), rtol=0, atol=1e-5)
    assert cache.lengths.tolist() == [31, 17]


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("head_dim", [5, 16, 37])
def test_keys_and_values_in_bfloat16_are_those_rounded(head_dim: int) -> None:
    torch.manual_seed(head_dim)
    sizes, width = (1, 3, 2, head_dim), 2 * head_dim
    rounded = CompiledKeyValueCache(*sizes, torch.bfloat16, torch.device("cpu"))
    expected, exact = (PlainKeyValueCache(*sizes, torch.float32, torch.device("cpu")) for _ in range(2))
    lengths = np.zeros(3, np.int64)
    for num_new in ([4, 1, 40], [1, 33, 2]):
        cu_new = np.concatenate([[0], np.cumsum(num_new)])
        rows = torch.randn(cu_new[-1], 3 * width)
        rounded_rows = torch.cat([rows[:, :width], rows[:, width:].bfloat16().float()], 1)
        attended = []
        for cache, given in ((rounded, rows), (expected, rounded_rows), (exact, rows)):
            cache.begin_append(cu_new, lengths)
            cache.append(0, given, width)
            cache.begin_attend(cu_new, lengths, np.arange(3), True)
            attended.append(cache.attend(0, rows))
        torch.testing.assert_close(attended[0], attended[1], rtol=0, atol=1e-5)
        assert 1e-4 < (attended[0] - attended[2]).abs().max() < 0.02
        lengths += num_new


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", np.float32), ("bfloat16", np.uint16), ("int8", np.uint16)]
)
def test_keys_and_values_of_short_precisions_take_half_the_memory(
    folders: dict[str, Path], precision: str, dtype: type
) -> None:
    generator = load_generator(folders["marian"])
    assert isinstance(generator, SequenceToSequence)
    decoder = PreparedDecoder(generator.checkpoint.network.decoder, precision)
    cache = decoder.start(2, torch.zeros(5, 24), [2, 3], [0, 1])
    for each in (cache.own, cache.sources):
        assert isinstance(each, CompiledKeyValueCache) and each.keys.dtype == each.values.dtype == dtype


@pytest.mark.full
@pytest.mark.parametrize(
    ("kernels", "last"), [(kernels_for, "int8"), (lambda precision, device: plain_kernels(precision), "float16")]
)
@torch.inference_mode()
def test_whole_sequences_need_no_cache(
    folders: dict[str, Path], kernels: Any, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = load_generator(folders["gpt2"])
    assert isinstance(generator, Causal)
    encoder, batch = generator.model.network.encoder, generator.batch(PROMPTS)
    expected = encoder(batch).last_hidden_state
    monkeypatch.setattr(float_steps, "kernels_for", kernels)
    bounds = {"float32": 1e-5, "bfloat16": 0.06, "float16": 6e-3, "int8": 0.25}
    for precision in ("float32", "bfloat16", last):
        prepared_encoder = PreparedTransformer(encoder, precision)
        hidden = prepared_encoder(batch).last_hidden_state
        assert hidden.dtype == torch.float32
        assert (hidden - expected).abs().max() <= bounds[precision] * expected.abs().max()
        for own, alone in zip(PROMPTS, hidden.split([len(one) for one in PROMPTS]), strict=True):
            assert torch.equal(prepared_encoder(generator.batch([own])).last_hidden_state, alone)
    generator.network.to("meta")
    prepared_encoder, batch = PreparedTransformer(encoder, "float16"), batch.to("meta")
    with Copies() as copies:
        assert prepared_encoder(batch).last_hidden_state.shape == expected.shape
    assert not copies.counts


def test_cache_has_the_dtype_and_device_of_the_products(folders: dict[str, Path], plain: None) -> None:
    generator = load_generator(folders["marian"])
    assert isinstance(generator, SequenceToSequence)
    decoder = PreparedDecoder(generator.checkpoint.network.decoder, "float16")
    cache = decoder.start(2, torch.zeros(5, 24), [2, 3], [0, 1])
    assert isinstance(cache.own, PlainKeyValueCache) and isinstance(cache.sources, PlainKeyValueCache)
    assert [tuple(layer.shape) for layer in cache.sources.layers] == [(2, 2, 3, 32, 8)] * 3
    assert {layer.dtype for layer in (*cache.own.layers, *cache.sources.layers)} == {torch.float16}
    decoder(np.array([5, 6, 7]), np.array([1, 2]), cache)
    assert [layer.shape[3] for layer in cache.own.layers] == [32] * 3
    decoder(np.full(34, 5), np.array([1, 33]), cache)
    assert [layer.shape[3] for layer in cache.own.layers] == [64] * 3


@pytest.mark.parametrize("name", NAMES)
def test_steps_wait_for_nothing(folders: dict[str, Path], name: str) -> None:
    generator = load_generator(folders[name])
    generator.network.to("meta")
    inputs = [own[:20] for own in PROMPTS] if isinstance(generator, SequenceToSequence) else PROMPTS
    decoding = generator.decoding(inputs, "bfloat16")
    logits = decoding.start(PROMPTS)
    assert logits.device.type == "meta" and logits.shape[0] == 5 and logits.dtype == torch.float32
    with Copies() as copies:
        for parents in PARENTS:
            logits = decoding.step(np.full(len(parents), 7), np.array(parents))
            assert logits.shape[0] == len(parents)
    # The batch, the new tokens, what they attend to, and for all steps but the first the rows that continue.
    has_sources = isinstance(generator, SequenceToSequence)
    assert copies.counts == {("cpu", "meta"): (4 + has_sources) * len(PARENTS) - 1}


@pytest.mark.parametrize("name", NAMES)
def test_greedy_search_waits_once_for_each_token(
    folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, begun = load_generator(folders[name]), []

    def receive(tensor: Tensor) -> Any:
        begun.append(tensor.device.type)
        return lambda: torch.full(tensor.shape, 7, dtype=tensor.dtype)

    monkeypatch.setattr(engine, "receive", receive)
    generator.network.to("meta")
    settings = GenerationSettings(5, num_candidates=2)
    inputs = generator.encode(TEXTS)
    prompts, limits = generator.prompts_and_limits(inputs, settings)
    decoding, ending = generator.decoding(inputs, "float32"), Ending((3,), forbidden_ids=(4,), forced_end_id=3)
    made = completed(generation_steps(decoding, prompts, limits, settings, ending))
    assert [one.ids for one in made] == [[7] * 5] * len(TEXTS)
    assert begun == ["meta"] * 4 * 5  # ids and log probabilities, of the chosen tokens and of candidates, each step


def test_forced_end_and_forbidden_ids() -> None:
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    ending, is_last = Ending((2, 5), forbidden_ids=(0, 4), forced_end_id=2), np.array([False, True, False])
    log_probs = engine.next_log_probs(logits, ending, is_last)
    assert log_probs[1].tolist() == [-np.inf, -np.inf, 0.0, *[-np.inf] * 4]
    expected = logits.log_softmax(-1)
    expected[:, [0, 4]] = -torch.inf
    assert torch.equal(log_probs[[0, 2]], expected[[0, 2]])


def test_weights_in_float64(tmp_path: Path) -> None:
    gpt2(tmp_path / "model")
    generator = load_generator(tmp_path / "model")
    expected = logits_of_steps(generator)
    generator.network.double()
    assert largest_difference(logits_of_steps(generator, "bfloat16"), expected) <= 1e-5


@pytest.mark.parametrize("make", [gpt2, marian, bert_pair])
def test_precisions_that_a_device_lacks(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "model")
    generator = load_generator(tmp_path / "model")
    message = "precision='float16' runs on a GPU, not on the CPU: choose bfloat16 or int8 there"
    with pytest.raises(UsageError, match=message):
        generator.generate(["the"], GenerationSettings(precision="float16"))
    generator.network.to("meta")
    with pytest.raises(UsageError, match="precision='int8' runs on the CPU, not on meta: choose bfloat16 there"):
        generator.decoding(generator.encode(["the"]), "int8")


def test_device_of_a_generator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpt2(tmp_path / "gpt2")
    marian(tmp_path / "marian")
    for name in ("gpt2", "marian"):
        with pytest.raises(UsageError, match="device='nowhere': expected auto, cpu, cuda or mps"):
            load_generator(tmp_path / name, device="nowhere")
    arguments = ["generate", "the cat", "--model", str(tmp_path / "gpt2"), "--max-new-tokens", "2"]
    assert run([*arguments, "--device", "cpu"]) == 0
    expected = capsys.readouterr().out
    assert run(arguments) == 0 and capsys.readouterr().out == expected
    assert run([*arguments, "--device", "nowhere"]) == 2
    assert "--device nowhere" in capsys.readouterr().err
