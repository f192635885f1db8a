"""DistilBERT gives transformers' outputs in every kind of model, prepared and in training too."""

import copy
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from random_models import error, randomize, save_published, vocabulary_tokens
from torch import Tensor

import bertkit
from bertkit import Batch, Model, Recorder, Tokenizer
from bertkit.architectures.distilbert import DistilBertConfig
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.errors import CheckpointError, UsageError
from bertkit.heads import HEADS, KINDS
from bertkit.pretraining.network import check_shape
from bertkit.pretraining.recipe import read_recipe
from bertkit.transformer.activations import ACTIVATIONS

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_CONFIGURATIONS = 10
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
PUBLISHED_CLASSES = {
    "encoder": transformers.DistilBertModel,
    "masked_lm": transformers.DistilBertForMaskedLM,
    "sequence_classification": transformers.DistilBertForSequenceClassification,
    "token_classification": transformers.DistilBertForTokenClassification,
    "question_answering": transformers.DistilBertForQuestionAnswering,
    "multiple_choice": transformers.DistilBertForMultipleChoice,
}
SPELLINGS = {
    "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim", "hidden_act": "activation",
}  # fmt: skip


def random_config(number: int) -> DistilBertConfig:
    """Configuration ``number``: every activation that DistilBERT publishes in turn, 1 to 4 layers, 3 to 5 heads."""
    draw = random.Random(number)
    heads = draw.choice([3, 4, 5])
    return DistilBertConfig(
        vocab_size=draw.choice([97, 99, 101]), hidden_size=heads * draw.choice([5, 6, 7, 9]),
        num_hidden_layers=1 + number % 4, num_attention_heads=heads, intermediate_size=draw.choice([31, 37, 43]),
        hidden_act=list(ACTIVATIONS)[number % len(ACTIVATIONS)], max_position_embeddings=draw.choice([23, 29, 41]),
    )  # fmt: skip


def published_model(kind: str, number: int, num_labels: int = 2) -> transformers.PreTrainedModel:
    """Transformers' model of a kind, every parameter random."""
    config = random_config(number)
    shape = {published: getattr(config, ours) for ours, published in SPELLINGS.items()}
    model = PUBLISHED_CLASSES[kind](
        transformers.DistilBertConfig(
            **shape, vocab_size=config.vocab_size, max_position_embeddings=config.max_position_embeddings,
            num_labels=num_labels, attn_implementation="eager",
        )
    )  # fmt: skip
    randomize(model, number)
    return model.eval()


def our_model(kind: str, number: int, num_labels: int = 2) -> Model:
    """Our model of a kind, every parameter random and marked as trained."""
    config = random_config(number)
    labels = [f"label {index}" for index in range(num_labels)] if kind.endswith("_classification") else None
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(config.vocab_size)), KINDS[kind],
                         label_names=labels)  # fmt: skip
    randomize(model.network, number)
    model.checkpoint.provenance = {name: Provenance("trained") for name in model.checkpoint.provenance}
    return model


def num_labels(kind: str, number: int) -> int:
    return {"sequence_classification": 1 + number % 3, "token_classification": 3 + number % 3}.get(kind, 2)


