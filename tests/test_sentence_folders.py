"""Folders of sentence-transformers, versions 2 to 6: opened, saved, equal vectors and scores."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import edit_json, our_model, published_model, randomize, save_published
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

import bertkit
from bertkit.checkpoint import SentenceSettings
from bertkit.cli import run
from bertkit.errors import CheckpointError, MissingHeadError, UsageError
from bertkit.heads import DenseLayer, NormLayer, UnitLength

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["the cat sat", "", "walked", "a dog and a cat ran off the mat, able and unable to talk", "one two " * 20]
PAIRS = [("the cat", "sat on a mat"), ("", "dog"), ("walk", ""), ("one two three " * 9, "four five " * 8), ("a", "b")]


def width() -> int:
    return published_model("encoder", 2).config.hidden_size


def chains() -> dict[str, list]:
    """Modules after the Transformer."""
    size = width()
    return {
        "dense": [Pooling(size, "mean"), Dense(size, 13)],
        "dense-normalize": [Pooling(size, "cls"), Dense(size, 9, bias=False, activation_function=None), Normalize()],
        "normalize-dense": [Pooling(size, "max"), Normalize(), Dense(size, 11, activation_function=torch.nn.GELU())],
        "residuals": [
            Pooling(size, "mean"),
            Dense(size, size, use_residual=True),
            Dense(size, 7, use_residual=True, activation_function=torch.nn.ReLU()),
        ],
        "norm": [Pooling(size, "lasttoken"), LayerNorm(size), Normalize()],
        "two": [Pooling(size, ("cls", "mean")), Dense(2 * size, 12), LayerNorm(12)],
        "all": [Pooling(size, ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"))],
        "dropout": [Pooling(size, "mean"), Dropout(0.5), Dense(size, 9), Dropout(0.1), Normalize()],
        "other-order": [Pooling(size, ("weightedmean", "cls")), Normalize()],
    }


def sentence_transformer(folder: Path, chain: str) -> SentenceTransformer:
    """A random model of these modules as version 6 saves it."""
    save_published(published_model("encoder", 2), folder / "bert")
    modules = chains()[chain]
    for number, module in enumerate(modules):
        randomize(module, number)
    made = SentenceTransformer(modules=[Transformer(str(folder / "bert"), max_seq_length=15), *modules], device="cpu")
    made.similarity_fn_name = "dot"
    made.save(str(folder / "published"))
    return made


def assert_same_vectors(model: bertkit.Model, reference: SentenceTransformer, **options) -> None:
    expected = reference.encode(TEXTS, **options)
    results = model.embed(TEXTS, report=bertkit.InferenceReport(), **options)
    assert results.shape == expected.shape and expected.std() > 0.05
    assert_close(results, expected)


def assert_close(results: np.ndarray, expected: np.ndarray) -> None:
    """To 1e-5 relative to the largest component, where that is above 1: random weights amplify rounding."""
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("chain", chains())
def test_every_chain_of_modules_is_opened_and_saved(tmp_path: Path, chain: str) -> None:
    made = sentence_transformer(tmp_path, chain)
    model = bertkit.load(tmp_path / "published")
    assert model.sentence_settings.similarity == "dot"
    assert_same_vectors(model, made)
    model.save(tmp_path / "ours")
    assert_same_vectors(model, SentenceTransformer(str(tmp_path / "ours"), device="cpu"))
    again = bertkit.load(tmp_path / "ours")
    assert (
        again.sentence_settings == model.sentence_settings or chain == "all"
    )  # version 6 names max_seq_length elsewhere
    assert np.array_equal(again.embed(TEXTS[:3]), model.embed(TEXTS[:3]))


@pytest.mark.cpu_only
def test_vector_has_the_same_bits_regardless_of_other_texts(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, "two")
    model = bertkit.load(tmp_path / "published")
    together = model.embed(TEXTS[:3])
    assert all(np.array_equal(model.embed(text), together[i]) for i, text in enumerate(TEXTS[:3]))


def test_windows_and_dimensions_of_a_model_with_a_dense_layer(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, "two")
    model = bertkit.load(tmp_path / "published")
    assert np.array_equal(model.embed(TEXTS[:3], dimensions=5), model.embed(TEXTS[:3])[:, :5])
    assert model.embed(TEXTS[4], on_long="window", pooling="cls+mean").shape == (12,)
    assert model.embed(TEXTS, pooling="mean", report=bertkit.InferenceReport()).shape[1] == width()  # hidden states
    assert model.embed([]).shape == (0, 12)
    with pytest.raises(UsageError, match="dimensions=13: this model's vectors have 12"):
        model.embed("the", dimensions=13)


LAYOUTS: dict[str, dict[str, dict]] = {  # of versions: the files that differ, and the limit of tokens they set
    "2": {"0_Transformer/sentence_roberta_config.json": {"max_seq_length": 11, "do_lower_case": True}},
    "2, limit of the tokenizer": {"0_Transformer/tokenizer_config.json": {"model_max_length": 11}},
    "3": {
        "sentence_bert_config.json": {"max_seq_length": 11, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "3.0.1", "transformers": "4.41.2", "pytorch": "2.3.0"},
            "prompts": {}, "default_prompt_name": None, "similarity_fn_name": None,
        },
        "1_Pooling/config.json": {
            "pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": False, "include_prompt": True,
        },
    },
    "4": {
        "sentence_bert_config.json": {"max_seq_length": 11, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "4.1.0", "transformers": "4.52.4", "pytorch": "2.7.0"},
            "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine",
        },
    },
    "5": {
        "sentence_distilbert_config.json": {"max_seq_length": 11, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "SentenceTransformer", "__version__": {"sentence_transformers": "5.1.0"},
            "prompts": {"query": "the ", "document": ""}, "default_prompt_name": "query", "similarity_fn_name": "dot",
        },
        "2_Dense/config.json": {
            "module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding",
        },
    },
}  # fmt: skip


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_old_layouts_of_dense_and_several_poolings(tmp_path: Path, layout: str) -> None:
    """As versions 2 to 5 write them."""
    first = "0_Transformer" if layout.startswith("2") else ""
    save_published(published_model("encoder", 2), tmp_path / first)
    size = width()
    modules = [(first, "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(modules)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    for path, _ in modules[1:]:
        (tmp_path / path).mkdir()
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    dense = {"in_features": 2 * size, "out_features": 6, "bias": True}
    files: dict[str, dict] = {
        "1_Pooling/config.json": {"word_embedding_dimension": size, **flags},
        "2_Dense/config.json": dense | {"activation_function": "torch.nn.modules.activation.Tanh"},
    }
    for name, content in LAYOUTS[layout].items():
        there = json.loads(file.read_text()) if (file := tmp_path / name).is_file() else {}
        files[name] = there | files.get(name, {}) | content
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    weights = {"linear.weight": torch.randn(6, 2 * size) / 4, "linear.bias": torch.randn(6)}
    save_file(weights, tmp_path / "2_Dense/model.safetensors")
    model = bertkit.load(tmp_path)
    limit = None if "tokenizer" in layout else 11
    prompts = {"query": "the ", "document": ""} if layout == "5" else {}
    assert model.sentence_settings == SentenceSettings(
        pooling="cls+mean", normalize=True, max_seq_length=limit, layers=(DenseLayer(2 * size, 6),), prompts=prompts,
        default_prompt_name="query" if prompts else None, similarity="dot" if prompts else "cosine",
    )  # fmt: skip
    reference = SentenceTransformer(str(tmp_path), device="cpu")
    reference.max_seq_length = 11  # version 6 no longer reads every one of these files
    assert_same_vectors(model, reference)
    model.save(tmp_path / "ours")
    assert_same_vectors(model, SentenceTransformer(str(tmp_path / "ours"), device="cpu"))


def test_lowercase_of_a_folder_whose_tokenizer_keeps_capitals(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, "dense")
    folder = tmp_path / "published"
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 15, "do_lower_case": True}))
    bertkit.load(folder)  # this one has no capitals
    published = json.loads((folder / "tokenizer.json").read_text())
    published["normalizer"] |= {"lowercase": False}
    (folder / "tokenizer.json").write_text(json.dumps(published))
    edit_json(folder / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(CheckpointError, match="do_lower_case=true, but the tokenizer keeps capital letters"):
        bertkit.load(folder)


def test_settings_name_every_layer(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, "normalize-dense")
    size = width()
    layers = bertkit.load(tmp_path / "published").sentence_settings.layers
    assert layers == (UnitLength(), DenseLayer(size, 11, activation="GELU"))
    shutil.rmtree(tmp_path)
    sentence_transformer(tmp_path, "two")
    assert bertkit.load(tmp_path / "published").sentence_settings.layers[1] == NormLayer(12)


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("2_Dense/config.json", {"in_features": 5}, "expects vectors of width 5"),
        ("2_Dense/config.json", {"out_features": 14}, r"has shape \[13, \d+\]; its config requires \[14"),
        ("2_Dense/config.json", {"out_features": "many"}, "out_features is 'many', expected int"),
        ("2_Dense/config.json", {"out_features": None}, "lacks out_features"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "expected a class of torch.nn"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.GLU"}, "activation='GLU'"),
        ("2_Dense/config.json", {"module_output_name": "scores"}, "module_output_name='scores'"),
        ("2_Dense/config.json", {"bias": False}, "hold the tensors 2.linear.bias|hold the tensors 0.linear.bias"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "is a SparseEncoder"),
    ],
)
def test_invalid_dense_layer_raises(tmp_path: Path, file: str, changes: dict, message: str) -> None:
    sentence_transformer(tmp_path, "dense")
    edit_json(tmp_path / "published" / file, **changes)
    with pytest.raises(CheckpointError, match=message):
        bertkit.load(tmp_path / "published")


def test_pooling_by_nothing_raises(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, next(iter(chains())))
    (tmp_path / "published/1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": false}')
    with pytest.raises(CheckpointError, match="pools by nothing; supported: cls, max, mean,"):
        bertkit.load(tmp_path / "published")


def test_unknown_module_raises(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, "dense")
    file = tmp_path / "published" / "modules.json"
    modules = json.loads(file.read_text())
    for kind, message in (
        ("sentence_transformers.models.Adapter", r"lists the modules Transformer, Pooling, .*Adapter.*supported: "),
        ("house.layers.Dense", r"the type 'house.layers.Dense', which is code of its publisher"),
    ):
        modules[2]["type"] = kind
        file.write_text(json.dumps(modules))
        with pytest.raises(CheckpointError, match=message):
            bertkit.load(tmp_path / "published")


def test_dense_layer_with_pickled_weights_raises(tmp_path: Path) -> None:
    sentence_transformer(tmp_path, "dense")
    weights = tmp_path / "published" / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with pytest.raises(CheckpointError, match="2_Dense has its weights as a pickle"):
        bertkit.load(tmp_path / "published")


# --- cross-encoders ---------------------------------------------------------------------------------------------------

IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


def cross_encoder(folder: Path, version: int, activation: str | None, num_labels: int = 1) -> CrossEncoder:
    """A random cross-encoder as that version of sentence-transformers writes it; the published one opened."""
    save_published(published_model("sequence_classification", 3, num_labels), folder)
    edit_json(folder / "tokenizer_config.json", model_max_length=21)
    if version == 6:
        made = CrossEncoder(
            str(folder), device="cpu", activation_fn=None if activation is None else _class(activation)()
        )
        made.save_pretrained(str(folder / "new"))
        for file in (folder / "new").iterdir():
            shutil.move(file, folder / file.name)
    elif version >= 4 and activation is not None:
        edit_json(folder / "config.json", sentence_transformers={"activation_fn": activation, "version": "4.1.0"})
    elif activation is not None:
        edit_json(folder / "config.json", sbert_ce_default_activation_function=activation)
    return CrossEncoder(str(folder), device="cpu")


def _class(path: str) -> type:
    return getattr(torch.nn, path.rpartition(".")[2])


@pytest.mark.full(sample=3)
@pytest.mark.cpu_only
@pytest.mark.parametrize("version", [2, 4, 6])
@pytest.mark.parametrize("activation", [None, IDENTITY, SIGMOID, "torch.nn.Tanh"])
def test_scores_of_cross_encoders_of_every_version(tmp_path: Path, version: int, activation: str | None) -> None:
    reference = cross_encoder(tmp_path, version, activation)
    model = bertkit.load(tmp_path)
    queries, texts = zip(*PAIRS, strict=True)
    with pytest.warns(bertkit.errors.TruncationWarning):
        scores = model.score_pairs(queries, texts)
    expected = reference.predict(PAIRS)
    assert scores.dtype == np.float32 and expected.std() > 0.01
    assert_close(scores, expected)
    model.save(tmp_path / "saved")
    assert_close(CrossEncoder(str(tmp_path / "saved"), device="cpu").predict(PAIRS), expected)
    assert np.array_equal(bertkit.load(tmp_path / "saved").score_pairs(queries[:3], texts[:3]), scores[:3])


def test_activation_next_to_no_modules_is_not_read(tmp_path: Path) -> None:
    cross_encoder(tmp_path, 6, "torch.nn.Tanh")
    (tmp_path / "modules.json").unlink()
    scores = bertkit.load(tmp_path).score_pairs(*zip(*PAIRS[:3], strict=True))
    assert_close(scores, CrossEncoder(str(tmp_path), device="cpu").predict(PAIRS[:3]))


def test_scores_of_several_labels(tmp_path: Path) -> None:
    reference = cross_encoder(tmp_path, 6, None, num_labels=3)
    model = bertkit.load(tmp_path)
    queries, texts = zip(*PAIRS[:3], strict=True)
    assert_close(model.score_pairs(queries, texts), reference.predict(PAIRS[:3]))
    with pytest.raises(UsageError, match="this model has 3 labels"):
        model.rank("the", ["a", "b"])


def test_rank_equals_that_of_sentence_transformers(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    reference = cross_encoder(tmp_path, 4, SIGMOID)
    model = bertkit.load(tmp_path)
    texts = ["a cat", "the dog sat", "talk", "green letters", "a cat"]
    ranked, expected = model.rank("the cat", texts, top_k=4), reference.rank("the cat", texts, top_k=4)
    assert [one.index for one in ranked][:2] == [one["corpus_id"] for one in expected][:2]
    assert_close(np.array([one.score for one in ranked]), np.array([one["score"] for one in expected]))
    assert [one.index for one in ranked if one.text == "a cat"] == [0, 4]  # of equal scores in the order given
    assert len(model.rank("the cat", texts)) == 5 and model.rank("the cat", []) == []
    assert model.score_pairs("the cat", texts)[1] == model.score_pairs(["the cat"], ["the dog sat"])[0]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    arguments = ["the cat", "--model", str(tmp_path), "--input", str(tmp_path / "texts.txt")]
    assert run(["rank", *arguments, "--top-k", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["index"] for row in rows] == [one.index for one in ranked[:2]] and rows[0]["text"] == ranked[0].text


def test_rejects_bad_input_of_cross_encoders(tmp_path: Path) -> None:
    cross_encoder(tmp_path, 4, "torch.nn.modules.activation.Softmax")
    with pytest.raises(CheckpointError, match="the activation Softmax; supported: Identity"):
        bertkit.load(tmp_path)
    edit_json(tmp_path / "config.json", sentence_transformers={"activation_fn": "evil.module.run"})
    with pytest.raises(CheckpointError, match=r"'evil.module.run': expected a class of torch.nn"):
        bertkit.load(tmp_path)
    edit_json(tmp_path / "config.json", sentence_transformers=None)
    model = bertkit.load(tmp_path)
    with pytest.raises(UsageError, match="2 queries and 1 texts"):
        model.score_pairs(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="a text is int"):
        model.rank("a", ["b", 3])  # pyrefly: ignore
    for top_k in (0, "5", 2.5, True):
        with pytest.raises(UsageError, match=f"top_k={top_k!r}: expected an int of at least 1"):
            model.rank("a", ["b"], top_k=top_k)  # pyrefly: ignore
    with pytest.raises(UsageError, match="on_long='window'"):
        model.score_pairs("a", ["b"], on_long="window")
    with pytest.raises(MissingHeadError, match="scores of pairs need a cross-encoder"):
        our_model("encoder", 3).rank("a", ["b"])
