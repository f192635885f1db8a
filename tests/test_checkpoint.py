"""Opening published folders of every layout and spelling, provenance of tensors, saving for other libraries."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from random_models import edit_json, edit_tensors, error, our_model, published_model, save_published, write_tokenizer
from safetensors.torch import load_file

import bertkit
from bertkit import Model
from bertkit.architectures.bert import BERT
from bertkit.checkpoint import SentenceSettings, saving
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.errors import CheckpointError, MissingHeadError, TruncationWarning, UsageError
from bertkit.export import export_model
from bertkit.transformer.activations import OTHER_NAMES

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = [
    "the cat sat",
    "",
    "walked",
    "a dog and a cat ran off the mat, able and unable to talk in blue and green letters",
    "un",
]
LONG = "one two three four " * 20


def published(folder: Path, kind: str, number: int = 2, num_labels: int = 2, **changes) -> transformers.PreTrainedModel:
    """Save transformers' model of a kind in a folder, and return it."""
    folder.mkdir(exist_ok=True)
    model = published_model(kind, number, num_labels, **changes)
    save_published(model, folder)
    return model


def values(model: Model) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().cpu() for name, parameter in model.network.named_parameters()}


def assert_same_values(actual: Model, expected: Model) -> None:
    torch.testing.assert_close(values(actual), values(expected), rtol=0, atol=0)


# --- sentence encoders, in both layouts of sentence-transformers ------------------------------------------------------

OLD_FLAGS = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
SPELLINGS = {  # ours -> the old layout's and the new layout's
    "cls": ("cls_token", "cls"),
    "mean": ("mean_tokens", "mean"),
    "max": ("max_tokens", "max"),
    "mean-sqrt-len": ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    "weighted-mean": ("weightedmean_tokens", "weightedmean"),
    "last": ("lasttoken", "lasttoken"),
}


CHAIN = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def sentence_transformer(folder: Path):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def assert_same_vectors(model: Model, reference, **options) -> None:
    results = model.embed([*TEXTS, LONG], report=bertkit.InferenceReport(), **options)
    expected = reference.encode([*TEXTS, LONG], **options)
    assert expected.std() > 0.1
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-6 * max(1, np.abs(expected).max()))


def write_old_layout(folder: Path, pooling: str, *, normalize: bool, transformer_path: str = "") -> None:
    kinds = {"Transformer": transformer_path, "Pooling": "1_Pooling"} | (
        {"Normalize": "2_Normalize"} if normalize else {}
    )
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path in [path for path in kinds.values() if path != transformer_path]:
        (folder / path).mkdir()
    flags = {f"pooling_mode_{flag}": flag == SPELLINGS[pooling][0] for flag in OLD_FLAGS}
    width = json.loads((folder / transformer_path / "config.json").read_text())["hidden_size"]
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": width, **flags}))
    limits = {"max_seq_length": 13, "do_lower_case": False}
    (folder / transformer_path / "sentence_bert_config.json").write_text(json.dumps(limits))


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("transformer_path", ["", "0_Transformer"])
@pytest.mark.parametrize("pooling", SPELLINGS)
def test_old_layout_of_sentence_transformers(tmp_path: Path, pooling: str, transformer_path: str) -> None:
    normalize = pooling in ("mean", "max")
    published(tmp_path / transformer_path, "encoder")
    write_old_layout(tmp_path, pooling, normalize=normalize, transformer_path=transformer_path)
    model = bertkit.load(tmp_path)
    assert model.sentence_settings == SentenceSettings(pooling=pooling, normalize=normalize, max_seq_length=13)
    assert_same_vectors(model, sentence_transformer(tmp_path))


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("pooling", SPELLINGS)
def test_new_layout_of_sentence_transformers(tmp_path: Path, pooling: str) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    network = published(tmp_path / "bert", "encoder")
    modules = [
        Transformer(str(tmp_path / "bert"), max_seq_length=11),
        Pooling(network.config.hidden_size, SPELLINGS[pooling][1]),
    ]
    modules += [Normalize()] * (pooling in ("mean", "max"))
    made = SentenceTransformer(modules=modules, prompts={"query": "the: "}, default_prompt_name="query", device="cpu")
    made.save(str(tmp_path / "new"))
    model = bertkit.load(tmp_path / "new")
    settings = model.sentence_settings
    assert (settings.pooling, settings.normalize) == (pooling, pooling in ("mean", "max"))
    assert settings.default_prompt_name == "query" and settings.prompts["query"] == "the: "
    assert_same_vectors(model, made)
    assert_same_vectors(model, made, prompt="a ")
    assert_same_vectors(model, made, prompt="")


