"""A small sentence encoder aligned to all-MiniLM-L6-v2: its retrieval quality and speed compared with the teacher.

    python benchmarks/alignment.py [--minutes 30] [--layers 3] [--sentences 200000] [--work FOLDER] [--out FOLDER]

The student has some layers of the teacher and learns its vectors of sentences of the shared novels and of Python's
documentation. ``--work`` keeps the vectors of the teacher and the run, so the same command resumes after a stop.
Reported are nDCG@10 on Cranfield and XQuAD of the teacher, of the student, and of queries embedded by the student with
documents embedded by the teacher; and the texts embedded per second.
"""

import argparse
import time
from collections import deque
from pathlib import Path

import numpy as np
import report
from models import MINILM
from search_quality import COLLECTIONS, Collection
from turns import say

import bertkit
from bertkit import Model
from bertkit.corpus import python_docs
from bertkit.corpus.documents import read_sentences
from bertkit.evidence.intervals import bootstrap_interval
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.finetuning.student import student_of
from bertkit.tasks import TaughtText

NOVELS = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "english_novels"
SHORTEST, LONGEST = 20, 400  # characters of a sentence
LEARNING_RATE, BATCH_SIZE = 5e-4, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of training, without the vectors of the teacher")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=200_000)
    parser.add_argument("--work", type=Path, default=report.CACHE / "alignment", help="folder of the run")
    results, options = report.begin("alignment", parser)
    work: Path = options.work / f"{options.layers}-layers-{options.sentences}-{options.minutes:g}"
    work.mkdir(parents=True, exist_ok=True)
    student = _student(work, options)
    teacher, rows = bertkit.load(MINILM, device="cpu"), {}
    for name in ("cranfield", "xquad"):
        rows[name] = _compared(COLLECTIONS[name](), teacher, student)
    texts = [row.text for row in _sentences(2_000)]
    seconds = {name: _seconds(model, texts) for name, model in (("teacher", teacher), ("student", student))}
    results |= {"layers": options.layers, "sentences": options.sentences, "minutes": options.minutes, "quality": rows,
                "texts_per_second": {name: round(len(texts) / value, 1) for name, value in seconds.items()},
                "speedup": round(seconds["teacher"] / seconds["student"], 2)}  # fmt: skip
    report.finish(results, "\n".join(_lines(results)), options.out)


def _student(work: Path, options: argparse.Namespace) -> Model:
    """The aligned model, from this run or an earlier one."""
    start, out = work / "start", work / "student"
    if not start.is_dir():
        student_of(bertkit.load(MINILM, device="cpu"), options.layers).save(start)
    settings = FinetuningSettings.of(learning_rate=LEARNING_RATE, batch_size=BATCH_SIZE, num_epochs=1)
    run = Finetuning(
        out, start, "alignment", settings, {"teacher": MINILM}, device="cpu", log_line=say,
        clock_minutes=options.minutes, compare=False,
    )  # fmt: skip
    run.start(_sentences(options.sentences), resume=True)
    return bertkit.load(out, device="cpu")


def _sentences(number: int) -> list[TaughtText]:
    """Sentences of novels and, a tenth of them, of Python's documentation, each once."""
    files = sorted(NOVELS.glob("*.txt"))
    texts: dict[str, None] = {}
    for passage in python_docs():
        if len(texts) < number // 10 and SHORTEST <= len(passage.text) <= LONGEST:
            texts[passage.text] = None
    for rest, file in zip(range(len(files), 0, -1), files, strict=True):
        most = len(texts) + (number - len(texts)) // rest
        for sentence in read_sentences(file, set_aside=deque(maxlen=0)):
            if len(texts) >= most:
                break
            if SHORTEST <= len(sentence.text) <= LONGEST:
                texts[sentence.text] = None
    order = np.random.default_rng(0).permutation(len(texts))
    given = list(texts)
    return [TaughtText(given[index]) for index in order]


def _compared(collection: Collection, teacher: Model, student: Model) -> dict:
    """nDCG@10 of each, and the share that the student keeps, with 95 % bootstrap intervals over queries."""
    documents = [document.text for document in collection.documents]
    names = [document.id for document in collection.documents]
    vectors = {model: (model.embed(collection.queries, normalize=True), model.embed(documents, normalize=True))
               for model in (teacher, student)}  # fmt: skip
    sides = {"teacher": (teacher, teacher), "student": (student, student), "student queries": (student, teacher)}
    values = {}
    for name, (asks, answers) in sides.items():
        scores = vectors[asks][0] @ vectors[answers][1].T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        values[name] = np.array([_ndcg([names[index] for index in row], relevant)
                                 for row, relevant in zip(best, collection.relevant, strict=True)])  # fmt: skip
    found = {name: [float(row.mean()), *bootstrap_interval(row)] for name, row in values.items()}
    kept = {f"{name} kept": found[name][0] / found["teacher"][0] for name in ("student", "student queries")}
    return {"num_queries": len(collection.queries), "ndcg_at_10": found, **kept}


def _ndcg(ranked: list[str], relevant: set[str]) -> float:
    discounts = 1 / np.log2(np.arange(2, 12))
    gains = np.array([name in relevant for name in ranked], np.float64)
    return float(gains @ discounts[: len(gains)] / discounts[: len(relevant)].sum())


def _seconds(model: Model, texts: list[str]) -> float:
    """The median of three, after a warm-up."""
    model.embed(texts)
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        model.embed(texts)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[1]


def _lines(results: dict) -> list[str]:
    lines = [*report.heading("Alignment", results), "", "| collection | teacher | student | student queries |",
             "|---|---|---|---|"]  # fmt: skip
    for name, row in results["quality"].items():
        cells = [f"{values[0]:.4f} ({values[1]:.4f} to {values[2]:.4f})" for values in row["ndcg_at_10"].values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    kept = ", ".join(f"{100 * row['student kept']:.1f} % on {name}" for name, row in results["quality"].items())
    return [*lines, "", f"Kept: {kept}. Speed: {results['speedup']:.2f} times, {results['texts_per_second']} texts/s."]


if __name__ == "__main__":
    main()
