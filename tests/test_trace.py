"""Trace: equal to the fast path and to transformers, for every architecture; bad inputs in one line."""

import numpy as np
import pytest
import random_modern
import torch
from random_models import error, our_model, published_model, save_published, vocabulary_tokens

import bertkit
from bertkit import Model, Tokenizer
from bertkit.architectures import ARCHITECTURES
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.errors import OverLengthError, UsageError

TEXT, PAIR = "the unable cat walked", "a dog sat on the red mat"

pytestmark = pytest.mark.usefixtures("one_thread")


def tiny(model_type: str, *heads: str, max_position_embeddings: int = 48) -> Model:
    """A small model of an architecture with trained heads."""
    config = ARCHITECTURES[model_type].config.of_size(
        "tiny", vocab_size=99, hidden_size=24, num_attention_heads=4, intermediate_size=28, num_hidden_layers=3,
        initializer_range=0.3, max_position_embeddings=max_position_embeddings,
    )  # fmt: skip
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), heads, seed=3)
    model.checkpoint.provenance = {name: Provenance("trained") for name in model.checkpoint.provenance}
    return model


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
@pytest.mark.parametrize("pair", [None, PAIR])
def test_is_equal_to_the_fast_path(model_type: str, pair: str | None) -> None:
    heads = {"masked_lm"} & ARCHITECTURES[model_type].heads.keys()
    model = tiny(model_type, *heads)
    recorded = model.trace(TEXT, pair, layers=[3, 1])
    encoding = model.tokenizer.encode(TEXT, pair)
    with torch.inference_mode():
        fast = model._torch_runner.encoder(bertkit.collate([encoding]), with_hidden_states=True)
    assert fast.hidden_states is not None
    for ours, theirs in zip(recorded.hidden_states, fast.hidden_states, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=3e-5)
    length = len(encoding)
    assert len(recorded) == length and list(recorded.layers) == [1, 3]
    logits = recorded.masked_lm_logits
    assert (logits is None and not heads) or (heads and logits.shape == (length, 99))
    for number, layer in recorded.layers.items():
        width = model.encoder.in_order()[number - 1].config.head_dim
        assert layer.query.shape == layer.key.shape == layer.value.shape == (4, length, width)
        np.testing.assert_allclose(layer.attention_probs.sum(-1), 1, atol=1e-5)
        norms = per_head_norms(model.encoder.in_order()[number - 1].attention.output.weight, layer.value)
        np.testing.assert_allclose(layer.value_norms, norms, rtol=1e-4)
    second = [i for i in range(length) if recorded.second_text[i]]
    assert second == ([] if pair is None else list(range(len(model.tokenizer.encode(TEXT)), length)))
    words = [[recorded.text_of(i) for i in group] for group in recorded.word_groups()]
    expected = [["[CLS]"], ["the"], ["un", "able"], ["cat"], ["walk", "ed"], ["[SEP]"]]
    assert words[:6] == expected and (pair is None or words[6:8] == [["a"], ["d", "o", "g"]] or words[7] == ["dog"])


@pytest.mark.parametrize("text", ["\u200b", TEXT])
@pytest.mark.parametrize("pair", ["\u200b", PAIR])
def test_a_text_without_tokens_is_not_the_second(text: str, pair: str) -> None:
    """A zero-width space is not empty, and is no token."""
    recorded = tiny("bert").trace(text, pair, layers=[])
    np.testing.assert_array_equal(recorded.second_text, recorded.token_type_ids == 1)
    assert all(recorded.text_of(i) in pair for i in np.flatnonzero(recorded.second_text)[:-1])


def per_head_norms(output: torch.Tensor, value: np.ndarray) -> np.ndarray:
    """(H, L) by zeroing the other heads, one at a time."""
    norms = []
    for head in range(len(value)):
        alone = np.zeros_like(value)
        alone[head] = value[head]
        joined = alone.transpose(1, 0, 2).reshape(value.shape[1], -1)  # (L, H K)
        norms.append(np.linalg.norm(joined @ output.detach().numpy().T, axis=-1))
    return np.array(norms)


@pytest.mark.parametrize("number", [1, 4])
def test_is_equal_to_eager_transformers(number: int, tmp_path) -> None:
    published = published_model("pretraining", number)
    model = bertkit.load(save_published(published, tmp_path / "model"))
    recorded = model.trace(TEXT, "the mat")
    inputs = {
        "input_ids": torch.from_numpy(recorded.input_ids)[None].long(),
        "token_type_ids": torch.from_numpy(recorded.token_type_ids)[None].long(),
    }
    with torch.no_grad():
        expected = published(**inputs, output_attentions=True, output_hidden_states=True)
    assert error(torch.from_numpy(recorded.hidden_states), torch.cat(expected.hidden_states)) < 1e-4
    for layer, probs in zip(recorded.layers.values(), expected.attentions, strict=True):
        assert error(torch.from_numpy(layer.attention_probs), probs[0]) < 1e-4
    assert error(torch.from_numpy(recorded.masked_lm_logits), expected.prediction_logits[0]) < 1e-3
    assert error(torch.from_numpy(recorded.next_sentence_logits), expected.seq_relationship_logits[0]) < 1e-3


def test_modernbert_is_equal_to_eager_transformers(tmp_path) -> None:
    published = random_modern.published_model("masked_lm", 5)
    model = bertkit.load(save_published(published, tmp_path / "model"))
    recorded = model.trace(TEXT)
    with torch.no_grad():
        ids = torch.from_numpy(recorded.input_ids)[None].long()
        expected = published(ids, output_attentions=True, output_hidden_states=True)
    for layer, probs in zip(recorded.layers.values(), expected.attentions, strict=True):
        assert error(torch.from_numpy(layer.attention_probs), probs[0]) < 1e-4
    assert error(torch.from_numpy(recorded.masked_lm_logits), expected.logits[0]) < 1e-3


def test_heads_that_are_missing_or_untrained_give_no_logits() -> None:
    model = our_model("encoder", 3, max_position_embeddings=40)
    assert model.trace(TEXT, PAIR).masked_lm_logits is None
    untrained = Model.create(model.config, model.tokenizer, ["masked_lm", "next_sentence"])
    recorded = untrained.trace("the cat", layers=[])
    assert recorded.masked_lm_logits is None and recorded.next_sentence_logits is None and recorded.layers == {}


def test_bad_input_is_one_sentence() -> None:
    model = our_model("pretraining", 3, max_position_embeddings=29)
    with pytest.raises(OverLengthError, match="the text has 5,002 tokens, the model accepts 29: shorten it"):
        model.trace("cat " * 5_000)
    with pytest.raises(UsageError, match="the text is empty"):
        model.trace("  ")
    with pytest.raises(UsageError, match="the pair is empty"):
        model.trace("cat", "")
    with pytest.raises(UsageError, match=r"layer 9: expected 1 to 4"):
        model.trace("cat", layers=[9])


def test_trace_of_literal_mask_and_its_dict() -> None:
    model = our_model("pretraining", 3, max_position_embeddings=29)
    recorded = model.trace("the [MASK] sat")
    assert recorded.tokens == ("[CLS]", "the", "[MASK]", "sat", "[SEP]")
    content = recorded.to_dict()
    assert content["tokens"] == recorded.tokens and content["layers"][2]["query"] == recorded.layers[2].query.tolist()


def test_unrecorded_inference_keeps_its_bits() -> None:
    model = our_model("pretraining", 3, max_position_embeddings=29)
    before = model.embed(TEXT)
    model.trace(TEXT)
    assert np.array_equal(before, model.embed(TEXT))
