"""Retrieval scores equal to pytrec_eval's, scored pairs to scipy's and scikit-learn's; collections and commands."""

import json
from pathlib import Path

import numpy as np
import pytest
from examples_of_tasks import call
from random_models import our_model
from test_similarity import sentences

from bertkit import TextSet
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import DataError, UsageError
from bertkit.evidence.collections import read_collection
from bertkit.evidence.pair_scores import measured_pairs, scores_of_pairs
from bertkit.evidence.retrieval import (
    in_order,
    measured_retrieval,
    rerank,
    retrieval_scores,
    retrieve,
    write_run,
)
from bertkit.search.prompts import prompts_of

pytestmark = pytest.mark.usefixtures("one_thread")

THEIRS = {
    "ndcg_at_10": "ndcg_cut_10", "map": "map", "mrr": "recip_rank", "recall_at_1": "recall_1",
    "recall_at_10": "recall_10", "recall_at_100": "recall_100",
}  # fmt: skip


def random_run(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Judgments with grades from -1 to 3, and rankings with many equal scores, some shorter than ten."""
    draw = np.random.default_rng(seed)
    judgments, rankings = {}, {}
    for query in range(8):
        judged = draw.choice(40, 12, replace=False)
        grades = {f"d{document}": int(draw.integers(-1, 4)) for document in judged}
        judgments[f"q{query}"] = grades | {"d0": 1}
        retrieved = draw.choice(60, int(draw.integers(1, 50)), replace=False)
        rankings[f"q{query}"] = {f"d{document}": float(draw.integers(0, 5)) / 3 for document in retrieved}
    return judgments, rankings


@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_those_of_trec_eval(seed: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pytrec_eval-terrier is not installed")
    judgments, rankings = random_run(seed)
    expected = pytrec_eval.RelevanceEvaluator(
        judgments, {"ndcg_cut.10", "map", "recip_rank", "recall.1,10,100"}
    ).evaluate(rankings)
    scores = retrieval_scores(judgments, rankings)
    for ours, theirs in THEIRS.items():
        np.testing.assert_allclose(scores[ours], [expected[query][theirs] for query in judgments], atol=1e-9)
    means = measured_retrieval(scores)
    assert all(means[name].low <= means[name].value <= means[name].high for name in means)


def test_run_files_keep_the_order_of_the_nearest_scores() -> None:
    scores = np.nextafter(np.float32(0.9), np.arange(2, dtype=np.float32)).tolist()  # neighbors of 0.9 in float32
    rankings = {"q": {"b": 0.9, "a": scores[1], "c": scores[0]}}
    lines: list[str] = []
    write_run(rankings, lines.append)
    read = {line.split()[2]: float(line.split()[4]) for line in lines}
    assert in_order(read) == in_order(rankings["q"]) == ["a", "b", "c"]


def test_equal_scores_and_judged_documents() -> None:
    assert in_order({"a": 1.0, "c": 1.0, "b": 2.0, "d": np.float64(1 + 1e-12)}) == ["b", "d", "c", "a"]
    scores = retrieval_scores({"q": {"a": 1, "b": 0}, "r": {"a": 2}}, {"q": {"b": 1.0, "x": 0.5, "y": 0.2, "a": 0.1}})
    assert scores["judged_at_10"].tolist() == [0.5, 0.0] and scores["mrr"].tolist() == [0.25, 0.0]


def write_collection(folder: Path, qrels: str = "0\t10\t1\n1\t11\t2\n2\t12\t0\n") -> Path:
    texts = sentences(40, seed=9)
    folder.mkdir()
    corpus = [{"_id": str(number), "title": texts[number], "text": texts[-number]} for number in range(20)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    queries = [{"_id": str(number), "text": texts[20 + number]} for number in range(5)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return folder


def test_collection_is_searched_and_ranked_again(tmp_path: Path) -> None:
    collection = read_collection(write_collection(tmp_path / "made"))
    assert collection.num_without_positives == 1 and list(collection.judgments) == ["0", "1"]
    model, judge = our_model("encoder", 6), our_model("sequence_classification", 4, 1)
    rankings = retrieve(model, collection)
    vectors = model.embed(list(collection.documents.values()), normalize=True)
    query = model.embed(collection.queries["1"], normalize=True)
    assert in_order(rankings["1"]) == [str(index) for index in np.argsort(-(vectors @ query))]
    again = rerank(judge, collection, rankings, depth=7)
    assert {query: len(ranking) for query, ranking in again.items()} == {"0": 7, "1": 7}
    best = in_order(rankings["0"])[:7]
    scores = judge.score_pairs(collection.queries["0"], [collection.documents[name] for name in best])
    assert in_order(again["0"])[0] == best[int(scores.argmax())]


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"web": "the "}, "web", ("the ", "the ")),
        ({"query": "the "}, "query", ("the ", "")),
        ({"search_query": "the ", "search_document": "a "}, None, ("the ", "a ")),
        ({"passage": "a ", "web": "the "}, "web", ("", "a ")),
    ],
)
def test_prompts_are_those_of_the_search(
    tmp_path: Path, prompts: dict[str, str], default: str | None, expected: tuple[str, str]
) -> None:
    collection, model = read_collection(write_collection(tmp_path / "made")), our_model("encoder", 6)
    model.checkpoint.sentence = SentenceSettings(prompts=prompts, default_prompt_name=default)
    query = model.embed(collection.queries["1"], normalize=True, prompt=expected[0])
    vectors = model.embed(list(collection.documents.values()), normalize=True, prompt=expected[1])
    assert in_order(retrieve(model, collection)["1"]) == [str(index) for index in np.argsort(-(vectors @ query))]
    assert prompts_of("a model", model.sentence_settings) == expected


def test_queries_do_not_retrieve_themselves(tmp_path: Path) -> None:
    folder = write_collection(tmp_path / "made")
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    queries = [{"_id": "0", "text": f" {documents[0]['text']}"}, {"_id": "1", "text": "another text than document 1"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n0\t10\t1\n1\t1\t1\n")
    rankings = retrieve(our_model("encoder", 6), read_collection(folder), depth=19)
    assert "0" not in rankings["0"] and len(rankings["0"]) == 19
    rankings = retrieve(our_model("encoder", 6), read_collection(folder), depth=20)
    assert "0" not in rankings["0"] and "1" in rankings["1"]
    assert [len(ranking) for ranking in rankings.values()] == [19, 20]


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ("0\t99\t1\n", "line 2 judges '99'"),
        ("0\t10\thigh\n", "has the grade 'high': expected an integer"),
        ("0\t10\t--5\n", "has the grade '--5': expected an integer"),
        ("0\t10\t0\n", "no query with a relevant document"),
        ("0\t10\t1\n0\t10\t1\n0\t10\t0\n", "line 4 judges '10' for '0' again, with another grade"),
    ],
)
def test_collections_that_cannot_be_read(tmp_path: Path, qrels: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_collection(write_collection(tmp_path / "made", qrels))


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_ids_that_are_repeated_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_collection(tmp_path / "made")
    with (folder / name).open("a") as file:
        file.write(json.dumps({"_id": "3", "text": "another"}) + "\n")
    with pytest.raises(DataError, match=rf"{name}, line \d+ repeats the _id '3': expected each once"):
        read_collection(folder)


def test_documents_are_not_ranked_again_by_several_labels(tmp_path: Path) -> None:
    collection = read_collection(write_collection(tmp_path / "made"))
    with pytest.raises(UsageError, match="one score for each text, but this model has 3 labels"):
        rerank(our_model("sequence_classification", 4, 3), collection, {"0": {"1": 1.0, "2": 0.5}})


def test_questions_and_labeled_texts_are_collections(tmp_path: Path) -> None:
    questions = [{"question": f"is it {word}?", "id": word, "answers": []} for word in ("red", "blue", "green")]
    paragraphs = [{"context": "red and blue", "qas": questions[:2]}, {"context": "letters", "qas": questions[2:]}]
    squad = tmp_path / "squad.json"
    squad.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    collection = read_collection(squad)
    assert collection.documents == {"0": "red and blue", "1": "letters"} and len(collection.queries) == 3
    assert collection.judgments == {"0": {"0": 1}, "1": {"0": 1}, "2": {"1": 1}}
    table = tmp_path / "intents.csv"
    table.write_text("text,category\nthe cat,a\na dog,a\nred,b\nthe cat,a\nblue,c\nblue cat,b\n")
    collection = read_collection(table)
    assert collection.judgments["0"] == {"1": 1, "3": 1} and collection.num_without_positives == 1
    rankings = retrieve(our_model("encoder", 6), collection)
    assert all(name not in ranking and len(ranking) == 5 for name, ranking in rankings.items())
    assert in_order(rankings["0"])[0] == "3"
    table.write_text("utterance,topic\nthe cat,a\na dog,b\nred,a\n")
    columns = {"text": "utterance", "label": "topic"}
    assert read_collection(table, columns).judgments == {"0": {"2": 1}, "2": {"0": 1}}
    with pytest.raises(UsageError, match=r"squad.json: columns can be chosen only in a table"):
        read_collection(squad, columns)
    table.write_text("text,category\nthe cat,a\na dog,b\n")
    with pytest.raises(DataError, match="no two texts with the same label"):
        read_collection(table)
    table.write_text("sentence1,sentence2,label\nthe cat,a,b\n")
    with pytest.raises(DataError, match="has pairs of texts"):
        read_collection(table)


@pytest.mark.full
def test_differences_of_binary_pairs_are_paired() -> None:
    rows = [TextSet("a", (str(i),), (), float(i % 2)) for i in range(40)]
    draw = np.random.default_rng(1)
    good, bad = (np.arange(40) % 2 + scale * draw.normal(size=40) for scale in (0.5, 5.0))
    gain, same = measured_pairs(rows, good, bad), measured_pairs(rows, good, good)
    ours, others = measured_pairs(rows, good), measured_pairs(rows, bad)
    for name in ours:
        assert gain[name].value == pytest.approx(ours[name].value - others[name].value)
        assert (same[name].low, same[name].value, same[name].high) == (0, 0, 0)
    assert gain["average_precision"].low > 0


def test_scored_pairs_equal_those_of_scipy() -> None:
    from scipy.stats import pearsonr, spearmanr

    texts, draw = sentences(60, seed=2), np.random.default_rng(2)
    model = our_model("encoder", 6)
    rows = [TextSet(texts[2 * i], (texts[2 * i + 1],), (), round(float(draw.random()), 1)) for i in range(30)]
    first, second = (model.embed(texts[start:60:2], normalize=True) for start in (0, 1))
    cosines, targets = (first * second).sum(axis=1), [row.score for row in rows]
    with pytest.raises(UsageError, match="pairs need one score each, but this model has 3 labels"):
        scores_of_pairs(our_model("sequence_classification", 4, 3), rows)
    scores = scores_of_pairs(model, rows)
    np.testing.assert_allclose(scores, cosines, atol=1e-6)
    measured = measured_pairs(rows, scores)
    assert measured["pearson"].value == pytest.approx(pearsonr(targets, cosines).statistic, abs=1e-5)
    assert measured["spearman"].value == pytest.approx(spearmanr(targets, cosines).statistic, abs=1e-5)
    assert measured["spearman"].low < measured["spearman"].value < measured["spearman"].high
    binary = [TextSet(row.query, row.positives, (), float((row.score or 0) > 0.5)) for row in rows]
    results = measured_pairs(binary, scores)
    assert results["threshold"].low <= results["threshold"].high and 0 < results["average_precision"].value < 1
    with pytest.raises(DataError, match="1 different scores"):
        measured_pairs([TextSet("a", ("b",), (), 1.0)] * 3, np.zeros(3))
    with pytest.raises(DataError, match="has no score"):
        measured_pairs([TextSet("a", ("b",))], np.zeros(1))


@pytest.mark.full
def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, models = write_collection(tmp_path / "made"), [str(tmp_path / name) for name in "ab"]
    for number, path in enumerate(models):
        made = our_model("encoder", 6 + number)
        made.checkpoint.sentence = SentenceSettings(prompts={"query": "the ", "passage": "a "})
        made.save(path)
    run_file = tmp_path / "made.run"
    code, rows, error = call(capsys, "evaluate", "retrieval", str(folder), "--model", models[0], "--against",
                            models[1], "--run-file", str(run_file))  # fmt: skip
    assert code == 0 and "2 queries, 20 documents" in error and "1 judged queries without relevant" in error
    assert [row["metric"] for row in rows][:3] == ["ndcg_at_10", "map", "mrr"] and "difference_low" in rows[0]
    assert len(run_file.read_text().splitlines()) == 40 and run_file.read_text().startswith("0 Q0 ")
    table = tmp_path / "table.csv"
    table.write_text("utterance,topic\nthe cat,a\na dog,b\nred,a\n")
    code, _, error = call(capsys, "evaluate", "retrieval", str(table), "--model", models[0],
                          "--columns", "text=utterance", "label=topic")  # fmt: skip
    assert code == 0 and "2 queries, 3 documents" in error
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("sentence1,sentence2,score\nthe cat,a dog,1\nrun,walk,3\nred,red,5\n")
    code, rows, _ = call(capsys, "evaluate", "similarity", str(pairs), "--model", models[0])
    assert code == 0 and [row["metric"] for row in rows] == ["pearson", "spearman"]
    judge = tmp_path / "judge"
    our_model("sequence_classification", 4, 1).save(judge)
    page = tmp_path / "pairs.html"
    code, rows, _ = call(capsys, "evaluate", "similarity", str(pairs), "--model", str(judge), "--against", models[0],
                         "--columns", "query=sentence2", "positive=sentence1", "--report", str(page))  # fmt: skip
    assert code == 0 and "difference" in rows[0]
    figures = json.loads(page.with_suffix(".json").read_text())
    assert figures["scores"]["pearson"]["value"] == rows[0]["value"] and "pairs.csv: 3 pairs" in page.read_text()
    assert figures["differences"]["spearman"]["low"] == rows[1]["difference_low"]
    assert call(capsys, "evaluate", "similarity", str(pairs), "--report", str(tmp_path / "pairs.txt"))[0] == 2


@pytest.mark.full(sample=2)
@pytest.mark.parametrize(
    ("settings", "other"),
    [
        (SentenceSettings(similarity="euclidean"), "Euclidean distance"),
        (SentenceSettings(similarity="euclidean", normalize=True, truncate_dim=7), "Euclidean distance"),
        (SentenceSettings(similarity="manhattan", normalize=True), "Manhattan distance"),
        (SentenceSettings(similarity="dot"), "dot product"),
        (SentenceSettings(similarity="euclidean", normalize=True), ""),
        (SentenceSettings(similarity="dot", normalize=True), ""),
        (SentenceSettings(), ""),
    ],
)
def test_another_similarity_than_the_published_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, settings: SentenceSettings, other: str
) -> None:
    assert settings.other_than_cosine == other
    model, folder, pairs = str(tmp_path / "model"), write_collection(tmp_path / "made"), tmp_path / "pairs.csv"
    made = our_model("encoder", 6)
    made.checkpoint.sentence = settings
    made.save(model)
    pairs.write_text("sentence1,sentence2,score\nthe cat,a dog,1\nrun,walk,3\nred,red,5\n")
    said = f"{model} is published with the {other}"
    (tmp_path / "a.txt").write_text("the cat")
    index = ["index", str(tmp_path / "a.txt"), "--store", str(tmp_path / "store")]
    for is_honored, arguments in (
        (False, ["evaluate", "similarity", str(pairs), "--model", model, "--report", str(tmp_path / "page.html")]),
        (True, ["evaluate", "retrieval", str(folder), "--model", model, "--against", model]),
        (True, [*index, "--model", model]),
    ):
        code, _, error = call(capsys, *arguments)
        is_other = bool(other) and not (is_honored and settings.similarity == "dot")
        assert code == 0 and (said in error) == is_other
    assert (said in (tmp_path / "page.html").read_text()) == bool(other)
    assert "is published" not in call(capsys, *index)[2]  # the index exists


def test_failures_that_are_known_before_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, (model, judge) = write_collection(tmp_path / "made"), (str(tmp_path / name) for name in ("model", "judge"))
    our_model("encoder", 6).save(model)
    our_model("sequence_classification", 4, 3).save(judge)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("sentence1,sentence2,score\nthe cat,a dog,1\nred,red,5\n")
    monkeypatch.setattr("bertkit.evidence.retrieval.retrieve", None)
    monkeypatch.setattr("bertkit.evidence.pair_scores.scores_of_pairs", None)
    base, nowhere = ["evaluate", "retrieval", str(folder), "--model", model], str(tmp_path / "nowhere")
    assert "no model" in call(capsys, *base, "--against", nowhere)[2]
    assert "no model" in call(capsys, *base, "--cross-encoder", nowhere)[2]
    assert "this model has 3 labels" in call(capsys, *base, "--cross-encoder", judge)[2]
    assert "no model" in call(capsys, "evaluate", "similarity", str(pairs), "--model", model, "--against", nowhere)[2]
    with (folder / "corpus.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "page 7", "text": "a cat"}) + "\n")
    assert "the id 'page 7' cannot" in call(capsys, *base, "--run-file", str(tmp_path / "made.run"))[2]


def test_run_file_is_kept_if_the_other_model_fails(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, model, other = write_collection(tmp_path / "made"), tmp_path / "model", tmp_path / "other"
    for path in (model, other):
        our_model("encoder", 6).save(path)
    next(other.glob("*.safetensors")).write_bytes(b"broken")
    run_file = tmp_path / "made.run"
    code, _, error = call(capsys, "evaluate", "retrieval", str(folder), "--model", str(model), "--against",
                          str(other), "--run-file", str(run_file))  # fmt: skip
    assert code == 2 and str(other) in error and len(run_file.read_text().splitlines()) == 40
