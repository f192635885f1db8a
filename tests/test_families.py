"""Every architecture prepared for inference, in training, fine-tuned, with adapters, and in its published forms."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from exactness import Family, error
from families import FAMILIES
from random_models import edit_json, edit_tensors
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import Tensor, nn

import bertkit
from bertkit import Model, collate
from bertkit.architectures import Network, prepare
from bertkit.architectures.initialization import initialize
from bertkit.batch import Batch
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import BertkitError, TruncationWarning, UsageError
from bertkit.transformer.kernels import inference_steps, steps, training_kernels
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE
from bertkit.transformer.kernels.panel_product import weight_scales
from bertkit.transformer.kernels.tile_attention import attend_tiles
from bertkit.transformer.prepared import encoder as prepared_encoder
from bertkit.transformer.prepared.encoder import distinct_tokens

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]
CONFIGURATIONS = [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2, 3))]
CLOSE = {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.3}  # of the largest hidden state, tiny random models


@pytest.fixture(params=FAMILIES.values(), ids=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    return request.param


_OF_MASKS = [name for name, family in FAMILIES.items() if "masked_lm" in family.record.heads]
predicts_masks = pytest.mark.parametrize("family", [FAMILIES[name] for name in _OF_MASKS], ids=_OF_MASKS)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("number", CONFIGURATIONS)
@pytest.mark.parametrize("precision", CLOSE)
@torch.inference_mode()
def test_prepared_encoders_are_close_and_bit_identical_regardless_of_batch(
    family: Family, precision: str, number: int
) -> None:
    model = family.our_model("encoder", number)
    encodings = model.tokenizer.encode_batch([*TEXTS, *TEXTS[::-1]], max_length=19, on_long="truncate")
    batch = collate(encodings)
    expected = model.encoder(batch, with_hidden_states=True)
    prepared = prepare(model.encoder, precision)
    results = prepared(batch, with_hidden_states=True)
    for ours, reference in zip(results.hidden_states, expected.hidden_states, strict=True):
        assert error(ours, reference) <= CLOSE[precision]
    assert torch.equal(results.hidden_states[-1], results.last_hidden_state)
    together = results.last_hidden_state.split(batch.seqlens)
    for encoding, in_batch in zip(encodings, together, strict=True):
        assert torch.equal(prepared(collate([encoding])).last_hidden_state, in_batch)


def test_every_parameter_has_an_initial_value(family: Family) -> None:
    config = family.random_config(1)
    for head in [name for name, place in family.record.heads.items() if place is not None]:
        network = Network(config, [head], with_pooler=family.record.has_pooler)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.fill_(torch.nan)
        initialize(network, config, seed=1)
        assert all(parameter.isfinite().all() for parameter in network.parameters()), head


@pytest.mark.parametrize("precision", CLOSE)
@torch.inference_mode()
def test_first_tokens_alone_have_the_same_bits(family: Family, precision: str) -> None:
    model = family.our_model("encoder", 0)
    prepared = prepare(model.encoder, precision)
    batch = collate(model.tokenizer.encode_batch([*TEXTS, *TEXTS[::-1]] * 4, max_length=19, on_long="truncate"))
    whole, firsts = (prepared(batch, first_only=first_only).last_hidden_state for first_only in (False, True))
    assert torch.equal(firsts[batch.first_tokens], whole[batch.first_tokens])
    assert firsts.shape == whole.shape and firsts.any(dim=1).sum() == len(batch) < whole.any(dim=1).sum()


@pytest.mark.parametrize("precision", CLOSE)
@torch.inference_mode()
def test_equal_tokens_are_multiplied_once_with_the_same_bits(
    family: Family, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = family.our_model("encoder", 0)
    prepared, found = prepare(model.encoder, precision), list[bool]()
    batch = collate(model.tokenizer.encode_batch([*TEXTS, *TEXTS[::-1]] * 4, max_length=19, on_long="truncate"))

    def count(batch: Batch) -> Any:
        found.append((distinct := distinct_tokens(batch)) is not None)
        return distinct

    monkeypatch.setattr(prepared_encoder, "distinct_tokens", count)
    once = prepared(batch).last_hidden_state
    assert found == [True] * (prepared._repeats_rows and len(batch.input_ids) > 128)
    monkeypatch.setattr(prepared_encoder, "distinct_tokens", lambda batch: None)
    assert torch.equal(once, prepared(batch).last_hidden_state)


@pytest.mark.full
def test_int8_rounds_what_products_read_and_nothing_else(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is the encoder in float64 with rounded weights, and with rounded inputs of its products."""
    monkeypatch.setattr(inference_steps, "attend", attend_in_float32)
    if family.model_type == "deberta-v2":
        pytest.skip("keys and queries of positions, from the same weights, are not rounded")
    model = family.our_model("encoder", 1)
    batch = collate(model.tokenizer.encode_batch(TEXTS, max_length=19, on_long="truncate"))
    with torch.inference_mode():
        expected = model.encoder(batch).last_hidden_state
        results = prepare(model.encoder, "int8")(batch).last_hidden_state
    exact = deepcopy(model.encoder).double()
    for layer in {layer for part in exact.layers for layer in part.modules() if isinstance(layer, nn.Linear)}:
        with torch.no_grad():
            steps = torch.from_numpy(weight_scales(layer.weight.numpy()))[:, None]
            layer.weight.copy_((layer.weight / steps).round() * steps)
        layer.register_forward_pre_hook(lambda layer, inputs: rounded_to_8_bits(*inputs))
    with torch.inference_mode():
        rounded = exact(batch).last_hidden_state
    errors, effects = ((states - rounded).abs().amax(1) for states in (results, expected))
    assert errors.median() <= 1e-4 and effects.median() >= 1e-3  # a number between two steps may have the other one


