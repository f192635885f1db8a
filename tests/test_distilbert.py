"""Specifics of DistilBERT: config keys, dropouts, no token types and no pooler."""

import json
from pathlib import Path

import pytest
from families.distilbert import DISTILBERT

import bertkit
from bertkit.architectures.distilbert import DistilBertConfig
from bertkit.errors import CheckpointError, UsageError
from bertkit.pretraining.network import new_network
from bertkit.pretraining.recipe import read_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


def test_other_keys_of_published_configs(tmp_path: Path) -> None:
    DISTILBERT.save_published(DISTILBERT.published_model("sequence_classification", 2, 3), tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    extra = {"tie_weights_": True, "sinusoidal_pos_embds": False, "output_past": True, "finetuning_task": "sst-2"}
    (tmp_path / "config.json").write_text(json.dumps(content | extra))
    model = bertkit.load(tmp_path)
    assert model.config == DISTILBERT.random_config(2) and model.checkpoint.label_names == (
        "LABEL_0",
        "LABEL_1",
        "LABEL_2",
    )
    for key in ("type_vocab_size", "layer_norm_eps", "hidden_size"):
        (tmp_path / "config.json").write_text(json.dumps(content | {key: 2}))
        with pytest.raises(CheckpointError, match=rf"unknown keys \({key}\)"):
            bertkit.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({key: content[key] for key in content if key != "n_heads"}))
    with pytest.raises(CheckpointError, match="lacks n_heads"):
        bertkit.load(tmp_path)


def test_sequence_and_token_classifiers_are_distinguished_by_tensors(tmp_path: Path) -> None:
    for kind in ("sequence_classification", "token_classification"):
        DISTILBERT.save_published(DISTILBERT.published_model(kind, 3, 3), tmp_path / kind)
        config = tmp_path / kind / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": None}))
    assert list(bertkit.load(tmp_path / "token_classification").network.heads) == ["token_classification"]
    with pytest.raises(CheckpointError, match="one of sequence_classification, multiple_choice"):
        bertkit.load(tmp_path / "sequence_classification")


def test_unsupported_parts_raise() -> None:
    with pytest.raises(UsageError, match="distilbert has no next_sentence head"):
        DISTILBERT.our_model("next_sentence", 1)
    with pytest.raises(UsageError, match="distilbert has no pooler"):
        bertkit.architectures.Network(DISTILBERT.random_config(1), with_pooler=True)
    with pytest.raises(UsageError, match="seq_classif_dropout="):
        DistilBertConfig(seq_classif_dropout=1.5)
    with pytest.raises(UsageError, match="type_vocab_size=0"):
        bertkit.BertConfig(type_vocab_size=0)
    assert DistilBertConfig.of_size("base") == DistilBertConfig()
    assert DistilBertConfig.of_size("tiny", vocab_size=99).num_hidden_layers == 1


def test_recipes_of_pretraining() -> None:
    changes = ["model.architecture=distilbert", "objective.name=masked-lm", "model.size=tiny"]
    new_network(read_recipe("bert-2018", changes), None)
    with pytest.raises(UsageError, match=r"\[model\.config\]: .*type_vocab_size"):
        new_network(read_recipe("bert-2018", [*changes, "model.config.type_vocab_size=2"]), None)
    with pytest.raises(UsageError, match="distilbert has no next_sentence head"):
        new_network(read_recipe("bert-2018", [*changes, "objective.name=next-sentence"]), None)
    with pytest.raises(UsageError, match="expected one of bert, modernbert, distilbert"):
        new_network(read_recipe("bert-2018", ["model.architecture=t5"]), None)
