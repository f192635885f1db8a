"""Figures of `bertkit inspect` on real data: word senses, probes, the structural probe, heads and relations.

    python benchmarks/inspection.py [--model all-MiniLM-L6-v2] [--sentences 4000] [--figures senses structure ...]
        [--data ../shared/data]

Prints one JSON line for each figure. Data: CoarseWSD-20, UD English EWT and WNUT 17, see docs/guides/inspection.md.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from frozen_features import nearest_senses

import bertkit
from bertkit.inspection import LabeledWords, inspect_heads, inspect_probes, inspect_structure, read_trees
from bertkit.inspection.contextual import word_vectors
from bertkit.tasks.reading.tagged import read_tagged

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def main() -> None:
    figures: dict[str, Callable[[], dict]] = {
        "senses": lambda: senses(model, options.data / "coarsewsd20"),
        "relations": lambda: {"relations": inspect_heads(model, test[:1_000]).to_dict()["relations"]},
        "probe of parts of speech": lambda: probed([[tree.labeled("tags") for tree in part] for part in (train, test)]),
        "probe of relations": lambda: probed([[tree.labeled("relations") for tree in part] for part in (train, test)]),
        "probe of entities": lambda: probed([entities(options.data / "ner_wnut17", part) for part in ("train", "dev")]),
        "probe of senses": lambda: probed(
            [labeled_senses(options.data / "coarsewsd20", part) for part in ("train", "test")]
        ),
        "structure": lambda: inspect_structure(model, train, test, epochs=10).to_dict() | {"examples": None},
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--sentences", type=int, default=4_000)
    parser.add_argument("--figures", nargs="+", default=list(figures), choices=figures)
    parser.add_argument("--data", type=Path, default=SHARED)
    options = parser.parse_args()
    model = bertkit.load(options.model)
    folder = options.data / "ud_english_ewt"
    train = read_trees(folder / "en_ewt-ud-train.conllu", options.sentences)
    test = read_trees(folder / "en_ewt-ud-dev.conllu")

    def probed(parts: list[list[LabeledWords]]) -> dict:
        return inspect_probes(model, *parts, label="").to_dict()

    for name in options.figures:
        print(json.dumps({"figure": name, **figures[name]()}), flush=True)


def entities(folder: Path, part: str) -> list[LabeledWords]:
    """Words with the type of their entity, or O."""
    (path,) = (folder / "CONLL-format/data" / part).iterdir()
    return [
        LabeledWords(each.text, each.words, [tag.removeprefix("B-").removeprefix("I-") for tag in each.tags])
        for each in read_tagged(path)
    ]


def labeled_senses(folder: Path, part: str, most: int = 200) -> list[LabeledWords]:
    """One word of each sentence with its sense, for at most ``most`` sentences of each of the 20 words."""
    labeled = []
    for path in words_of(folder):
        texts, spans, gold = sentences(path, part)
        labeled += [
            LabeledWords(text, [span], [f"{path.name} {sense}"])
            for text, span, sense in list(zip(texts, spans, gold, strict=True))[:most]
        ]
    return labeled


def senses(model: bertkit.Model, folder: Path) -> dict:
    """CoarseWSD-20: nearest sense centroid, from the sum of the last four layers; per-word macro F1, and its mean."""
    scores = {}
    for path in words_of(folder):
        vectors, labels = zip(*(occurrences(model, path, part) for part in ("train", "test")), strict=True)
        predicted = nearest_senses(vectors[0], labels[0], vectors[1])
        scores[path.name] = macro_f1(labels[1], predicted)
    return {"macro_f1": scores, "mean": float(np.mean(list(scores.values())))}


def words_of(folder: Path) -> list[Path]:
    """A folder for each word."""
    return sorted(path for path in folder.iterdir() if (path / "train.data.txt").is_file())


def occurrences(model: bertkit.Model, folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) vectors of the word of each sentence, and (n,) senses."""
    texts, spans, gold = sentences(folder, part)
    last = model.config.num_hidden_layers
    return word_vectors(model, texts, [[span] for span in spans], range(last - 3, last + 1)).sum(axis=0), gold


def sentences(folder: Path, part: str) -> tuple[list[str], list[tuple[int, int]], np.ndarray]:
    """Sentences, the span of the word in each, whose index the file gives, and (n,) senses."""
    rows = [line.rstrip("\n").split("\t") for line in (folder / f"{part}.data.txt").open(encoding="utf-8")]
    texts, spans = [], []
    for index, sentence in rows:
        words = sentence.split(" ")
        low, high = window(words, int(index))
        start = len(" ".join(words[low : int(index)])) + (int(index) > low)
        texts.append(" ".join(words[low:high]))
        spans.append((start, start + len(words[int(index)])))
    return texts, spans, np.array((folder / f"{part}.gold.txt").read_text().split())


def window(words: list[str], index: int, most: int = 120) -> tuple[int, int]:
    """First and last (exclusive) of at most ``most`` words around one; few sentences are longer."""
    low = max(0, min(index - most // 2, len(words) - most))
    return low, min(len(words), low + most)


def macro_f1(expected: np.ndarray, predicted: np.ndarray) -> float:
    """The mean over labels of F1."""
    scores = []
    for label in np.unique(expected):
        both = ((expected == label) & (predicted == label)).sum()
        scores.append(2 * both / ((expected == label).sum() + (predicted == label).sum()))
    return float(np.mean(scores))


if __name__ == "__main__":
    main()
