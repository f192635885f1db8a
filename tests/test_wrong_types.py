"""Arguments of the Python API of another type than expected: another form of the same thing is read, everything else is
one clear error, and nothing is converted silently."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_models import our_model

import bertkit
from bertkit import (
    Batch,
    Features,
    Index,
    Model,
    StaticEncoder,
    Tokenizer,
    collate,
    export_model,
    find_clusters,
    inspection,
)
from bertkit.device import resolve_device
from bertkit.errors import UsageError
from bertkit.evidence.minimal_pairs import score_minimal_pairs
from bertkit.evidence.promises import promise
from bertkit.evidence.retrieval import rerank
from bertkit.generation import Causal
from bertkit.inspection import inspect_contexts, inspect_heads, inspect_map, inspect_next_sentence
from bertkit.inspection.senses import find_senses
from bertkit.mining import MiningOptions, mine_negatives
from bertkit.redaction import Key, Redactor
from bertkit.search import VectorStore
from bertkit.words.extraction import extract
from bertkit.words.opening import input_embeddings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"]
TOKENIZER = Tokenizer.from_vocab(WORDS)
CAT = TOKENIZER.encode("the cat")
IDENTITY = np.eye(2, dtype=np.float32)

NOT_A_PATH = r"\(None\): expected a str or a path"


@pytest.fixture(scope="module")
def model() -> Model:
    return our_model("masked_lm", 1)


def test_other_forms_of_ids_and_texts_are_read() -> None:
    assert TOKENIZER.decode(CAT) == TOKENIZER.decode(CAT.input_ids) == TOKENIZER.decode([2, 5, 6, 3]) == "the cat"
    assert TOKENIZER.decode(torch.tensor([5, 6])) == "the cat" and TOKENIZER.tokens(np.array([5, 6])) == ["the", "cat"]
    pairs = TOKENIZER.encode_batch((one for one in ("the", "cat")), (one for one in ("sat", "sat")))
    assert pairs.input_ids.tolist() == [2, 5, 3, 7, 3, 2, 6, 3, 7, 3]
    batch, of_generator = collate([CAT, CAT]), collate(one for one in (CAT, CAT))
    assert (of_generator.input_ids == batch.input_ids).all()
    ids, mask = [[2, 5, 3], [2, 3, 0]], [[1, 1, 1], [1, 1, 0]]
    expected = Batch.from_padded(torch.tensor(ids), torch.tensor(mask))
    for given in (ids, mask), (np.array(ids), np.array(mask)):
        assert (Batch.from_padded(*given).input_ids == expected.input_ids).all() and expected.input_ids.numel() == 5
    encoder = StaticEncoder.of_words(np.array(["love", "hate"]), [[1, 0], [0, 1]])
    assert encoder.embed("love").tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TOKENIZER.decode([5.0, 6.0]), r"an id is float \(5.0\): expected int"),
        (lambda: TOKENIZER.decode(["5"]), r"an id is str \('5'\): expected int"),
        (lambda: TOKENIZER.decode([[5, 6]]), r"an id is list \(\[5, 6\]\): expected int"),
        (lambda: TOKENIZER.tokens(5), r"ids are 5: expected several, such as \[5\]"),
        (lambda: TOKENIZER.tokens(None), "ids are None: expected several"),
        (lambda: TOKENIZER.vocabulary.token("the"), r"an id is str \('the'\): expected int"),
        (lambda: Tokenizer.from_vocab({"b": 1, "a": 0}), "the vocabulary is dict: expected its tokens in the order"),
        (lambda: Tokenizer.from_vocab({"a"}), "the vocabulary is set: expected its tokens in the order of their ids"),
        (lambda: Tokenizer.from_vocab(None), "the vocabulary is NoneType: expected its tokens"),
        (lambda: Tokenizer.from_vocab(["a", 5]), r"an entry of the vocabulary is int \(5\): expected str"),
        (lambda: Tokenizer.load(None), f"the folder of a tokenizer is NoneType {NOT_A_PATH}"),
        (lambda: TOKENIZER.encode_batch({"the", "cat"}), "got a set, which has no order: pass a list of them"),
        (lambda: TOKENIZER.encode_batch(np.array("the")), "expected texts, got array"),
        (lambda: collate(None), "collate got None: expected encodings"),
        (lambda: resolve_device(3), "device=3: expected auto, cpu, cuda or mps"),
        (lambda: bertkit.EmbedOptions(prompt=5), "prompt=5: expected a str or None"),
        (lambda: StaticEncoder.open(None), f"the model's name is NoneType {NOT_A_PATH}"),
        (lambda: StaticEncoder.of_words(["a", None], IDENTITY), r"a text is NoneType \(None\): expected str"),
        (lambda: Index.open(None), f"the folder of an index is NoneType {NOT_A_PATH}"),
        (lambda: VectorStore.open(None), f"the folder of a store is NoneType {NOT_A_PATH}"),
        (lambda: Key.read(None), f"the key file is NoneType {NOT_A_PATH}"),
        (lambda: Key().write(None), f"the file to write is NoneType {NOT_A_PATH}"),
        (lambda: bertkit.SequenceClassifier.load(None), f"the directory is NoneType {NOT_A_PATH}"),
        (lambda: Features(5).fit(["a"]), r"the model's name is int \(5\): expected a str or a path"),
        (lambda: find_clusters(["a", None], IDENTITY), r"text 1 is NoneType \(None\): expected str"),
        (lambda: find_clusters(["a"], None), r"expected vectors \(num_texts, embedding_dim\), got shape \(\)"),
        (lambda: Redactor(tagger="my-tagger"), r"tagger is str \('my-tagger'\): expected a"),
        (lambda: Redactor(key="my.key"), r"key is str: expected a Key, such as Key.read\(file\)"),
        (lambda: list(Redactor().redact_stream([b"a@b.org"])), r"a stream of text has bytes \(b'a@b.org'\)"),
        (lambda: list(Redactor().redact_stream(b"a@b.org")), "a stream of text has int"),
        (lambda: list(Key().restore(None)), r"a stream of text has NoneType \(None\): expected pieces of str"),
    ],
)
def test_wrong_types_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


TAKE_A_MODEL: list[Callable[[Any], Any]] = [
    lambda name: export_model(name, "out"),
    lambda name: bertkit.gather_evidence(name, []),
    lambda name: inspection.inspect_attention(name, "a"),
    lambda name: inspection.inspect_contexts(name, "a", ["a"]),
    lambda name: inspection.inspect_contrast(name, ("a", "a"), "a", []),
    lambda name: inspection.inspect_difference(name, name, ["a"]),
    lambda name: inspection.inspect_fill(name, "[MASK]"),
    lambda name: inspection.inspect_heads(name, ["a"]),
    lambda name: inspection.inspect_input(name, "a"),
    lambda name: inspection.inspect_lens(name, "a"),
    lambda name: inspection.inspect_map(name, ["a"]),
    lambda name: inspection.inspect_next_sentence(name, ["a", "a"]),
    lambda name: inspection.inspect_probes(name, [], [], label="tags"),
    lambda name: inspection.inspect_similarity(name, "a", "a"),
    lambda name: inspection.inspect_structure(name, [], []),
    lambda name: inspection.inspect_surprise(name, "a"),
    lambda name: inspection.inspect_why(name, "a"),
    lambda name: inspection.inspect_all(name, "a"),
    lambda name: inspection.write_folder(name, "a", "out"),
    lambda name: find_senses(name, "a", ["a"]),
    lambda name: score_minimal_pairs(name, []),
    lambda name: promise(name, [], "error", 0.1),
    lambda name: rerank(name, None, {}),
    lambda name: list(mine_negatives(name, [], MiningOptions())),
    lambda name: extract(name),
    lambda name: input_embeddings(name),
    lambda name: Causal(name),
]


@pytest.mark.parametrize("call", TAKE_A_MODEL)
def test_the_name_of_a_model_is_refused_where_a_model_is_expected(call: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"model is str \('my-model'\): expected a Model, as of bertkit.load"):
        call("my-model")


def test_every_view_is_asked_for_a_model() -> None:
    """So that a new one does not do without."""
    names = {name for call in TAKE_A_MODEL for name in call.__code__.co_names}
    views = {name for name in dir(inspection) if name.startswith("inspect_")}
    assert len(views) > 10 and views <= names


def test_columns_and_generators_are_lists_of_texts(model: Model) -> None:
    """A column of pandas is indexed by its labels, here in another order."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    texts, labels = ["the the", "the able", "able the the", "talk"], [3, 1, 0, 2]
    senses = find_senses(model, "the", texts)
    contexts = inspect_contexts(model, "the", texts, senses=list("abcd")).to_dict()
    for form in (lambda: pandas.Series(texts, labels), lambda: iter(texts), lambda: np.array(texts)):
        assert find_senses(model, "the", form()).senses == senses.senses
        given = inspect_contexts(model, "the", form(), senses=pandas.Series(list("abcd"), labels)).to_dict()
        assert given == contexts and [*contexts["senses"]] == ["a", "b", "c"]
        assert inspect_map(model, form(), num_clusters=2).texts == texts
        assert inspect_heads(model, form()).num_texts == 4
    with_pairs = our_model("pretraining", 1)
    expected = with_pairs.next_sentence_probability(texts, texts[::-1])
    results = with_pairs.next_sentence_probability(iter(texts), pandas.Series(texts[::-1], labels))
    assert np.array_equal(results, expected)
    assert (
        inspect_next_sentence(with_pairs, iter(texts)).to_dict() == inspect_next_sentence(with_pairs, texts).to_dict()
    )


def test_wrong_types_of_a_model_are_refused(model: Model, tmp_path: Path) -> None:
    for call, message in (
        (lambda: model.embed({"the"}), "got a set, which has no order"),
        (lambda: model.encoder(["the cat"]), r"the encoder got list \(\['the cat'\]\): expected a Batch"),
        (lambda: model.trace("the", layers=1), r"layers=1: expected several ints, such as \[1, "),
        (lambda: model.trace("the", layers="1"), "layers='1': expected several ints"),
        (lambda: model.save(None), f"the folder to write is NoneType {NOT_A_PATH}"),
    ):
        with pytest.raises(UsageError, match=message):
            call()
    features = Features(str(tmp_path / "model"))
    model.save(tmp_path / "model")
    with pytest.raises(UsageError, match=r"text 1 is float \(nan\): expected str"):
        features.fit_transform(["a", float("nan")])
    features.cache = 5
    with pytest.raises(UsageError, match=r"cache is int \(5\): expected a str or a path"):
        features.transform(["a"])
