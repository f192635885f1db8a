"""[UNK] tokens are counted wherever texts are encoded, and a text of [UNK] alone is counted like an empty one."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from examples_of_tasks import model_of
from random_models import our_model, vocabulary_tokens

import bertkit
from bertkit import InferenceReport, Tokenizer
from bertkit.cli import run
from bertkit.errors import UnknownWordsWarning
from bertkit.finetuning.cross_validation import check_training_data
from bertkit.inference import embed_sparse
from bertkit.search.index import Index
from bertkit.tasks import SequenceClassification, Similarity, TextExample, TextSet
from bertkit.tokenizer.layout import Layout
from bertkit.words.extraction import extract

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["the cat", "\U0001f642", "\U0001f680", "cat \U0001f642 sat " + "x" * 101, "", "[UNK]"]
NUM_UNKNOWN = [0, 1, 1, 2, 0, 2]  # the brackets of a literal "[UNK]" are no entries


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(vocabulary_tokens(99))


@pytest.fixture(scope="module")
def model(encoder: Path) -> bertkit.Model:
    return bertkit.load(encoder)


@pytest.mark.parametrize("with_offsets", [True, False])
def test_encodings_count_the_unknown_tokens_that_they_own(tokenizer: Tokenizer, with_offsets: bool) -> None:
    encodings = tokenizer.encode_batch(TEXTS, with_offsets=with_offsets)
    assert encodings.num_unknown.tolist() == NUM_UNKNOWN
    assert encodings.are_empty().tolist() == [False, True, True, False, True, False]
    order = np.array([3, 0, 3, 5])
    assert encodings.take(order).num_unknown.tolist() == [2, 0, 2, 2]
    assert encodings.between(2, 4).num_unknown.tolist() == encodings[2:4].num_unknown.tolist() == [1, 2]
    pairs = tokenizer.encode_batch(TEXTS, TEXTS[::-1], with_offsets=with_offsets)
    expected = [sum(both) for both in zip(NUM_UNKNOWN, NUM_UNKNOWN[::-1], strict=True)]
    assert pairs.num_unknown.tolist() == expected
    assert pairs.are_empty().tolist() == [False, True, False, False, True, False]
    pairs = tokenizer.encode_batch(["", "\U0001f642", "a"], ["", "\U0001f680", ""], with_offsets=with_offsets)
    assert pairs.are_empty().tolist() == [True, True, False]


def test_single_encodings_have_the_count(tokenizer: Tokenizer) -> None:
    assert [one.num_unknown for one in tokenizer.encode_batch(TEXTS)] == NUM_UNKNOWN
    assert tokenizer.encode("[UNK] the", special_tokens_in_text=True).num_unknown == 1


def test_tokens_of_several_windows_count_once(tokenizer: Tokenizer) -> None:
    text = "the \U0001f642 cat sat \U0001f680 " * 9
    for pairs in (None, [text]):
        texts = [text if pairs is None else "a \U0001f642"]
        windows = tokenizer.encode_batch(texts, pairs, max_length=11, on_long="window", stride=3)
        assert len(windows) > 5 and windows.num_unknown.sum() == 18 + (pairs is not None)
        assert [one.num_unknown for one in windows] == windows.num_unknown.tolist()
        assert not windows.are_empty().any()
    cut = tokenizer.encode_batch(["\U0001f642 " * 9, "cat"], max_length=5, on_long="truncate")
    assert cut.num_unknown.tolist() == [3, 0] and not cut.are_empty().any()


def test_vocabulary_without_unknown_token_counts_none(tmp_path: Path) -> None:
    from test_library_tokenizer import KINDS

    make, settings = KINDS["byte-level"]
    make().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "unk_token": "[NONE]"}))
    assert Tokenizer.load(tmp_path).encode_batch(["the \U0001f642"]).num_unknown.tolist() == [0]


# --- reports and warnings --------------------------------------------------------------------------------------------


def test_embed_counts_and_warns(model: bertkit.Model) -> None:
    report = InferenceReport()
    vectors = model.embed(TEXTS, report=report)
    assert (vectors[1] == vectors[2]).all()
    assert (report.num_texts, report.num_unknown, report.num_empty) == (6, 6, 3)
    for text, num_unknown, is_empty in (("\U0001f642", 1, 1), ("cat", 0, 0)):
        report = InferenceReport()
        model.embed(text, report=report)
        assert (report.num_unknown, report.num_empty) == (num_unknown, is_empty)
    for given in (TEXTS, TEXTS[1], TEXTS[1:2]):
        with pytest.warns(UnknownWordsWarning, match=r"[16] of \d+ tokens are \[UNK\]") as caught:
            model.embed(given)
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("prompt", ["the ", "\U0001f680 "])
def test_prompts_do_not_hide_texts_without_known_tokens(model: bertkit.Model, prompt: str) -> None:
    report = InferenceReport()
    model.embed(["\U0001f642", "", "cat"], prompt=prompt, report=report)
    assert (report.num_empty, report.num_unknown) == (2, 1 + 3 * (prompt != "the "))


def test_predictions_count_and_warn() -> None:
    classifier, report = model_of(SequenceClassification(("no", "yes"))), InferenceReport()
    predictions = classifier.predict(TEXTS[:4], report=report)
    assert predictions[1].probabilities == predictions[2].probabilities
    assert (report.num_texts, report.num_unknown, report.num_empty) == (4, 4, 2)
    with pytest.warns(UnknownWordsWarning, match=r"1 of 3 tokens are \[UNK\]") as caught:
        classifier.predict(["\U0001f642"])
    assert [warning.filename for warning in caught] == [__file__]


def test_fill_mask_warns() -> None:
    model = our_model("masked_lm", 3)
    with pytest.warns(UnknownWordsWarning, match=r"1 of 5 tokens are \[UNK\]") as caught:
        model.fill_mask("the \U0001f642 [MASK]")
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fill_mask("the [MASK]")


def test_prompts_of_other_methods_do_not_hide_texts_without_known_tokens(model: bertkit.Model) -> None:
    given = ["\U0001f642", "", "cat"]
    masks, report = our_model("masked_lm", 3), InferenceReport()
    vectors = embed_sparse(masks._runner, masks.checkpoint.sparse, given, prompt="the ", report=report)
    assert (report.num_empty, report.num_unknown) == (2, 1)
    assert (vectors.dense() == masks.embed_sparse([f"the {text}" for text in given], report=report).dense()).all()
    static = extract(our_model("encoder", 3), 8)
    report = InferenceReport()
    static.embed(given, prompt="the ", report=report)
    assert report.num_empty == 2
    task = Similarity(query_prompt="the ", document_prompt="the cat \U0001f680 ")
    rows = [TextSet("\U0001f642", ("",)), TextSet("cat", ("dog",))]
    encodings = task.encode(model.tokenizer, rows, Layout())
    assert encodings.are_empty().tolist() == [True, True, False, False]
    assert encodings.take(np.array([3, 1])).are_empty().tolist() == [False, True]
    assert encodings.between(1, 3).are_empty().tolist() == [True, False]


def test_hypotheses_do_not_hide_texts_without_known_tokens() -> None:
    classifier, report = model_of(SequenceClassification(("entailment", "contradiction"))), InferenceReport()
    classifier.classify(["\U0001f642", "cat"], ["the", "dog"], template="{} cat", report=report)
    assert (report.num_texts, report.num_unknown, report.num_empty) == (4, 2, 2)


def test_evidence_has_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_of(SequenceClassification(("no", "yes"))).save(tmp_path / "model")
    rows = [("the cat", "no"), ("\U0001f642", "yes"), ("cat \U0001f680", "no")] * 4
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    base = ["evaluate", "--model", str(tmp_path / "model"), "--data", str(tmp_path / "a.csv")]
    assert run(base) == 0
    assert "8 of 44 tokens are unknown to the model ([UNK]); 4 texts have no known token" in capsys.readouterr().err
    assert run([*base, "--report", str(tmp_path / "a.html")]) == 0
    noted = capsys.readouterr().err
    assert "Unknown to the model ([UNK]): 8 of 44 tokens; 4 texts have no known token." in noted
    lengths = json.loads((tmp_path / "a.json").read_text())["lengths"]
    assert (lengths["num_unknown"], lengths["num_empty"]) == (8, 4)
    assert "unknown tokens ([UNK]): 8, texts without a known token: 4" in (tmp_path / "a.html").read_text()


def test_check_of_training_data_has_the_counts(encoder: Path) -> None:
    rows = [TextExample(text, label=label) for text, label in (("the cat", "a"), ("\U0001f642", "b"), ("dog x", "b"))]
    checked = check_training_data(str(encoder), "sequence-classification", rows * 5)
    assert (checked.num_unknown, checked.num_empty) == (5, 5)
    assert ("warning", "5 tokens are unknown to the model ([UNK]); 5 rows have no known token.") in checked.findings()


def rank(scorer: bertkit.Model) -> None:
    scorer.rank("\U0001f680", ["the cat", "sat"])


def test_other_methods_warn() -> None:
    pretrained = our_model("pretraining", 3)
    with pytest.warns(UnknownWordsWarning, match=r"2 of 8 tokens are \[UNK\]") as caught:
        pretrained.next_sentence_probability("the \U0001f642", "cat sat \U0001f680")
    assert [warning.filename for warning in caught] == [__file__]
    scorer = our_model("sequence_classification", 3, num_labels=1)
    for number, method in ((1, lambda: pretrained.embed_sparse(["\U0001f642"])), (2, lambda: rank(scorer))):
        with pytest.warns(UnknownWordsWarning, match=rf"{number} of \d+ tokens are \[UNK\]") as caught:
            method()
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("prompt", ["", "the "])
def test_query_without_a_known_word_is_near_nothing(
    encoder: Path, tmp_path: Path, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Index.open(tmp_path / "store", encoder, query_prompt=prompt, document_prompt="") as index:
        index.add([bertkit.Document(text, text) for text in ("the cat", "\U0001f680", "ж")])
        assert [len(index.search("cat", mode=mode)) for mode in ("hybrid", "dense")] == [3, 3]
        assert [len(index.search("\U0001f642", mode=mode)) for mode in ("hybrid", "dense")] == [0, 0]
        assert [one.document_id for one in index.search("ж")] == ["ж"]  # by its letter
        results = index.search_many(["cat", "\U0001f642"], mode="dense")
        assert [len(one) for one in results] == [3, 0]
    assert run(["search", "\U0001f642", "--store", str(tmp_path / "store")]) == 0
    noted = capsys.readouterr()
    assert (
        noted.out == "" and noted.err.startswith("1 texts were empty, or") and "no passage fits the query" in noted.err
    )


def test_commands_note_the_counts(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("the cat\n\U0001f642\ncat \U0001f680\n")
    assert run(["embed", "--input", str(file), "--model", str(encoder)]) == 0
    noted = capsys.readouterr().err
    assert "1 texts were empty, or have no known token" in noted
    assert "2 of 11 tokens are unknown to the model ([UNK]" in noted
    model_of(SequenceClassification(("no", "yes"))).save(tmp_path / "model")
    assert run(["predict", "--input", str(file), "--model", str(tmp_path / "model")]) == 0
    noted = capsys.readouterr().err
    assert "2 of 11 tokens are unknown to the model ([UNK]); 1 texts have no known token" in noted
