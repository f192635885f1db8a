"""Inference with the same bits in any batch on the simulated GPU, by Triton's interpreter.

Run by test_triton.py with BERTKIT_BATCH_INVARIANT=1.
"""

from pathlib import Path
from typing import Any

import interpreted_bfloat16  # noqa: F401
import numpy as np
import pytest
import torch
from families import FAMILIES
from test_generation import MAKERS

from bertkit import collate
from bertkit.architectures import prepare
from bertkit.generation import SequenceToSequence, load_generator
from bertkit.inference import equality
from bertkit.transformer import cuda_graphs
from bertkit.transformer.kernels import choices, triton_attention, triton_cache, triton_products

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]
CLOSE = {"float32": 1e-5, "bfloat16": 0.1, "float16": 0.02}  # of the largest hidden state, tiny random models


@pytest.fixture(autouse=True)
def computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No recordings: Triton's interpreter computes at once."""
    monkeypatch.setattr(cuda_graphs, "can_be_recorded", lambda encoder, precision: False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller model and fewer texts for `check_equality`."""
    widths = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 70}
    for name, value in {"_WIDTHS": widths, "_NUM_TEXTS": 8, "_LONGEST": 70}.items():
        monkeypatch.setattr(equality, name, value)
    monkeypatch.setattr(equality, "_network", equality._network.__wrapped__)


@pytest.mark.usefixtures("small")
def test_the_check_of_doctor_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for module, name in ((triton_products, "multiply"), (triton_attention, "invariant_attention")):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, at=name, work=function: calls.append(at) or work(*given))
    check = equality.check_equality("bfloat16", "cuda")
    assert check.num_different == 0 and check.num_texts == 8
    assert {*calls} == {"multiply", "invariant_attention"}


@pytest.mark.usefixtures("small")
def test_the_check_finds_tiles_by_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = triton_products.multiply

    def by_rows(x: torch.Tensor, *others: Any) -> torch.Tensor:
        tiles = triton_products.Tiles(64, 64, 16 if len(x) < 64 else 32, 4, 3)
        monkeypatch.setattr(triton_products, "tiles_of", lambda *given: tiles)
        return multiply(x, *others)

    monkeypatch.setattr(triton_products, "multiply", by_rows)
    assert equality.check_equality("float32", "cuda").num_different > 4


@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "bfloat16") for name in FAMILIES), ("bert", "float32"), ("bert", "float16"), ("qwen3", "float16")],
)
@torch.inference_mode()
def test_every_family(name: str, precision: str) -> None:
    model = FAMILIES[name].our_model("encoder", 0)
    encodings = model.tokenizer.encode_batch([*TEXTS, *TEXTS[::-1]], max_length=19, on_long="truncate")
    expected = model.encoder(collate(encodings)).last_hidden_state
    encoder = prepare(model.encoder.to("cuda"), precision)
    batch = collate(encodings)
    given = encoder(batch.to(torch.device("cuda"))).last_hidden_state
    assert float((given.cpu() - expected).abs().max() / expected.abs().max()) <= CLOSE[precision]
    for encoding, in_batch in zip(encodings, given.split(batch.seqlens), strict=True):
        alone = encoder(collate([encoding]).to(torch.device("cuda"))).last_hidden_state
        assert torch.equal(alone.cpu(), in_batch.cpu())


@pytest.mark.parametrize(
    ("name", "precision"), [*((name, "bfloat16") for name in MAKERS), ("gpt2", "float32"), ("gpt2", "float16")]
)
def test_generation(tmp_path: Path, name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKERS[name](tmp_path, 2)
    generator, calls = load_generator(tmp_path, device="cuda"), []
    attend = triton_cache.InvariantKeyValueCache.attend
    monkeypatch.setattr(
        triton_cache.InvariantKeyValueCache, "attend", lambda *given: calls.append(None) or attend(*given)
    )
    draw = np.random.default_rng(3)
    prompts = [draw.integers(5, 90, length) for length in (1, 11, 3)]
    tokens = [draw.integers(5, 90, 3) for _ in range(2)]

    def logits(rows: list[int]) -> torch.Tensor:
        """(steps, rows, V)."""
        own = [prompts[row] for row in rows]
        decoding = generator.decoding(own, precision)
        found = [decoding.start([one[:1] for one in own] if isinstance(generator, SequenceToSequence) else own)]
        found += [decoding.step(step[rows], np.arange(len(rows))) for step in tokens]
        return torch.stack(found).cpu()

    together = logits([0, 1, 2])
    assert together.isfinite().all() and calls
    for row in range(3):
        assert torch.equal(logits([row])[:, 0], together[:, row])


def test_where_the_kernels_run() -> None:
    numbers = torch.ones(1, device="cuda")
    assert not choices.has_invariant_kernels(numbers)  # with gradients
    with torch.no_grad():
        assert choices.has_invariant_kernels(numbers) and not choices.has_invariant_kernels(numbers.double())
        assert not choices.has_invariant_kernels(numbers.cpu())
