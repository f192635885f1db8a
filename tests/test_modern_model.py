"""ModernBERT at work: prepared for inference, embedding, filling masks, classifying, its initial values."""

import math

import numpy as np
import pytest
import torch
import transformers
from random_modern import our_model, random_config

from bertkit import BertConfig, Model, ModernBertConfig, Tokenizer, collate, load
from bertkit.architectures import Network, initialize, prepare
from bertkit.errors import MissingHeadError, UsageError
from bertkit.inference import auto_precision
from bertkit.transformer import Encoder, PreparedTransformer
from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.dispatch import kernels_for, plain_kernels

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]
LONG = "the cat walked " * 9

CPU = torch.device("cpu")
CHOICES = {  # every path that some CPU or build of torch takes
    "plain": plain_kernels,
    "fastest": lambda precision: kernels_for(precision, CPU),
    "without oneDNN": lambda precision: kernels_for(precision, CPU)._replace(linear=plain_kernels(precision).linear),
}
CLOSE = {"float32": 1e-5, "bfloat16": 0.06, "int8": 0.25}  # of the largest hidden state, tiny random models


def small(number: int = 5, **changes) -> Model:
    settings = {"num_hidden_layers": 4, "local_attention": 6, "global_attn_every_n_layers": 3}
    return our_model("encoder", number, **settings | {"max_position_embeddings": 99} | changes)


@pytest.mark.full
@pytest.mark.every_processor
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@torch.inference_mode()
def test_hidden_states_of_every_layer(choice: str, precision: str) -> None:
    model = small(hidden_activation="gelu")
    batch = collate(model.tokenizer.encode_batch([*TEXTS, LONG]))
    expected = model.encoder(batch, with_hidden_states=True)
    prepared = PreparedTransformer(model.encoder, precision, CHOICES[choice](precision))
    results = prepared(batch, with_hidden_states=True)
    assert len(results.hidden_states) == 5 and results.pooled is None
    for ours, reference in zip(results.hidden_states, expected.hidden_states, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - reference).abs().max() <= CLOSE[precision] * max(1, reference.abs().max())
    assert torch.equal(results.hidden_states[-1], results.last_hidden_state)
    assert torch.equal(prepared(batch).last_hidden_state, results.last_hidden_state)


@torch.inference_mode()
def test_float16_with_plain_kernels() -> None:
    model = small(hidden_activation="gelu")
    batch = collate(model.tokenizer.encode_batch([*TEXTS, LONG]))
    expected = model.encoder(batch).last_hidden_state
    prepared = PreparedTransformer(model.encoder, "float16", plain_kernels("float16"))
    difference = (prepared(batch).last_hidden_state - expected).abs().max()
    assert prepared.layers[0].output.weight.dtype == torch.float16
    assert 1e-5 < difference <= 6e-3 * max(1, expected.abs().max())


@pytest.mark.full
@pytest.mark.parametrize("hidden_activation", ACTIVATIONS)
@torch.inference_mode()
def test_every_activation(hidden_activation: str) -> None:
    model = small(hidden_activation=hidden_activation)
    batch = collate(model.tokenizer.encode_batch([*TEXTS, LONG]))
    expected = model.encoder(batch).last_hidden_state
    for precision, tolerance in CLOSE.items():
        results = prepare(model.encoder, precision)(batch).last_hidden_state
        assert (results - expected).abs().max() <= tolerance * max(1, expected.abs().max())


@pytest.mark.full
@pytest.mark.every_processor
@pytest.mark.parametrize("sizes", [(128, 4, 352), (60, 3, 37), (24, 2, 19)], ids=str)
@pytest.mark.parametrize("precision", CLOSE)
@torch.inference_mode()
def test_sequence_is_bit_identical_regardless_of_batch(precision: str, sizes: tuple[int, int, int]) -> None:
    model = small(6, hidden_size=sizes[0], num_attention_heads=sizes[1], intermediate_size=sizes[2])
    prepared = prepare(model.encoder, precision)
    encodings = model.tokenizer.encode_batch([*TEXTS, LONG, *TEXTS[::-1]])
    together = prepared(collate(encodings)).last_hidden_state.split([len(encoding) for encoding in encodings])
    for encoding, batched in zip(encodings, together, strict=True):
        assert torch.equal(prepared(collate([encoding])).last_hidden_state, batched)


