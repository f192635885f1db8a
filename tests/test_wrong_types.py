"""Arguments of the Python API of another type than expected: another form of the same thing is read, everything else is
one clear error, and nothing is converted silently."""

import pickle
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
from bertkit.checkpoint import SentenceSettings
from bertkit.device import resolve_device
from bertkit.documents.sources import FileOptions
from bertkit.errors import BertkitError, UsageError
from bertkit.evidence.minimal_pairs import score_minimal_pairs
from bertkit.evidence.promises import promise
from bertkit.evidence.retrieval import rerank
from bertkit.generation import Causal
from bertkit.inspection import inspect_contexts, inspect_heads, inspect_map, inspect_next_sentence
from bertkit.inspection.senses import find_senses
from bertkit.mining import MiningOptions, mine_negatives
from bertkit.redaction import Key, Redactor
from bertkit.search import BulkEmbedding, Identity, VectorStore
from bertkit.search.prompts import prompts_of
from bertkit.search.records import check_records
from bertkit.words.extraction import extract
from bertkit.words.opening import input_embeddings
from bertkit.words.queries import axis, nearest, odd_one_out

STATIC = StaticEncoder.of_words(["the", "cat", "sat"], np.eye(3, dtype=np.float32))
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
        (lambda: find_clusters(["a"], None), r"expected \(num_vectors, embedding_dim\), got shape \(\)"),
        (lambda: Redactor(tagger="my-tagger"), r"tagger is str \('my-tagger'\): expected a"),
        (lambda: Redactor(key="my.key"), r"key is str: expected a Key, such as Key.read\(file\)"),
        (lambda: list(Redactor().redact_stream([b"a@b.org"])), r"a stream of text has bytes \(b'a@b.org'\)"),
        (lambda: list(Redactor().redact_stream(b"a@b.org")), "a stream of text has int"),
        (lambda: Redactor("EMAIL"), r"kinds is a str \('EMAIL'\): expected several"),
        (lambda: Redactor(threshold=0.5), "threshold without a model"),
        (lambda: Redactor().redact_all("a@b.org"), r"texts is a str \('a@b.org'\): expected several"),
        (lambda: bertkit.ClusterOptions(threshold=2), "threshold=2: expected a cosine, at most 1"),
        (
            lambda: find_clusters(["a", "b"], IDENTITY, {"method": "kmeans"}),
            "options is dict .* expected ClusterOptions",
        ),
        (lambda: find_clusters(["a", "b"], [[1], [1, 2]]), "got lists of different lengths"),
        (lambda: find_clusters(["a", "b"], IDENTITY * 1j), "expected vectors of numbers, got the dtype complex64"),
        (lambda: bertkit.top_pairs([["1"], ["2"]]), "expected vectors of numbers, got the dtype <U1"),
        (lambda: StaticEncoder.of_words(["a"], [["x"]]), "expected vectors of numbers"),
        (lambda: StaticEncoder.of_words(["a"], [[1]]).vector(5), r"a word is int \(5\): expected str"),
        (lambda: odd_one_out(STATIC, "cat"), r"words is a str \('cat'\): expected several"),
        (lambda: axis(STATIC, [("the",), ("cat",)], []), r"the pair \('the',\): expected two words"),
        (lambda: nearest("my-words", "cat"), r"the encoder is str \('my-words'\): expected StaticEncoder"),
        (lambda: bertkit.Document("a", "text", headings="b"), "the heading 'b': expected its first character"),
        (lambda: bertkit.Document("a", "text", offset="5"), "offset='5': expected an int of at least 0"),
        (lambda: FileOptions(exclude="*.md"), r"exclude is a str \('\*.md'\): expected several"),
        (lambda: list(check_records(None, Identity("m", 2))), "expected records, got None"),
        (lambda: list(check_records([{}], Identity("m", 2))), r"a record is dict \({}\): expected Record"),
        (lambda: Identity("m", 2).check("m"), r"the identity is str \('m'\): expected Identity"),
        (lambda: BulkEmbedding(None), f"the folder of a job is NoneType {NOT_A_PATH}"),
        (lambda: prompts_of("m", SentenceSettings(), 5), r"a prompt is int \(5\): expected a str or None"),
        (lambda: bertkit.load("x" * 5_000), "no model 'xxx"),
        (lambda: Index.open(""), "the folder of an index is empty: expected a name, or a path such as ."),
        (lambda: bertkit.EmbedOptions(dimensions=True), "dimensions=True: expected an int of at least 1"),
        (lambda: list(Key().restore(None)), r"a stream of text has NoneType \(None\): expected pieces of str"),
    ],
)
def test_wrong_types_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BertkitError, match=message):
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


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda model: inspection.inspect_difference(model, model, "the"), r"texts is a str \('the'\)"),
        (lambda model: inspection.inspect_difference(model, model, ["the"], names=("one",)), "names=.*: expected two"),
        (lambda model: inspection.inspect_contrast(model, ("the",), "the", []), "1 texts: expected two"),
        (lambda model: inspection.inspect_contrast(model, ("the", "the"), "the", "the"), "texts is a str"),
        (lambda model: inspection.inspect_contrast(model, ("a", "a"), "a", [], static=model), "expected StaticEncoder"),
        (lambda model: inspect_contexts(model, None, ["the"]), r"the word is NoneType \(None\): expected str"),
        (
            lambda model: inspect_contexts(model, "the", ["the"] * 3, senses="abc"),
            r"senses is a str \('abc'\): expected",
        ),
        (lambda model: model.embed(["the", "cat"], progress="no"), r"progress is str \('no'\): expected bool"),
        (lambda model: inspect_contexts(model, "the", [None]), r"a text is NoneType \(None\): expected str"),
        (lambda model: inspect_contexts(model, "the", ["the"], seed="a"), "seed='a': expected an int of at least 0"),
        (lambda model: find_senses(model, "the", ["the"], num_senses="2"), "num_senses='2': expected an int"),
        (lambda model: inspect_map(model, ["the"] * 3, num_clusters="2"), "num_clusters='2': expected an int"),
        (lambda model: inspection.inspect_similarity(model, "the", None), r"text 1 is NoneType \(None\): expected str"),
        (
            lambda model: inspection.inspect_probes(model, "a", [], label="tags"),
            "a text is str .* expected LabeledWords",
        ),
        (lambda model: inspection.inspect_structure(model, ["a b"], []), r"a sentence is str \('a b'\): expected Tree"),
        (lambda model: inspection.write_folder(model, "the", ""), "the folder to write is empty"),
    ],
)
def test_wrong_types_of_views_are_refused(model: Model, view: Callable[[Model], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        view(model)


def test_generators_are_read_once_and_a_redactor_reaches_other_processes(model: Model) -> None:
    ((vector,),) = model.run(iter(["the"]), iter(["vector"]))
    assert np.array_equal(vector, model.embed("the", on_long="window"))
    redactor = pickle.loads(pickle.dumps(Redactor(kind for kind in ("EMAIL", "PHONE"))))
    (redaction,) = redactor.redact_all(text for text in ["a@b.org, +49 30 901820"])
    assert redaction.text == "[EMAIL], [PHONE]"


def test_wrong_types_of_a_model_are_refused(model: Model, tmp_path: Path) -> None:
    for call, message in (
        (lambda: model.embed({"the"}), "got a set, which has no order"),
        (lambda: model.encoder(["the cat"]), r"the encoder got list \(\['the cat'\]\): expected a Batch"),
        (lambda: model.trace("the", layers=1), r"layers=1: expected several ints, such as \[1, "),
        (lambda: model.trace("the", layers="1"), "layers='1': expected several ints"),
        (lambda: model.save(None), f"the folder to write is NoneType {NOT_A_PATH}"),
        (lambda: model.save(""), "the folder to write is empty: expected a name, or a path such as ."),
        (lambda: model.embed(["the"], report={}), r"report is dict \({}\): expected InferenceReport"),
        (lambda: Model.create(model.config, model.tokenizer, seed="a"), "seed='a': expected an int of at least 0"),
        (lambda: Model.create(model.config, model.tokenizer, ["sequence_classification"], label_names=2), "got 2"),
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