@pytest.mark.full
@pytest.mark.parametrize("normalize", [False, True])
def test_published_number_of_components(tmp_path: Path, normalize: bool) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    network = published(tmp_path / "bert", "encoder")
    modules = [Transformer(str(tmp_path / "bert")), Pooling(network.config.hidden_size, "mean")]
    made = SentenceTransformer(modules=modules + [Normalize()] * normalize, truncate_dim=8, device="cpu")
    made.save(str(tmp_path / "new"))
    bertkit.load(tmp_path / "new").save(tmp_path / "again")
    for folder in (tmp_path / "new", tmp_path / "again"):
        model, reference = bertkit.load(folder), SentenceTransformer(str(folder), device="cpu")
        assert model.sentence_settings.truncate_dim == 8
        assert model.embed([]).shape == (0, 8)
        close = {"rtol": 0, "atol": 1e-5}
        np.testing.assert_allclose(model.embed(TEXTS), made.encode(TEXTS), **close)
        np.testing.assert_allclose(model.embed(TEXTS), reference.encode(TEXTS), **close)
        units = reference.encode(TEXTS, normalize_embeddings=True)
        np.testing.assert_allclose(model.embed(TEXTS, normalize=True), units, **close)
        assert model.embed(TEXTS, dimensions=9).shape == (len(TEXTS), 9)
        assert model.embed(TEXTS, pooling="max").shape == (len(TEXTS), network.config.hidden_size)
        with pytest.raises(UsageError, match="keeps 8 components"):
            export_model(model, tmp_path / "graph")


def test_limit_in_the_arguments_of_the_tokenizer(tmp_path: Path) -> None:
    published(tmp_path, "encoder")
    write_old_layout(tmp_path, "mean", normalize=False)
    arguments = {"model_max_length": 9, "use_fast": True}
    edit_json(tmp_path / "sentence_bert_config.json", tokenizer_args=arguments, model_args={"dtype": "float32"})
    assert bertkit.load(tmp_path).sentence_settings.max_seq_length == 9


@pytest.mark.parametrize("default", [None, "query", "document"])
def test_prompt_may_be_empty(tmp_path: Path, default: str | None) -> None:
    """As sentence-transformers writes it for models without prompts."""
    published(tmp_path, "encoder")
    write_old_layout(tmp_path, "mean", normalize=False)
    settings = {"prompts": {"query": "the: ", "document": ""}, "default_prompt_name": default}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    model, reference = bertkit.load(tmp_path), sentence_transformer(tmp_path)
    assert_same_vectors(model, reference)
    assert_same_vectors(model, reference, prompt_name="document")
    assert_same_vectors(model, reference, prompt_name="query")


@pytest.mark.parametrize("pooling", SPELLINGS)
def test_sentence_transformers_opens_what_we_save(tmp_path: Path, pooling: str) -> None:
    ours = our_model("encoder", 7)
    ours.checkpoint.sentence = SentenceSettings(
        pooling=pooling,
        normalize=pooling in ("cls", "mean-sqrt-len"),
        max_seq_length=9,
        prompts={"query": "the cat "},
        default_prompt_name=None if pooling == "cls" else "query",
        include_prompt=pooling != "mean",
    )
    ours.save(tmp_path / "saved")
    reference = sentence_transformer(tmp_path / "saved")
    assert reference.max_seq_length == 9
    assert reference.get_embedding_dimension() == ours.config.hidden_size
    assert_same_vectors(ours, reference)
    assert_same_vectors(ours, reference, prompt_name="query")
    assert bertkit.load(tmp_path / "saved").sentence_settings == ours.sentence_settings


def test_length_of_the_calls_of_the_tokenizer_is_applied(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    published(tmp_path / "encoder", "encoder")
    calls = {"text": {"max_length": 6, "truncation": True}}
    modules = [Transformer(str(tmp_path / "encoder"), processing_kwargs=calls)]
    modules.append(Pooling(modules[0].get_embedding_dimension(), "mean"))
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "saved"))
    assert_same_vectors(bertkit.load(tmp_path / "saved"), sentence_transformer(tmp_path / "saved"))