def attend_in_float32(rows: Any, cu_seqlens: Any, num_heads: int, context: Any, quantized: Any, *others: Any) -> None:
    """`attend`, which on some processors rounds to bfloat16."""
    sizes = cu_seqlens, cu_seqlens, num_heads, context.shape[1]
    attend_tiles(rows, rows, *sizes, context, quantized, None, *others)


def rounded_to_8_bits(rows: Tensor) -> Tensor:
    """Rows in equal steps from the smallest to the largest number; 0 counts as one if vectors of 16 have room left."""
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    if rows.shape[1] % 16:
        low, high = low.clamp(max=0), high.clamp(min=0)
    step = (high - low) / LARGEST_BYTE
    return low + ((rows - low) / step).round() * step


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("precision", CLOSE)
def test_vectors_are_bit_identical_regardless_of_batch(family: Family, precision: str) -> None:
    model, texts = Model(family.our_model("encoder", 5).checkpoint, precision), [text[:15] for text in TEXTS] * 3
    expected = model.embed(texts, tokens_per_batch=10_000)
    np.testing.assert_array_equal(model.embed(texts[::-1], tokens_per_batch=30)[::-1], expected)
    alone = [model.embed([text], report=bertkit.InferenceReport()) for text in texts[: len(TEXTS)]]
    np.testing.assert_array_equal(np.concatenate(alone), expected[: len(TEXTS)])


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("number", CONFIGURATIONS)
def test_gradients_of_the_training_kernels(family: Family, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = family.our_model("encoder", number)
    batch = collate(model.tokenizer.encode_batch(TEXTS, max_length=19, on_long="truncate"))
    monkeypatch.setattr(steps, "training_row_count", lambda num_rows: num_rows + 3)  # adds rows of zeros

    def gradients() -> dict[str, torch.Tensor]:
        model.network.zero_grad()
        encoded = model.network(batch, with_hidden_states=True).encoded
        hidden = torch.stack([encoded.last_hidden_state, *(encoded.hidden_states or ())])
        (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
        return {
            name: parameter.grad.to_dense().clone()
            for name, parameter in model.network.named_parameters()
            if parameter.grad is not None
        }

    expected = gradients()
    with training_kernels(torch.float32, seed=1):
        results = gradients()
    assert results.keys() == expected.keys() >= {"encoder.embeddings.word.weight"}
    for name, gradient in results.items():
        assert error(gradient, expected[name]) <= 1e-4, name


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("adapters", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_fine_tuning(family: Family, tmp_path: Path, adapters: bool) -> None:
    family.our_model("encoder", 4).save(tmp_path / "base")
    texts = ["the red cat", "a blue dog", "red and red", "blue and green"] * 6
    labels = ["red" if "red" in text else "blue" for text in texts]
    options = {"head": "published", **({"lora_rank": 2} if adapters else {})}
    classifier = bertkit.SequenceClassifier(str(tmp_path / "base"), num_epochs=2, **options).fit(texts, labels)
    assert set(classifier.predict(texts)) <= {"red", "blue"}
    classifier.save(tmp_path / "saved")
    reopened = bertkit.load(tmp_path / "saved")
    assert [one.label for one in reopened.predict(texts)] == list(classifier.predict(texts))
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    assert isinstance(network, family.kinds["sequence_classification"])
    batch = collate(reopened.tokenizer.encode_batch(texts[:1]))
    with torch.inference_mode():
        theirs = network(input_ids=batch.input_ids[None]).logits
        ours = reopened.network(batch.to(reopened.device))
    assert error(ours.logits["sequence_classification"].cpu(), theirs) <= 1e-5


@pytest.mark.full(sample=4)
def test_encoders_stored_with_and_without_prefix_and_with_old_names(family: Family, tmp_path: Path) -> None:
    family.save_published(family.published_model("encoder", 2), tmp_path)
    expected = bertkit.load(tmp_path).embed(TEXTS[2])
    prefix = family.record.names.prefix
    edit_tensors(tmp_path, lambda tensors: tensors.update({prefix + name: tensors.pop(name) for name in list(tensors)}))
    assert (bertkit.load(tmp_path).embed(TEXTS[2]) == expected).all()

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            old = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name))
            tensors[old] = tensors.pop(name)

    edit_tensors(tmp_path, rename)
    assert (bertkit.load(tmp_path).embed(TEXTS[2]) == expected).all()


@predicts_masks
@pytest.mark.full(sample=4)
def test_tied_copies_present_alone_and_different(family: Family, tmp_path: Path) -> None:
    family.save_published(family.published_model("masked_lm", 3), tmp_path)
    expected = bertkit.load(tmp_path).network.state_dict()
    for copy, original in family.record.names.tied.items():
        edit_tensors(tmp_path, lambda tensors, c=copy, o=original: tensors.update({c: tensors[o].clone()}))
    reopened = bertkit.load(tmp_path).network.state_dict()
    assert all(torch.equal(reopened[name], value) for name, value in expected.items())
    for copy, original in family.record.names.tied.items():
        edit_tensors(tmp_path, lambda tensors, o=original: tensors.pop(o))
        assert list(bertkit.load(tmp_path).network.heads) == ["masked_lm"], copy
        edit_tensors(tmp_path, lambda tensors, c=copy, o=original: tensors.update({o: tensors[c] + 1}))
        with pytest.raises(BertkitError, match="untied decoder is not supported"):
            bertkit.load(tmp_path)
        edit_tensors(tmp_path, lambda tensors, c=copy, o=original: tensors.update({o: tensors[c].clone()}))


def test_texts_at_and_beyond_the_limit(family: Family) -> None:
    model = family.our_model("encoder", 6, num_hidden_layers=1)
    longest = model.config.max_position_embeddings
    for length in (1, longest, longest + 1):
        batch = bertkit.Batch.from_padded(torch.full((1, length), 7), torch.ones(1, length))
        if length <= longest:
            for encoder in (model.encoder, prepare(model.encoder)):
                assert encoder(batch).last_hidden_state.isfinite().all()
            continue
        for encoder in (model.encoder, prepare(model.encoder)):
            with pytest.raises(UsageError, match=f"{longest} ?\\(|has {longest}"):
                encoder(batch)


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_encoders_equal_sentence_transformers(family: Family, tmp_path: Path, pooling: str) -> None:
    model = family.our_model("encoder", 3)
    model.checkpoint.sentence = SentenceSettings(pooling=pooling, normalize=True, max_seq_length=11)
    model.save(tmp_path)
    texts = [text for text in TEXTS if text]  # an empty text has no token but the special ones
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(texts)
    assert np.abs(bertkit.load(tmp_path).embed(texts, report=bertkit.InferenceReport()) - theirs).max() <= 1e-5


@pytest.mark.full(sample=4)
def test_cross_encoders_equal_sentence_transformers(family: Family, tmp_path: Path) -> None:
    family.our_model("sequence_classification", 3, num_labels=1).save(tmp_path)
    pairs = list(zip(TEXTS[:4], TEXTS[4:] * 2, strict=False))
    theirs = CrossEncoder(str(tmp_path), device="cpu", max_length=13).predict(pairs)
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=13)
    with pytest.warns(TruncationWarning):
        ours = bertkit.load(tmp_path).score_pairs(*map(list, zip(*pairs, strict=True)))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@predicts_masks
