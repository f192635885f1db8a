"""ModernBERT directories in both spellings of the config, bare and with heads, and unsupported ones."""

import json
from pathlib import Path

import pytest
import torch
from random_models import edit_json, edit_tensors, save_published
from random_modern import PUBLISHED_CLASSES, our_model, published_model
from safetensors.torch import load_file

import bertkit
from bertkit import Model, ModernBertConfig
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import CheckpointError, MissingHeadError

pytestmark = pytest.mark.usefixtures("one_thread")

AS_FIRST_PUBLISHED = {  # the config.json of answerdotai/ModernBERT-base, the sizes made small
    "_name_or_path": "ModernBERT-base", "architectures": ["ModernBertForMaskedLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 2, "classifier_activation": "gelu", "classifier_bias": False,
    "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 2, "decoder_bias": True,
    "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 3, "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0, "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 60,
    "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 37, "layer_norm_eps": 1e-05,
    "local_attention": 8, "local_rope_theta": 10000.0, "max_position_embeddings": 99, "mlp_bias": False,
    "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 3,
    "num_hidden_layers": 5, "pad_token_id": 0, "position_embedding_type": "absolute", "reference_compile": None,
    "repad_logits_with_grad": False, "sep_token_id": 3, "sparse_pred_ignore_index": -100, "sparse_prediction": False,
    "tie_word_embeddings": True, "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 99,
}  # fmt: skip
SHAPE = {
    "vocab_size": 99, "hidden_size": 60, "num_hidden_layers": 5, "num_attention_heads": 3, "intermediate_size": 37,
    "max_position_embeddings": 99, "local_attention": 8, "hidden_activation": "gelu", "classifier_activation": "gelu",
    "classifier_pooling": "mean", "norm_eps": 1e-5,
}  # fmt: skip


def published(folder: Path, kind: str = "masked_lm", **changes) -> Path:
    """A directory as transformers saves it."""
    every = {"global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
    return save_published(published_model(kind, 7, **SHAPE | every | changes), folder)


def outputs(model: Model) -> torch.Tensor:
    batch = bertkit.collate(model.tokenizer.encode_batch(["the cat sat on the mat " * 4, "a dog"]))
    with torch.no_grad():
        return model.network(batch.to(model.device)).encoded.last_hidden_state.cpu()


def test_both_spellings_say_the_same(tmp_path: Path) -> None:
    as_transformers_5 = bertkit.load(published(tmp_path))
    content = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in content and "layer_types" in content
    (tmp_path / "config.json").write_text(json.dumps(AS_FIRST_PUBLISHED))
    as_first_published = bertkit.load(tmp_path)
    assert as_first_published.config == as_transformers_5.config
    assert as_first_published.config == ModernBertConfig(**SHAPE)
    assert torch.equal(outputs(as_first_published), outputs(as_transformers_5))


@pytest.mark.parametrize(
    ("changes", "thetas"),
    [
        ({"full_attention": {"rope_theta": 7}}, (7, 20.0)),
        ({"sliding_attention": {"rope_type": "default", "rope_theta": 9.5}}, (30.0, 9.5)),
        ({"full_attention": None, "sliding_attention": {"rope_type": "default"}}, (30.0, 20.0)),
        ({}, (30.0, 20.0)),
    ],
)
def test_missing_keys_are_read_from_the_other_spelling(tmp_path: Path, changes: dict, thetas: tuple) -> None:
    published(tmp_path)
    stated = {"global_rope_theta": 30.0, "local_rope_theta": 20.0}
    spelled = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
    for kind, value in changes.items():
        if value and "rope_theta" in value:
            stated.pop(spelled[kind])
    (tmp_path / "config.json").write_text(json.dumps(
        {key: value for key, value in AS_FIRST_PUBLISHED.items() if not key.endswith("rope_theta")}
        | stated | {"rope_parameters": changes}
    ))  # fmt: skip
    config = bertkit.load(tmp_path).config
    assert (config.global_rope_theta, config.local_rope_theta) == thetas


@pytest.mark.parametrize(("every", "is_global"), [(1, "11111"), (2, "10101"), (3, "10010"), (4, "10001"), (7, "10000")])
def test_layers_are_global_or_local_as_either_spelling_says(tmp_path: Path, every: int, is_global: str) -> None:
    published(tmp_path, global_attn_every_n_layers=every)
    content = json.loads((tmp_path / "config.json").read_text())
    assert [kind == "full_attention" for kind in content["layer_types"]] == [mark == "1" for mark in is_global]
    model = bertkit.load(tmp_path)
    assert "".join("01"[layer.attention.window is None] for layer in model.encoder.layers) == is_global
    edit_json(tmp_path / "config.json", layer_types=None, rope_parameters=None, global_attn_every_n_layers=every)
    assert torch.equal(outputs(bertkit.load(tmp_path)), outputs(model))


def test_saved_config_uses_the_first_spelling(tmp_path: Path) -> None:
    """Which transformers of every version reads."""
    our_model("masked_lm", 7, **SHAPE).save(tmp_path / "saved")
    content = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert {"rope_parameters", "layer_types"}.isdisjoint(content)
    same = set(AS_FIRST_PUBLISHED) - {"_name_or_path", "torch_dtype", "transformers_version"}
    for key in same & content.keys() - {"local_rope_theta", "global_rope_theta", "global_attn_every_n_layers"}:
        assert content[key] == AS_FIRST_PUBLISHED[key], key
    read_by_transformers_4 = {
        "hidden_activation", "global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "local_attention",
        "norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "pad_token_id", "cls_token_id", "sep_token_id",
    }  # fmt: skip
    assert read_by_transformers_4 <= content.keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias=True; supported: False"),
        ({"mlp_bias": True}, "mlp_bias=True; supported: False"),
        ({"norm_bias": True}, "norm_bias=True; supported: False"),
        ({"classifier_bias": True}, "classifier_bias=True; supported: False"),
        ({"decoder_bias": False}, "decoder_bias=False; supported: True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"model_type": "modernbert-decoder"}, "model_type='modernbert-decoder'; supported: 'bert', 'modernbert'"),
        ({"model_type": ["modernbert"]}, "supported: 'bert', 'modernbert'"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling="),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4}}}, "rope_type 'default'"),
        ({"rope_parameters": {"rope_theta": 7}}, "rope_parameters has rope_theta: expected full_attention, sliding"),
        ({"rope_parameters": {"full_attention": 7}}, "full_attention is 7, expected dict"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 7}}}, "global_rope_theta=160000.0 and 7 under the key"),
        ({"layer_types": ["sliding_attention"] * 5}, "expected num_hidden_layers entries"),
        ({"layer_types": ["full_attention"] * 3}, "expected num_hidden_layers entries"),
        ({"layer_types": ["full_attention", "full_attention", 3, [], "x"]}, "expected num_hidden_layers entries"),
        ({"layer_types": ["full_attention"] * 5}, "global_attn_every_n_layers=3 and 1 under the key"),
        ({"global_rope_theta": "large"}, "global_rope_theta='large'"),
        ({"hidden_activation": "gegelu"}, "hidden_activation='gegelu'"),
        ({"local_attention": -1}, "local_attention=-1"),
        ({"some_new_key": 1}, r"unknown keys \(some_new_key\)"),
        ({"type_vocab_size": 2}, r"unknown keys \(type_vocab_size\)"),
        ({"hidden_size": 66}, "tok_embeddings.weight has shape"),
        ({"num_hidden_layers": 6}, "lacks 6 of"),
    ],
)  # fmt: skip
def test_mismatched_config_raises(tmp_path: Path, changes: dict, message: str) -> None:
    published(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(AS_FIRST_PUBLISHED | changes))
    with pytest.raises(CheckpointError, match=message):
        bertkit.load(tmp_path)


