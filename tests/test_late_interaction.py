"""Late interaction: vectors and scores equal to those of sentence-transformers, and PyLate folders."""

import json
import string
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import WORDS
from random_models import edit_json, edit_tensors, our_model, randomize
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

import bertkit
from bertkit import BertConfig, Model, ModernBertConfig, TextSet
from bertkit.architectures.mpnet import MpnetConfig
from bertkit.cli import run
from bertkit.errors import CheckpointError, TruncationWarning, UsageError
from bertkit.finetuning.teaching import taught
from bertkit.inference import TokenVectors, embed_tokens, max_sim
from bertkit.transformer import DebertaConfig, EncoderConfig, EuroBertConfig, GteConfig, NomicBertConfig

SHAPE = {"hidden_size": 20, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 41}


def texts(number: int, seed: int = 3) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice([*WORDS, "a", "b."], int(draw.integers(1, 12)))) for _ in range(number)]


def published(
    folder: Path, expansion: dict[str, Any] | None, markers: tuple[str, str], skipped: list[str],
    after: tuple[torch.nn.Module, ...] = (Normalize(module_input_name="token_embeddings"),),
    config: EncoderConfig | None = None, **options: Any,
) -> Path:  # fmt: skip
    """A random model that sentence-transformers has saved; ``after`` are its last modules."""
    model = our_model("encoder", 4, **SHAPE)
    if config is not None:
        model = Model.create(config, model.tokenizer)
        randomize(model.network, 4)
    model.save(folder / "encoder")
    torch.manual_seed(1)
    transformer = Transformer(str(folder / "encoder"), query_expansion=expansion, document_length=9)
    dense = Dense(
        model.network.config.hidden_size,
        7,
        bias=False,
        activation_function=torch.nn.Identity(),
        module_input_name="token_embeddings",
    )
    modules = [transformer, dense, MultiVectorMask(skiplist_words=skipped), *after]
    prompts = {"query": markers[0], "document": markers[1]}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu", **options).save(str(folder / "late"))
    return folder / "late"


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("expansion", "markers"),
    [
        (None, ("", "")),
        (None, ("the", "one")),  # entries of the vocabulary, read as text
        ({"strategy": "fixed", "length": 8, "attend": False}, ("", "")),
        ({"strategy": "fixed", "length": 11, "attend": True}, ("one ", "two ")),
        ({"strategy": "min", "length": 6, "attend": False}, ("", "")),
    ],
)
def test_scores_equal_those_of_the_multi_vector_encoder(
    tmp_path: Path, expansion: dict[str, Any] | None, markers: tuple[str, str]
) -> None:
    folder = published(tmp_path, expansion, markers, ["the", "a", "!"])
    model, reference = bertkit.load(folder), MultiVectorEncoder(str(folder), device="cpu")
    late = model.checkpoint.late
    assert late is not None
    given = {True: texts(5), False: texts(9, seed=4)}
    ours, expected = {}, {}
    for as_queries, encode in ((True, reference.encode_query), (False, reference.encode_document)):
        ours[as_queries] = embed_tokens(model._runner, late, given[as_queries], as_queries=as_queries)
        expected[as_queries] = list(encode(given[as_queries], convert_to_numpy=True))
        for number, vectors in enumerate(expected[as_queries]):
            np.testing.assert_allclose(ours[as_queries].of_text(number), vectors, atol=1e-5)
    scores = max_sim(ours[True], ours[False])
    plain = [[(query @ text.T).max(axis=1).sum() for text in expected[False]] for query in expected[True]]
    np.testing.assert_allclose(scores, plain, atol=1e-4)
    np.testing.assert_allclose(scores, np.asarray(reference.similarity(expected[True], expected[False])), atol=1e-4)
    order = [one.index for one in model.rank(given[True][0], given[False], top_k=4)]
    assert order == np.argsort(-scores[0], kind="stable")[:4].tolist()
    pairs = [(0, 3), (4, 3), (0, 8), (2, 1)]
    queries, documents = ([given[side][pair[not side]] for pair in pairs] for side in (True, False))
    expected_pairs = [scores[pair] for pair in pairs]
    np.testing.assert_allclose(model.score_pairs(queries, documents), expected_pairs, atol=1e-5)
    with pytest.raises(UsageError, match="late interaction truncates texts"):
        model.score_pairs("the cat", ["a dog"], on_long="error")


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        (BertConfig, {}),
        # Windows of 5 tokens on each side: padding sees a part of the query.
        (
            ModernBertConfig,
            {"hidden_size": 24, "num_hidden_layers": 3, "local_attention": 10, "global_attn_every_n_layers": 2},
        ),
        (EuroBertConfig, {"hidden_size": 24, "num_key_value_heads": 2}),
        (NomicBertConfig, {"hidden_size": 24}),
        (GteConfig, {"hidden_size": 24}),
        (MpnetConfig, {}),
    ],
)
def test_padded_queries_of_every_family(tmp_path: Path, family: Any, changes: dict[str, int]) -> None:
    config = family(vocab_size=101, intermediate_size=31, **SHAPE | changes)
    expansion = {"strategy": "fixed", "length": 9, "attend": False}
    folder = published(tmp_path, expansion, ("", ""), [], config=config)
    model, given = bertkit.load(folder), [*texts(4), "one the cat sat on"]
    late = model.checkpoint.late
    assert late is not None
    ours = embed_tokens(model._runner, late, given, as_queries=True)
    expected = MultiVectorEncoder(str(folder), device="cpu").encode_query(given, convert_to_numpy=True)
    for number, vectors in enumerate(expected):
        np.testing.assert_allclose(ours.of_text(number), vectors, atol=1e-5)