def test_unsupported_pooling_is_not_saved(tmp_path: Path) -> None:
    ours = our_model("encoder", 7)
    ours.checkpoint.sentence = SentenceSettings(pooling="pooler")
    with pytest.raises(CheckpointError, match="no name for pooling='pooler'"):
        ours.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "pools by median"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "median"]}, "pools by mean, median"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_other": 1}, "pools by cls, pooling"),
        ("1_Pooling/config.json", {"pooling_mode": []}, "pools by nothing"),
        ("1_Pooling/config.json", None, "lacks 1_Pooling/config.json"),
        ("modules.json", [CHAIN[0], {"path": "1", "type": "sentence_transformers.models.Normalize"}], "mer, Normalize"),
        ("modules.json", [*CHAIN, {"path": "2", "type": "sentence_transformers.LSTM"}], "Pooling, LSTM; supported"),
        ("modules.json", [CHAIN[0], {"path": "2", "type": "my_code.Pooling"}], "type 'my_code.Pooling', which is code"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"add_special_tokens": False}}}, "supported for"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"truncation": False}}}, "supported for texts"),
        ("sentence_bert_config.json", {"tokenizer_args": {"do_lower_case": False}}, "_args with do_lower_case"),
        ("sentence_bert_config.json", {"config_kwargs": {"layer_norm_eps": 0.5}}, "config_kwargs with layer_norm_eps"),
        ("sentence_bert_config.json", {"modality_config": {"text": {"method_output_name": ["hidden_states", -2]}}},
         "modality_config.text=.*supported: method 'forward'"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim=0: expected at least 1"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "maxsim"}, "similarity_fn_name is 'maxsim'"),
        ("modules.json", {"path": ""}, "expected a list"),
    ],
)  # fmt: skip
def test_unsupported_sentence_layout_raises(tmp_path: Path, file: str, content, message: str) -> None:
    published(tmp_path, "encoder")
    write_old_layout(tmp_path, "mean", normalize=False)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        bertkit.load(tmp_path)


# --- spellings of published weights ----------------------------------------------------------------------------------


def test_sharded_weights_equal_those_of_one_file(tmp_path: Path) -> None:
    network = published(tmp_path / "one", "pretraining")
    save_published(network, tmp_path / "many", max_shard_size="9KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 3
    sharded = bertkit.load(tmp_path / "many")
    assert_same_values(sharded, bertkit.load(tmp_path / "one"))
    sources = {origin.source for origin in sharded.checkpoint.provenance.values()}
    assert sources == {path.name for path in (tmp_path / "many").glob("*.safetensors")}


def as_gamma_and_beta(tensors: dict[str, torch.Tensor]) -> None:
    for name in list(tensors):
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[old] = tensors.pop(name)


@pytest.mark.parametrize("kind", ["encoder", "pretraining"])
def test_norms_named_gamma_and_beta(tmp_path: Path, kind: str) -> None:
    published(tmp_path, kind)
    expected = bertkit.load(tmp_path)
    edit_tensors(tmp_path, as_gamma_and_beta)
    assert sum("gamma" in name for name in load_file(tmp_path / "model.safetensors")) >= 3
    assert_same_values(bertkit.load(tmp_path), expected)


def test_encoder_stored_bare_or_with_the_prefix(tmp_path: Path) -> None:
    published(tmp_path, "encoder")
    bare = bertkit.load(tmp_path)

    def add_prefix(tensors: dict[str, torch.Tensor]) -> None:
        assert not any(name.startswith("bert.") for name in tensors)
        for name in list(tensors):
            tensors[f"bert.{name}"] = tensors.pop(name)

    edit_tensors(tmp_path, add_prefix)
    assert_same_values(bertkit.load(tmp_path), bare)


@pytest.mark.parametrize("kind", ["encoder", "pretraining", "sequence_classification"])
def test_parameters_have_the_names_of_transformers(tmp_path: Path, kind: str) -> None:
    expected = dict(published(tmp_path, kind).named_parameters())
    ours = dict(bertkit.load(tmp_path).named_parameters())
    assert ours.keys() == expected.keys()
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter.detach(), expected[name].detach(), rtol=0, atol=0)


@pytest.fixture
def like_bert_base(tmp_path: Path) -> Path:
    """As bert-base-uncased is published: named a masked LM, holding also pooler and next sentence head, gamma and beta,
    a copy of the word embedding and of its bias, and the positions 0, 1, 2, ..."""
    network = published(tmp_path / "bert", "pretraining")
    edit_json(tmp_path / "bert" / "config.json", architectures=["BertForMaskedLM"])

    def change(tensors: dict[str, torch.Tensor]) -> None:
        as_gamma_and_beta(tensors)
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        tensors["bert.embeddings.position_ids"] = torch.arange(network.config.max_position_embeddings)[None]

    edit_tensors(tmp_path / "bert", change)
    return tmp_path / "bert"


def test_unexpected_tensors_of_architecture_raise(like_bert_base: Path, tmp_path: Path) -> None:
    published(tmp_path / "plain", "pretraining")
    model = bertkit.load(like_bert_base)
    assert set(model.network.heads) == {"masked_lm", "next_sentence"}
    assert_same_values(model, bertkit.load(tmp_path / "plain"))
    assert {origin.origin for origin in model.checkpoint.provenance.values()} == {"loaded"}
    model.require_trained("masked_lm")
    model.require_trained("next_sentence")


@pytest.mark.parametrize("heads", [[], ["masked_lm"], ["next_sentence"], ["next_sentence", "masked_lm"]])
def test_only_requested_heads_are_loaded(like_bert_base: Path, heads: list[str]) -> None:
    whole, model = bertkit.load(like_bert_base), bertkit.load(like_bert_base, heads=heads)
    assert list(model.network.heads) == heads
    wanted = {
        name: value
        for name, value in values(whole).items()
        if name.startswith(("encoder.", *(f"heads.{h}." for h in heads)))
    }
    torch.testing.assert_close(values(model), wanted, rtol=0, atol=0)