@pytest.mark.full
def test_auto_tries_every_precision(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice = auto_precision.choose_precision(small().encoder, small().tokenizer)
    assert choice.precision in CLOSE and "bfloat16" in choice.reason and "int8" in choice.reason


def test_weight_update_is_detected() -> None:
    model = small()
    before = model.embed(TEXTS)
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.expand.weight.mul_(1.5)
    after = model.embed(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    with torch.no_grad():
        encoded = model.encoder(collate(model.tokenizer.encode_batch(TEXTS)))
        means = torch.segment_reduce(
            encoded.last_hidden_state,
            "mean",
            lengths=torch.tensor([len(e) for e in model.tokenizer.encode_batch(TEXTS)]),
        )
    np.testing.assert_allclose(after, means, rtol=0, atol=1e-5)


def test_embedding_in_windows_and_by_layer_but_not_by_a_pooler() -> None:
    model = small(max_position_embeddings=12)
    assert model.embed([LONG], on_long="window", layers="concat-last-4").shape == (1, 4 * model.config.hidden_size)
    with pytest.raises(UsageError, match="the model has 12 "):
        model.encoder(collate(small().tokenizer.encode_batch([LONG])))
    with pytest.raises(MissingHeadError, match="pooler"):
        model.embed(["the cat"], pooling="pooler")


def test_filled_masks_equal_network_probabilities() -> None:
    model = our_model("masked_lm", 4)
    (filled,) = model.fill_mask("the [MASK] sat", top_k=3)
    batch = collate([model.tokenizer.encode("the [MASK] sat", special_tokens_in_text=True)])
    with torch.no_grad():
        best = model.network(batch).logits["masked_lm"][2].softmax(-1).topk(3)
    assert [candidate.token_id for candidate in filled.candidates] == best.indices.tolist()
    np.testing.assert_allclose(
        [candidate.score for candidate in filled.candidates], best.values, atol=1e-5
    )  # two float32 paths


def test_words_are_added_and_texts_scored() -> None:
    model = our_model("masked_lm", 4)
    (before,) = model.token_log_probs(["the cat sat"])
    assert before.shape == (3,) and (before < 0).all()
    model.extend_vocabulary(["catmat"])
    vocabulary = model.tokenizer.vocabulary
    word = model.encoder.embeddings.word.weight
    pieces = [vocabulary.id("cat"), *(vocabulary.id(f"##{letter}") for letter in "mat")]
    torch.testing.assert_close(word[vocabulary.id("catmat")], word[pieces].mean(0))
    assert model.config.vocab_size == model.encoder.config.vocab_size == len(word)
    assert len(model.network.heads["masked_lm"].bias) == len(word)
    assert len(model.token_log_probs(["the catmat sat"])[0]) == 3


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_input_of_sequence_classifiers(pooling: str) -> None:
    model = our_model("sequence_classification", 7, num_labels=3, classifier_pooling=pooling)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    with torch.no_grad():
        results = model.network(batch)
        parts = results.encoded.last_hidden_state.split(batch.seqlens)
        vectors = torch.stack([part[0] if pooling == "cls" else part.mean(0) for part in parts])
        expected = model.network.heads["sequence_classification"](vectors)
    torch.testing.assert_close(results.logits["sequence_classification"], expected)


def test_missing_heads_raise() -> None:
    config = random_config(1)
    with pytest.raises(UsageError, match="modernbert has no next_sentence head: expected one of masked_lm, "):
        Network(config, ["masked_lm", "next_sentence"])
    with pytest.raises(UsageError, match="no pooler"):
        Network(config, with_pooler=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 60, "num_attention_heads": 4}, "multiple of twice num_attention_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"local_attention": 0}, "local_attention=0"),
        ({"global_rope_theta": -1.0}, "global_rope_theta"),
        ({"mlp_dropout": 1.0}, "mlp_dropout"),
        ({"classifier_pooling": "max"}, "expected one of cls, mean"),
        ({"hidden_activation": "mish"}, "hidden_activation='mish'"),
        ({"classifier_activation": "mish"}, "classifier_activation='mish'"),
    ],
)  # fmt: skip
def test_config_without_encoder_raises(changes: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ModernBertConfig(**changes)


def test_sizes() -> None:
    """Base as published (149 million parameters), mini with as many weights as a BERT of that size."""
    base, mini = ModernBertConfig.of_size("base"), ModernBertConfig.of_size("mini", vocab_size=99)
    assert base == ModernBertConfig() and mini.vocab_size == 99
    with torch.device("meta"):
        assert round(sum(parameter.numel() for parameter in Network(base).parameters()) / 1e6) == 149
        layers = [Network(config).encoder.layers for config in (mini, BertConfig.of_size("mini"))]
    ours, theirs = (sum(parameter.numel() for parameter in one.parameters()) for one in layers)
    assert abs(ours / theirs - 1) < 0.01
    with pytest.raises(UsageError, match="expected one of tiny, mini"):
        ModernBertConfig.of_size("huge")


@pytest.mark.full
def test_initial_values_are_spread_as_published() -> None:
    config = ModernBertConfig(
        vocab_size=499, hidden_size=120, num_hidden_layers=3, num_attention_heads=4, intermediate_size=200,
        initializer_range=0.05, initializer_cutoff_factor=1.5,
    )  # fmt: skip
    network = Network(config, ["masked_lm"])
    initialize(network, config, seed=1)
    published = transformers.ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            vocab_size=499,
            hidden_size=120,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=200,
            initializer_range=0.05,
            initializer_cutoff_factor=1.5,
            pad_token_id=0,
        )
    )
    pairs = {
        "encoder.layers.1.attention.query_key_value": published.model.layers[1].attn.Wqkv,
        "encoder.layers.1.attention.output": published.model.layers[1].attn.Wo,
        "encoder.layers.2.feed_forward.expand": published.model.layers[2].mlp.Wi,
        "encoder.layers.2.feed_forward.project": published.model.layers[2].mlp.Wo,
        "encoder.embeddings.word": published.model.embeddings.tok_embeddings,
        "heads.masked_lm.dense": published.head.dense,
    }
    for name, theirs in pairs.items():
        ours = network.get_submodule(name)
        wide = math.sqrt(theirs.weight.numel())
        assert abs(ours.weight.std() / theirs.weight.std() - 1) < 5 / wide, name
        assert abs(ours.weight.abs().max() / theirs.weight.abs().max() - 1) < 0.01, name
    assert (network.encoder.layers[1].attention_norm.weight == 1).all()
    assert (network.heads["masked_lm"].bias == 0).all()
    classifier = Network(config, ["token_classification"], num_labels=99).heads["token_classification"]
    initialize(classifier, config, seed=1)
    assert abs(classifier.classifier.weight.abs().max() - 1.5 / math.sqrt(120)) < 0.002
    assert (classifier.classifier.bias == 0).all()