def padded_batches(number: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(number)
    batches = []
    for lengths in ([13, 1, 5, 5, 9, 2], [1] * 6, [7, 23, 4]):
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        batches.append((torch.randint(0, random_config(number).vocab_size, mask.shape, generator=generator), mask))
    return batches


def published_outputs(model: transformers.PreTrainedModel, kind: str, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Everything transformers' model gives, per real token, by our names."""
    inputs = {"input_ids": ids, "attention_mask": mask}
    if kind == "multiple_choice":
        inputs = {name: value.view(-1, 3, value.shape[1]) for name, value in inputs.items()}
    result, real = model(**inputs, output_hidden_states=True, output_attentions=True), mask.bool()
    outputs = {f"hidden state {layer}": states[real] for layer, states in enumerate(result.hidden_states)}
    for layer, probs in enumerate(result.attentions):
        outputs[f"attention {layer}"] = torch.cat([probs[row][:, r][:, :, r].ravel() for row, r in enumerate(real)])
    if kind == "question_answering":
        outputs[kind] = torch.stack([result.start_logits[real], result.end_logits[real]], dim=-1)
    elif kind in HEADS:
        outputs[kind] = result.logits if HEADS[kind] else result.logits[real]
    return outputs


def assert_same(ours: list[Model], published: transformers.PreTrainedModel, kind: str, number: int) -> None:
    """Compare ours in single and in double precision; token types that a tokenizer gives must not matter."""
    published.double()
    for ids, mask in padded_batches(number):
        reference = published_outputs(published, kind, ids, mask)
        types = torch.randint(0, 2, ids.shape, generator=torch.Generator().manual_seed(number))
        batch = Batch.from_padded(ids, mask, types)
        for model, dtype in zip(ours, TOLERANCE, strict=True):
            options = {"num_choices": 3} if kind == "multiple_choice" else {}
            recorder = Recorder()
            results = model.network(batch, with_hidden_states=True, recorder=recorder, **options)
            assert results.encoded.pooled is None
            outputs = {f"hidden state {layer}": states for layer, states in enumerate(results.encoded.hidden_states)}
            for layer, record in enumerate(recorder.layers):
                outputs[f"attention {layer}"] = torch.cat([probs.ravel() for probs in record.attention_probs])
            outputs |= results.logits
            assert outputs.keys() == reference.keys()
            for name, value in outputs.items():
                assert error(value, reference[name]) <= TOLERANCE[dtype], f"{kind} {number}, {dtype}: {name}"
    assert all(value.std() > 0.5 for name, value in reference.items() if "attention" not in name and len(value) > 2)


@pytest.mark.parametrize("number", range(NUM_CONFIGURATIONS))
@pytest.mark.parametrize("kind", PUBLISHED_CLASSES)
@torch.inference_mode()
def test_weights_saved_by_transformers_give_its_outputs(kind: str, number: int) -> None:
    published = published_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        save_published(published, Path(folder))
        ours = [bertkit.load(folder, device="cpu", precision=precision) for precision in ("float32", "float64")]
    assert ours[0].config == random_config(number)
    assert tuple(ours[0].network.heads) == KINDS[kind]
    assert_same(ours, published, kind, number)


@pytest.mark.parametrize("number", range(NUM_CONFIGURATIONS, 2 * NUM_CONFIGURATIONS))
@pytest.mark.parametrize("kind", PUBLISHED_CLASSES)
@torch.inference_mode()
def test_weights_saved_here_give_transformers_the_same_outputs(kind: str, number: int) -> None:
    ours = our_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        published, report = PUBLISHED_CLASSES[kind].from_pretrained(
            folder, attn_implementation="eager", output_loading_info=True
        )
        assert bertkit.load(folder).config == ours.config
    assert not any(report.values()), report
    assert published.config.architectures == [type(published).__name__]
    double = copy.deepcopy(ours)
    double.network.double()
    assert_same([ours, double], published.eval(), kind, number)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1), ("int8", 0.25)])
def test_prepared_encoders_are_close(precision: str, tolerance: float) -> None:
    texts, pairs = ["the cat sat", "a dog", "walked and talked"], ["on the mat", "ran off", ""]
    for number in range(4):
        model = our_model("sequence_classification", number, 3)
        batch = bertkit.collate(model.tokenizer.encode_batch(texts, pairs))
        with torch.inference_mode():
            expected = model.encoder(batch).last_hidden_state
        prepared = Model(model.checkpoint, precision)._runner.encoder(batch).last_hidden_state
        assert error(prepared, expected) <= tolerance
        alone = Model(model.checkpoint, precision).embed(texts)
        assert np.array_equal(alone[0], Model(model.checkpoint, precision).embed(texts[0]))


