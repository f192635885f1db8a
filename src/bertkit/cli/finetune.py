"""bertkit finetune TASK: a command for each task, with its options"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import OutPath, note
from bertkit.cli.task_options import given_options, options_of, settings_of, summary_of
from bertkit.cli.training_command import run_training
from bertkit.files.whole_files import check_folder_writable
from bertkit.finetuning.settings import PAPER, FinetuningSettings
from bertkit.sequence_training.settings import SequenceSettings
from bertkit.sequence_training.tasks import SEQUENCE_TASKS
from bertkit.tasks import TASKS, TextTask

if TYPE_CHECKING:
    from bertkit.training import Outcome, Ranks

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
        options: options_type = no_options,
        settings: settings_type = no_settings,
        resume: bool = False,
        device: str = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import columns_of, note_skipped, read_both
        from bertkit.finetuning import SWEEPS, Finetuning, start_run
        from bertkit.finetuning import sweep as run_sweep

        check_folder_writable(out)
        given, chosen = given_options(options), FinetuningSettings(**given_options(settings))
        if defaults == "paper":
            chosen = chosen.completed(PAPER)
        files = {"training": train} | ({} if dev is None else {"dev": [dev]})
        run = Finetuning(out, model, kind.name, chosen, given, device=device, log_line=note, files=files)
        may_refuse = (chosen.on_long or kind.on_long) != "truncate"
        new_model = replace(run, log_line=lambda line: None).new_model if may_refuse else None
        *examples, skipped = read_both(kind, train, dev, columns_of(columns), given, skip_bad, label_names, new_model)

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            run.num_set_aside, run.ranks = len(skipped), ranks
            if ranks.is_first:
                note_skipped(skipped)
            begin = start_run if sweep is None else partial(run_sweep, grid=SWEEPS[sweep])
            outcome = begin(run, train=examples[0], dev=examples[1], resume=resume, should_stop=should_stop)
            return _row(out, outcome, rows_skipped=len(skipped))

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
        The folder of the model to write.
    model
        The model to start from: a folder, a hub name, or the import name of an installed model package.
    dev
        Examples that select the best weights; without them the last weights are kept.
    columns
        Columns by role, such as text=sentence label=polarity, where their names are not recognized.
    label_names
        Names of labels that are integers in the files, in order from 0.
    skip_bad
        Skip rows that cannot be used, and count them.
    defaults
        Default learning rate and epochs. measured: by the task, the width of the encoder and, with --head drawn, the
        number of examples; paper: 2e-5 and 3.
    sweep
        paper: batches of 16 and 32, learning rates 5e-5, 3e-5, 2e-5, epochs 2, 3, 4; the best model on --dev is kept.
    resume
        Resume the run in the folder, or start it if there is none. A finished run continues if --num-epochs or
        --num-steps is larger than before.
    device
        auto, cpu, cuda or mps.
    """
    return finetune


def _row(out: Path, outcome: "Outcome", **facts: Any) -> dict[str, Any]:
    """The row of results to print."""
    ending = {"reason": outcome.reason, "step": outcome.step, "best_step": outcome.best_step}
    return {"model": str(out), **ending, **facts, **outcome.metrics}


def _for_sequences(task: str) -> Callable[..., None]:
    """The command of a generative task."""
    settings_type = settings_of(SequenceSettings, {})
    no_settings = settings_type()

    def finetune(
        *,
        train: Annotated[list[Path], Parameter(consume_multiple=True)],
        out: OutPath,
        model: str | None = None,
        dev: Path | None = None,
        columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        settings: settings_type = no_settings,
        resume: bool = False,
        device: str = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import columns_of
        from bertkit.sequence_training import SequenceTraining

        check_folder_writable(out)
        chosen, roles = SequenceSettings(**given_options(settings)), columns_of(columns)

        def read(paths: Sequence[Path]) -> list[Any]:
            return [example for path in paths for example in SEQUENCE_TASKS[task].read(path, roles)]

        examples = read(train), read([dev] if dev else [])

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            run = SequenceTraining(out, task, model or "new", chosen, device=device, log_line=note, ranks=ranks)
            return _row(out, run.start(*examples, resume=resume, should_stop=should_stop))

        run_training(f"finetune {task}", out, device, start)

    finetune.__doc__ = f"""{SEQUENCE_TASKS[task].summary}

    Defaults are mostly those of Vaswani et al. 2017. {_RUNS}

    Parameters
    ----------
    train
        {SEQUENCE_TASKS[task].help_of_files}
    out
        The folder of the model to write.
    model
        {SEQUENCE_TASKS[task].help_of_model}
    dev
        Examples that select the best weights; without them the last weights are kept.
    columns
        Columns by role, source and target, or text, where their names are not recognized.
    resume
        Resume the run in the folder, or start it if there is none. A finished run continues if --num-epochs or
        --num-steps is larger than before.
    device
        auto, cpu, cuda or mps.
    """
    return finetune


def __getattr__(name: str) -> App:
    """``command``, with the tasks that are registered now."""
    if name != "command":
        raise AttributeError(name)
    command = App(name="finetune")
    for task in TASKS.values():
        command.command(_for_texts(task), name=task.name, help=summary_of(task))
    for task_name, task in SEQUENCE_TASKS.items():
        command.command(_for_sequences(task_name), name=task_name, help=task.summary)
    return command
