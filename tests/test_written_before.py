"""Folders, runs and caches of an older version are read, or rejected with the remedy.

`data/written_before/write.py` and `write_store.py` wrote them, with the commits named there.
"""

import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from tqdm import tqdm

from bertkit import Features, load
from bertkit.cli import run
from bertkit.corpus.shard_writing import write_shard
from bertkit.corpus.shards import open_shard
from bertkit.errors import DataError, EarlierWordsWarning, MissingHeadError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.finetuning.outcome import digest_of
from bertkit.pretraining import Inputs, Pretraining
from bertkit.pretraining.recipe import recipe_of
from bertkit.reports.recorded_run import read_run
from bertkit.reports.training_findings import findings_of
from bertkit.search import Record
from bertkit.search.documents import Document
from bertkit.search.embedded import maintenance
from bertkit.search.index import Index, Mode
from bertkit.tasks import TextExample
from bertkit.tasks.alignment import TaughtText
from bertkit.tasks.examples import ChoiceQuestion, Question, TaggedText, TextSet

WRITTEN = Path(__file__).parent / "data" / "written_before"
WORDS = "the cat dog bird fish sat ran saw ate on under near a big small red blue old mat tree house river".split()
SETTINGS = FinetuningSettings(num_epochs=3, batch_size=8, learning_rate=1e-2, tokens_per_part=150, seed=5)
TEXTS = ["the cat sat", "a red house", "the dog ran near the old tree", "", "blue"]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Change to a copy of the folder with the original file times; returns the results computed when it was written."""
    folder = tmp_path / "written"
    shutil.copytree(WRITTEN, folder)
    monkeypatch.chdir(folder)
    manifest = json.loads(Path("shard/manifest.json").read_text())
    (source,) = manifest["sources"]
    os.utime("corpus.txt", ns=(source["modified_ns"], source["modified_ns"]))
    return json.loads(Path("expected.json").read_text())


def examples(number: int, seed: int) -> list[TextExample]:
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, 4)) for _ in range(number)]
    labels = ["animal" if {"cat", "dog", "bird", "fish"} & set(text.split()) else "other" for text in texts]
    return [
        TextExample(text, label=label, location=f"line {line}")
        for line, (text, label) in enumerate(zip(texts, labels, strict=True), start=1)
    ]


def test_model_that_was_fine_tuned(expected: dict) -> None:
    model = load("classifier", device="cpu")
    predictions = model.predict(TEXTS[:3])
    assert [one.label for one in predictions] == expected["labels"]
    for one, probabilities in zip(predictions, expected["probabilities"], strict=True):
        assert one.probabilities == pytest.approx(probabilities, abs=1e-5)
    assert model.trained.metrics == pytest.approx(expected["metrics"])
    assert model.evaluate(examples(20, seed=2)) == pytest.approx(expected["metrics"], abs=1e-4)


def test_untrained_head_of_old_version_raises(expected: dict) -> None:
    encoder = load("encoder", device="cpu")
    with pytest.raises(MissingHeadError, match="never trained"):
        encoder.fill_mask("the [MASK] sat")
    encoder.save("again")
    with pytest.raises(MissingHeadError, match="never trained"):
        load("again", device="cpu").fill_mask("the [MASK] sat")


@pytest.mark.full
def test_fine_tuning_run_that_was_stopped(expected: dict) -> None:
    run = Finetuning(Path("finetuning"), "encoder", "sequence-classification", SETTINGS, log_line=lambda line: None)
    outcome = run.start(examples(37, seed=1), examples(20, seed=2), resume=True)
    assert outcome.reason == "finished"
    assert outcome.metrics == pytest.approx(expected["metrics"], abs=1e-4)  # of the run that was not stopped


def test_fine_tuning_run_that_is_finished(expected: dict) -> None:
    run = Finetuning(Path("classifier"), "encoder", "sequence-classification", SETTINGS, log_line=lambda line: None)
    outcome = run.start(examples(37, seed=1), examples(20, seed=2), resume=True)
    assert outcome.reason == "finished" and outcome.metrics == pytest.approx(expected["metrics"])


@pytest.mark.parametrize(
    "example, digest",
    [
        (TextExample("a place='' b", "c", ("x", "y"), "line 3"), "f6ae67558c3555e8"),
        (TaggedText("a b", ((0, 1), (2, 3)), ("O", "B-x"), "line 4"), "ed29e2ca467fd11c"),
        (Question("q", "c", ((0, 1),), "7", "line 5"), "73639f34c0622fbe"),
        (ChoiceQuestion("c", ("a", "b"), 1, "8", "line 6"), "85029141a2905196"),
        (TextSet("q", ("p",), ("n",), 0.5, "line 7", (1.0,), 2, np.zeros((2, 3))), "96ee94eefc391711"),
        (TaughtText("t", np.zeros(2, np.float32), "line 8"), "088753b4d9a86439"),
    ],
)
def test_digests_of_examples_equal_those_of_runs_before_location_was_renamed(example: object, digest: str) -> None:
    """The digests were computed by the version whose examples had ``place`` instead of ``location``."""
    assert digest_of([example]) == digest


@pytest.mark.full
def test_pre_training_run_that_was_stopped(expected: dict) -> None:
    recipe = recipe_of(json.loads(Path("pretraining/recipe.json").read_text())["recipe"], "recipe.json")
    run = Pretraining(Path("pretraining"), recipe, Inputs(("corpus.txt",)), log_line=lambda line: None)
    assert run.start(resume=True) == "finished" and run.state.step == 12
    assert load("pretraining/model").fill_mask("the [MASK] sat")
    findings_of(read_run(Path("pretraining")))


def test_shard_of_tokens(expected: dict) -> None:
    tokenizer = load("encoder").tokenizer
    shard = open_shard("shard", tokenizer)
    assert len(shard.sentences) - 1 == 100 and len(shard.documents) - 1 == 20
    again = write_shard("corpus.txt", "shard", tokenizer)
    assert np.array_equal(again.tokens, shard.tokens)
    write_shard("corpus.txt", "new", tokenizer)
    for name in ("tokens.bin", "sentences.bin", "documents.bin", "counts.bin"):
        assert (Path("new") / name).read_bytes() == (Path("shard") / name).read_bytes()
    os.utime("corpus.txt")  # the old hash is of a kind that is no longer computed
    with pytest.raises(DataError, match=r"by an older version.*choose another folder, or delete this one"):
        write_shard("corpus.txt", "shard", tokenizer)
    Path("corpus.txt").write_text("another corpus\n")
    with pytest.raises(DataError, match="choose another folder, or delete this one"):
        write_shard("corpus.txt", "shard", tokenizer)


def test_cache_of_vectors(expected: dict) -> None:
    before = sorted(path for path in Path("vectors").rglob("*") if path.is_file())
    vectors = Features("encoder", cache="vectors", device="cpu").fit(TEXTS).transform(TEXTS)
    np.testing.assert_allclose(vectors, np.array(expected["vectors"]), atol=1e-6)
    assert sorted(path for path in Path("vectors").rglob("*") if path.is_file()) == before  # nothing was computed


def found(index: Index, query: str) -> list[str]:
    return sorted(one.document_id for one in index.search(query, mode="lexical"))


@pytest.mark.filterwarnings("ignore::bertkit.errors.EarlierWordsWarning")
def test_store_is_searched_with_its_words_until_they_are_split_again(
    expected: dict,
) -> None:
    with Index.open("store", device="cpu") as index:
        assert found(index, "cat") == ["1"] and found(index, "ह") == ["0"]  # as the version that wrote it
        assert found(index, "שט") == [] and found(index, "ไทย") == []
        index.store.add([Record("more", "हिन्दी", np.ones(8), "more")])  # with such words too
        assert found(index, "ह") == ["0", "more"]
        assert index.add([Document("4", "नया")]).num_split_again == 5
        assert index.store.verify() == []
        assert found(index, "हिन्दी") == ["0", "more"] and found(index, "ह") == []
        assert found(index, "שט") == ["2"] and found(index, "ไทย") == ["3"] and found(index, "नया") == ["4"]
        assert index.add([Document("5", "last")]).num_split_again == 0
    with Index.open("store", device="cpu") as index:
        assert found(index, "हिन्दी") == ["0", "more"] and found(index, "cat") == ["1"]


def warned(index: Index, query: str, mode: Mode) -> bool:
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        index.search(query, mode=mode)
    return [one.category for one in issued] == [EarlierWordsWarning]


@pytest.mark.parametrize("mode", ["lexical", "hybrid", "dense"])
def test_searches_by_words_warn_that_those_of_a_store_are_earlier_ones(expected: dict, mode: Mode) -> None:
    with Index.open("store", device="cpu") as index:
        assert warned(index, "हिन्दी", mode) == (mode != "dense") and not warned(index, "cat", mode)
        index.add([Document("4", "नया")])
        assert not warned(index, "हिन्दी", mode)


@pytest.mark.full
def test_commands_say_that_the_words_of_a_store_are_earlier_ones(
    expected: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    def notes(*arguments: str) -> str:
        assert run([*arguments, "--store", "store", "--device", "cpu"]) == 0
        return capsys.readouterr().err

    with pytest.warns(
        EarlierWordsWarning, match="store is of an earlier version.* bertkit index, .* splits them again"
    ):
        notes("search", "हिन्दी")
    Path("new.txt").write_text("A new text.")
    assert "store is of an earlier version: its 4 passages were split into words again" in notes("index", "new.txt")
    assert "is of an earlier version" not in notes("index", "new.txt")
    with warnings.catch_warnings(action="error"):
        notes("search", "हिन्दी")


def test_progress_of_splitting_words_again(expected: dict, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(maintenance, "tqdm", lambda **options: tqdm(**options | {"delay": 0}))
    for progress in (False, True):
        shutil.copytree("store", f"store-{progress}")
        with Index.open(f"store-{progress}", device="cpu") as index:
            index.add([Document("4", "नया")], progress=progress)
        assert ("indexing words" in capsys.readouterr().err) == progress
