"""Recall, precision and speed of formatted identifiers, compared with packages that find them by patterns.

    pip install presidio-analyzer==2.2.366 scrubadub==2.0.1 datafog==4.9.0
    python benchmarks/redaction.py [--num-documents 3000] [--rounds 3] [--out benchmarks/results]

The documents are those of tests/planted_identifiers.py: prose, JSON, CSV, logs, mail and code in six languages, with
planted identifiers beside dates, versions, amounts and other numbers. A planted identifier counts as found if what the
system reports covers all of its characters, and a report counts as right if it touches a planted identifier. Systems
look for the planted kinds only, each for those that it has; none reads names. Every system runs in a separate process.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import report
from turns import start, take_turns
from worker import Worker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

Spans = list[tuple[int, int]]
KINDS = ("EMAIL", "CARD", "IBAN", "PHONE", "SSN", "IP", "MAC", "SECRET")
_REGIONS = ("US", "GB", "DE", "FR")


@dataclass(frozen=True)
class System:
    """A package, and what is special about its settings."""

    name: str
    settings: str


SYSTEMS = (
    System("bertkit", ""),
    System("presidio", "its recognizers of patterns, for telephone numbers of the same regions; any score"),
    System("presidio at 0.4", "the same, with scores of at least 0.4"),
    System("scrubadub", "detectors of patterns, for en_US"),
    System("datafog", "regex annotator"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-documents", type=int, default=3_000)
    results, options = report.begin("redaction", parser, threads=1)
    from planted_identifiers import document

    planted = [document(seed) for seed in range(options.num_documents)]
    texts = [each.text for each in planted]
    num_bytes = sum(len(text.encode()) for text in texts)
    for package in ("phonenumbers", "python-stdnum", "presidio-analyzer", "scrubadub", "datafog"):
        with suppress(PackageNotFoundError):
            results["versions"][package] = version(package)
    results |= {"num_documents": len(texts), "num_bytes": num_bytes, "rows": [], "skipped": {}}
    workers = start(SYSTEMS, lambda system: Worker("redaction", "load", system.name), results["skipped"])
    turns = take_turns(workers, options.rounds, texts)
    for worker in workers.values():
        worker.close()
    for system, taken in turns.items():
        row = {"system": system.name, "settings": system.settings} | scores_of(planted, taken[0].result)
        row["megabytes_per_second"] = num_bytes / 1e6 / median(turn.seconds for turn in taken[1:])
        results["rows"].append(row)
    report.finish(results, describe(results), options.out)


def scores_of(planted: list[Any], found: list[Spans]) -> dict[str, Any]:
    """Recall of each kind and of all, and the precision of what a system found in the documents."""
    numbers, hits, num_right = defaultdict[str, int](int), defaultdict[str, int](int), 0
    for each, spans in zip(planted, found, strict=True):
        is_reported, is_planted = bytearray(len(each.text)), bytearray(len(each.text))
        for first, end in spans:
            is_reported[first:end] = b"\1" * (end - first)
        for kind, value in zip(each.kinds, each.values, strict=True):
            form = value if value in each.text else json.dumps(value)[1:-1]
            at = each.text.index(form)
            numbers[kind] += 1
            hits[kind] += is_reported.find(0, at, at + len(form)) < 0
            while at >= 0:
                is_planted[at : at + len(form)] = b"\1" * len(form)
                at = each.text.find(form, at + 1)
        num_right += sum(is_planted.find(1, first, end) >= 0 for first, end in spans)
    return {
        "recall": sum(hits.values()) / sum(numbers.values()),
        "precision": num_right / max(1, sum(map(len, found))),
        "recall_of": {kind: hits[kind] / numbers[kind] for kind in KINDS},
    }


def load(system: str) -> Callable[[list[str]], list[Spans]]:
    """A function that finds the spans of each text."""
    name, _, lowest = system.partition(" at ")
    loaders = {"presidio": _load_presidio, "scrubadub": _load_scrubadub, "datafog": _load_datafog}
    find = _load_bertkit() if name == "bertkit" else loaders[name](float(lowest or 0))
    return lambda texts: [find(text) for text in texts]


def _load_bertkit() -> Callable[[str], Spans]:
    from bertkit.redaction import Redactor

    redactor = Redactor(KINDS, regions=_REGIONS)
    return lambda text: [(each.start, each.end) for each in redactor.redact(text).replacements]


def _load_presidio(lowest: float) -> Callable[[str], Spans]:
    from presidio_analyzer import predefined_recognizers as known

    recognizers = [
        known.EmailRecognizer(), known.CreditCardRecognizer(), known.IbanRecognizer(), known.IpRecognizer(),
        known.PhoneRecognizer(supported_regions=_REGIONS), known.UsSsnRecognizer(), known.MacAddressRecognizer(),
    ]  # fmt: skip

    def find(text: str) -> Spans:
        results = [
            each
            for recognizer in recognizers
            for each in recognizer.analyze(text, recognizer.supported_entities, None) or ()
        ]
        return [(each.start, each.end) for each in results if each.score >= lowest]

    return find


def _load_scrubadub(_: float) -> Callable[[str], Spans]:
    import scrubadub

    kinds = ["email", "credit_card", "phone", "social_security_number", "credential"]
    scrubber = scrubadub.Scrubber(detector_list=kinds, locale="en_US")
    return lambda text: [(each.beg, each.end) for each in scrubber.iter_filth(text)]


def _load_datafog(_: float) -> Callable[[str], Spans]:
    from datafog.processing.text_processing.regex_annotator.regex_annotator import RegexAnnotator

    kinds = ["EMAIL", "PHONE", "SSN", "CREDIT_CARD", "IP_ADDRESS", "DE_IBAN"]
    annotator = RegexAnnotator(locales=["de"], enabled_labels=kinds)
    return lambda text: [(each.start, each.end) for each in annotator.annotate_with_spans(text)[1].spans]


def describe(results: dict) -> str:
    rows = [
        [row["system"], f"{row['recall']:.4f}", f"{row['precision']:.4f}", f"{row['megabytes_per_second']:.3f}",
         *(f"{row['recall_of'][kind]:.3f}" for kind in KINDS)]
        for row in results["rows"]
    ]  # fmt: skip
    lines = [
        *report.heading("Redaction", results),
        f"{results['num_documents']:,} generated documents, {results['num_bytes'] / 1e6:.1f} MB. They are written by "
        "the authors of bertkit, whose patterns were developed on documents of this generator: on your texts, recall "
        "and precision of the others may be higher, and those of bertkit lower.",
        "",
        report.markdown_table(["system", "recall", "precision", "MB/s", *KINDS], *rows),
        "",
        "Columns with names of kinds: recall of these; 0 if the system does not look for the kind."
        + (" Speeds were taken beside other work, and mean little." if results["load_average_before"] > 0.5 else ""),
        "",
        *(f"- {row['system']}: {row['settings']}" for row in results["rows"] if row["settings"]),
        *report.skipped_lines(results),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
