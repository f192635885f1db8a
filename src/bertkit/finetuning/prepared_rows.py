"""Training and dev examples as a run uses them: without unusable ones, with the outputs of a teacher, encoded once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bertkit.errors import DataError
from bertkit.files import skipped_lines
from bertkit.finetuning.teaching import taught
from bertkit.inference.fitting_rows import fitting
from bertkit.model import Model
from bertkit.tasks import JudgedTask, TextTask, task_kind
from bertkit.tasks.encoded_rows import EncodedRows

if TYPE_CHECKING:
    from bertkit.finetuning.run import Finetuning


def prepared_rows(run: "Finetuning", train: Sequence[Any], dev: Sequence[Any]) -> tuple[EncodedRows, EncodedRows]:
    """Both without the examples that ``run.skip_bad`` skips, which are logged and added to ``run.skipped``; with the
    vectors or scores of the teacher and guide that they lack, which are kept in OUT-teacher. `EncodedRows` are prepared
    already."""
    if isinstance(train, EncodedRows):
        return train, EncodedRows.of(dev)
    if run.skip_bad:
        kind, quiet = task_kind(run.task), replace(run, log_line=lambda line: None)
        refuses_length = (run.settings.on_long or kind.on_long) != "truncate"
        train, dev, skipped = usable_rows(kind, train, dev, run.options, quiet.new_model if refuses_length else None)
        run.skipped = [*run.skipped, *skipped]
    for line in skipped_lines(run.skipped) if run.ranks.is_first else ():
        run.log_line(line)
    with run.ranks.first_before_others():
        train, dev = taught(run.options, (train, dev), run.out.with_name(f"{run.out.name}-teacher"), run.device)
    return EncodedRows.of(train), EncodedRows.of(dev)


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
