"""Zero-shot classification: labels given with the text, scored by a natural language inference classifier.

Yin et al. 2019, "Benchmarking zero-shot text classification": a label fits a text as far as the text entails "This
example is LABEL.".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bertkit import tasks
from bertkit.errors import UsageError
from bertkit.inference.predict import REMEDY, predict_stream
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner, checked_text
from bertkit.later import torch
from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import Layout
from bertkit.tokenizer.tokenizer import refuse_one_text

TEMPLATE = "This example is {}."
"""The hypothesis that a text is paired with; {} is replaced by the label."""
_THRESHOLD = 0.5  # probability, of labels scored independently


@dataclass(frozen=True)
class InferenceLabels:
    """Columns of the logits of a natural language inference classifier, by the names of its labels.

    Never by their position, which differs between published models.
    """

    entailment: int
    opposed: tuple[int, ...]  # contradiction; in models without one all labels but entailment

    @classmethod
    def of(cls, label_names: Sequence[str]) -> Self | None:
        """The columns; None without a label whose name begins with "entail"."""
        names = [name.lower() for name in label_names]
        entailment = next((index for index, name in enumerate(names) if name.startswith("entail")), None)
        if entailment is None or len(names) < 2:
            return None
        contradiction = [index for index, name in enumerate(names) if name.startswith("contra")]
        return cls(entailment, tuple(contradiction or (each for each in range(len(names)) if each != entailment)))

    def probabilities(self, logits: np.ndarray, *, multi_label: bool) -> np.ndarray:
        """(..., L, C) float32 logits of L labels to (..., L) probabilities: over the labels, summing to 1; or, with
        ``multi_label``, of entailment against contradiction, for each label by itself."""
        rows = torch.from_numpy(logits)
        if multi_label:
            return rows[..., [self.entailment, *self.opposed]].softmax(-1)[..., 0].numpy()
        return rows[..., self.entailment].softmax(-1).numpy()


def hypotheses(labels: Sequence[str], template: str) -> list[str]:
    """The template with each label.

    Raises:
        UsageError: no labels, an empty or repeated one, or a template without {}.
    """
    if isinstance(labels, str) or not labels or not all(isinstance(label, str) and label.strip() for label in labels):
        raise UsageError(f"labels={labels!r:.80}: expected a list of names, none of them empty")
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise UsageError(f"labels: {repeated[0]!r} is given more than once")
    if "{}" not in template:
        raise UsageError(f"template={template!r}: expected a sentence with {{}} where the label belongs")
    return [template.replace("{}", label) for label in labels]


def classify(
    runner: Runner,
    task: TextTask,
    texts: Iterable[str],
    labels: Sequence[str],
    layout: Layout,
    *,
    multi_label: bool = False,
    template: str = TEMPLATE,
    report: InferenceReport | None = None,
) -> list[tasks.LabelPrediction] | list[tasks.LabelsPrediction]:
    """A prediction for each text; see `Model.classify`.

    Raises:
        OverLengthError: a text is too long with a label's hypothesis under ``on_long="error"``.
        UsageError: a model without a label "entailment"; labels or a template as in `hypotheses`; one label without
            ``multi_label``; ``on_long="window"``; a str or a table instead of texts.
    """
    refuse_one_text(texts)
    if isinstance(labels, Iterable) and not isinstance(labels, str):
        labels = list(labels)  # of an array, too
    if layout.on_long == "window":
        raise UsageError("on_long='window' would split the text of a pair: choose 'truncate' or 'error'")
    columns = InferenceLabels.of(task.label_names or ())
    if columns is None:
        names = ", ".join(task.label_names or ()) or "none"
        raise UsageError(
            f"classify needs a natural language inference model, with a label named entailment; labels here: {names}"
        )
    endings = hypotheses(labels, template)
    if len(labels) == 1 and not multi_label:
        raise UsageError(f"labels={list(labels)}: expected at least two, or multi_label=True to score one by itself")
    pairs = ((text, ending) for text in map(checked_text, texts) for ending in endings)
    counts = InferenceReport() if report is None else report
    num_known = {ending: runner.tokenizer.num_known(ending) for ending in endings}

    def decode(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[np.ndarray]:
        num_of_hypothesis = [num_known[example.pair] for example in examples]
        counts.num_empty += int(
            encodings.after_prompts(num_of_hypothesis).are_empty().sum()
        )  # a hypothesis does not count
        return list(logits)

    stream = predict_stream(runner, task, pairs, layout, counts, decode=decode)
    rows = [row for _, part in stream for row in part]
    if report is None:
        counts.warn(REMEDY)
    if not rows:
        return []
    scores = columns.probabilities(np.stack(rows).reshape(-1, len(labels), len(rows[0])), multi_label=multi_label)
    predicted = [_best_first(labels, row) for row in scores]
    if multi_label:
        return [
            tasks.LabelsPrediction(tuple(name for name in row if row[name] >= _THRESHOLD), row) for row in predicted
        ]
    return [tasks.LabelPrediction(next(iter(row)), row) for row in predicted]


def _best_first(labels: Sequence[str], scores: np.ndarray) -> dict[str, float]:
    return {labels[index]: float(scores[index]) for index in np.argsort(-scores, kind="stable")}