def test_refuses_padded_queries_of_disentangled_attention(tmp_path: Path) -> None:
    """In the published code, padding does not attend to the query either."""
    expansion = {"strategy": "fixed", "length": 9, "attend": False}
    folder = published(
        tmp_path, expansion, ("", ""), [], config=DebertaConfig(vocab_size=101, intermediate_size=31, **SHAPE)
    )
    with pytest.raises(UsageError, match="deberta-v2 models have no queries with padding that is not attended to: let"):
        bertkit.load(folder).rank("the cat", ["a dog"])


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("after", "options", "limits"),
    [
        ([], {}, {}),
        (["unit", "dense"], {}, {}),
        (["unit"], {"similarity_fn_name": "meanmaxsim"}, {}),
        (["unit"], {}, {"max_seq_length": 5, "document_length": None}),
        (["unit"], {}, {"processing_kwargs": {"text": {"max_length": 4}}, "document_length": None}),
    ],
)
def test_settings_of_the_multi_vector_encoder(
    tmp_path: Path, after: list[str], options: dict[str, Any], limits: dict[str, Any]
) -> None:
    name = "token_embeddings"
    made = {"unit": lambda: Normalize(module_input_name=name),
            "dense": lambda: Dense(7, 5, activation_function=torch.nn.Identity(), module_input_name=name)}  # fmt: skip
    folder = published(tmp_path, None, ("", ""), ["the"], tuple(made[kind]() for kind in after), **options)
    edit_json(folder / "sentence_bert_config.json", **limits)
    model, reference = bertkit.load(folder), MultiVectorEncoder(str(folder), device="cpu")
    query, documents = "the cat sat walk talk one", texts(9, seed=4)
    encoded = reference.encode_query([query], convert_to_numpy=True), reference.encode_document(documents)
    expected = np.asarray(reference.similarity(*encoded))[0]
    with warnings.catch_warnings(action="ignore", category=TruncationWarning):
        np.testing.assert_allclose(model.score_pairs(query, documents), expected, rtol=1e-5, atol=1e-5)


def test_cut_texts_are_counted(tmp_path: Path) -> None:
    model = bertkit.load(published(tmp_path, None, ("", ""), []))  # documents of 9 tokens
    with pytest.warns(TruncationWarning, match="1 of 2 texts exceeded .* lost 3 tokens"):
        model.rank("the cat", ["the cat", "the cat " * 5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.rank("the cat", ["the cat", "a dog"])
    late = model.checkpoint.late
    assert late is not None
    with pytest.raises(UsageError, match="texts is a str"):  # not a text for each character
        embed_tokens(model._runner, late, "the cat", as_queries=False)


def test_folders_of_pylate(tmp_path: Path) -> None:
    """A folder as PyLate 1 writes it: markers as tokens, punctuation skipped, queries of 32 tokens."""
    folder = published(tmp_path, None, ("", ""), [])
    for name in ("2_MultiVectorMask", "3_Normalize"):
        (folder / name / "config.json").unlink()
        (folder / name).rmdir()
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"}]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    dense = json.loads((folder / "1_Dense" / "config.json").read_text())
    dense = {key: dense[key] for key in ("in_features", "out_features", "bias", "activation_function")}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    config = {"model_type": "ColBERT", "query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 16,
              "document_length": 30, "attend_to_expansion_tokens": False, "do_query_expansion": True}  # fmt: skip
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 29, "do_lower_case": False}))
    model = bertkit.load(folder)
    late = model.checkpoint.late
    assert late is not None and late.expansion == 16 and late.skipped == tuple(string.punctuation)
    queries = embed_tokens(model._runner, late, ["the cat", "a dog walk"], as_queries=True)
    assert queries.starts.tolist() == [0, 16, 32] and queries.vectors.shape == (32, 7)
    edit_json(folder / "config_sentence_transformers.json", prompts={"query": "the ", "document": ""})
    with pytest.raises(CheckpointError, match=r"query_prefix='\[unused0\]' and the prompt 'the ' .*: expected one"):
        bertkit.load(folder)


