"""bertkit finetune TASK: a command for each task, with its options"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from bertkit.sequence_training.tasks import SEQUENCE_TASKS
from bertkit.tasks import TASKS, TextTask
from bertkit.tasks.example_file import read_train_and_dev
from bertkit.tasks.settings import Settings
from bertkit.training.recipe_files import read_recipe_file

if TYPE_CHECKING:
    from bertkit.training import Ranks

_RUNS = """Ctrl-C or SIGTERM finishes the step, saves and exits;
    --resume continues. Under torchrun every process computes its share of each batch."""


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

    finetune.__doc__ = f"""{summary_of(kind)}

    The head starts fitted to the frozen encoder; the first log line is the quality of these frozen features, and with
    dev examples nothing worse is kept. Defaults are those of the BERT paper, for example batches of 32, except for the
    learning rate and epochs, which depend on the task, the encoder's width and the number of examples.
    The last line compares the result on dev with simpler methods. {_RUNS}

    Parameters
    ----------
    train
        Examples with labels: csv, tsv, jsonl or parquet; for some tasks CoNLL or SQuAD json. For similarity, several
        files are separate data sets, each with its objective and batches; other tasks combine them.
    out
        {HELP["out"]}
    model
        The model to start from: a folder, a hub name, or the import name of an installed model package.
    dev
        {HELP["dev"]}
    columns
        {HELP["columns"]}
    label_names
        {HELP["label_names"]}
    skip_bad
        {HELP["skip_bad"]}
    defaults
        Default learning rate and epochs. measured: by the task, the width of the encoder and, with --head drawn, the
        number of examples; paper: 2e-5 and 3.
    sweep
        paper: batches of 16 and 32, learning rates 5e-5, 3e-5, 2e-5, epochs 2, 3, 4; the best model on --dev is kept.
    recipe
        {HELP["recipe"]}
    resume
        {HELP["resume"]}
    device
        {HELP["device"]}
    """
    return finetune


@dataclass(frozen=True)
class _Kind:
    """What differs between the commands that train on examples alone, without the options of a task."""

    summary: str
    about: str
    help_of_files: str
    help_of_model: str
    help_of_columns: str
    model: str  # to start from by default
    settings: type[Settings]
    read: Callable[..., Sequence[Any]]  # examples of a file, with columns and bad_rows
    job: Callable[..., Any]  # an `ExampleJob` of a folder, a model and settings


def _sequences(task: str) -> _Kind:
    """A generative task."""

    def job(out: Path, model: str, settings: Settings, **how: Any) -> Any:
        from bertkit.sequence_training import SequenceTraining

        return SequenceTraining(out, task, model, settings, **how)  # type: ignore[arg-type]

    kind = SEQUENCE_TASKS[task]
    return _Kind(
        kind.summary, "Defaults are mostly those of Vaswani et al. 2017.", kind.help_of_files, kind.help_of_model,
        "Columns by role, source and target, or text, where their names are not recognized.", "new", SequenceSettings,
        kind.read, job,
    )  # fmt: skip


def _extraction() -> _Kind:
    def job(*run: Any, **how: Any) -> Any:
        from bertkit.extraction.training import ExtractionTraining

        return ExtractionTraining(*run, **how)

    def read(path: Path, **how: Any) -> Sequence[Any]:
        from bertkit.tasks.reading.tagged import read_tagged

        return list(read_tagged(path, scheme="BIO", **how))

    return _Kind(
        "Entities for labels that are given at run time, from tagged texts.",
        "The folder that is written opens with bertkit extract, and has the published form of GLiNER. The labels of "
        "each text are those of its entities, and a draw of others.",
        "Tagged texts: CoNLL files, or jsonl or parquet files with words and tags, or texts and spans.",
        "The encoder to start from: a folder, a hub name, or the import name of an installed model package.",
        HELP["columns"], EMBEDDING_MODEL, ExtractionTrainingSettings, read, job,
    )  # fmt: skip


def _for_examples(name: str, kind: _Kind) -> Callable[..., None]:
    """The command of a kind."""
    settings_type = settings_of(kind.settings)
    no_settings = settings_type()

    def finetune(
        *,
        train: Annotated[list[Path], Parameter(consume_multiple=True)],
        out: OutPath,
        model: str = kind.model,
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
        chosen = read_recipe_file(recipe, kind.settings())[0].changed(**given_options(settings))
        bad_rows, roles = bad_rows_of(skip_bad), columns_of(columns)
        examples = [
            [one for path in paths for one in kind.read(path, columns=roles, bad_rows=bad_rows)]
            for paths in (train, [dev] if dev else [])
        ]
        note_reading(bad_rows)

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            run = kind.job(out, model, chosen, device=device, log_line=note, ranks=ranks)
            outcome = run.start(*examples, resume=resume, should_stop=should_stop)
            return result_row(out, outcome, rows_skipped=len(bad_rows.rows))

        run_training(f"finetune {name}", out, device, start)

    finetune.__doc__ = f"""{kind.summary}

    {kind.about} {_RUNS}

    Parameters
    ----------
    train
        {kind.help_of_files}
    out
        {HELP["out"]}
    model
        {kind.help_of_model}
    dev
        {HELP["dev"]}
    columns
        {kind.help_of_columns}
    skip_bad
        {HELP["skip_bad"]}
    recipe
        {HELP["recipe"]}
    resume
        {HELP["resume"]}
    device
        {HELP["device"]}
    """
    return finetune


def _commands() -> Iterator[tuple[str, str, Callable[..., None]]]:
    for task in TASKS.values():
        yield task.name, summary_of(task), _for_texts(task)
    for name, kind in {**{name: _sequences(name) for name in SEQUENCE_TASKS}, "extraction": _extraction()}.items():
        yield name, kind.summary, _for_examples(name, kind)


__getattr__ = command_attribute("finetune", _commands)