def test_tied_copy_may_be_the_one_that_is_stored(tmp_path: Path) -> None:
    published(tmp_path, "masked_lm")
    expected = bertkit.load(tmp_path)

    def keep_the_copies(tensors: dict[str, torch.Tensor]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors.pop("bert.embeddings.word_embeddings.weight")
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    edit_tensors(tmp_path, keep_the_copies)
    assert_same_values(bertkit.load(tmp_path), expected)


@pytest.mark.parametrize("copy", ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"])
def test_copy_that_differs_is_an_untied_decoder(like_bert_base: Path, copy: str) -> None:
    edit_tensors(like_bert_base, lambda tensors: tensors[copy].ravel()[:1].add_(1))
    with pytest.raises(CheckpointError, match=f"{copy} differs"):
        bertkit.load(like_bert_base)
    bertkit.load(like_bert_base, heads=["next_sentence"])  # which does not use it


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(like_bert_base: Path, value: float) -> None:
    """Attention and 8-bit products can turn them into ordinary numbers."""
    name = "bert.encoder.layer.1.attention.self.query.weight"
    edit_tensors(like_bert_base, lambda tensors: tensors[name].ravel()[3:5].fill_(value))
    with pytest.raises(CheckpointError, match=f"model.safetensors: 2 of the [0-9,]* numbers of {name} are NaN or inf"):
        bertkit.load(like_bert_base)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_stored_in_another_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    network = published_model("next_sentence", 2).to(dtype)
    save_published(network, tmp_path)
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    reopened = network.float().state_dict()
    model = bertkit.load(tmp_path)
    for name, value in values(model).items():
        assert value.dtype == torch.float32
        assert torch.equal(value, reopened[BERT.names.published(name)]), name
    assert {value.dtype for value in values(bertkit.load(tmp_path, precision="float64")).values()} == {torch.float64}


def test_classifier_keeps_its_labels(tmp_path: Path) -> None:
    published(tmp_path, "token_classification", num_labels=3)
    edit_json(tmp_path / "config.json", id2label={"2": "I-X", "0": "O", "1": "B-X"})
    model = bertkit.load(tmp_path)
    assert model.checkpoint.label_names == ("O", "B-X", "I-X")
    model.save(tmp_path / "saved")
    assert bertkit.load(tmp_path / "saved").checkpoint.label_names == ("O", "B-X", "I-X")
    config = transformers.BertConfig.from_pretrained(tmp_path / "saved")
    assert config.id2label == {0: "O", 1: "B-X", 2: "I-X"} and config.label2id == {"O": 0, "B-X": 1, "I-X": 2}


@pytest.mark.parametrize(
    ("label2id", "names"),
    [
        ({"I-X": 2, "O": 0, "B-X": 1}, ("O", "B-X", "I-X")),
        ({"LABEL_0": 0, "LABEL_1": 1}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"O": 0, "B-X": 2, "I-X": 2}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({"O": [0], "B-X": 1, "I-X": 2}, ("LABEL_0", "LABEL_1", "LABEL_2")),
        ({}, ("LABEL_0", "LABEL_1", "LABEL_2")),
    ],
)
def test_label_names_may_be_in_label2id_alone(tmp_path: Path, label2id: dict, names: tuple[str, ...]) -> None:
    published(tmp_path, "token_classification", num_labels=3)
    edit_json(tmp_path / "config.json", id2label=None, label2id=label2id)
    assert bertkit.load(tmp_path).checkpoint.label_names == names


def test_regression_stays_regression(tmp_path: Path) -> None:
    published(tmp_path, "sequence_classification", num_labels=1)
    bertkit.load(tmp_path).save(tmp_path / "saved")
    config = transformers.BertConfig.from_pretrained(tmp_path / "saved")
    assert (config.num_labels, config.problem_type) == (1, "regression")


def test_several_numbers_are_no_task(tmp_path: Path) -> None:
    published(tmp_path, "sequence_classification", num_labels=3)
    edit_json(tmp_path / "config.json", problem_type="regression")
    with pytest.raises(MissingHeadError, match="its heads: sequence_classification of several numbers"):
        bertkit.load(tmp_path).predict(["the cat"])


def test_classifier_without_architecture_requires_heads(tmp_path: Path) -> None:
    published(tmp_path, "token_classification", num_labels=3)
    edit_json(tmp_path / "config.json", architectures=None)
    with pytest.raises(CheckpointError, match=r"names no supported class for it.*heads="):
        bertkit.load(tmp_path)
    model = bertkit.load(tmp_path, heads=["token_classification"])
    assert list(model.network.heads) == ["token_classification"]
    assert model.network.heads["token_classification"].classifier.out_features == 3


# --- provenance: loaded, initialized, trained ------------------------------------------------------------------------


def test_new_head_raises_until_trained(tmp_path: Path) -> None:
    published(tmp_path, "encoder")
    model = bertkit.load(tmp_path, new=["masked_lm"], seed=5)
    origins = {name: origin.origin for name, origin in model.checkpoint.provenance.items()}
    assert {name for name, origin in origins.items() if origin == "initialized"} == {
        "cls.predictions.bias", "cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.bias",
    }  # fmt: skip
    assert {origin for name, origin in origins.items() if name.startswith("bert.")} == {"loaded"}
    assert len(origins) == len(values(model))
    with pytest.raises(MissingHeadError, match="never trained"):
        model.fill_mask("the [MASK]")

    model.save(tmp_path / "saved")
    reopened = bertkit.load(tmp_path / "saved")
    assert reopened.checkpoint.provenance["cls.predictions.bias"] == Provenance("initialized", "seed 5")
    with pytest.raises(MissingHeadError, match="never trained"):
        reopened.fill_mask("the [MASK]")
    assert_same_values(reopened, model)
    assert_same_values(bertkit.load(tmp_path, new=["masked_lm"], seed=5), model)
    weight = "heads.masked_lm.dense.weight"
    assert not torch.equal(values(bertkit.load(tmp_path, new=["masked_lm"], seed=6))[weight], values(model)[weight])

    for name in model.checkpoint.provenance:
        model.checkpoint.provenance[name] = Provenance("trained")
    model.save(tmp_path / "trained")
    (filled,) = bertkit.load(tmp_path / "trained").fill_mask("the [MASK]", top_k=3)
    assert len(filled.candidates) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_head_saved_by_others_without_training_refuses_to_predict(tmp_path: Path, dtype: torch.dtype) -> None:
    published(tmp_path, "encoder")
    bertkit.load(tmp_path, new=["token_classification"], label_names=["no", "yes"]).save(tmp_path / "saved")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "saved", dtype=dtype)
    theirs.save_pretrained(tmp_path / "saved")
    with pytest.raises(MissingHeadError, match="never trained"):
        bertkit.load(tmp_path / "saved").predict([["the", "cat"]])


@pytest.mark.parametrize("kinds", [("weight", "bias"), ("weight",)], ids=["all", "all but biases"])
def test_head_trained_by_others_predicts(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    published(tmp_path, "encoder")
    model = bertkit.load(tmp_path, new=["sequence_classification", "pooler"], label_names=["no", "yes"])
    model.save(tmp_path / "saved")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.startswith(("classifier", "bert.pooler")) and name.endswith(kinds):
                parameter.add_(0.1)
    theirs.save_pretrained(tmp_path / "saved")
    (prediction,) = bertkit.load(tmp_path / "saved").predict(["the cat"])
    assert prediction.label in ("no", "yes")


@pytest.mark.parametrize("label_names", ["xy", [0, 1], ["x", "x"]])
def test_label_names_are_different_strings(tmp_path: Path, label_names: object) -> None:
    published(tmp_path, "encoder")
    with pytest.raises(UsageError, match=r"label_names.*: expected "):
        bertkit.load(tmp_path, new=["sequence_classification", "pooler"], label_names=label_names)
    source = our_model("encoder", 2)
    with pytest.raises(UsageError, match=r"label_names.*: expected "):
        Model.create(source.config, source.tokenizer, ["sequence_classification"], label_names=label_names)


def test_untied_embeddings_matter_to_a_masked_lm_only(tmp_path: Path) -> None:
    published(tmp_path, "masked_lm")
    edit_json(tmp_path / "config.json", tie_word_embeddings=False, _num_labels=3, emb_size=24)
    with pytest.raises(CheckpointError, match="tie_word_embeddings=False: a masked_lm head with a matrix of its own"):
        bertkit.load(tmp_path)
    assert bertkit.load(tmp_path, heads=[]).embed("the cat").std() > 0
    assert list(bertkit.load(tmp_path, ignore_config_keys=["tie_word_embeddings"]).network.heads) == ["masked_lm"]


def test_length_of_the_tokenizer_holds_for_predictions(tmp_path: Path) -> None:
    published(tmp_path, "sequence_classification", 3)
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=8)
    reference = transformers.pipeline("text-classification", str(tmp_path), device="cpu", top_k=None)
    expected = {one["label"]: one["score"] for (row,) in [reference([LONG], truncation=True)] for one in row}
    with pytest.warns(TruncationWarning):
        (prediction,) = bertkit.load(tmp_path).predict([LONG])
    assert prediction.probabilities == pytest.approx(expected, abs=1e-5)


def test_one_label_is_a_number_or_a_probability_as_stated(tmp_path: Path) -> None:
    published(tmp_path, "sequence_classification", num_labels=1)
    edit_json(tmp_path / "config.json", problem_type=None)
    with pytest.warns(UserWarning, match="config.json states no problem_type for the one label"):
        (unstated,) = bertkit.load(tmp_path).predict(["the cat"])
    for problem_type in ("regression", "multi_label_classification"):
        edit_json(tmp_path / "config.json", problem_type=problem_type)
        reference = transformers.pipeline("text-classification", str(tmp_path), device="cpu", top_k=None)
        ((expected,),) = reference(["the cat"])
        (prediction,) = bertkit.load(tmp_path).predict(["the cat"])
        if problem_type == "regression":
            assert prediction == unstated and prediction.score == pytest.approx(expected["score"], rel=1e-4)
        else:
            assert prediction.probabilities == {expected["label"]: pytest.approx(expected["score"], abs=1e-5)}


def test_created_model_is_initialized_throughout_and_refuses_to_predict(tmp_path: Path) -> None:
    source = our_model("pretraining", 2)
    model = Model.create(source.config, source.tokenizer, ["next_sentence"], seed=3)
    assert {origin.origin for origin in model.checkpoint.provenance.values()} == {"initialized"}
    model.save(tmp_path / "saved")
    for untrained in (model, bertkit.load(tmp_path / "saved")):
        with pytest.raises(MissingHeadError, match="next_sentence head was never trained"):
            untrained.next_sentence_probability("the cat", "sat")


def test_missing_head_error_names_the_remedy(tmp_path: Path) -> None:
    published(tmp_path, "masked_lm")
    with pytest.raises(MissingHeadError, match=r"has: masked_lm.*new=\['question_answering'\]"):
        bertkit.load(tmp_path, heads=["question_answering"])
    with pytest.raises(MissingHeadError, match=r"no pooler.*'pooler'"):
        bertkit.load(tmp_path, new=["next_sentence"])
    with pytest.raises(MissingHeadError, match=r"no next_sentence head.*masked_lm"):
        bertkit.load(tmp_path).next_sentence_probability("a", "b")
    model = bertkit.load(tmp_path, new=["next_sentence", "pooler"])
    assert set(model.network.heads) == {"masked_lm", "next_sentence"}
    assert model.checkpoint.provenance["bert.pooler.dense.weight"].origin == "initialized"


def test_new_classifier_has_the_labels_asked_for(tmp_path: Path) -> None:
    published(tmp_path, "pretraining")
    model = bertkit.load(
        tmp_path, heads=["sequence_classification"], new=["sequence_classification"], label_names=["x", "y", "z"]
    )
    assert model.checkpoint.label_names == ("x", "y", "z")
    assert model.network.heads["sequence_classification"].classifier.weight.shape == (3, model.config.hidden_size)
    model.save(tmp_path / "saved")
    assert transformers.BertConfig.from_pretrained(tmp_path / "saved").id2label == {0: "x", 1: "y", 2: "z"}


def test_initial_classifier_depends_on_width(tmp_path: Path) -> None:
    published(tmp_path, "pretraining")
    for head in ("sequence_classification", "token_classification"):
        names = [str(number) for number in range(500)]
        model = bertkit.load(tmp_path, heads=[head], new=[head], label_names=names)
        classifier = model.network.heads[head].classifier
        weight = classifier.weight * model.config.hidden_size**0.5
        assert weight.std().item() == pytest.approx(0.8796, rel=0.02)  # of a standard normal, cut at -2 and 2
        assert weight.abs().max() <= 2 and not classifier.bias.any()


def test_stored_classifier_can_be_replaced_by_a_new_one(tmp_path: Path) -> None:
    published(tmp_path, "sequence_classification", num_labels=3)
    model = bertkit.load(tmp_path, new=["sequence_classification"], label_names=["a", "b", "c", "d"])
    assert list(model.network.heads) == ["sequence_classification"]
    assert model.network.heads["sequence_classification"].classifier.out_features == 4
    with pytest.raises(MissingHeadError, match="never trained"):
        model.require_trained("sequence_classification")


def test_new_classifier_beside_a_stored_one_of_another_kind_needs_a_choice(tmp_path: Path) -> None:
    """Both would be stored as ``classifier.weight``."""
    published(tmp_path, "sequence_classification", num_labels=3)
    with pytest.raises((CheckpointError, UsageError), match="classif"):
        bertkit.load(tmp_path, new=["token_classification"])
    model = bertkit.load(tmp_path, heads=["token_classification"], new=["token_classification"], label_names=["O", "B"])
    assert list(model.network.heads) == ["token_classification"]
    assert not any(parameter.is_meta for parameter in model.network.parameters())


@pytest.mark.parametrize(
    "options", [{"heads": ["nonsense"]}, {"new": ["nonsense"]}, {"heads": ["masked_lm"], "new": ["next_sentence"]}]
)
def test_unknown_heads_raise(tmp_path: Path, options: dict) -> None:
    published(tmp_path, "pretraining")
    with pytest.raises(UsageError, match=r"nonsense|next_sentence"):
        bertkit.load(tmp_path, **options)


@pytest.mark.parametrize("name", ["heads", "new", "ignore_tensors", "ignore_config_keys"])
def test_one_name_instead_of_several_is_refused(tmp_path: Path, name: str) -> None:
    published(tmp_path, "pretraining")
    with pytest.raises(
        UsageError, match=rf"{name} is a str \('masked_lm'\): expected several, such as \['masked_lm'\]"
    ):
        bertkit.load(tmp_path, **{name: "masked_lm"})  # type: ignore[arg-type]


# --- saving ----------------------------------------------------------------------------------------------------------


def test_transformers_opens_tokenizer_and_model_that_we_save(tmp_path: Path) -> None:
    ours = our_model("encoder", 5)
    ours.save(tmp_path / "saved")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "saved")
    pairs = [("the cat", "walked off!"), ("unable", ""), ("The [MASK] Cät", "dogs")]
    inputs = tokenizer(pairs, padding=True, return_tensors="pt")
    encodings = ours.tokenizer.encode_batch([a for a, _ in pairs], [b for _, b in pairs], special_tokens_in_text=True)
    batch = bertkit.collate(encodings)
    assert torch.equal(inputs["input_ids"][inputs["attention_mask"].bool()], batch.input_ids)
    assert torch.equal(inputs["token_type_ids"][inputs["attention_mask"].bool()], batch.token_type_ids)
    assert tokenizer.pad_token_id == theirs.config.pad_token_id == ours.tokenizer.pad_id
    with torch.inference_mode():
        torch.testing.assert_close(ours.encoder(batch).pooled, theirs(**inputs).pooler_output, rtol=0, atol=1e-5)


