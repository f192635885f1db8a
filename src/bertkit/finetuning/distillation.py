"""Distillation of a fine-tuned model into a student with fewer layers.

The student learns the probabilities of its teacher; of a sentence encoder, its vectors (`bertkit.tasks.alignment`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.finetuning.judging import Judged, judge
from bertkit.finetuning.run import Finetuning
from bertkit.finetuning.settings import StudentSettings
from bertkit.model import Model, load
from bertkit.tasks import TextTask
from bertkit.training import Trainer
from bertkit.training.distillation import distilled


@dataclass
class Distillation(Finetuning):
    """A fine-tuning run that distills ``teacher`` into ``model``, a student with the head of the task."""

    settings: StudentSettings = field(default_factory=StudentSettings)  # pyrefly: ignore
    _: KW_ONLY
    teacher: str | Path = ""

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"teacher": str(self.teacher)}

    def frozen(self, train: Sequence[Any], dev: Sequence[Any]) -> Judged:
        """Predictions of the untrained student for dev examples."""
        model = self.new_model(train)
        model.network.to(resolve_device(self.device))
        return judge(model, dev)

    def new_model(self, train: Sequence[Any]) -> Model:
        return load(self.model, device="cpu")

    def _fitted_start(self, new_model: Model | None) -> None:
        """The head is the teacher's, and is not fitted."""

    def open(self, saved: Path | None) -> Trainer:
        trainer = super().open(saved)
        task: Any = trainer.task
        teacher = load(self.teacher, device="cpu")
        if not teacher.trained.has_names:
            teacher.change_task(label_names=task.label_names)
        labels, expected = task.label_names or (), task_to_distill(teacher).label_names or ()
        if labels != expected:
            raise UsageError(
                f"the labels of the student are {', '.join(labels)}, those of the teacher {', '.join(expected)}: "
                "expected the same in the same order, as in a student made of this teacher"
            )
        trainer.task = distilled(teacher.network, task.head, self.settings.distillation, trainer.network, task)
        return trainer


def task_to_distill(teacher: Model) -> TextTask:
    """The task of a fine-tuned teacher.

    Raises:
        UsageError: a task without classes.
    """
    task = teacher.trained.task
    if not task.has_soft_labels:
        raise UsageError(
            f"the teacher was trained for {task.name}: expected sequence-classification, token-classification, a "
            "masked LM or a sentence encoder"
        )
    return task


def labeled_by(teacher: Model, examples: Sequence[Any]) -> list[Any]:
    """Label examples with the predictions of the teacher.

    Raises:
        DataError: unlabeled words instead of texts.
    """
    if teacher.trained.task.of_tokens:
        raise DataError("only texts can be unlabeled: give the words tags")
    unlabeled = [number for number, example in enumerate(examples) if example.label is None]
    predictions: Mapping[int, Any] = dict(
        zip(unlabeled, teacher.predict([examples[number] for number in unlabeled]), strict=True)
    )
    return [
        replace(example, label=_label_of(predictions[number])) if number in predictions else example
        for number, example in enumerate(examples)
    ]


def _label_of(prediction: Any) -> Any:
    """Its label; the likeliest one if the teacher abstains."""
    return prediction.likeliest if prediction.label is None else prediction.label
