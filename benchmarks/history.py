"""The gain of each step from one-hot words to BERT: seven systems on four tasks.

    python benchmarks/history.py [--list] [--only PATTERN] [--threads 1] [--out benchmarks/results]

Skip-gram, FastText and contrastive static vectors are trained on the same 44 novels; BERT is all-MiniLM-L6-v2, a small
one trained on far more text, once frozen and once fine-tuned for each task. Tasks, from ../shared/data: sentiment
(2,000 phrases of SST-2, its dev set), similarity of sentences (STS benchmark), word senses (5 words of CoarseWSD-20,
100 texts each) and retrieval (Cranfield, the queries of odd number; fine-tuning sees the others). A stopped command
continues after the last finished run.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import report
import sentence_data
import torch
from long_runs import LongRuns, add_options
from scipy.sparse import issparse
from senses import macro_f1
from sentence_systems import Data, Settings
from sentence_systems.bertkit import System
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from static_pairs import train

import bertkit
from bertkit.corpus.documents import read_sentences
from bertkit.estimators import SequenceClassifier
from bertkit.evidence.collections import read_collection
from bertkit.evidence.retrieval import retrieval_scores
from bertkit.inference import InferenceReport
from bertkit.inspection.senses import occurrence_vectors
from bertkit.tasks import TextSet
from bertkit.tasks.metrics import spearman
from bertkit.words import StaticEncoder
from bertkit.words.contrastive import StaticTraining
from bertkit.words.settings import PairTraining, WordTraining
from bertkit.words.training import WordVectorTraining, read_corpus

DATA = sentence_data.DATA
MODEL = "all-MiniLM-L6-v2"
TRAINED = ("skip-gram", "FastText", "contrastive static")
SYSTEMS = ("one-hot", "TF-IDF", *TRAINED, "BERT, frozen", "BERT, fine-tuned")
TASKS = {"sentiment": "accuracy", "similarity": "Spearman", "senses": "macro-F1", "retrieval": "nDCG@10"}
WORDS, OCCURRENCES = ("apple", "bank", "bow", "java", "square"), 100  # texts of each word, for training and for testing
NUM_PHRASES, NUM_PAIRS, RESAMPLES = 2_000, 1_000, 1_000
NUM_EPOCHS = {"skip-gram": 2, "FastText": 2, "contrastive static": 2, "sentiment": 2, "senses": 4, "pairs": 1}
Texts = Sequence[str]


class History(LongRuns):
    """Training of three kinds of vectors, then each system on each task."""

    def __init__(self, out: Path, scale: float, threads: int) -> None:
        super().__init__("history", out, scale, threads)
        self._vectors = report.CACHE / f"history-{scale:g}"
        pairs = [("vectors", system) for system in TRAINED] + [(task, system) for task in TASKS for system in SYSTEMS]
        self._runs = {run_name(task, system): (task, system) for task, system in pairs}

    def names(self) -> list[str]:
        return list(self._runs)

    def definition(self, name: str) -> dict[str, Any]:
        task, system = self._runs[name]
        epochs = NUM_EPOCHS.get(system) if task == "vectors" else NUM_EPOCHS.get(task, NUM_EPOCHS["pairs"])
        sizes = {"sentiment": NUM_PHRASES, "senses": OCCURRENCES, "similarity": NUM_PAIRS}
        return {"task": task, "system": system, "epochs": epochs, "rows": sizes.get(task), "scale": self.scale}

    def perform(self, name: str) -> dict[str, Any]:
        torch.set_num_threads(self.threads)
        task, system = self._runs[name]
        if task == "vectors":
            encoder, seconds = timed(lambda: self._train(system))
            encoder.save(self._vectors / system, overwrite=True)
            return {"cpu_seconds": seconds, "num_vectors": len(encoder.vectors), "dimensions": encoder.embedding_dim}
        run = getattr(self, f"_{task}")
        if system in TRAINED and not (self._vectors / system).is_dir():  # trained on another machine
            self._train(system).save(self._vectors / system)
        (score, low, high), seconds = timed(lambda: run(system))
        return {"score": score, "low": low, "high": high, "cpu_seconds": seconds}

    def summary(self, result: dict[str, Any]) -> str:
        scored = f"{result['score']:.3f} ({result['low']:.3f} to {result['high']:.3f}), " if "score" in result else ""
        return f"{scored}{result['cpu_seconds']:.0f} s"

    def _train(self, system: str) -> StaticEncoder:
        sentences = novels(self.scale)
        epochs = NUM_EPOCHS[system]
        if system == "contrastive static":
            passages = [" ".join(sentences[at : at + 3]) for at in range(0, len(sentences), 3)]
            rows = [TextSet(first, (second,)) for first, second in list(pairwise(passages))[::2]]
            run = StaticTraining(Path("out"), model().tokenizer, PairTraining(num_epochs=epochs))
            return train(run, rows)[0]
        settings = WordTraining(num_epochs=epochs, ngrams=system == "FastText")
        return train(WordVectorTraining(Path("out"), settings), read_corpus(sentences, 5))[0]

    def _features(self, system: str, fitted_to: Texts) -> Callable[[Texts], Any]:
        """The function from texts to vectors; bags of words have the vocabulary of ``fitted_to``."""
        if system == "one-hot":
            return CountVectorizer(binary=True).fit(fitted_to).transform
        if system == "TF-IDF":
            return TfidfVectorizer(sublinear_tf=True).fit(fitted_to).transform
        if system == "BERT, frozen":
            return model().embed
        encoder = StaticEncoder.open(self._vectors / system)
        return lambda texts: encoder.embed(texts, report=InferenceReport())

    def _sentiment(self, system: str) -> tuple[float, float, float]:
        train, test = phrases("train", round(NUM_PHRASES * self.scale)), phrases("dev")
        labels = np.array([label for label, _ in test])
        predicted = self._classified(system, [text for _, text in train], [label for label, _ in train],
                                     [text for _, text in test], NUM_EPOCHS["sentiment"])  # fmt: skip
        return with_interval(len(labels), lambda some: float((predicted[some] == labels[some]).mean()))

    def _classified(self, system: str, texts: Texts, labels: list, test: Texts, epochs: int) -> np.ndarray:
        if system == "BERT, fine-tuned":
            return SequenceClassifier(MODEL, device="cpu", num_epochs=epochs, seed=0).fit(texts, labels).predict(test)
        features = self._features(system, texts)
        return fitted(features(texts), labels, features(test))

    def _similarity(self, system: str) -> tuple[float, float, float]:
        data, test = sentence_data.sts(1.0)
        if system == "BERT, fine-tuned":
            rows = data.rows[:: max(1, len(data.rows) // round(NUM_PAIRS * self.scale))]
            vectors = self._tuned(Data(rows, test.texts), "cosent")
        else:
            vectors = self._features(system, [text for row in data.rows for text in row[:2]])(test.texts)
        left, right, ratings = (np.array(column) for column in zip(*test.pairs, strict=True))
        cosines = paired_cosines(vectors, left, right)
        return with_interval(len(ratings), lambda some: spearman(cosines[some], ratings[some]))

    def _tuned(self, data: Data, objective: str) -> np.ndarray:
        from models import published_folder

        settings = Settings(objective, num_epochs=NUM_EPOCHS["pairs"])
        return System(self.threads).train(published_folder(MODEL), data, settings).vectors

    def _senses(self, system: str) -> tuple[float, float, float]:
        number = round(OCCURRENCES * self.scale)
        parts = {word: (occurrences(word, "train", number), occurrences(word, "test", number)) for word in WORDS}
        answers: dict[str, np.ndarray] = {}
        if system == "BERT, fine-tuned":
            train = [(text, f"{word} {sense}") for word in WORDS for text, _, sense in parts[word][0]]
            texts = [text for word in WORDS for text, _, _ in parts[word][1]]
            counts = Counter(label for _, label in train)  # a label of one text cannot be learned
            known, labels = (list(column) for column in zip(*(row for row in train if counts[row[1]] > 1), strict=True))
            predicted = self._classified(system, known, labels, texts, NUM_EPOCHS["senses"])
            ends = np.cumsum([0, *(len(parts[word][1]) for word in WORDS)])
            for word, (first, last) in zip(WORDS, pairwise(ends), strict=True):
                own = [one.split() for one in predicted[first:last]]
                answers[word] = np.array([int(sense) if name == word else -1 for name, sense in own])
        for word in [word for word in WORDS if word not in answers]:
            (train, test) = parts[word]
            texts, senses = [text for text, _, _ in train], [sense for _, _, sense in train]
            if system == "BERT, frozen":
                vectors = [occurrence_vectors(model(), [one[0] for one in part], [one[1] for one in part])
                           for part in (train, test)]  # fmt: skip
            else:
                features = self._features(system, texts)
                vectors = [features(texts), features([text for text, _, _ in test])]
            answers[word] = fitted(vectors[0], senses, vectors[1])
        true = {word: np.array([sense for _, _, sense in parts[word][1]]) for word in WORDS}
        owner = np.concatenate([np.full(len(true[word]), number) for number, word in enumerate(WORDS)])
        senses, predicted = np.concatenate(list(true.values())), np.concatenate([answers[word] for word in WORDS])

        def score(some: np.ndarray) -> float:
            each = [some[owner[some] == number] for number in range(len(WORDS))]
            return float(np.mean([macro_f1(senses[one], predicted[one]) for one in each if len(one)]))

        return with_interval(len(senses), score)

    def _retrieval(self, system: str) -> tuple[float, float, float]:
        collection = read_collection(DATA / "cranfield" / "beir_like")
        judged = [name for name in collection.queries if any(collection.judgments.get(name, {}).values())]
        known, asked = judged[::2], judged[1::2]
        names, texts = list(collection.documents), list(collection.documents.values())
        queries = [collection.queries[name] for name in asked]
        if system == "BERT, fine-tuned":
            rows = [(collection.queries[name], collection.documents[document], None) for name in known
                    for document, grade in collection.judgments[name].items() if grade > 0]  # fmt: skip
            vectors = self._tuned(Data(rows, [*texts, *queries]), "in-batch")
        else:
            vectors = self._features(system, texts)([*texts, *queries])
        vectors = normalize(vectors)
        cosines = vectors[len(texts) :] @ vectors[: len(texts)].T
        cosines = cosines.toarray() if issparse(cosines) else cosines
        rankings = {}
        for query, row in zip(asked, cosines, strict=True):
            best = np.argsort(-row, kind="stable")[:100]
            rankings[query] = {names[index]: float(row[index]) for index in best}
        judgments = {name: collection.judgments[name] for name in asked}
        values = retrieval_scores(judgments, rankings)["ndcg_at_10"]
        return with_interval(len(values), lambda some: float(values[some].mean()))


def run_name(task: str, system: str) -> str:
    return f"{task}-{system.lower().replace(', ', '-').replace(' ', '-')}"


def timed(job: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and its seconds of processor time, which do not depend on other programs."""
    start = time.process_time()
    result = job()
    return result, time.process_time() - start