def saved_with_tokens(folder: Path, **settings) -> None:
    """A classifier with a tokenizer.json of BERT's, in which [MASK] takes the space before, and these settings."""
    model = published(folder, "sequence_classification", num_labels=3)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    next(token for token in content["added_tokens"] if token["content"] == "[MASK]")["lstrip"] = True
    edit_json(folder / "tokenizer.json", added_tokens=content["added_tokens"])
    edit_json(folder / "tokenizer_config.json", **settings)
    assert model.config.type_vocab_size > 1


@pytest.mark.parametrize(
    ("settings", "types"),
    [
        ({}, [0, 0, 0, 0, 1, 1]),
        ({"model_input_names": ["input_ids", "attention_mask"]}, [0] * 6),
        ({"tokenizer_class": "DistilBertTokenizer"}, [0] * 6),
        ({"tokenizer_class": "TokenizersBackend"}, [0] * 6),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, [0] * 6),
    ],
    ids=["by default", "without types", "class without types", "general class", "older name of it in new files"],
)
def test_types_of_pairs_are_those_of_transformers(tmp_path: Path, settings: dict, types: list[int]) -> None:
    saved_with_tokens(tmp_path, **settings)
    ours = bertkit.load(tmp_path)
    encoding = ours.tokenizer.encode("the cat", "walk")
    assert encoding.token_type_ids.tolist() == types
    logits = ours.network.cpu()(bertkit.collate([encoding])).logits["sequence_classification"]
    ours.save(tmp_path / "saved")
    for folder in (tmp_path, tmp_path / "saved"):
        assert bertkit.load(folder).tokenizer.encode("the cat", "walk").token_type_ids.tolist() == types
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        inputs = tokenizer("the cat", "walk", return_tensors="pt")
        assert ("token_type_ids" in inputs) == any(types)
        with torch.inference_mode():
            torch.testing.assert_close(logits, theirs(**inputs).logits, rtol=0, atol=2e-5)


