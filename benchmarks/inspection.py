"""Figures of `bertkit inspect` on real data: word senses, probes, the structural probe, heads and relations.

    python benchmarks/inspection.py [--model all-MiniLM-L6-v2] [--sentences 4000] [--data ../shared/data]

One JSON line for each figure. Data: CoarseWSD-20 and UD English EWT, see docs/inspection.md.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import bertkit
from bertkit.inspection import inspect_heads, inspect_probes, inspect_structure, read_trees
from bertkit.inspection.contextual import word_vectors
from bertkit.inspection.words import nearest_senses

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--sentences", type=int, default=4_000)
    parser.add_argument("--data", type=Path, default=SHARED)
    options = parser.parse_args()
    model = bertkit.load(options.model)
    print(json.dumps({"figure": "senses", **senses(model, options.data / "coarsewsd20")}), flush=True)
    folder = options.data / "ud_english_ewt"
    train = read_trees(folder / "en_ewt-ud-train.conllu", options.sentences)
    test = read_trees(folder / "en_ewt-ud-dev.conllu")
    relations = inspect_heads(model, test[:1_000]).to_dict()["relations"]
    print(json.dumps({"figure": "relations", "relations": relations}), flush=True)
    for label in ("tags", "relations"):
        print(json.dumps({"figure": "probe", **inspect_probes(model, train, test, label=label).to_dict()}), flush=True)
    structure = inspect_structure(model, train, test, epochs=10)
    print(json.dumps({"figure": "structure", **structure.to_dict(), "examples": None}), flush=True)


def senses(model: bertkit.Model, folder: Path) -> dict:
    """CoarseWSD-20: nearest sense centroid, from the sum of the last four layers; per-word macro F1, and its mean."""
    scores = {}
    for word in sorted(path.name for path in folder.iterdir() if (path / "train.data.txt").is_file()):
        vectors, labels = zip(*(occurrences(model, folder / word, part) for part in ("train", "test")), strict=True)
        predicted = nearest_senses(vectors[0], labels[0], vectors[1])
        scores[word] = macro_f1(labels[1], predicted)
    return {"macro_f1": scores, "mean": float(np.mean(list(scores.values())))}


def occurrences(model: bertkit.Model, folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) vectors of the word of each sentence, whose index its file gives, and (n,) senses."""
    rows = [line.rstrip("\n").split("\t") for line in (folder / f"{part}.data.txt").open(encoding="utf-8")]
    gold = np.array((folder / f"{part}.gold.txt").read_text().split())
    texts, spans = [], []
    for index, sentence in rows:
        words = sentence.split(" ")
        low, high = window(words, int(index))
        start = len(" ".join(words[low : int(index)])) + (int(index) > low)
        texts.append(" ".join(words[low:high]))
        spans.append([(start, start + len(words[int(index)]))])
    last = model.config.num_hidden_layers
    return word_vectors(model, texts, spans, range(last - 3, last + 1)).sum(axis=0), gold


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
