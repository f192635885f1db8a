"""Distillation: train a network to match the outputs of a larger one.

Sanh et al. 2019, "DistilBERT", section 3: the loss is a weighted sum of the divergence from the soft targets of the
teacher, the loss of the task, and 1 - cosine of the last hidden states. Shape letters: T tokens, R rows of logits, C
outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertkit.batch import IGNORED
from bertkit.errors import UsageError
from bertkit.later import F, torch
from bertkit.tasks import Loss, Task
from bertkit.tasks.field_types import AboveZero, NotNegative
from bertkit.tasks.loss import mean_of, sums_of
from bertkit.tasks.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertkit.architectures import NetworkOutput


@dataclass(frozen=True)
class DistillationSettings(Settings):
    """Weights of the distillation losses, and the temperature.

    Parameters
    ----------
    soft_temperature
        Divisor of the logits of teacher and student before they are compared.
    soft_weight
        Weight of the divergence from the teacher's probabilities.
    task_weight
        Weight of the loss of the task; 0 for texts without labels.
    hidden_weight
        Weight of 1 - cosine of the last hidden states.
    """

    soft_temperature: AboveZero = 2.0
    soft_weight: NotNegative = 5.0
    task_weight: NotNegative = 2.0
    hidden_weight: NotNegative = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.soft_weight or self.task_weight or self.hidden_weight):
            raise UsageError("soft_weight, task_weight and hidden_weight are 0: expected a number above 0 for one")


@dataclass(frozen=True, eq=False)
class TaughtOutput:
    """The outputs of student and teacher for one batch."""

    student: NetworkOutput
    teacher: NetworkOutput


def teach(student: nn.Module, teacher: nn.Module) -> None:
    """Make the student return its output together with the teacher's, computed without dropout or gradients.

    Raises:
        UsageError: networks whose embeddings, hidden states or heads differ.
    """
    theirs = {name: list(parameter.shape) for name, parameter in teacher.named_parameters()}
    for name, parameter in student.named_parameters():
        if not name.startswith("encoder.layers.") and theirs.get(name) != list(parameter.shape):
            raise UsageError(
                f"{name} of the teacher is {theirs.get(name, 'missing')}, of the student {list(parameter.shape)}: a "
                "student has the teacher's width, vocabulary and heads"
            )
    device = next(student.parameters()).device
    teacher.to(device).eval().requires_grad_(False)

    def with_teacher(module: nn.Module, args: Any, options: dict[str, Any], output: NetworkOutput) -> TaughtOutput:
        with torch.no_grad():
            return TaughtOutput(output, teacher(*args, **options))

    student.register_forward_hook(with_teacher, with_kwargs=True)


class Distilled(Task):
    """A task with a teacher: its `Task.loss` takes a `TaughtOutput`."""

    def __init__(self, task: Task, head: str, settings: DistillationSettings) -> None:
        self.task, self.head, self.settings = task, head, settings

    def totals(self, batch: Any) -> Tensor:
        """(k + 2,) totals of the task, number of rows of logits, number of tokens."""
        rows = (batch.labels != IGNORED).sum() if self._is_of_tokens(batch) else len(batch.labels)
        return torch.cat([self.task.totals(batch), torch.tensor([rows, batch.num_tokens], dtype=torch.float64)])

    def loss(self, outputs: TaughtOutput, part: Any, totals: Tensor) -> Loss:
        """The weighted sum of the three losses of a part."""
        settings, student, teacher = self.settings, outputs.student, outputs.teacher
        of_task = self.task.loss(student, part, totals[:-2])
        logits, targets = (each.logits[self.head].float() for each in (student, teacher))
        if self._is_of_tokens(part):
            counts = part.labels != IGNORED
            logits, targets = logits[counts], targets[counts]
        scale = settings.soft_temperature
        divergence = F.kl_div(
            (logits / scale).log_softmax(-1), (targets / scale).log_softmax(-1), reduction="sum", log_target=True
        ) * scale**2  # fmt: skip
        states = [each.encoded.last_hidden_state.float() for each in (student, teacher)]
        apart = (1 - F.cosine_similarity(*states, dim=-1)).sum()
        value = (
            mean_of(settings.soft_weight * divergence, totals[-2])
            + settings.task_weight * of_task.value
            + mean_of(settings.hidden_weight * apart, totals[-1])
        )
        return Loss(value, torch.cat([of_task.sums, sums_of(divergence, apart, len(logits), part.num_tokens)]))

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The metrics of the task; ``soft_loss``, nats per row of logits; ``hidden_cosine``; ``loss``, their
        weighted sum."""
        divergence, apart, rows, tokens = sums[-4:].tolist()
        metrics, settings = self.task.metrics(sums[:-4]), self.settings
        soft, hidden = divergence / max(rows, 1), apart / max(tokens, 1)
        total = settings.soft_weight * soft + settings.task_weight * metrics["loss"] + settings.hidden_weight * hidden
        return metrics | {"loss": total, "task_loss": metrics["loss"], "soft_loss": soft, "hidden_cosine": 1 - hidden}

    def _is_of_tokens(self, batch: Any) -> bool:
        """True if each token of a batch has a label."""
        return getattr(batch, "of_tokens", False) and not batch.labels.is_floating_point()


def distilled(
    teacher: nn.Module, head: str, settings: DistillationSettings, student: nn.Module, task: Task
) -> Distilled:
    """A task that learns the logits of ``head`` of a teacher; modifies the student with `teach`."""
    teach(student, teacher)
    return Distilled(task, head, settings)
