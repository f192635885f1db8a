"""bertkit finetune seq2seq and causal-language-model: generative tasks."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import OutPath, note
from bertkit.cli.training_command import run_training
from bertkit.errors import UsageError
from bertkit.sequence_training import SEQUENCE_TASKS, SequenceSettings, SequenceTraining
from bertkit.sequence_training.tasks import NEW_MODELS

_TAKEN = ("num_epochs", "batch_size", "learning_rate", "warmup", "weight_decay", "max_length", "precision", "seed")


if TYPE_CHECKING:
    from bertkit.training import Ranks


def finetune_sequences(
    task: str,
    model: str | None,
    train: Sequence[Path],
    dev: Path | None,
    out: OutPath,
    given: Mapping[str, Any],
    columns: Mapping[str, str],
    *,
    resume: bool,
    device: str,
) -> None:
    """Train, and print the metrics.

    Args:
        given: settings that replace the defaults of `SequenceSettings`, by name.

    Raises:
        UsageError: a setting that these tasks do not support, or that only a new model takes.
    """
    for name in given:
        if name not in _TAKEN:
            raise UsageError(f"{task} has no {name}: expected any of {', '.join(_TAKEN)}")
    if "max_length" in given and model is not None and model not in NEW_MODELS:
        raise UsageError(f"max_length sets the positions of a new model, and those of {model} are fixed: omit it")
    read = SEQUENCE_TASKS[task].read
    examples = [[one for path in paths for one in read(path, columns)] for paths in (train, [dev] if dev else [])]

    def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
        run = SequenceTraining(out, task, model or "new", SequenceSettings(**given), device, note, ranks)
        return {"model": str(out), **run.start(*examples, resume=resume, should_stop=should_stop)}

    run_training(f"finetune {task}", out, device, start)
