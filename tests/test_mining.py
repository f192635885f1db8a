"""Hard negatives: equal to sentence-transformers' on the same settings, never a positive, margins, formats."""

import json
from pathlib import Path

import numpy as np
import pytest
from random_models import our_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives
from test_similarity import sentences

import bertkit
from bertkit import Model, TextSet, mining
from bertkit.checkpoint import SentenceSettings
from bertkit.cli import run
from bertkit.errors import DataError, UsageError
from bertkit.mining import MiningOptions, MiningReport, _leave_out, formatted, mine_negatives

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = sentences(90, seed=5)
ROWS = [TextSet(TEXTS[number], (TEXTS[30 + number],)) for number in range(25)]
ROWS += [TextSet(TEXTS[number], (TEXTS[60 + number],)) for number in range(0, 25, 3)]  # several positives


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> tuple[Model, Path]:
    folder = tmp_path_factory.mktemp("mining") / "model"
    made = our_model("encoder", 6)
    made.checkpoint.sentence = SentenceSettings()
    made.save(folder)
    return made, folder


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"num_negatives": 5, "first_rank": 2, "last_rank": 14}, {"range_min": 2, "range_max": 14}),
        ({"absolute_margin": 0.01}, {"absolute_margin": 0.01}),
        ({"relative_margin": 0.05}, {"relative_margin": 0.05}),
        ({"max_score": 0.97, "min_score": 0.5}, {"max_score": 0.97, "min_score": 0.5}),
        ({"relative_margin": -0.02, "first_rank": 1}, {"relative_margin": -0.02, "range_min": 1}),
    ],
)  # fmt: skip
def test_negatives_equal_sentence_transformers(model: tuple[Model, Path], ours: dict, theirs: dict) -> None:
    datasets = pytest.importorskip("datasets", reason="sentence-transformers mines with the datasets package")
    reference = SentenceTransformer(str(model[1]), device="cpu")
    pairs = datasets.Dataset.from_dict(
        {"query": [row.query for row in ROWS], "positive": [row.positives[0] for row in ROWS]}
    )
    options = MiningOptions(**ours)
    expected = mine_hard_negatives(
        pairs, reference, corpus=TEXTS[30:], num_negatives=options.num_negatives, output_format="triplet",
        verbose=False, **theirs,
    )  # fmt: skip
    mined = mine_negatives(model[0], ROWS, options, corpus=TEXTS[30:])
    triplets = [tuple(row.values()) for one in mined for row in formatted(one, "triplet", options.num_negatives)]
    assert triplets == [tuple(row.values()) for row in expected] and len(triplets) > 2


def test_default_prompt_precedes_queries_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, prompts, embedded = our_model("encoder", 6), [], mining._vectors
    made.checkpoint.sentence = SentenceSettings(prompts={"web": "the "}, default_prompt_name="web")

    def recorded(model: Model, texts: list[str], prompt: str, kept: Path | None) -> np.ndarray:
        prompts.append(prompt)
        return embedded(model, texts, prompt, kept)

    monkeypatch.setattr(mining, "_vectors", recorded)
    assert len(list(mine_negatives(made, ROWS[:3], MiningOptions()))) == 3
    assert prompts == ["the ", "the "]  # as `Model.embed` has it


def expected_negatives(
    model: Model, query: str, own: list[str], corpus: list[str], options: MiningOptions
) -> list[str]:
    """By float64 arithmetic, in a loop."""
    vector, *vectors = model.embed([query, *corpus], normalize=True).astype(np.float64)
    cosines = {text: float(vector @ other) for text, other in zip(corpus, vectors, strict=True)}
    lowest = min(cosines[text] for text in own)
    ranked = sorted((text for text in corpus if text not in own), key=lambda text: -cosines[text])
    margin = options.relative_margin or 0.0
    ranked = [text for text in ranked if margin == 0 or cosines[text] <= lowest - abs(lowest) * margin]
    return ranked[options.first_rank : options.first_rank + options.num_negatives]


@pytest.mark.parametrize("options", [MiningOptions(), MiningOptions(4, 2), MiningOptions(2, 0, 80, None, 0.1)])
def test_mined_negatives_equal_plain_loop(model: tuple[Model, Path], options: MiningOptions) -> None:
    report = MiningReport()
    mined = list(mine_negatives(model[0], ROWS, options, corpus=TEXTS[30:], report=report))
    assert [row.query for row in mined] == TEXTS[:25] and report.num_queries == 25
    for row in mined:
        assert not set(row.negatives) & {row.query, *row.positives}
        assert list(row.negatives) == expected_negatives(model[0], row.query, list(row.positives), TEXTS[30:], options)
    assert report.num_negatives == sum(len(row.negatives) for row in mined)


def test_a_query_among_the_texts_takes_no_place_of_a_candidate(model: tuple[Model, Path]) -> None:
    options = MiningOptions(num_negatives=3, last_rank=3)
    for row in mine_negatives(model[0], ROWS[:25], options, corpus=TEXTS):
        own = [row.query, *row.positives]
        corpus = [text for text in TEXTS if text != row.query]
        assert not set(row.negatives) & set(own)
        assert list(row.negatives) == expected_negatives(model[0], row.query, list(row.positives), corpus, options)


