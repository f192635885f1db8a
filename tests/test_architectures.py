"""Records of architectures: consistent with what they describe, and enough to add another one."""

import json
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
import torch
from random_models import randomize, vocabulary_tokens

import bertkit
from bertkit import BertConfig, Model, Tokenizer
from bertkit.architectures import ARCHITECTURES, Network, architecture_of, registry
from bertkit.architectures.bert import BERT
from bertkit.architectures.tensor_names import TensorNames
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.errors import CheckpointError
from bertkit.heads import HEADS, KINDS, POOLINGS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("record", ARCHITECTURES.values(), ids=list(ARCHITECTURES))
def test_records_describe_their_networks(record) -> None:
    config = record.config.of_size("tiny", vocab_size=31)
    assert record.key_names.keys() <= {field.name for field in fields(config)}
    assert record.heads.keys() <= HEADS.keys()
    for head in record.heads:
        assert record.heads[head].input(config) in ("tokens", *POOLINGS)
        with torch.device("meta"):
            network = Network(config, [head])
        names = [record.names.published(name) for name, _ in network.named_parameters()]
        assert len(set(names)) == len(names)
        encoder = [name for name in names if name.startswith(record.names.prefix)]
        assert all(name.removeprefix(record.names.prefix).startswith(record.names.encoder_parts) for name in encoder)
        others = [name for name in names if name not in encoder]
        assert others or not list(network.heads.parameters())  # GPT-2's is the word embedding alone
        assert all(name.startswith(record.names.head_parts) for name in others)
        signatures = {record.names.signature_tensors.get(head)} | {
            tensor for tensor, heads in record.names.classifiers.items() if head in heads
        }
        assert signatures & set(names)
        assert record.reads_pooler(head, config) == (network.encoder.pooler is not None)


def test_every_architecture_has_a_config_of_its_own() -> None:
    """Networks look up their record by the config: of two records with one config class, one would be lost."""
    for record in ARCHITECTURES.values():
        assert architecture_of(record.config.of_size("tiny", vocab_size=31)) is record


@dataclass(frozen=True)
class ToyConfig(BertConfig):
    """BERT with its sizes spelled otherwise."""


def _toy_names(names: TensorNames) -> TensorNames:
    def renamed(name: str) -> str:
        return re.sub(r"^bert\.", "toy.", name)

    return replace(
        names,
        prefix="toy.",
        rules=[(pattern, renamed(name)) for pattern, name in names.rules],
        signature_tensors={head: renamed(name) for head, name in names.signature_tensors.items()},
        tied={renamed(copy): renamed(original) for copy, original in names.tied.items()},
    )


@pytest.mark.full
@pytest.mark.cpu_only
def test_architecture_needs_only_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = replace(
        BERT, model_type="toy", class_prefix="Toy", config=ToyConfig, names=_toy_names(BERT.names),
        heads={"masked_lm": BERT.heads["masked_lm"], "sequence_classification": BERT.heads["sequence_classification"]},
        key_names={"hidden_size": "width"}, required_values={"sparse": (False,)}, ignored_keys=frozenset({"remark"}),
        token_id_keys={"first_token_id": "cls"},
    )  # fmt: skip
    monkeypatch.setitem(ARCHITECTURES, "toy", toy)
    monkeypatch.setitem(registry._BY_CONFIG, ToyConfig, toy)
    config = ToyConfig(99, 20, 2, 4, 37, max_position_embeddings=23)
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), ["sequence_classification"])
    randomize(model.network, 1)
    model.checkpoint.provenance = dict.fromkeys(model.checkpoint.provenance, Provenance("trained"))
    model.save(tmp_path / "toy")
    content = json.loads((tmp_path / "toy" / "config.json").read_text())
    assert (content["model_type"], content["architectures"]) == ("toy", ["ToyForSequenceClassification"])
    assert content["width"] == 20 and "hidden_size" not in content
    assert content["sparse"] is False and content["first_token_id"] == model.tokenizer.cls_id
    (tmp_path / "toy" / "config.json").write_text(json.dumps(content | {"remark": "any"}))
    reopened = bertkit.load(tmp_path / "toy")
    assert reopened.config == config and list(reopened.network.heads) == list(KINDS["sequence_classification"])
    assert (reopened.embed("the cat") == model.embed("the cat")).all()
    with pytest.raises(bertkit.BertkitError, match="toy has no next_sentence head"):
        bertkit.load(tmp_path / "toy", heads=["next_sentence"], new=["next_sentence"])
    (tmp_path / "toy" / "config.json").write_text(json.dumps(content | {"sparse": True}))
    with pytest.raises(CheckpointError, match="sparse=True; supported: False"):
        bertkit.load(tmp_path / "toy")


@pytest.mark.parametrize("model_type", ["t5", "funnel", "deberta"])
def test_other_architectures_raise_with_their_name(tmp_path: Path, model_type: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(CheckpointError, match=f"model_type='{model_type}'; supported: 'bert', 'modernbert', 'distil"):
        bertkit.load(tmp_path)