def test_training_makes_a_model_that_is_saved_and_loaded(tmp_path) -> None:
    config = random_config(3, max_position_embeddings=50)
    tokenizer = our_model("encoder", 3).tokenizer
    model = Model.create(config, tokenizer, ["masked_lm"], seed=3)
    assert isinstance(model.encoder, Encoder) and isinstance(model.tokenizer, Tokenizer)
    with pytest.raises(MissingHeadError, match="never trained"):
        model.fill_mask("the [MASK]")
    model.save(tmp_path / "made")
    again = load(tmp_path / "made", device="cpu")
    assert again.config == config
    with pytest.raises(MissingHeadError, match="never trained"):
        again.fill_mask("the [MASK]")
    torch.testing.assert_close(dict(again.network.named_parameters()), dict(model.network.named_parameters()))


def test_new_classifier_takes_over_what_heads_share(tmp_path) -> None:
    """As transformers does: dense and norm of the masked LM head are copied to the classifier's."""
    trained = our_model("masked_lm", 8)
    trained.save(tmp_path / "trained")
    options = {"heads": ["token_classification"], "new": ["token_classification"], "label_names": ["A", "B", "C"]}
    model = load(tmp_path / "trained", device="cpu", **options)
    theirs, report = transformers.ModernBertForTokenClassification.from_pretrained(
        tmp_path / "trained", num_labels=3, output_loading_info=True
    )
    assert report["missing_keys"] == {"classifier.weight", "classifier.bias"}
    head = model.network.heads["token_classification"]
    assert torch.equal(head.dense.weight, theirs.head.dense.weight)
    assert torch.equal(head.norm.weight, trained.network.heads["masked_lm"].norm.weight)
    assert (head.classifier.weight.shape, head.classifier.bias.tolist()) == ((3, theirs.config.hidden_size), [0, 0, 0])
    origins = {name: origin.origin for name, origin in model.checkpoint.provenance.items()}
    assert (origins["head.dense.weight"], origins["classifier.weight"]) == ("loaded", "initialized")
    with pytest.raises(MissingHeadError, match="never trained"):
        model.require_trained("token_classification")
    reloaded = load(tmp_path / "trained", device="cpu", new=["masked_lm"])
    assert not torch.equal(reloaded.network.heads["masked_lm"].dense.weight, theirs.head.dense.weight)