def test_cross_encoder_rescores_mined_candidates(model: tuple[Model, Path]) -> None:
    judge = our_model("sequence_classification", 4, 1)
    options = MiningOptions(num_negatives=2, max_score=0.5)
    for row in mine_negatives(model[0], ROWS[:6], options, corpus=TEXTS[30:], cross_encoder=judge):
        scores = judge.score_pairs(row.query, list(row.negatives))
        assert (scores <= 0.5).all() and (np.diff(scores) <= 0).all()


def test_vectors_with_another_prompt_are_not_used_again(tmp_path: Path) -> None:
    made, kept = our_model("encoder", 6), tmp_path / "kept"
    results = []
    for prompt in ("", "the film was great and "):
        made.checkpoint.sentence = SentenceSettings(prompts={"query": prompt})
        results.append(mining._vectors(made, TEXTS[:3], made.sentence_settings.retrieval_prompts[0], kept))
        np.testing.assert_array_equal(results[-1], mining._vectors(made, TEXTS[:3], prompt, None))
    assert not np.allclose(*results)


@pytest.mark.parametrize("with_judge", [False, True])
def test_a_stopped_run_goes_on(model: tuple[Model, Path], tmp_path: Path, with_judge: bool, monkeypatch) -> None:
    judge = our_model("sequence_classification", 4, 1) if with_judge else None
    monkeypatch.setattr("bertkit.mining._QUERIES_AT_ONCE", 7)
    options, given = MiningOptions(num_negatives=2), {"corpus": TEXTS[30:], "cross_encoder": judge}
    expected = list(mine_negatives(model[0], ROWS, options, **given))
    stopped = mine_negatives(model[0], ROWS, options, **given, kept=tmp_path / "kept")
    assert [next(stopped) for _ in range(9)] == expected[:9]
    stopped.close()
    computed = []
    embed_stream, score_pairs = Model.embed_stream, Model.score_pairs
    monkeypatch.setattr(
        Model, "embed_stream", lambda *args, **named: computed.append(1) or embed_stream(*args, **named)
    )
    monkeypatch.setattr(Model, "score_pairs", lambda *args, **named: computed.append(2) or score_pairs(*args, **named))
    assert list(mine_negatives(model[0], ROWS, options, **given, kept=tmp_path / "kept")) == expected
    assert computed == ([2, 2, 2] if with_judge else [])  # the check, and two of the four parts of 25 queries


def test_formats_are_read_as_training_rows(model: tuple[Model, Path], tmp_path: Path, capsys) -> None:
    pairs, texts = tmp_path / "pairs.jsonl", tmp_path / "texts.txt"
    pairs.write_text("".join(json.dumps({"query": row.query, "positive": row.positives[0]}) + "\n" for row in ROWS))
    texts.write_text("\n".join(TEXTS[30:]))
    (tmp_path / "pair.jsonl-kept").mkdir()
    (tmp_path / "pair.jsonl-kept" / "notes.txt").write_text("of the user")
    for row_format, keys in (
        ("list", {"query", "positives", "negatives"}),
        ("triplet", {"anchor", "positive", "negative"}),
        ("tuple", {"anchor", "positive", "negative_1", "negative_2"}),
        ("pair", {"sentence1", "sentence2", "score"}),
    ):
        output = tmp_path / f"{row_format}.jsonl"
        arguments = ["mine", "--model", str(model[1]), "--input", str(pairs), "--out", str(output), "--corpus",
                     str(texts), "--num-negatives", "2", "--format", row_format]  # fmt: skip
        assert run(arguments) == 0, capsys.readouterr().err
        assert set(json.loads(output.read_text().splitlines()[0])) == keys
        assert [path.name for path in tmp_path.glob("*-kept/**/*")] == ["notes.txt"]
        results = list(bertkit.tasks.read_examples("similarity", output))
        assert results and (row_format == "pair") == (results[0].score is not None)
    assert "negatives for 25 queries, 0 of them without any" in capsys.readouterr().err
    assert run([*arguments[:-4], "--num-negatives", "0"]) == 2 and "--num-negatives 0" in capsys.readouterr().err