def test_other_keys_of_published_configs(tmp_path: Path) -> None:
    published = published_model("sequence_classification", 2, 3)
    save_published(published, tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    extra = {"tie_weights_": True, "sinusoidal_pos_embds": False, "output_past": True, "finetuning_task": "sst-2"}
    (tmp_path / "config.json").write_text(json.dumps(content | extra))
    model = bertkit.load(tmp_path)
    assert model.config == random_config(2) and model.checkpoint.label_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    for key in ("type_vocab_size", "layer_norm_eps", "hidden_size"):
        (tmp_path / "config.json").write_text(json.dumps(content | {key: 2}))
        with pytest.raises(CheckpointError, match=rf"unknown keys \({key}\)"):
            bertkit.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({key: content[key] for key in content if key != "n_heads"}))
    with pytest.raises(CheckpointError, match="lacks n_heads"):
        bertkit.load(tmp_path)


def test_sequence_and_token_classifiers_are_told_apart_by_tensors(tmp_path: Path) -> None:
    for kind in ("sequence_classification", "token_classification"):
        save_published(published_model(kind, 3, 3), tmp_path / kind)
        config = tmp_path / kind / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": None}))
    assert list(bertkit.load(tmp_path / "token_classification").network.heads) == ["token_classification"]
    with pytest.raises(CheckpointError, match="one of sequence_classification, multiple_choice"):
        bertkit.load(tmp_path / "sequence_classification")


def test_unsupported_parts_are_refused() -> None:
    with pytest.raises(UsageError, match="distilbert has no next_sentence head"):
        our_model("next_sentence", 1)
    with pytest.raises(UsageError, match="distilbert has no pooler"):
        bertkit.architectures.Network(random_config(1), with_pooler=True)
    with pytest.raises(UsageError, match="seq_classif_dropout="):
        DistilBertConfig(seq_classif_dropout=1.5)
    with pytest.raises(UsageError, match="type_vocab_size=0"):
        bertkit.BertConfig(type_vocab_size=0)
    assert DistilBertConfig.of_size("base") == DistilBertConfig()
    assert DistilBertConfig.of_size("tiny", vocab_size=99).num_hidden_layers == 1


def test_recipes_of_pretraining() -> None:
    changes = ["model.architecture=distilbert", "data.sentence_pairs=none", "model.size=tiny"]
    check_shape(read_recipe("bert-2018", changes), None)
    with pytest.raises(UsageError, match=r"\[model\.config\]: .*type_vocab_size"):
        check_shape(read_recipe("bert-2018", [*changes, "model.config.type_vocab_size=2"]), None)
    with pytest.raises(UsageError, match="distilbert has no next_sentence head"):
        check_shape(read_recipe("bert-2018", [*changes, "data.sentence_pairs=balanced"]), None)
    with pytest.raises(UsageError, match="expected one of bert, modernbert, distilbert"):
        read_recipe("bert-2018", ["model.architecture=albert"])


@pytest.mark.parametrize("adapters", [False, True])
def test_fine_tuning(tmp_path: Path, adapters: bool) -> None:
    save_published(published_model("masked_lm", 4), tmp_path / "base")
    texts = ["the red cat", "a blue dog", "red and red", "blue and green"] * 6
    labels = ["red" if "red" in text else "blue" for text in texts]
    options = {"lora_rank": 2} if adapters else {}
    classifier = bertkit.SequenceClassifier(str(tmp_path / "base"), num_epochs=2, **options).fit(texts, labels)
    assert set(classifier.predict(texts)) <= {"red", "blue"}
    classifier.save(tmp_path / "saved")
    reopened = bertkit.load(tmp_path / "saved")
    assert [one.label for one in reopened.predict(texts)] == list(classifier.predict(texts))
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    assert isinstance(network, transformers.DistilBertForSequenceClassification)
    batch = bertkit.collate(reopened.tokenizer.encode_batch(texts[:1]))
    with torch.inference_mode():
        theirs, ours = network(input_ids=batch.input_ids[None]).logits, reopened.network(batch)
    assert error(ours.logits["sequence_classification"], theirs) <= 1e-5
