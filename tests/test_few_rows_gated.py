"""A few rows at a time through gated and pre-norm layers: bit-identical to layers one after the other."""

from typing import Any

import pytest
import torch
from random_models import randomize, vocabulary_tokens
from test_few_rows import TEXTS, must_exist, supported

from bertkit import Model, Tokenizer, collate
from bertkit.architectures import ARCHITECTURES, prepare
from bertkit.transformer.few_rows import weights
from bertkit.transformer.kernels.dispatch import linear_for

pytestmark = pytest.mark.full

PRECISIONS = ["float32", "bfloat16", "int8"]
ARCHITECTURE_NAMES = ["modernbert", "nomic_bert", "gte"]


def model_of(architecture: str, **options: Any) -> Model:
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 192, "num_hidden_layers": 4}
    windows = {"local_attention": 4, "global_attn_every_n_layers": 3} if architecture == "modernbert" else {}
    config = ARCHITECTURES[architecture].config.of_size("tiny", vocab_size=99, **sizes | windows | options)
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), [])
    randomize(model.network, 3)
    return model


def require(precision: str) -> None:
    if linear_for(precision).linear not in weights.offered_few_rows(precision):
        pytest.skip(f"no layers of a few rows in {precision} on this processor")


def prepared_pair(model: Model, precision: str) -> tuple[Any, Any]:
    """With and without layers for a few rows."""
    fast, plain = (prepare(model.encoder, precision) for _ in range(2))
    plain.__dict__["_few_rows"] = None
    return fast, plain


@supported
@pytest.mark.every_processor
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURE_NAMES)
def test_hidden_states_are_bit_identical_to_layers(architecture: str, precision: str) -> None:
    require(precision)
    fast, plain = prepared_pair(model_of(architecture), precision)
    must_exist(fast._few_rows)
    tokenizer = model_of(architecture).tokenizer
    for texts in (TEXTS[:1], TEXTS[1:2], TEXTS[:3], TEXTS, ["the cat walked " * 5]):
        batch = collate(tokenizer.encode_batch(texts))
        expected = plain(batch).last_hidden_state
        for _ in range(3):
            assert torch.equal(fast(batch).last_hidden_state, expected)
        assert torch.equal(fast(batch, with_hidden_states=True).last_hidden_state, expected)


@supported
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURE_NAMES)
def test_both_activations_of_the_gate_and_heads_that_are_no_whole_vectors_wide(
    architecture: str, precision: str
) -> None:
    require(precision)
    name = "hidden_activation" if architecture == "modernbert" else "hidden_act"
    for activation, num_heads in (("gelu", 16), ("silu", 4)):
        model = model_of(architecture, num_attention_heads=num_heads, **{name: activation})
        fast, plain = prepared_pair(model, precision)
        must_exist(fast._few_rows)
        batch = collate(model.tokenizer.encode_batch(TEXTS[:2]))
        assert torch.equal(fast(batch).last_hidden_state, plain(batch).last_hidden_state)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", [{"hidden_size": 72}, {"intermediate_size": 204}, {"act": "relu"}], ids=str)
def test_other_layers_are_left_to_the_kernels_of_any_size(precision: str, options: dict[str, Any]) -> None:
    model = model_of("modernbert", **({"hidden_activation": "relu"} if "act" in options else options))
    fast, plain = prepared_pair(model, precision)
    batch = collate(model.tokenizer.encode_batch(TEXTS[:1]))
    assert torch.equal(fast(batch).last_hidden_state, plain(batch).last_hidden_state)
    assert fast._few_rows is None


@pytest.mark.parametrize("architecture", ARCHITECTURE_NAMES)
def test_processors_without_the_instructions(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("has_byte_products", "has_fused_multiplication", "has_wide_registers"):
        monkeypatch.setattr(weights, name, lambda *feature: False)
    for precision in PRECISIONS:
        assert prepared_pair(model_of(architecture), precision)[0]._few_rows is None