@cache
def model() -> bertkit.Model:
    return bertkit.load(MODEL, device="cpu")


@cache
def novels(scale: float) -> list[str]:
    files = sorted((DATA / "english_novels").glob("*.txt"))[::2]
    return [one.text for one in read_sentences(files[: round(len(files) * scale)])]


def phrases(part: str, number: int | None = None) -> list[tuple[int, str]]:
    """Labels and texts of SST-2: all rows, or ``number`` rows at equal distances."""
    lines = (DATA / "glue_sst2" / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [(int(label), text) for label, text in (line.split("\t", 1) for line in lines if line.strip())]
    return rows if number is None else rows[:: len(rows) // number][:number]


def occurrences(word: str, part: str, number: int) -> list[tuple[str, tuple[int, int], int]]:
    """Texts around a word, the span of the word, and its sense: ``number`` rows at equal distances."""
    folder, rows = DATA / "coarsewsd20" / word, []
    senses = [int(one) for one in (folder / f"{part}.gold.txt").read_text().split()]
    lines = (folder / f"{part}.data.txt").read_text(encoding="utf-8").splitlines()
    for line, sense in zip(lines, senses, strict=True):
        index, text = line.split("\t")
        words = text.split(" ")
        start = sum(len(one) + 1 for one in words[: int(index)])
        first = max(0, start - 200)
        span = (start - first, start - first + len(words[int(index)]))
        rows.append((text[first : start + 200], span, sense))
    return rows[:: max(1, len(rows) // number)][:number]


def fitted(features: Any, labels: list, test: Any) -> np.ndarray:
    """Predictions of logistic regression, with regularization chosen by three-fold cross-validation."""
    strengths = [0.1, 1.0, 10.0, 100.0] if issparse(features) else [0.001, 0.01, 0.1, 1.0]
    scaled = [] if issparse(features) else [StandardScaler()]
    model = make_pipeline(*scaled, LogisticRegressionCV(Cs=strengths, cv=3, max_iter=500))
    return model.fit(features, labels).predict(test)


def paired_cosines(vectors: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    unit = normalize(vectors)
    products = unit[left.astype(int)].multiply(unit[right.astype(int)]) if issparse(unit) else (
        unit[left.astype(int)] * unit[right.astype(int)])  # fmt: skip
    return np.asarray(products.sum(axis=1)).ravel()


def with_interval(number: int, score: Callable[[np.ndarray], float]) -> tuple[float, float, float]:
    """The score of all test rows, and its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    values = [score(random.integers(number, size=number)) for _ in range(RESAMPLES)]
    low, high = np.nanpercentile(values, (2.5, 97.5))
    return float(score(np.arange(number))), float(low), float(high)


def describe(results: dict[str, Any], finished: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown."""
    table = []
    for system in SYSTEMS:
        runs = [finished[run_name(task, system)] for task in TASKS]
        cells = ["{score:.3f} ({low:.3f} to {high:.3f})".format(**run) for run in runs]
        trained = finished.get(run_name("vectors", system), {"cpu_seconds": 0})["cpu_seconds"]
        table.append([system, *cells, f"{trained:.0f}", f"{sum(run['cpu_seconds'] for run in runs):.0f}"])
    header = ["system", *(f"{task}, {metric}" for task, metric in TASKS.items()), "vectors, s", "tasks, s"]
    return "\n".join(
        [
            *report.heading("From one-hot words to BERT", results, finished.values()),
            (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].replace("\n", " ").strip(),
            "Scores with 95 % bootstrap intervals over test rows; seconds of processor time, of training the vectors "
            "and of all four tasks, with their training. Frozen systems: logistic regression, or cosines.",
            "",
            report.markdown_table(header, *table),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("history", parser)
    runs = History(options.out, options.scale, options.threads)
    if runs.carry_out(options):
        finished = runs.finished()
        results |= {"runs": {name: {key: value for key, value in run.items() if key in
                    ("score", "low", "high", "cpu_seconds")} for name, run in finished.items()}}  # fmt: skip
        report.finish(results, describe(results, finished), options.out)


if __name__ == "__main__":
    main()