def test_teaches_with_its_scores(tmp_path: Path) -> None:
    folder = published(tmp_path, None, ("", ""), [])
    rows = [TextSet("the cat", ("a cat",), ("a dog ran",)), TextSet("walk", ("walked",))]
    ((first, second),) = taught({"teacher": str(folder)}, [rows], tmp_path / "kept", "cpu")
    scores = bertkit.load(folder).score_pairs(["the cat", "the cat", "walk"], ["a cat", "a dog ran", "walked"])
    assert [*first.scores, *second.scores] == pytest.approx(scores.tolist(), rel=1e-5)


def test_max_sim_of_odd_sizes() -> None:
    draw = np.random.default_rng(5)

    def vectors(sizes: list[int]) -> TokenVectors:
        return TokenVectors(np.cumsum([0, *sizes]), draw.normal(size=(sum(sizes), 13)).astype(np.float32))

    queries, documents = vectors([3, 1, 5]), vectors([*draw.integers(1, 9, 150).tolist(), 0, 2])
    ours = max_sim(queries, documents)
    assert ours.shape == (3, 152) and (ours[:, 150] == 0).all()
    for query in range(3):
        for document in (0, 63, 64, 149, 151):
            expected = (queries.of_text(query) @ documents.of_text(document).T).max(axis=1).sum()
            assert ours[query, document] == pytest.approx(expected, abs=1e-4)


def test_refuses_to_save_and_other_modules(tmp_path: Path, capsys) -> None:
    folder = published(tmp_path, None, ("", ""), [])
    with pytest.raises(CheckpointError, match="cannot be saved"):
        bertkit.load(folder).save(tmp_path / "copy")
    (tmp_path / "a.txt").write_text("the cat sat\n" * 9)
    corpus, out = str(tmp_path / "a.txt"), tmp_path / "out"
    for command in (
        ["vocab", "extend", corpus],
        ["pretrain", "--corpus", corpus, "--recipe", "domain-adapt", "--new-head"],
    ):
        assert run([*command, "--model", str(folder), "--out", str(out)]) == 2
        assert "cannot be saved" in capsys.readouterr().err and not out.exists()  # before any work is done
    with pytest.raises(UsageError, match="token vectors and no text vectors"):
        bertkit.load(folder).embed(["the cat"])
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.LSTM"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="Transformer, Dense, LSTM, Normalize; supported after Transformer"):
        bertkit.load(folder)


def test_folders_of_colbert(tmp_path: Path) -> None:
    """As the original code writes them: one file of weights, markers and lengths in artifact.metadata."""
    our_model("encoder", 4, **SHAPE).save(tmp_path)
    edit_tensors(tmp_path, _as_colbert)
    edit_json(tmp_path / "config.json", architectures=["HF_ColBERT"])
    metadata = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "doc_maxlen": 12, "query_maxlen": 9}
    (tmp_path / "artifact.metadata").write_text(json.dumps(metadata))
    model, reference = bertkit.load(tmp_path), MultiVectorEncoder(str(tmp_path), device="cpu")
    late = model.checkpoint.late
    assert late is not None and late.expansion == 9 and late.document_length == 12
    given = texts(6)
    for as_queries, encode in ((True, reference.encode_query), (False, reference.encode_document)):
        ours = embed_tokens(model._runner, late, given, as_queries=as_queries)
        for number, vectors in enumerate(encode(given, convert_to_numpy=True)):
            np.testing.assert_allclose(ours.of_text(number), vectors, atol=1e-5)


def _as_colbert(tensors: dict[str, torch.Tensor]) -> None:
    for name in list(tensors):
        tensors[f"bert.{name}"] = tensors.pop(name)
    tensors["linear.weight"] = torch.randn(7, 20, generator=torch.Generator().manual_seed(2))