def test_models_without_types_get_none_from_transformers(tmp_path: Path) -> None:
    our_model("sequence_classification", 3, type_vocab_size=1).save(tmp_path)
    assert "token_type_ids" not in transformers.AutoTokenizer.from_pretrained(tmp_path)("the cat", "walk")


def test_model_saved_and_opened_again_is_the_same(like_bert_base: Path, tmp_path: Path) -> None:
    model = bertkit.load(like_bert_base)
    model.save(tmp_path / "saved")
    reopened = bertkit.load(tmp_path / "saved")
    assert_same_values(reopened, model)
    assert reopened.config == model.config
    assert reopened.tokenizer.vocabulary == model.tokenizer.vocabulary
    assert {file.name for file in (tmp_path / "saved").iterdir()} == {
        "config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "bertkit.json",
    }  # fmt: skip


def test_unpublished_combinations_of_heads_are_not_saved(tmp_path: Path) -> None:
    source = our_model("encoder", 5)
    model = Model.create(source.config, source.tokenizer, ["masked_lm", "question_answering"])
    with pytest.raises(CheckpointError, match="masked_lm, question_answering"):
        model.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_saving_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = our_model("encoder", 5), our_model("encoder", 6)
    first.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr(saving, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        for index in ("model", "elsewhere"):
            with pytest.raises(KeyboardInterrupt):
                second.save(tmp_path / index, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before

    with pytest.raises(UsageError, match=r"not empty.*overwrite=True"):
        second.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before

    (tmp_path / "model" / "left over.txt").write_text("from before")
    second.save(tmp_path / "model", overwrite=True)
    assert_same_values(bertkit.load(tmp_path / "model"), second)
    assert not (tmp_path / "model" / "left over.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]

    (tmp_path / "file").write_text("a file")
    with pytest.raises(UsageError, match="is not a folder; choose another path"):
        second.save(tmp_path / "file", overwrite=True)
    assert (tmp_path / "file").read_text() == "a file"


def test_failed_swap_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import bertkit.files.whole_files

    first, second = our_model("encoder", 5), our_model("encoder", 6)
    first.save(tmp_path / "model")
    replace, moves = bertkit.files.whole_files.os.replace, []

    def fail_on_the_way_in(source, target) -> None:
        if Path(target) == tmp_path / "model" and not moves:
            moves.append(source)
            raise OSError("disk gone")
        replace(source, target)

    monkeypatch.setattr(bertkit.files.whole_files, "_exchange", lambda a, b: False)  # as on most systems but Linux
    monkeypatch.setattr(bertkit.files.whole_files.os, "replace", fail_on_the_way_in)
    with pytest.raises(OSError, match="disk gone"):
        second.save(tmp_path / "model", overwrite=True)
    assert moves
    assert_same_values(bertkit.load(tmp_path / "model"), first)


def test_saved_files_have_ordinary_permissions(tmp_path: Path) -> None:
    our_model("encoder", 5).save(tmp_path / "model")
    (tmp_path / "ordinary").mkdir()
    (tmp_path / "ordinary" / "file").write_text("")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    for file in (tmp_path / "model").iterdir():
        assert file.stat().st_mode == (tmp_path / "ordinary" / "file").stat().st_mode, file.name


@pytest.mark.parametrize("name", OTHER_NAMES)
@torch.inference_mode()
def test_other_names_of_activations(name: str, tmp_path: Path) -> None:
    """The hidden states are those of transformers; a saved model has the first name."""
    reference = published(tmp_path / "published", "encoder", 6)
    edit_json(tmp_path / "published" / "config.json", hidden_act=name)
    reference = type(reference).from_pretrained(tmp_path / "published")
    model = bertkit.load(tmp_path / "published")
    assert model.config.hidden_act == OTHER_NAMES[name]
    ids = torch.tensor([[2, 5, 6, 7, 8, 3]])
    expected = reference(ids).last_hidden_state[0]
    batch = bertkit.Batch.from_padded(ids, torch.ones_like(ids))
    assert error(model.encoder(batch).last_hidden_state, expected) < 1e-5
    model.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["hidden_act"] == OTHER_NAMES[name]
    assert_same_values(bertkit.load(tmp_path / "saved"), model)


def test_vocabulary_smaller_than_the_embedding_is_fine(tmp_path: Path) -> None:
    published(tmp_path, "masked_lm")
    write_tokenizer(tmp_path, 83)
    model = bertkit.load(tmp_path)
    (filled,) = model.fill_mask("the [MASK]", top_k=1000)
    assert len(filled.candidates) == 83 < model.config.vocab_size


def test_repeated_label_names_raise(tmp_path: Path) -> None:
    save_published(published_model("sequence_classification", 2, num_labels=3), tmp_path / "model")
    edit_json(tmp_path / "model" / "config.json", id2label={"0": "A", "1": "A", "2": "B"})
    with pytest.raises(CheckpointError, match="gives the name 'A' to several labels"):
        bertkit.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["ModernBertForQuestionAnswering", "ModernBertForMultipleChoice"])
def test_encoder_of_a_class_without_its_head(name: str, tmp_path: Path) -> None:
    config = transformers.ModernBertConfig(
        vocab_size=99, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=37,
        max_position_embeddings=41, local_attention=8, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2,
        eos_token_id=3,
    )  # fmt: skip
    save_published(getattr(transformers, name)(config), tmp_path)
    with pytest.raises(CheckpointError, match=r"names no supported class for it.*or heads=\[\]|else heads=\[\]"):
        bertkit.load(tmp_path)
    model, ids = bertkit.load(tmp_path, heads=[]), torch.tensor([[2, 5, 6, 3]])
    expected = transformers.ModernBertModel.from_pretrained(tmp_path)(ids).last_hidden_state[0]
    batch = bertkit.Batch.from_padded(ids, torch.ones_like(ids))
    assert error(model.encoder(batch).last_hidden_state, expected) < 1e-5
