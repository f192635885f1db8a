"""Predictions of a model for its task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertkit import inference
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import MissingHeadError, warn
from bertkit.inference import InferenceReport
from bertkit.inference.predict import Decode
from bertkit.inference.zero_shot import TEMPLATE
from bertkit.model.runners import ModelRunners
from bertkit.tokenizer.layout import Layout, OnLong
from bertkit.tokenizer.tokenizer import as_items


class ModelPredictions(ModelRunners):
    """The part of a Model that is about its task."""

    @property
    def trained(self) -> TrainedTask:
        """The task that this model was trained for.

        Raises:
            MissingHeadError: there is none, or the directory does not record one.
        """
        if self.checkpoint.trained is None:
            has = ", ".join(self.checkpoint.parts.heads) or "none"
            has += " of several numbers" * (self.checkpoint.problem_type == "regression")  # of one: the task regression
            raise MissingHeadError(
                f"this model was not trained for a task (its heads: {has}): choose one that was, or fine-tune it"
            )
        return self.checkpoint.trained

    def change_task(self, **settings: Any) -> None:
        """Set task options that the checkpoint does not record; ``save`` stores them.

        With ``no_answer=True`` a published model of SQuAD 2.0 may predict no answer; ``label_names`` name LABEL_0, ...

        Raises:
            MissingHeadError: the model has no task.
            UsageError: a setting that the task does not have, or an invalid value.
        """
        self.checkpoint.trained = self.trained.with_settings(**settings)
        self.checkpoint.label_names = self.trained.task.label_names

    def predict(self, examples: Iterable[Any], *, report: InferenceReport | None = None) -> list[Any]:
        """Predictions of the model's task, in order.

        Args:
            examples: inputs of the task: texts, pairs of texts, or examples. Labels are ignored.
            report: receives counts. Without it, cut examples issue a TruncationWarning.

        Raises:
            OverLengthError: an example is too long for a model with ``on_long="error"``.
            UsageError: a str or a table instead of examples.
        """
        trained = self._trained_for_use()
        return inference.predict(self._runner, trained.task, examples, trained.layout, report)

    def predict_stream(
        self,
        examples: Iterable[Any],
        *,
        report: InferenceReport,
        decode: Decode | None = None,
        on_long: OnLong | None = None,
        progress: bool | None = None,
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """As `predict`, in bounded memory: yields chunks of examples and their predictions, in order;
        ``decode`` replaces the task's decoding of logits, and ``on_long`` the policy of the training."""
        trained = self._trained_for_use()
        layout = Layout(trained.layout.max_length, on_long or trained.layout.on_long)
        return inference.predict_stream(
            self._runner,
            trained.task,
            examples,
            layout,
            report,
            decode=decode,
            progress=progress,
        )

    def classify(
        self,
        texts: str | Iterable[str],
        labels: Sequence[str],
        *,
        multi_label: bool = False,
        template: str = TEMPLATE,
        on_long: OnLong = "truncate",
        report: InferenceReport | None = None,
    ) -> Any:
        """Zero-shot classification of texts by a natural language inference model.

        Args:
            labels: at least two, or one with ``multi_label``.
            multi_label: score each label by itself, entailment against contradiction; else over the labels.
            template: hypothesis that each text is paired with; {} is replaced by the label.
            on_long: for a text too long with its hypothesis: "truncate" or "error".
            report: receives counts. Without it, cut texts issue a TruncationWarning.

        Returns:
            LabelPrediction, best label first in its probabilities, or LabelsPrediction with ``multi_label``; a list of
            them unless ``texts`` is a str.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            UsageError: a model without a label named entailment; labels or a template that cannot be used.
        """
        trained, given = self._trained_for_use(), as_items(texts)
        layout = Layout(trained.layout.max_length, on_long)
        predictions = inference.classify(
            self._runner, trained.task, given, labels, layout, multi_label=multi_label, template=template, report=report
        )
        return predictions[0] if isinstance(texts, str) else predictions

    def evaluate(self, examples: Iterable[Any], *, report: InferenceReport | None = None) -> dict[str, float]:
        """Metrics of the model's task over labeled examples: pairs (input, label), where `predict` accepts the input,
        such as ``zip(texts, labels)``, or examples from `bertkit.tasks.reading`; ``report`` as in `predict`.

        Raises:
            DataError, UsageError: no examples; another form; a label that is missing, or whose name the model lacks.
        """
        trained = self._trained_for_use()
        return inference.evaluate(self._runner, trained.task, examples, trained.layout, report)

    def _trained_for_use(self) -> TrainedTask:
        trained = self.trained
        if trained.task.head:
            self.checkpoint.require_trained_head(trained.task.head)
        if trained.task.problem_type == "regression" and self.checkpoint.problem_type is None:
            warn(
                "config.json states no problem_type for the one label of this model: predictions are numbers as the "
                "head computes them, where a pipeline of transformers gives their sigmoid; write problem_type into it, "
                "'regression' for numbers or 'multi_label_classification' for probabilities"
            )
        return trained
