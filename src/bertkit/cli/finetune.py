"""bertkit finetune TASK: a command for each task, with its options"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import Columns, Device, LabelNames, OutPath, SkipBad, note
from bertkit.cli.task_options import command_attribute, given_options, options_of, settings_of, summary_of
from bertkit.cli.training_command import result_row, run_training
from bertkit.extraction import training_settings as extraction
from bertkit.files.whole_files import check_folder_writable
from bertkit.finetuning.settings import PAPER, FinetuningSettings
from bertkit.sequence_training import settings as generation
from bertkit.tasks import TASKS, RowTask
from bertkit.tasks.example_file import read_train_and_dev
from bertkit.training.recipe_files import read_recipe_file

if TYPE_CHECKING:
    from bertkit.training import Ranks


@Parameter(name="*")
@dataclass(frozen=True)
class _TextParameters:
    """Parameters of tasks over texts alone."""

    label_names: LabelNames = None
    defaults: Annotated[
        Literal["measured", "paper"],
        Parameter(
            help="Default learning rate and epochs. measured: by the task, the width of the encoder and, with --head "
            "drawn, the number of examples; paper: 2e-5 and 3."
        ),
    ] = "measured"
    sweep: Annotated[
        Literal["paper"] | None,
        Parameter(
            help="paper: batches of 16 and 32, learning rates 5e-5, 3e-5, 2e-5, epochs 2, 3, 4; the best model on "
            "--dev is kept."
        ),
    ] = None


@Parameter(name="*", parse=False)
class _NoParameters(_TextParameters):
    """The parameters of other tasks: none."""


def _start_text_run(how: dict[str, Any], parameters: _TextParameters, **starting: Any) -> tuple[Any, int]:
    from bertkit.finetuning import SWEEPS, Finetuning, start_run, sweep

    run = Finetuning(**how)
    begin = start_run if parameters.sweep is None else partial(sweep, grid=SWEEPS[parameters.sweep])
    return begin(run, **starting), len(run.skipped)


JOB_KINDS = [generation.JOB_KIND, extraction.JOB_KIND]
"""Runs of tasks that are not over texts."""


def _command(kind: type[RowTask]) -> Callable[..., None]:
    """The command of a task."""
    job_kind = next((one for one in JOB_KINDS if issubclass(kind, one.tasks)), None)
    defaults = FinetuningSettings() if job_kind is None else job_kind.settings
    settings_type = settings_of(type(defaults), kind.training_defaults)
    options_type = options_of([kind])
    parameters_type: Any = _TextParameters if job_kind is None else _NoParameters
    no_parameters, no_options, no_settings = parameters_type(), options_type(), settings_type()

    def finetune(
        *,
        train: Annotated[list[Path], Parameter(consume_multiple=True)],
        out: OutPath,
        model: str = kind.first_model or EMBEDDING_MODEL,
        dev: Path | None = None,
        columns: Columns = None,
        parameters: parameters_type = no_parameters,
        skip_bad: SkipBad = False,
        recipe: Path | None = None,
        options: options_type = no_options,
        settings: settings_type = no_settings,
        resume: bool = False,
        device: Device = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading

        check_folder_writable(out)
        chosen, given = read_recipe_file(recipe, defaults, kind.options)
        chosen, given = chosen.changed(**given_options(settings)), given | given_options(options)
        if parameters.defaults == "paper":
            chosen = chosen.completed(PAPER)
        bad_rows = bad_rows_of(skip_bad)
        examples = read_train_and_dev(
            kind, train, dev, columns=columns_of(columns), options=given, class_names=parameters.label_names,
            bad_rows=bad_rows,
        )  # fmt: skip
        note_reading(bad_rows)
        how = {"out": out, "task": kind.name, "model": model, "settings": chosen, "device": device, "log_line": note}
        if job_kind is None:
            files = {"training": train} | ({} if dev is None else {"dev": [dev]})
            how |= {"options": given, "files": files, "skip_bad": skip_bad, "skipped": [*map(str, bad_rows.rows)]}

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            starting = {"train": examples[0], "dev": examples[1], "resume": resume, "should_stop": should_stop}
            if job_kind is None:
                outcome, skipped = _start_text_run(how | {"ranks": ranks}, parameters, **starting)
            else:
                outcome = job_kind.make(**how, ranks=ranks).start(**starting)
                skipped = len(bad_rows.rows)
            return result_row(out, outcome, rows_skipped=skipped)

        run_training(f"finetune {kind.name}", out, device, start)

    finetune.__doc__ = f"""{summary_of(kind)}

    {kind.about} Ctrl-C or SIGTERM finishes the step, saves and exits; --resume continues. Under torchrun every process
    computes its share of each batch.

    Parameters
    ----------
    train
        {kind.files}
    out
        The folder of the model to write.
    model
        {kind.models}
    dev
        Examples that select the best weights; without them the last weights are kept.
    recipe
        A TOML file of settings by name, those of the training loop in [training] and options of the task in [task];
        options given here take precedence.
    resume
        Resume the run in the folder, or start it if there is none. A finished run continues if --num-epochs or
        --num-steps is larger than before.
    """
    return finetune


__getattr__ = command_attribute(
    "finetune", lambda: ((kind.name, summary_of(kind), _command(kind)) for kind in TASKS.values())
)