@pytest.mark.parametrize("kind", PUBLISHED_CLASSES)
def test_encoder_stored_bare_or_with_the_prefix(tmp_path: Path, kind: str) -> None:
    published(tmp_path, kind)
    model = bertkit.load(tmp_path)
    assert any(name.startswith("model.") for name in load_file(tmp_path / "model.safetensors")) == (kind != "encoder")

    def turn(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            if kind == "encoder":
                tensors[f"model.{name}"] = tensors.pop(name)
            else:
                tensors[name.removeprefix("model.")] = tensors.pop(name)

    edit_tensors(tmp_path, turn)
    torch.testing.assert_close(values(bertkit.load(tmp_path)), values(model), rtol=0, atol=0)


def values(model: Model) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.network.named_parameters()}


def test_stored_copy_of_the_word_embedding(tmp_path: Path) -> None:
    """As the first release holds it."""
    published(tmp_path)
    model = bertkit.load(tmp_path)
    table = "model.embeddings.tok_embeddings.weight"
    edit_tensors(tmp_path, lambda tensors: tensors.update({"decoder.weight": tensors[table].clone()}))
    torch.testing.assert_close(values(bertkit.load(tmp_path)), values(model), rtol=0, atol=0)
    edit_tensors(tmp_path, lambda tensors: tensors["decoder.weight"].add_(1))
    with pytest.raises(CheckpointError, match="an untied decoder is not supported"):
        bertkit.load(tmp_path)


def test_missing_and_unexpected_tensors_raise(tmp_path: Path) -> None:
    published(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.update({"model.layers.0.attn_norm.weight": torch.ones(60)}))
    with pytest.raises(CheckpointError, match=r"lacks: model\.layers\.0\.attn_norm\.weight"):
        bertkit.load(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.pop("model.layers.0.attn_norm.weight"))
    edit_tensors(tmp_path, lambda tensors: tensors.pop("model.layers.3.mlp.Wi.weight"))
    with pytest.raises(CheckpointError, match=r"lacks 1 of \d+ tensors: model\.layers\.3\.mlp\.Wi\.weight"):
        bertkit.load(tmp_path)


def test_modernbert_has_no_next_sentence_or_pooler(tmp_path: Path) -> None:
    published(tmp_path)
    for part in ("next_sentence", "question_answering"):
        with pytest.raises(MissingHeadError, match=part):
            bertkit.load(tmp_path, heads=[part])
        with pytest.raises(bertkit.BertkitError, match=f"no {part} head"):
            bertkit.load(tmp_path, heads=[part], new=[part])
    with pytest.raises(bertkit.BertkitError, match="no pooler"):
        bertkit.load(tmp_path, new=["pooler"])


def test_sentence_transformers_opens_a_sentence_encoder_of_ours(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    ours = our_model("encoder", 7, **SHAPE)
    ours.checkpoint.sentence = SentenceSettings(pooling="mean", max_seq_length=30)
    ours.save(tmp_path / "saved")
    texts = ["the cat sat on the mat " * 4, "", "a dog"]
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(texts)
    assert theirs.std() > 0.1
    for model in (ours, bertkit.load(tmp_path / "saved")):
        results = model.embed(texts, report=bertkit.InferenceReport())
        torch.testing.assert_close(torch.from_numpy(results), torch.from_numpy(theirs), rtol=0, atol=1e-5)
