"""bertkit finetune"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import OutPath, note
from bertkit.cli.task_options import NO_OPTIONS, TaskOptions, given_options
from bertkit.cli.training_command import run_training
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_folder_writable
from bertkit.finetuning.settings import PAPER, FinetuningSettings
from bertkit.sequence_training.tasks import SEQUENCE_TASKS
from bertkit.tasks import TASKS, task_kind

if TYPE_CHECKING:
    from bertkit.training import Ranks


class GivenSettings(FinetuningSettings):
    """`FinetuningSettings` with ``given``, the settings on the command line: generative tasks have other defaults."""

    __doc__ = FinetuningSettings.__doc__  # the help of the options

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.given = given


DEFAULTS = GivenSettings()


def command(
    task: Annotated[str, Parameter(help=f"{', '.join((*TASKS, *SEQUENCE_TASKS))}.")],
    /,
    *,
    train: Annotated[list[Path], Parameter(consume_multiple=True)],
    out: OutPath,
    model: str | None = None,
    dev: Path | None = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    label_names: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    defaults: Literal["measured", "paper"] = "measured",
    sweep: Literal["paper"] | None = None,
    settings: Annotated[GivenSettings, Parameter(name="*")] = DEFAULTS,
    options: TaskOptions = NO_OPTIONS,
    resume: bool = False,
    device: str = "auto",
) -> None:
    """Fine-tune a model for a task on labeled examples.

    The head starts fitted to the frozen encoder; the first log line is the quality of these frozen features, and with
    dev examples nothing worse is kept. Defaults are those of the BERT paper, for example batches of 32, except for the
    learning rate and epochs, which depend on the encoder's width and the number of examples; seq2seq and
    causal-language-model have 10 epochs, batches of 64, a learning rate of 1e-3 and no weight decay.
    The last line compares the result on dev with simpler methods. Ctrl-C or SIGTERM finishes the step, saves and exits;
    --resume continues. Under torchrun every process computes its share of each batch.

    Parameters
    ----------
    train
        Examples with labels: csv, tsv, jsonl or parquet; for some tasks CoNLL or SQuAD json. For similarity, several
        files are separate data sets, each with its objective and batches; other tasks combine them.
    out
        The folder of the model to write.
    model
        The model to start from: a folder, a hub name, or the import name of an installed model package; by default
        all-MiniLM-L6-v2, and for seq2seq a new model (new-tiny, new, new-base).
    dev
        Examples that select the best weights; without them the last weights are kept.
    columns
        Columns by role, such as text=sentence label=polarity, where their names are not recognized.
    label_names
        Names of labels that are integers in the files, in order from 0.
    skip_bad
        Skip rows that cannot be used, and count them.
    defaults
        Default learning rate and epochs. measured: by the width of the encoder and, with --head drawn, the number of
        examples; paper: 2e-5 and 3.
    sweep
        paper: batches of 16 and 32, learning rates 5e-5, 3e-5, 2e-5, epochs 2, 3, 4; the best model on --dev is kept.
    resume
        Resume the run in the folder, or start it if there is none.
    device
        auto, cpu, cuda or mps.
    """
    from bertkit.cli.labeled_files import columns_of, note_skipped, read_both

    if task not in (*TASKS, *SEQUENCE_TASKS):
        raise UsageError(f"task {task!r}: expected one of {', '.join((*TASKS, *SEQUENCE_TASKS))}")
    check_folder_writable(out)
    if task in SEQUENCE_TASKS:  # generative tasks have a separate trainer
        from bertkit.cli.finetune_sequences import finetune_sequences

        if skip_bad or label_names or sweep is not None or defaults == "paper" or options != NO_OPTIONS:
            raise UsageError(
                f"{task} does not support --skip-bad, --label-names, --sweep, --defaults or options of other tasks"
            )
        given = settings.given
        finetune_sequences(task, model, train, dev, out, given, columns_of(columns), resume=resume, device=device)
        return
    from bertkit.finetuning import SWEEPS, Finetuning, start_run
    from bertkit.finetuning import sweep as run_sweep

    kind = task_kind(task)
    asked = given_options(options)
    chosen = FinetuningSettings(**settings.given)
    if defaults == "paper":
        chosen = chosen.completed(PAPER)
    files = {"training": train} | ({} if dev is None else {"dev": [dev]})
    run = Finetuning(out, model or EMBEDDING_MODEL, task, chosen, asked, device=device, log_line=note, files=files)
    may_refuse = (chosen.on_long or kind.on_long) != "truncate"
    new_model = replace(run, log_line=lambda line: None).new_model if may_refuse else None
    *examples, skipped = read_both(kind, train, dev, columns_of(columns), asked, skip_bad, label_names, new_model)

    def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
        run.num_set_aside, run.ranks = len(skipped), ranks
        if ranks.is_first:
            note_skipped(skipped)
        begin = start_run if sweep is None else partial(run_sweep, grid=SWEEPS[sweep])
        outcome = begin(run, train=examples[0], dev=examples[1], resume=resume, should_stop=should_stop)
        return {"model": str(out), "reason": outcome.reason, "step": outcome.step, "best_step": outcome.best_step,
                "rows_skipped": len(skipped), **outcome.metrics}  # fmt: skip

    run_training(f"finetune {task}", out, device, start)
