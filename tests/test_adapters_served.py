"""Adapters (LoRA) opened with their base model, and served together with its weights once in memory."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_models import our_model
from served import serving

import bertkit
from bertkit.cli import run
from bertkit.errors import CheckpointError
from bertkit.finetuning.adapted_model import load_adapter
from bertkit.finetuning.adapters import add_adapters, without_adapters, write_adapter
from bertkit.finetuning.network import model_to_train
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.model.shared_weights import share_equal_weights
from bertkit.tasks import SequenceClassification, TokenClassification

TEXTS = ["the cat sat", "one two three", "a"]
TASKS = {"moods": SequenceClassification(("blame", "praise")), "topics": SequenceClassification(("x", "y", "z")),
         "names": TokenClassification(("B-animal", "I-animal", "O"))}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model; for each task the merged model, and in its folder the adapter."""
    made = tmp_path_factory.mktemp("adapters")
    our_model("encoder", 3, max_position_embeddings=64).save(made / "base")
    for seed, (name, task) in enumerate(TASKS.items()):
        settings = FinetuningSettings.of(head="drawn", seed=seed, max_length=29)
        model = model_to_train(str(made / "base"), task, settings, lambda line: None)
        add_adapters(model, rank=2, alpha=6.0, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter_name, parameter in model.network.named_parameters():
                if parameter_name.endswith(".b"):
                    parameter.normal_(0, 0.3, generator=generator)
        model.mark_trained()
        without_adapters(model).save(made / name)
        write_adapter(model, made / name / "adapter", str(made / "base"))
    return made


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "float64"])
def test_adapters_have_the_bits_of_merged_models_with_one_base_in_memory(folder: Path, precision: str) -> None:
    merged = [bertkit.load(folder / name, precision=precision, device="cpu") for name in TASKS]
    adapted = [load_adapter(folder / name / "adapter", precision=precision, device="cpu") for name in TASKS]
    expected = [model.predict(TEXTS) for model in merged]
    assert [model.predict(TEXTS) for model in adapted] == expected
    adapted = [load_adapter(folder / name / "adapter", precision=precision, device="cpu") for name in TASKS]
    base = bertkit.load(folder / "base", precision=precision, device="cpu")
    vectors = base.embed(TEXTS)
    share_equal_weights([base, *adapted])
    assert [model.predict(TEXTS) for model in adapted] == expected
    np.testing.assert_array_equal(base.embed(TEXTS), vectors)
    for model, reference in zip(adapted, merged, strict=True):
        assert (model.trained, model.sentence_settings) == (reference.trained, reference.sentence_settings)
        shared = {
            name for name, parameter in model.network.named_parameters()
            if parameter.data_ptr() in {each.data_ptr() for each in base.network.parameters()}
        }  # fmt: skip
        own = {name for name, _ in model.network.named_parameters()} - shared
        assert own and all(name.startswith(("heads.", "encoder.pooler.")) or
                           name.endswith(("query.weight", "value.weight")) for name in own)  # fmt: skip
        prepared: Any = (base._runner.encoder, model._runner.encoder)
        for layer, other in zip(prepared[0].layers, prepared[1].layers, strict=True):
            assert layer.linears[1:] == other.linears[1:], "output, expand and project are the same objects"
            assert layer.query_key_value is not other.query_key_value


def test_models_without_equal_weights_or_of_another_shape_share_nothing() -> None:
    models = [our_model("encoder", 3), our_model("encoder", 4), our_model("encoder", 3, hidden_size=24)]
    before = [model.embed(TEXTS) for model in models]
    share_equal_weights(models)
    for model, vectors in zip(models, before, strict=True):
        np.testing.assert_array_equal(model.embed(TEXTS), vectors)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda adapter: (adapter / "bertkit.json").unlink(), r"bertkit\.json does not name the task of the adapter"),
        (lambda adapter: (adapter / "adapter_model.safetensors").unlink(), "adapter_model.* cannot be read"),
        (lambda adapter: edit(adapter, base_model_name_or_path="no/such/model"), "base model of the adapter .*no/such"),
        (lambda adapter: edit(adapter, r=3), r"expected base_model\.model.* of shape \[3, "),
        (lambda adapter: edit(adapter, r="two"), r"adapter_config\.json: r is 'two', expected int"),
        (lambda adapter: edit(adapter, lora_alpha="six"), r"lora_alpha is 'six', expected float"),
        (lambda adapter: edit(adapter, use_rslora=True), "has use_rslora=True"),
        (lambda adapter: edit(adapter, r=0), "has r=0 .*at least 1"),
        (lambda adapter: edit(adapter, lora_alpha=None), "lora_alpha=nan"),
        (lambda adapter: edit(adapter, peft_type="IA3"), r"holds no LoRA adapter"),
    ],
)  # fmt: skip
def test_adapters_that_cannot_be_opened(folder: Path, tmp_path: Path, change: Any, says: str) -> None:
    adapter = tmp_path / "adapter"
    shutil.copytree(folder / "moods" / "adapter", adapter)
    change(adapter)
    with pytest.raises(CheckpointError, match=says):
        load_adapter(adapter)


def edit(adapter: Path, **settings: Any) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_commands_open_an_adapter(folder: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "rows.csv").write_text("text\n" + "\n".join(TEXTS) + "\n")
    shown = []
    for model in (folder / "moods", folder / "moods" / "adapter"):
        assert run(["predict", "--model", str(model), "--input", str(tmp_path / "rows.csv")]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and "praise" in shown[0]


@pytest.mark.full
def test_adapters_are_served_by_name(folder: Path) -> None:
    names = [word for name in ("base", *TASKS) for word in ("--served-model-name", name)]
    adapters = [word for name in TASKS for word in ("--model", folder / name / "adapter")]
    with serving("--model", folder / "base", *adapters, *names) as server:
        for name in ("moods", "topics"):
            predictions: Any = bertkit.load(folder / name, device="cpu").predict(TEXTS)
            rows = server.post("/predict", {"model": name, "inputs": [[text] for text in TEXTS]})
            for row, prediction in zip(rows, predictions, strict=True):
                assert {each["label"]: each["score"] for each in row} == prediction.probabilities
        entities = server.post("/entities", {"model": "names", "inputs": TEXTS[0]})
        expected: Any = bertkit.load(folder / "names", device="cpu").predict(TEXTS[:1])
        assert [each["label"] for each in entities] == [each.label for each in expected[0].entities]
        vectors = bertkit.load(folder / "base", device="cpu").embed(TEXTS, normalize=True)
        np.testing.assert_array_equal(np.float32(server.post("/embed", {"model": "base", "inputs": TEXTS})), vectors)
