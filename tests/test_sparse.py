"""Learned sparse vectors: equal to those of sentence-transformers' SparseEncoder, from each form of folder."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from examples_of_tasks import WORDS
from random_models import edit_json, our_model
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SparseStaticEmbedding, SpladePooling

import bertkit
from bertkit.errors import CheckpointError, MissingHeadError, TruncationWarning, UsageError


def texts(number: int) -> list[str]:
    draw = np.random.default_rng(3)
    return [" ".join(draw.choice(WORDS, int(draw.integers(1, 12)))) for _ in range(number)]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    our_model("masked_lm", 3).save(tmp_path / "plain")
    return tmp_path / "plain"


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("strategy", ["plain", "max", "sum"])
def test_vectors_equal_those_of_sentence_transformers(published: Path, tmp_path: Path, strategy: str) -> None:
    folder, reference = published, SparseEncoder(str(published), device="cpu")
    if strategy != "plain":
        activation = "log1p_relu" if strategy == "sum" else "relu"
        pooling = SpladePooling(pooling_strategy=strategy, activation_function=activation)
        reference = SparseEncoder(modules=[MLMTransformer(str(published)), pooling], device="cpu")
        folder = tmp_path / "saved"
        reference.save(str(folder))
    model, given = bertkit.load(folder), texts(9)
    expected = reference.encode(given, convert_to_sparse_tensor=False).numpy()
    vectors = model.embed_sparse(given)
    assert len(vectors) == 9 and 0 < len(vectors.weights) < expected.size
    np.testing.assert_allclose(vectors.dense(), expected, rtol=2e-5, atol=2e-5)
    queries = model.embed_sparse(given[:4])
    np.testing.assert_allclose(vectors.scores(queries), expected[:4] @ expected.T, rtol=1e-4)
    np.testing.assert_array_equal(queries.dense(), vectors.dense()[:4])  # regardless of the other texts


@pytest.mark.full
def test_published_limit_of_texts_is_applied(published: Path, tmp_path: Path) -> None:
    SparseEncoder(modules=[MLMTransformer(str(published)), SpladePooling()], device="cpu").save(str(tmp_path / "saved"))
    limits = {"max_seq_length": 6, "do_lower_case": False}  # as version 5 writes it
    (tmp_path / "saved" / "sentence_bert_config.json").write_text(json.dumps(limits))
    reference, model = SparseEncoder(str(tmp_path / "saved"), device="cpu"), bertkit.load(tmp_path / "saved")
    with pytest.warns(TruncationWarning):
        vectors = model.embed_sparse(texts(9))
    expected = reference.encode(texts(9), convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(vectors.dense(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.full
def test_settings_are_saved(published: Path, tmp_path: Path) -> None:
    pooling = SpladePooling(pooling_strategy="sum", activation_function="log1p_relu")
    modules = [MLMTransformer(str(published)), pooling]
    SparseEncoder(modules=modules, max_active_dims=7, device="cpu").save(str(tmp_path / "saved"))
    edit_json(tmp_path / "saved" / "sentence_bert_config.json", max_seq_length=20)
    model, given = bertkit.load(tmp_path / "saved"), texts(5)
    model.save(tmp_path / "again")
    again = bertkit.load(tmp_path / "again")
    assert again.checkpoint.sparse == model.checkpoint.sparse
    vectors = model.embed_sparse(given).dense()
    np.testing.assert_array_equal(again.embed_sparse(given).dense(), vectors)
    assert (np.count_nonzero(vectors, axis=1) == 7).all()
    theirs = SparseEncoder(str(tmp_path / "again"), device="cpu").encode(given, convert_to_sparse_tensor=False)
    np.testing.assert_allclose(vectors, theirs.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": {"q": "red "}, "default_prompt_name": "q"}, r"puts the prompt 'red ' \(q\) before texts"),
        ({"prompts": {"query": "red ", "document": ""}}, r"puts the prompt 'red ' \(query\) before texts"),
        ({"max_active_dims": 0}, "max_active_dims=0: expected at least 1"),
    ],
)
def test_settings_that_are_not_applied_raise(
    published: Path, tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    SparseEncoder(modules=[MLMTransformer(str(published)), SpladePooling()], device="cpu").save(str(tmp_path / "saved"))
    edit_json(tmp_path / "saved" / "config_sentence_transformers.json", **settings)
    with pytest.raises(CheckpointError, match=message):
        bertkit.load(tmp_path / "saved")


def test_unsupported_settings_raise(published: Path) -> None:
    steps = [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(steps)
    ]
    (published / "modules.json").write_text(json.dumps(modules))
    (published / "1_SpladePooling").mkdir()
    (published / "1_SpladePooling" / "config.json").write_text(json.dumps({"pooling_strategy": "mean"}))
    with pytest.raises(CheckpointError, match="pooling_strategy='mean'"):
        bertkit.load(published)
    (published / "modules.json").write_text(json.dumps([*modules, modules[1] | {"idx": 2, "name": "2"}]))
    with pytest.raises(CheckpointError, match="supported: MLMTransformer, SpladePooling"):
        bertkit.load(published)
    with pytest.raises(MissingHeadError):
        our_model("encoder", 3).embed_sparse(["the cat"])
    with pytest.raises(UsageError, match="expected several"):
        our_model("masked_lm", 3).embed_sparse("the cat")
    with pytest.raises(UsageError, match="got a DataFrame: pass one of its columns"):
        our_model("masked_lm", 3).embed_sparse(pd.DataFrame({"the": ["cat"]}))


@pytest.mark.full
def test_queries_of_an_inference_free_model_are_looked_up(published: Path, tmp_path: Path) -> None:
    documents = MLMTransformer(str(published))
    weights = torch.rand(bertkit.load(published).config.vocab_size, generator=torch.Generator().manual_seed(3))
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer=documents.tokenizer, weight=weights)],
        document_modules=[documents, SpladePooling("max")],
    )
    reference = SparseEncoder(modules=[router], max_active_dims=3, device="cpu")
    reference.save(str(tmp_path / "router"))
    model, given = bertkit.load(tmp_path / "router"), texts(7)
    with pytest.raises(CheckpointError, match="inference-free sparse models cannot be saved"):
        model.save(tmp_path / "again")
    for as_queries, encode in ((True, reference.encode_query), (False, reference.encode_document)):
        expected = encode(given, convert_to_sparse_tensor=False).numpy()
        np.testing.assert_allclose(
            model.embed_sparse(given, as_queries=as_queries).dense(), expected, rtol=2e-5, atol=2e-5
        )
    model.extend_vocabulary(["zebra"])
    with pytest.raises(UsageError, match="new words of an inference-free model have none"):
        model.embed_sparse(["a zebra"], as_queries=True)
