"""Spellings of published configs and tensors, and unsupported ones, which raise errors."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES
from random_models import edit_json, edit_tensors

import bertkit
from bertkit.architectures import ARCHITECTURES
from bertkit.errors import CheckpointError, UsageError
from bertkit.transformer import AlbertConfig, BertConfig, DebertaConfig, GteConfig, NomicBertConfig, RotaryPositions
from bertkit.transformer.rotary import rotary_of

pytestmark = pytest.mark.usefixtures("one_thread")


def saved(name: str, kind: str, folder: Path, number: int = 1) -> Path:
    """The folder of a published model."""
    family = FAMILIES[name]
    return family.save_published(family.published_model(kind, number, 3), folder)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("roberta", {"max_position_embeddings": 3}, r"max_position_embeddings=3 leaves [01] positions .* at least 3"),
        ("roberta", {"position_embedding_type": "relative_key"}, "supported: 'absolute'"),
        ("roberta", {"pad_token_id": -1}, "pad_token_id=-1: expected an integer of at least 0"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets=64; supported: 32"),
        ("electra", {"summary_type": "last"}, "summary_type='last'; supported: 'first'"),
        ("albert", {"inner_group_num": 2}, "inner_group_num=2; supported: 1"),
        ("albert", {"num_hidden_groups": 99}, "num_hidden_groups=99"),
        ("deberta-v2", {"conv_kernel_size": 3}, "conv_kernel_size=3; supported: 0"),
        ("deberta-v2", {"position_biased_input": None}, "position_biased_input=True; supported: False"),
        ("deberta-v2", {"relative_attention": None}, "relative_attention=False; supported: True"),
        ("deberta-v2", {"embedding_size": 7}, "embedding_size must be "),
        ("deberta-v2", {"position_buckets": None}, "position_buckets=-1"),
        ("deberta-v2", {"max_relative_positions": 3}, "expected more than half of position_buckets"),
        ("nomic_bert", {"num_experts": 8}, "num_experts=8; supported: 0"),
        ("nomic_bert", {"prenorm": True}, "prenorm=True; supported: False"),
        ("nomic_bert", {"n_embd": 5}, "hidden_size=.*, and n_embd=5: expected equal"),
        ("nomic_bert", {"rope_parameters": {"rope_type": "yarn"}}, "rotary positions are .*yarn"),
        ("gte", {"logn_attention_scale": True}, "logn_attention_scale=True; supported: False"),
        ("gte", {"rope_scaling": {"type": "ntk", "factor": -1.0}}, "rope_factor=-1.0: expected a number above 0"),
        ("neobert", {"tie_word_embeddings": True}, "tie_word_embeddings=True; supported: False"),
        ("neobert", {"num_attention_heads": 5}, "hidden_size=84 is not a multiple of num_attention_heads=5"),
        ("neobert", {"hidden_size": 18}, "head_dim=3: rotary positions need an even number"),
        ("neobert", {"ngpt": True}, r"unknown keys \(ngpt\)"),
        ("qwen3", {"attention_bias": True}, "attention_bias=True; supported: False"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window=True; supported: False"),
        ("qwen3", {"layer_types": ["sliding_attention"]}, "layer_types=.*sliding.*; supported: full_attention"),
        ("qwen3", {"num_key_value_heads": 5}, "num_key_value_heads=5 does not divide num_attention_heads=6"),
        ("qwen3", {"num_key_value_heads": None}, "num_key_value_heads=32 does not divide num_attention_heads=6"),
        ("qwen3", {"head_dim": 5}, "head_dim=5: rotary positions need an even number"),
        ("qwen3", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rotary positions are .*yarn"),
        ("roberta", {"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\]: expected one of"),
        ("gte", {"remark": 1}, r"unknown keys \(remark\)"),
    ],
)
def test_unsupported_configs_raise_with_their_name(name: str, changes: dict, message: str, tmp_path: Path) -> None:
    saved(name, "encoder", tmp_path)
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        bertkit.load(tmp_path)


def test_classes_of_another_family_without_model_type_are_refused(tmp_path: Path) -> None:
    """RoBERTa's encoder has the tensors of BERT's, and other positions."""
    saved("roberta", "encoder", tmp_path)
    edit_json(tmp_path / "config.json", model_type=None)
    with pytest.raises(CheckpointError, match=r"no model_type, and architectures=\['RobertaModel'\]: .*\"roberta\""):
        bertkit.load(tmp_path)


@pytest.mark.parametrize("model_type", ["deberta", "jina_embeddings_v3"])
def test_unsupported_families_raise_with_alternatives(model_type: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(CheckpointError, match=rf"model_type='{model_type}'; supported: 'bert', .*; use \w+"):
        bertkit.load(tmp_path)


def test_missing_keys_have_the_defaults_of_the_class(tmp_path: Path) -> None:
    saved("roberta", "encoder", tmp_path, 3)
    expected = bertkit.load(tmp_path).config
    assert (expected.pad_token_id, expected.first_position) == (1, 2)
    edit_json(tmp_path / "config.json", pad_token_id=None)
    assert bertkit.load(tmp_path).config == expected
    edit_json(tmp_path / "config.json", layer_norm_eps=None)
    assert bertkit.load(tmp_path).config.layer_norm_eps == 1e-12


@pytest.mark.full
def test_first_spelling_of_nomic_bert(tmp_path: Path) -> None:
    saved("nomic_bert", "masked_lm", tmp_path)
    expected = bertkit.load(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    renamed = {
        "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "intermediate_size": "n_inner", "layer_norm_eps": "layer_norm_epsilon",
        "max_position_embeddings": "n_positions",
    }  # fmt: skip
    old = {renamed.get(key, key): value for key, value in content.items() if key not in ("hidden_act", "head_dim")}
    theta = old.pop("rope_parameters")["rope_theta"]
    old |= {"activation_function": "swiglu", "rotary_emb_base": theta, "rotary_emb_fraction": 1.0, "causal": False}
    old |= {"qkv_proj_bias": False, "rotary_scaling_factor": None, "use_flash_attn": True, "n_positions": 8192}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(old | {"hidden_act": expected.config.hidden_act}))
    edit_tensors(tmp_path, lambda tensors: tensors.update(
        {name.replace("nomic_bert.", "bert."): tensors.pop(name) for name in list(tensors)}))  # fmt: skip
    reopened = bertkit.load(tmp_path)
    assert reopened.config.max_position_embeddings == 2_048  # for any longer one
    assert (reopened.embed("the cat") == expected.embed("the cat")).all()


def test_gte_config_of_original_code(tmp_path: Path) -> None:
    saved("gte", "sequence_classification", tmp_path, 2)
    expected = bertkit.load(tmp_path)
    edit_json(
        tmp_path / "config.json", model_type="new", architectures=["NewForSequenceClassification"],
        rope_parameters=None, rope_theta=expected.config.rope_theta, position_embedding_type="rope",
        unpad_inputs=True, pack_qkv=True,
        auto_map={"AutoModel": "modeling.NewModel"},
    )  # fmt: skip
    edit_tensors(tmp_path, lambda tensors: tensors.update(
        {name.replace("gte.", "new."): tensors.pop(name) for name in list(tensors)}))  # fmt: skip
    reopened = bertkit.load(tmp_path)
    assert list(reopened.network.heads) == ["sequence_classification"]
    assert (reopened.embed("the cat") == expected.embed("the cat")).all()
    edit_json(tmp_path / "config.json", rope_scaling={"type": "ntk", "factor": 8.0})
    config = bertkit.load(tmp_path).config
    positions, head_dim = torch.arange(50), config.head_dim
    angles = rotary_of(positions, config.rope_theta, head_dim, config.rope_factor)
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = (8 * expected.config.rope_theta) ** -exponents / 8 ** (2 / head_dim)
    torch.testing.assert_close(angles.cos.double(), (positions[:, None] * frequencies).cos(), rtol=0, atol=1e-5)


def test_other_names_and_unused_tensors_of_deberta(tmp_path: Path) -> None:
    saved("deberta-v2", "masked_lm", tmp_path)
    expected = bertkit.load(tmp_path).network.state_dict()

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            new = name.replace("cls.predictions.transform.", "lm_predictions.lm_head.")
            tensors[new.replace("cls.predictions.bias", "lm_predictions.lm_head.bias")] = tensors.pop(name)
        tensors["mask_predictions.dense.weight"] = torch.zeros(3, 3)
        tensors["deberta.embeddings.position_embeddings.weight"] = torch.zeros(3, 3)

    edit_tensors(tmp_path, rename)
    reopened = bertkit.load(tmp_path).network.state_dict()
    assert all(torch.equal(reopened[name], value) for name, value in expected.items())


@pytest.mark.parametrize("name", ["roberta", "gte"])
def test_poolers_that_a_model_does_not_use(name: str, tmp_path: Path) -> None:
    saved(name, "token_classification", tmp_path)
    width = bertkit.load(tmp_path).config.hidden_size
    pooler = {"weight": torch.zeros(width, width), "bias": torch.zeros(width)}
    edit_tensors(tmp_path, lambda tensors: tensors.update(
        {f"{name}.pooler.dense.{part}": value for part, value in pooler.items()}))  # fmt: skip
    assert list(bertkit.load(tmp_path).network.heads) == ["token_classification"]


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (AlbertConfig, {"classifier_dropout_prob": 2}, "classifier_dropout_prob=2"),
        (DebertaConfig, {"pooler_hidden_act": "wave"}, "pooler_hidden_act='wave'"),
        (DebertaConfig, {"cls_dropout": -1.0}, "cls_dropout=-1.0"),
        (NomicBertConfig, {"hidden_size": 20, "num_attention_heads": 4}, "positions need an even"),
        (NomicBertConfig, {"type_vocab_size": 0}, "type_vocab_size=0"),
        (GteConfig, {"rope_factor": 0.0}, "rope_factor=0.0"),
    ],
)
def test_configs_of_new_models(config: type, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(**changes)


def test_parameter_counts_of_published_base_models() -> None:
    """Of the encoders as the hub counts them, poolers included."""
    counts = {}
    for name in ("roberta", "mpnet", "deberta-v2", "albert", "nomic_bert"):
        record = ARCHITECTURES[name]
        with torch.device("meta"):
            encoder = record.encoder(record.config.of_size("base"), with_pooler=record.has_pooler)
        counts[name] = sum(parameter.numel() for parameter in encoder.parameters())
    assert counts == {
        "roberta": 124_645_632, "mpnet": 109_486_464, "deberta-v2": 183_831_552, "albert": 11_683_584,
        "nomic_bert": 136_731_648,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 8}, "num_key_value_heads=8 does not divide num_attention_heads=4"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3 does not divide num_attention_heads=4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads=0: expected an integer from 1"),
        ({"norm": "batch"}, "norm='batch': expected one of layer, rms"),
        ({"norm_order": "both"}, "norm_order='both': expected one of post, pre"),
        ({"gate": "middle"}, "gate='middle': expected one of none, separate, first, last"),
        ({"positions": "learned"}, "positions='learned': expected RotaryPositions, DistanceBias"),
        ({"positions": RotaryPositions(1e4), "head_dim": 5}, "head_dim=5: rotary positions need an even number"),
        ({"has_inputs_by_head": True}, "has_inputs_by_head=True requires has_joint_inputs"),
        (
            {"positions": RotaryPositions(1e4, has_neighboring_pairs=True), "head_dim": 6, "has_head_norms": True},
            "has_head_norms=True: rotary positions with has_neighboring_pairs",
        ),
        ({"hidden_act": "step"}, "hidden_act='step': expected one of gelu"),
    ],
)
def test_invalid_layers_are_refused_by_key(changes: dict[str, Any], words: str) -> None:
    layer = BertConfig(hidden_size=20, num_attention_heads=4).layer(0)
    with pytest.raises(UsageError, match=re.escape(words)):
        replace(layer, **changes)