def test_queries_left_out_of_a_format_are_counted(model: tuple[Model, Path], tmp_path: Path, capsys) -> None:
    pairs, output = tmp_path / "pairs.jsonl", tmp_path / "rows.jsonl"
    texts = {"a": "cat", "b": "dog", "c": "red", "d": "blue"}
    pairs.write_text("".join(json.dumps({"query": query, "positive": text}) + "\n" for query, text in texts.items()))
    arguments = ["mine", "--model", str(model[1]), "--input", str(pairs), "--out", str(output), "--format", "tuple"]
    with pairs.open("a") as file:
        file.write('{"query": "a", "positive": "dog"}\n')  # so that two texts are left
    assert run([*arguments, "--num-negatives", "3"]) == 0
    assert len(output.read_text().splitlines()) == 3
    error = capsys.readouterr().err
    assert "9 negatives for 3 queries, 0 of them without any" in error
    assert "1 queries with fewer than 3 negatives are left out of tuple" in error
    output.unlink()
    assert run([*arguments, "--num-negatives", "4"]) == 2 and not output.exists()
    assert "no query has enough negatives for --format tuple (at least 4)" in capsys.readouterr().err
    assert run([*arguments[:-1], "triplet", "--max-score", "-1"]) == 2 and not output.exists()
    assert "--format triplet (at least 1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, is_scored_again, number",
    [
        ({}, False, 3 + 2), ({"num_negatives": 4, "first_rank": 2}, True, 4 + 2 + 2),
        ({"max_score": 0.5}, False, 30 + 2), ({"absolute_margin": 0.0}, False, 30 + 2),
        ({"relative_margin": 0.0}, False, 30 + 2),
        ({"min_score": 0.5}, False, 3 + 2), ({"min_score": 0.5}, True, 30 + 2), ({"last_rank": 9}, True, 9),
    ],
)  # fmt: skip
def test_number_of_candidates_for_a_query_with_two_positives(options: dict, is_scored_again: bool, number: int) -> None:
    assert MiningOptions(**options).candidates(2, is_scored_again=is_scored_again) == number


@pytest.mark.parametrize(
    "options, kept",
    [
        ({"min_score": 0.5}, [0.75, 0.5]), ({"max_score": 0.5}, [0.5, 0.25]), ({"absolute_margin": 0.25}, [0.5, 0.25]),
        ({"relative_margin": 1 / 3}, [0.5, 0.25]), ({"relative_margin": 0.0}, [0.75, 0.5, 0.25]),
    ],
)  # fmt: skip
def test_candidates_at_a_limit_stay_and_those_beyond_it_are_counted(options: dict, kept: list[float]) -> None:
    scores, report = np.array([0.75, -np.inf, 0.5, 0.25], np.float32), MiningReport()
    _leave_out(scores, 0.75, MiningOptions(**options), report)
    assert scores[np.isfinite(scores)].tolist() == kept and report.left_out == {next(iter(options)): 3 - len(kept)}


def test_two_texts_can_be_searched_and_queries_without_a_negative_are_counted(model: tuple[Model, Path]) -> None:
    for options, num_negatives in ((MiningOptions(), 1), (MiningOptions(max_score=-2.0), 0)):
        report, rows = MiningReport(), [TextSet(query, ("the cat sat",)) for query in ("a", "b")]
        mined = list(mine_negatives(model[0], rows, options, corpus=["a dog ran"], report=report))
        assert [len(row.negatives) for row in mined] == [num_negatives] * 2
        assert (report.num_queries, report.num_negatives) == (2, 2 * num_negatives)
        assert report.num_without == 2 - 2 * num_negatives
        assert report.left_out == ({} if num_negatives else {"max_score": 2})


def test_scored_pairs_are_refused(model: tuple[Model, Path], tmp_path: Path, capsys) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("sentence1,sentence2,score\ncat,dog,0\nred,blue,1\n")
    assert run(["mine", "--model", str(model[1]), "-i", str(pairs), "-o", str(tmp_path / "rows.jsonl")]) == 2
    assert "pairs.csv, line 2: has a score, but mining takes pairs without" in capsys.readouterr().err


def test_columns_of_other_names_are_given(model: tuple[Model, Path], tmp_path: Path, capsys) -> None:
    (tmp_path / "faq.csv").write_text("id,q,a\n1,cat,dog\n2,red,blue\n")
    out = tmp_path / "rows.jsonl"
    arguments = ["mine", "--model", str(model[1]), "-i", str(tmp_path / "faq.csv"), "-o", str(out)]
    assert run(arguments) == 2 and "choose columns with --columns" in capsys.readouterr().err
    assert run([*arguments, "--columns", "query=q", "positive=a"]) == 0
    assert [json.loads(line)["positives"] for line in out.read_text().splitlines()] == [["dog"], ["blue"]]


def test_bad_input(model: tuple[Model, Path]) -> None:
    judge = our_model("sequence_classification", 4, 3)
    with pytest.raises(UsageError, match="one score for each text, but this model has 3 labels"):
        next(mine_negatives(model[0], ROWS, MiningOptions(), cross_encoder=judge))
    with pytest.raises(UsageError, match="relative_margin=nan: expected a finite number"):
        MiningOptions(relative_margin=float("nan"))
    with pytest.raises(DataError, match="has no second text"):
        list(mine_negatives(model[0], [TextSet("a")], MiningOptions()))
    with pytest.raises(DataError, match="no rows to mine"):
        list(mine_negatives(model[0], [], MiningOptions()))
    with pytest.raises(UsageError, match="one text to search"):
        list(mine_negatives(model[0], [TextSet("a", ("b",))], MiningOptions()))
    with pytest.raises(UsageError, match="last_rank=3: expected at least"):
        MiningOptions(num_negatives=3, first_rank=1, last_rank=3)
