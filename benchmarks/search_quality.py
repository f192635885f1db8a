"""Quality of search by words, by meaning, and by both.

    python benchmarks/search_quality.py [--collections cranfield xquad ...] [--out benchmarks/results]

Five collections of ../shared/data and of Python itself are indexed with all-MiniLM-L6-v2 and the default options, and
every query is searched in the three modes. The score is nDCG@10 of documents, each ranked by its best passage.
Collections measured by an earlier run on the same day stay in the results.
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import report
from turns import say

from bertkit import Document, Index
from bertkit.corpus import python_docs
from bertkit.evidence.intervals import bootstrap_interval
from bertkit.search.index import Mode

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
MODEL = "all-MiniLM-L6-v2"
MODES: tuple[Mode, ...] = ("lexical", "dense", "hybrid")
DEPTH = 10
_PASSAGES = 30  # to have ten documents


class Collection(NamedTuple):
    """Documents, queries, and the relevant documents of each query, all with the same grade."""

    documents: list[Document]
    queries: list[str]
    relevant: list[set[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    results, options = report.begin("search-quality", parser)
    results |= {"model": MODEL, "metric": "nDCG@10", "skipped": {}}
    results["collections"] = {}
    for name in options.collections:
        try:
            collection = COLLECTIONS[name]()
        except FileNotFoundError as error:
            results["skipped"][name] = f"no data at {error.filename}"
            continue
        say(f"{name}: {len(collection.documents)} documents, {len(collection.queries)} queries")
        measured = measure(collection)
        earlier = report.earlier_systems(results, options.out, "model", name="collections")
        results["collections"] = earlier | results["collections"] | {name: measured}
        report.write(results, describe(results), options.out)
    report.finish(results, describe(results), options.out)


def measure(collection: Collection) -> dict:
    """nDCG@10 of each mode, and of hybrid minus the better of the other two, with 95 % bootstrap intervals over
    queries."""
    with tempfile.TemporaryDirectory() as folder, Index.open(Path(folder) / "store", MODEL) as index:
        index.add(collection.documents)
        values = {
            mode: np.array([
                ndcg(ranking(index, query, mode), relevant)
                for query, relevant in zip(collection.queries, collection.relevant, strict=True)
            ])
            for mode in MODES
        }  # fmt: skip
        num_passages = len(index)
    scores = {mode: [float(row.mean()), *bootstrap_interval(row)] for mode, row in values.items()}
    better = max(MODES[:2], key=lambda mode: scores[mode][0])
    gains = values["hybrid"] - values[better]
    return {
        "num_documents": len(collection.documents),
        "num_passages": num_passages,
        "num_queries": len(collection.queries),
        "scores": scores,
        "better_alone": better,
        "gain_of_hybrid": [float(gains.mean()), *bootstrap_interval(gains)],
    }


def ranking(index: Index, query: str, mode: Mode) -> list[str]:
    """The documents of the first passages, each once."""
    return list(dict.fromkeys(one.document_id for one in index.search(query, _PASSAGES, mode=mode, plain=True)))[:DEPTH]


def ndcg(ranked: list[str], relevant: set[str]) -> float:
    """Normalized discounted cumulative gain of the first ten, every relevant document worth 1.

    >>> ndcg(["a", "b"], {"b"}) == 1 / np.log2(3)
    True
    """
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    gains = np.array([one in relevant for one in ranked[:DEPTH]], float)
    return float(gains @ discounts[: len(gains)] / discounts[: len(relevant)].sum())


def describe(results: dict) -> str:
    """The results as Markdown."""
    lines = [
        "# Search quality: words, meaning, both",
        "",
        f"{results['model']}, {results['metric']} with 95 % bootstrap intervals over queries. Hybrid: cosine and "
        f"share of the largest BM25 possible. {results['date']}.",
        "",
        "| collection | documents | queries | lexical (BM25) | dense | hybrid | hybrid less the better alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(results["collections"].items(), key=lambda item: list(COLLECTIONS).index(item[0])):
        cells = [_interval(row["scores"][mode]) for mode in MODES]
        gain = _interval(row["gain_of_hybrid"], sign="+")
        lines.append(f"| {name} | {row['num_documents']:,} | {row['num_queries']:,} | {' | '.join(cells)} | {gain} |")
    return "\n".join([*lines, "", *report.skipped_lines(results)])


def _interval(values: list[float], sign: str = "") -> str:
    value, low, high = values
    return f"{value:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


# ---- collections


def cranfield() -> Collection:
    """Abstracts on aerodynamics and questions of engineers; grades 1 to 4 count as relevant."""
    folder = DATA / "cranfield" / "beir_like"
    documents = [Document(row["_id"], row["text"]) for row in _json_lines(folder / "corpus.jsonl")]
    queries = {row["_id"]: row["text"] for row in _json_lines(folder / "queries.jsonl")}
    relevant: dict[str, set[str]] = {}
    with open(folder / "qrels.tsv", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if int(row["score"]) > 0:
                relevant.setdefault(row["query-id"], set()).add(row["corpus-id"])
    names = [name for name in queries if name in relevant]
    return Collection(documents, [queries[name] for name in names], [relevant[name] for name in names])


def xquad() -> Collection:
    """Questions about 240 paragraphs of Wikipedia; the relevant document of a question is its paragraph."""
    articles = json.loads((DATA / "xquad" / "xquad.en.json").read_text(encoding="utf-8"))["data"]
    documents, queries, relevant = [], [], []
    for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
        documents.append(Document(str(len(documents)), paragraph["context"]))
        for question in paragraph["qas"]:
            queries.append(question["question"])
            relevant.append({documents[-1].id})
    return Collection(documents, queries, relevant)


def sts() -> Collection:
    """Sentences of the test split of STS benchmark; two sentences with a score of at least 4 are relevant to each
    other."""
    numbers: dict[str, str] = {}
    pairs: dict[str, set[str]] = {}
    with open(DATA / "sts_benchmark" / "sts-test.csv", encoding="utf-8") as file:
        for fields in (line.rstrip("\n").split("\t") for line in file):
            first, second = fields[5], fields[6]
            for sentence in (first, second):
                numbers.setdefault(sentence, str(len(numbers)))
            if float(fields[4]) >= 4 and first != second:
                pairs.setdefault(first, set()).add(numbers[second])
    documents = [Document(number, sentence) for sentence, number in numbers.items()]
    return Collection(documents, list(pairs), list(pairs.values()))


def python_questions() -> Collection:
    """Twenty questions about the documentation of Python; every passage of a correct source is relevant."""
    questions = json.loads((ROOT / "tests" / "python_docs_questions.json").read_text(encoding="utf-8"))
    passages = list(python_docs())
    documents = [
        Document(str(number), one.text, one.source if one.text.startswith(one.title) else f"{one.source}: {one.title}")
        for number, one in enumerate(passages)
    ]

    def is_right(source: str, right: str) -> bool:
        return source == right or (right.endswith(".*") and source.startswith(right[:-1]))

    relevant = [
        {str(n) for n, one in enumerate(passages) if any(is_right(one.source, right) for right in question["sources"])}
        for question in questions
    ]
    return Collection(documents, [question["question"] for question in questions], relevant)


def banking77() -> Collection:
    """Questions to a bank: every fourth question of the test split; training questions with the same intent are
    relevant."""
    train, test = (_rows(DATA / "banking77" / f"{split}.csv") for split in ("train", "test"))
    documents = [Document(str(number), row["text"]) for number, row in enumerate(train)]
    of_intent: dict[str, set[str]] = {}
    for number, row in enumerate(train):
        of_intent.setdefault(row["category"], set()).add(str(number))
    queries = test[::4]
    return Collection(documents, [row["text"] for row in queries], [of_intent[row["category"]] for row in queries])


COLLECTIONS = {
    "cranfield": cranfield,
    "xquad": xquad,
    "sts": sts,
    "python-questions": python_questions,
    "banking77": banking77,
}


def _json_lines(path: Path) -> Iterator[dict]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
