"""Check of training data before training: rare labels, duplicates, contradictions, likely label errors.

Predictions are those of a classifier fitted to other rows, on features of a frozen encoder. Labels that it contradicts
confidently are worth checking before hours of training.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertkit.advice import Finding, good, note, rare_labels, spelled_alike, warning
from bertkit.evidence.intervals import Measured, bootstrap_scores
from bertkit.evidence.label_errors import LabelErrors, label_errors_of
from bertkit.evidence.leakage import whole_text
from bertkit.evidence.outcomes import Outcomes, excerpt
from bertkit.files.json_files import json_value
from bertkit.tasks.same_texts import normalized_sides

_IMBALANCE = 10  # ratio of rows between the most frequent and the rarest label
_MANY_DUPLICATES = 0.01  # share of the rows
_NUM_SHOWN = 25


@dataclass(frozen=True)
class Repeated:
    """A text of several rows, ignoring case, white space and punctuation."""

    text: str
    labels: tuple[str, ...]  # distinct labels of its rows
    locations: tuple[str, ...]  # files and lines


@dataclass(frozen=True)
class TrainingData:
    """Findings about training data before training."""

    task: str
    metric: str
    num_examples: int
    num_labels: int | None  # None: numbers
    label_names: tuple[str, ...]
    counts: dict[str, int]  # rows of each label, the most frequent first; empty for numbers and words
    num_alone: int  # rows with a label that no other row has; training refuses them
    num_compared: int  # rows whose labels were compared with predictions: all usable ones, or a random part of many
    num_unknown: int  # [UNK] tokens of the compared rows
    num_empty: int  # compared rows without a known token
    num_repeated: int  # rows that repeat the text of an earlier row
    num_contradicting: int  # rows whose text has another label in another row
    repeated: list[Repeated]  # contradictions first
    label_errors: LabelErrors
    scores: dict[str, Measured]  # scores of frozen features in cross-validation

    def as_json(self) -> dict[str, Any]:
        """The findings as JSON values; numbers that are not finite become null."""
        return json_value(asdict(self))

    @property
    def has_rows(self) -> bool:
        """Whether the report lists rows: repeated texts, or likely label errors."""
        return bool(self.repeated or self.label_errors.shown)

    def findings(self) -> Iterator[Finding]:
        """The main results."""
        if (finding := rare_labels(self.counts)) is not None:
            yield finding
        if self.num_alone:
            advice = "training refuses them; add rows, merge labels, or skip them (--skip-bad)"
            yield warning(f"{self.num_alone:,} rows have a label that no other row has: {advice}.")
        names = list(self.counts)
        if sentence := spelled_alike(self.label_names):
            yield warning(f"{sentence[0].upper()}{sentence[1:]}.")
        if names and self.counts[names[0]] > _IMBALANCE * self.counts[names[-1]]:
            shown = " and ".join(f"{name} {self.counts[name]:,}" for name in (names[0], names[-1]))
            advice = "compare macro F1, and try class weights (balanced)"
            yield warning(f"The labels are imbalanced, such as {shown}: {advice}.")
        if self.num_unknown:
            empty = f"; {self.num_empty:,} rows have no known token" if self.num_empty else ""
            yield warning(f"{self.num_unknown:,} tokens are unknown to the model ([UNK]){empty}.")
        if self.num_contradicting:
            yield warning(f"{self.num_contradicting:,} rows have the same text as another row, but another label.")
        if self.num_repeated > _MANY_DUPLICATES * self.num_examples:
            yield warning(f"{self.num_repeated:,} of {self.num_examples:,} rows repeat the text of an earlier row.")
        elif not self.num_repeated:
            yield good("No text is in two rows.")
        if self.num_compared < self.num_examples - self.num_alone:
            part = f"{self.num_compared:,} of {self.num_examples:,} rows, chosen at random"
            yield note(f"Labels were compared with predictions in {part}: check parts of the file to compare all.")
        if number := self.label_errors.num_likely:
            yield note(f"{number:,} of {self.label_errors.num_judged:,} labels may be wrong: look at the first.")


def training_data_of(outcomes: Outcomes, examples: Sequence[Any], num_alone: int) -> TrainingData:
    """Check training rows.

    Args:
        outcomes: outcomes of the usable rows, or of a random part, by classifiers fitted to other rows.
        examples: all rows.
        num_alone: number of rows with a label that no other row has.
    """
    task = outcomes.task
    counts: Counter[str] = Counter()
    if outcomes.names is not None and not task.of_words:
        for example in examples:
            counts.update(_labels(task, example))
    repeated, num_repeated, num_contradicting = _repeated(task, examples)
    return TrainingData(
        task=task.name,
        metric=task.best_by,
        num_examples=len(examples),
        num_labels=None if outcomes.names is None else len(counts) or len(outcomes.names),
        label_names=tuple(sorted(counts) or task.known_labels or ()),
        counts=dict(counts.most_common()),
        num_alone=num_alone,
        num_compared=len(outcomes.examples),
        num_unknown=outcomes.num_unknown,
        num_empty=outcomes.num_empty,
        num_repeated=num_repeated,
        num_contradicting=num_contradicting,
        repeated=repeated[:_NUM_SHOWN],
        label_errors=label_errors_of(outcomes),
        scores=bootstrap_scores(task.scoring, outcomes.rows),
    )


def _repeated(task: Any, examples: Sequence[Any]) -> tuple[list[Repeated], int, int]:
    """Texts of several rows, the number of repeating rows, and the number of contradicting rows."""
    groups: dict[tuple[tuple[str, ...], ...], list[Any]] = {}
    for example in examples:
        groups.setdefault(normalized_sides(example), []).append(example)
    several = [rows for rows in groups.values() if len(rows) > 1]
    results, num_contradicting = [], 0
    for rows in several:
        labels = tuple(dict.fromkeys(", ".join(_labels(task, row)) for row in rows))
        num_contradicting += len(rows) if len(labels) > 1 else 0
        results.append(Repeated(excerpt(whole_text(rows[0])), labels, tuple(row.location for row in rows)))
    results.sort(key=lambda one: len(one.labels) == 1)
    return results, sum(len(rows) - 1 for rows in several), num_contradicting


def _labels(task: Any, example: Any) -> list[str]:
    label = task.label_of(example)
    return sorted(label) if isinstance(label, set) else list(label) if isinstance(label, tuple) else [str(label)]
