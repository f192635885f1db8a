"""Word senses on CoarseWSD-20: nearest mean contextual vector of a sense, and clusters formed without labels.

    python benchmarks/senses.py [--model all-MiniLM-L6-v2] [--words bank,apple] [--out benchmarks/results]

For each word: macro-F1 of the sense with the nearest mean training vector; and purity, the share of test occurrences
whose sense is the most frequent one of their cluster. Published for BERT-base: macro-F1 91.0 over 20 words (Loureiro et
al. 2021).
Needs ../shared/data/coarsewsd20.
"""

import argparse
from pathlib import Path

import numpy as np
import report
from frozen_features import nearest_senses
from turns import say

import bertkit
from bertkit.inspection.senses import occurrence_vectors, spherical_k_means

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "coarsewsd20"
MEASURES = ("macro_f1", "static_macro_f1", "purity")


def occurrences(model: bertkit.Model, word: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) vectors of a word and its (n,) senses."""
    texts, spans = [], []
    for line in (DATA / word / f"{part}.data.txt").read_text().splitlines():
        number, text = line.split("\t")
        words = text.split(" ")
        start = sum(len(one) + 1 for one in words[: int(number)])
        first = max(0, start - 400)  # around the word, for models of few positions
        texts.append(text[first : start + 400])
        spans.append((start - first, start - first + len(words[int(number)])))
    senses = np.array([int(one) for one in (DATA / word / f"{part}.gold.txt").read_text().split()])
    return occurrence_vectors(model, texts, spans), senses


def macro_f1(true: np.ndarray, predicted: np.ndarray) -> float:
    """The mean F1 over senses."""
    scores = []
    for sense in np.unique(true):
        both = ((true == sense) & (predicted == sense)).sum()
        scores.append(2 * both / max(1, (true == sense).sum() + (predicted == sense).sum()))
    return float(np.mean(scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--words", default=",".join(sorted(one.parent.name for one in DATA.glob("*/classes_map.txt"))))
    results, options = report.begin("senses", parser)
    model, rows = bertkit.load(options.model), []
    for word in options.words.split(","):
        train, train_senses = occurrences(model, word, "train")
        test, senses = occurrences(model, word, "test")
        static = np.full(len(senses), np.bincount(train_senses).argmax())  # one vector: always the commonest sense
        groups, _ = spherical_k_means(test, len(np.unique(train_senses)))
        purity = sum(np.bincount(senses[groups == group]).max() for group in np.unique(groups)) / len(senses)
        rows.append(
            {
                "word": word, "num_senses": len(np.unique(train_senses)), "num_test": len(senses),
                "macro_f1": macro_f1(senses, nearest_senses(train, train_senses, test)),
                "static_macro_f1": macro_f1(senses, static), "purity": float(purity),
            }
        )  # fmt: skip
        say(f"{word}: macro-F1 {rows[-1]['macro_f1']:.3f}, purity {purity:.3f}")
    results |= {"model": options.model, "words": rows}
    report.finish(results, describe(results), options.out)


def describe(results: dict) -> str:
    """The results as Markdown."""
    rows = results["words"]
    table = [[row["word"], str(row["num_senses"]), str(row["num_test"]),
              *(f"{100 * row[name]:.1f}" for name in MEASURES)] for row in rows]  # fmt: skip
    means = [f"{100 * float(np.mean([row[name] for row in rows])):.1f}" for name in MEASURES]
    header = ["word", "senses", "test texts", "macro-F1", "macro-F1 of a static vector", "purity of groups"]
    return "\n".join(
        [
            *report.heading(f"Word senses of CoarseWSD-20 by the vectors of {results['model']}", results),
            "Contextual vectors: the sum of the last four layers; the sense is that of the nearest mean of training "
            "vectors. A static vector is the same for all occurrences, so its best guess is the commonest sense. "
            "Purity: share of occurrences whose sense is the most frequent of their cluster, formed without labels.",
            "Published for BERT-base: macro-F1 91.0 (nearest mean, 20 words).",
            "",
            report.markdown_table(header, *table, ["mean", "", "", *means]),
        ]
    )


if __name__ == "__main__":
    main()
