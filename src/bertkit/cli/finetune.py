"""bertkit finetune TASK: a command for each task, with its options"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import OutPath, note
from bertkit.cli.task_options import HELP, command_attribute, given_options, options_of, settings_of, summary_of
from bertkit.cli.training_command import result_row, run_training
from bertkit.extraction.training_settings import ExtractionTrainingSettings
from bertkit.files.whole_files import check_folder_writable
from bertkit.finetuning.settings import PAPER, FinetuningSettings
from bertkit.sequence_training.settings import SequenceSettings
from bertkit.tasks import TASKS, ExampleFile, GenerativeTask, RowTask, TextTask
from bertkit.tasks.example_file import read_train_and_dev
from bertkit.training.recipe_files import read_recipe_file

if TYPE_CHECKING:
    from bertkit.training import Ranks

_RUNS = """Ctrl-C or SIGTERM finishes the step, saves and exits;
    --resume continues. Under torchrun every process computes its share of each batch."""
_ABOUT_GENERATION = "Defaults are mostly those of Vaswani et al. 2017."
_ABOUT_EXTRACTION = """The folder that is written opens with bertkit extract, and has the published form of GLiNER. The
    labels of each text are those of its entities, and a draw of others."""


def _help(kind: type[RowTask], about: str) -> str:
    """The docstring of a command, with the parameters that all have.

    Args:
        about: what help says on the result and the defaults.
    """
    return f"""{summary_of(kind)}

    {about} {_RUNS}

    Parameters
    ----------
    train
        {kind.files}
    out
        {HELP["out"]}
    model
        {kind.models}
    dev
        {HELP["dev"]}
    columns
        {HELP["columns"]}
    skip_bad
        {HELP["skip_bad"]}
    recipe
        {HELP["recipe"]}
    resume
        {HELP["resume"]}
    device
        {HELP["device"]}"""


def _for_texts(kind: type[TextTask]) -> Callable[..., None]:
    """The command of a task over texts."""
    settings_type = settings_of(FinetuningSettings, kind.training_defaults)
    options_type = options_of([kind])
    no_options, no_settings = options_type(), settings_type()

    def finetune(
        *,
        train: Annotated[list[Path], Parameter(consume_multiple=True)],
        out: OutPath,
        model: str = EMBEDDING_MODEL,
        dev: Path | None = None,
        columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        label_names: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        skip_bad: bool = False,
        defaults: Literal["measured", "paper"] = "measured",
        sweep: Literal["paper"] | None = None,
        recipe: Path | None = None,
        options: options_type = no_options,
        settings: settings_type = no_settings,
        resume: bool = False,
        device: str = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading
        from bertkit.finetuning import SWEEPS, Finetuning, start_run
        from bertkit.finetuning import sweep as run_sweep

        check_folder_writable(out)
        chosen, given = read_recipe_file(recipe, FinetuningSettings(), kind.options)
        chosen, given = chosen.changed(**given_options(settings)), given | given_options(options)
        if defaults == "paper":
            chosen = chosen.completed(PAPER)
        files = {"training": train} | ({} if dev is None else {"dev": [dev]})
        bad_rows, roles = bad_rows_of(skip_bad), columns_of(columns)
        examples = read_train_and_dev(
            kind, train, dev, columns=roles, options=given, class_names=label_names, bad_rows=bad_rows
        )
        note_reading(bad_rows)

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            run = Finetuning(
                out, model, kind.name, chosen, given, device=device, log_line=note, files=files, ranks=ranks,
                skip_bad=skip_bad, skipped=[*map(str, bad_rows.rows)],
            )  # fmt: skip
            begin = start_run if sweep is None else partial(run_sweep, grid=SWEEPS[sweep])
            outcome = begin(run, train=examples[0], dev=examples[1], resume=resume, should_stop=should_stop)
            return result_row(out, outcome, rows_skipped=len(run.skipped))

        run_training(f"finetune {kind.name}", out, device, start)

    about = """The head starts fitted to the frozen encoder; the first log line is the quality of these frozen features,
    and with dev examples nothing worse is kept. Defaults are those of the BERT paper, for example batches of 32, except
    for the learning rate and epochs, which depend on the task, the encoder's width and the number of examples.
    The last line compares the result on dev with simpler methods."""
    finetune.__doc__ = f"""{_help(kind, about)}
    label_names
        {HELP["label_names"]}
    defaults
        Default learning rate and epochs. measured: by the task, the width of the encoder and, with --head drawn, the
        number of examples; paper: 2e-5 and 3.
    sweep
        paper: batches of 16 and 32, learning rates 5e-5, 3e-5, 2e-5, epochs 2, 3, 4; the best model on --dev is kept.
    """
    return finetune


def _for_examples(kind: type[RowTask]) -> Callable[..., None]:
    """The command of a task with its own kind of run, which trains on examples alone."""
    first_model, defaults, about = EMBEDDING_MODEL, ExtractionTrainingSettings(), _ABOUT_EXTRACTION
    if issubclass(kind, GenerativeTask):
        first_model, defaults, about = "new", SequenceSettings(), _ABOUT_GENERATION
    settings_type = settings_of(type(defaults))
    no_settings = settings_type()

    def finetune(
        *,
        train: Annotated[list[Path], Parameter(consume_multiple=True)],
        out: OutPath,
        model: str = first_model,
        dev: Path | None = None,
        columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        skip_bad: bool = False,
        recipe: Path | None = None,
        settings: settings_type = no_settings,
        resume: bool = False,
        device: str = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading

        check_folder_writable(out)
        chosen = read_recipe_file(recipe, defaults)[0].changed(**given_options(settings))
        bad_rows, roles = bad_rows_of(skip_bad), columns_of(columns)
        examples = [
            [one for path in paths for one in kind.read(ExampleFile(path, columns=roles, bad_rows=bad_rows))]
            for paths in (train, [dev] if dev else [])
        ]
        note_reading(bad_rows)

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            from bertkit.extraction.training import ExtractionTraining
            from bertkit.sequence_training import SequenceTraining

            how: Any = {"settings": chosen, "device": device, "log_line": note, "ranks": ranks}
            if issubclass(kind, GenerativeTask):
                run = SequenceTraining(out, kind.name, model, **how)
            else:
                run = ExtractionTraining(out, model, **how)
            outcome = run.start(*examples, resume=resume, should_stop=should_stop)
            return result_row(out, outcome, rows_skipped=len(bad_rows.rows))

        run_training(f"finetune {kind.name}", out, device, start)

    finetune.__doc__ = _help(kind, about)
    return finetune


def _commands() -> Iterator[tuple[str, str, Callable[..., None]]]:
    for kind in TASKS.values():
        yield kind.name, summary_of(kind), _for_texts(kind) if issubclass(kind, TextTask) else _for_examples(kind)


__getattr__ = command_attribute("finetune", _commands)