@pytest.mark.full(sample=1)
def test_every_verb(family: Family, tmp_path: Path) -> None:
    """What a model can do does not depend on its architecture."""
    model = family.our_model("masked_lm", 2)
    (mask,) = model.fill_mask("the [MASK] cat")
    batch = collate(model.tokenizer.encode_batch(["the [MASK] cat"], special_tokens_in_text=True))
    with torch.inference_mode():
        logits = model.network(batch).logits["masked_lm"]
    probs = logits[batch.input_ids == model.tokenizer.mask_id].double().softmax(-1)[0]
    assert mask.candidates[0].token_id == int(probs.argmax())
    assert mask.candidates[0].score == pytest.approx(float(probs.max()), abs=1e-5)
    likelihood = model.pseudo_log_likelihood("the cat")
    assert likelihood == pytest.approx(sum(model.token_log_probs(["the cat"])[0])) and likelihood < 0
    layers = {layer: model.embed(TEXTS, layers=layer) for layer in ("embedding", "last")}
    assert np.isfinite(layers["last"]).all() and not np.allclose(layers["embedding"], layers["last"])
    model.save(tmp_path)
    features = bertkit.Features(str(tmp_path), layers="embedding", pooling="mean", device="cpu").fit_transform(TEXTS)
    np.testing.assert_array_equal(features, layers["embedding"])
