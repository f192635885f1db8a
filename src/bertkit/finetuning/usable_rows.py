"""Training and dev examples without those that a run cannot use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bertkit.errors import DataError
from bertkit.inference.fitting_rows import fitting
from bertkit.model import Model
from bertkit.tasks import JudgedTask, TextTask


def usable_rows(
    kind: type[TextTask],
    train: Sequence[Any],
    dev: Sequence[Any],
    options: Mapping[str, Any] = {},
    new_model: Callable[[list[Any]], Model] | None = None,
) -> tuple[list[Any], list[Any], list[str]]:
    """Usable training and dev examples (`TextTask.usable`), and the reasons for skipping the others, with their
    locations. A dev example with a label that no training example has is not usable.

    Args:
        options: of `TextTask.of_examples`.
        new_model: creates the model to train on examples, to skip those too long for it; None: no length is refused.

    Raises:
        DataError: every example is too long.
    """
    skipped: list[str] = []

    def usable(examples: Iterable[Any], *, held_out: bool = False) -> list[Any]:
        kept, others = kind.usable(list(examples), held_out=held_out)
        skipped.extend(f"{example.location}: {why}" for example, why in others)
        return kept

    def short(examples: Sequence[Any]) -> Iterable[Any]:
        if model is None:
            return examples
        return fitting(model.trained.task, model.tokenizer, model.trained.layout, examples, skipped)

    train = usable(train)
    model = None if new_model is None else new_model(train)
    train = train if model is None else usable(short(train))
    dev = usable(short(dev), held_out=True)
    if dev and issubclass(kind, JudgedTask):
        task = kind.of_examples(train, options)
        problems = [_label_problem(task, example) for example in dev]
        dev = [example for example, problem in zip(dev, problems, strict=True) if not problem]
        skipped += filter(None, problems)
    return train, dev, skipped


def _label_problem(task: JudgedTask, example: Any) -> str:
    try:
        task.targets([example])
    except DataError as error:
        return str(error)
    return ""
