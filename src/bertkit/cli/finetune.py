"""bertkit finetune"""

from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import emit, note
from bertkit.errors import UsageError
from bertkit.tasks import TASKS, task_kind
from bertkit.tokenizer.layout import OnLong

_OPTIONS = {name: option for kind in TASKS.values() for name, option in kind.options.items()}
TaskOptions: Any = Parameter(name="*")(
    make_dataclass(
        "TaskOptions",
        [
            (name, Annotated[option.type | None, Parameter(help=option.help, consume_multiple=True)], None)
            for name, option in _OPTIONS.items()
        ],
        frozen=True,
        namespace={"__module__": __name__},
    )
)
"""The options of all tasks, each an argument of the command line."""

NO_OPTIONS = TaskOptions()


def command(
    task: Annotated[str, Parameter(help=f"{', '.join(TASKS)}.")],
    /,
    *,
    train: Path,
    out: Path,
    model: str = EMBEDDING_MODEL,
    dev: Path | None = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    skip_bad: bool = False,
    defaults: Literal["measured", "paper"] = "measured",
    sweep: Literal["paper"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    max_length: int | None = None,
    on_long: OnLong | None = None,
    stride: int | None = None,
    options: TaskOptions = NO_OPTIONS,
    layer_decay: float | None = None,
    frozen_layers: int | None = None,
    lora_rank: int | None = None,
    lora_alpha: float | None = None,
    evaluations_per_epoch: int | None = None,
    best_by: str | None = None,
    patience: int | None = None,
    precision: Literal["float32", "bfloat16"] | None = None,
    seed: int | None = None,
    resume: bool = False,
    device: str = "auto",
) -> None:
    """Train a model for a task, from labeled examples.

    What is not given is as in the BERT paper, such as batches of 32; but for learning rate and epochs, which go by the
    encoder's width and the number of examples. The last line compares the result on dev with what is reached without
    fine-tuning. Ctrl-C or SIGTERM finishes the step, saves and leaves; --resume continues. Under torchrun every process
    computes its share of each batch.

    Parameters
    ----------
    train
        Examples with labels: csv, tsv, jsonl or parquet; for some tasks CoNLL or SQuAD json.
    out
        The folder that becomes the model's directory.
    model
        The model to start from: a folder, a hub name, or the import name of an installed model package.
    dev
        Examples by which the best weights are kept; without it the last are.
    columns
        Which column is what, such as text=sentence label=polarity, where the names do not tell.
    skip_bad
        Set rows aside that cannot be used, and count them.
    defaults
        Of learning rate and epochs: measured, by the encoder's width and the number of examples; paper: 2e-5, 3.
    sweep
        paper: batches of 16 and 32, learning rates 5e-5, 3e-5, 2e-5, epochs 2, 3, 4; the best on dev is kept.
    epochs
        How often every example is read; by default 3 times, and more often where examples are few.
    batch_size
        Examples of an optimizer step.
    learning_rate
        At its peak; by default 5e-4 for encoders up to 512 wide, 2e-5 for wider ones.
    max_length
        Longest sequence in tokens; by default what the model takes.
    on_long
        What to do with a longer one: truncate, error, window; by default windows for tags and answers, else truncate.
    stride
        Tokens from one window's start to the next.
    layer_decay
        Learning rate of a layer as a share of that of the layer above.
    frozen_layers
        So many layers from below, and the embeddings, keep their weights.
    lora_rank
        Learn updates of this rank instead of the encoder's weights; they are saved alone too, and merged.
    lora_alpha
        An update counts by this over its rank.
    evaluations_per_epoch
        On the dev examples.
    best_by
        The metric by which the best weights are kept.
    patience
        Evaluations without improvement after which the run stops.
    precision
        Of the products in training.
    seed
        Of the new head, order and dropout.
    resume
        Go on with the run in the folder, or start it where there is none.
    device
        auto, cpu, cuda.
    """
    from bertkit.cli.labeled_files import columns_of, read_both, tell_of
    from bertkit.finetuning import PAPER, SWEEPS, Finetuning, FinetuningSettings
    from bertkit.finetuning import sweep as run_sweep
    from bertkit.training import Ranks, stop_signals

    given: dict[str, Any] = {
        "num_epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "max_length": max_length,
        "on_long": on_long, "stride": stride, "layer_decay": layer_decay, "frozen_layers": frozen_layers,
        "lora_rank": lora_rank, "lora_alpha": lora_alpha,
        "evaluations_per_epoch": evaluations_per_epoch, "best_by": best_by, "patience": patience,
        "precision": precision, "seed": seed,
    }  # fmt: skip
    asked = {name: value for name, value in vars(options).items() if value is not None}
    settings = FinetuningSettings(**{name: value for name, value in given.items() if value is not None})
    if defaults == "paper":
        settings = settings.completed(PAPER)
    *examples, set_aside = read_both(task_kind(task), train, dev, columns_of(columns), asked, skip_bad)
    ranks = Ranks.from_environment(device)
    if ranks.is_first:
        tell_of(set_aside)
    if sweep is not None and ranks.num_ranks > 1:
        raise UsageError("--sweep runs in one process: start it without torchrun")
    files = {"training": train} | ({} if dev is None else {"dev": dev})
    run = Finetuning(
        out,
        model,
        task,
        settings,
        asked,
        device=device,
        log_line=note,
        files=files,
        num_set_aside=len(set_aside),
        ranks=ranks,
    )
    with stop_signals(note) as should_stop:
        if sweep is None:
            outcome = run.start(*examples, resume=resume, should_stop=should_stop)
        else:
            outcome = run_sweep(run, SWEEPS[sweep], *examples, resume=resume, should_stop=should_stop)
        ranks.shutdown()
    if not ranks.is_first:
        ranks.exit()
    if outcome.reason == "stopped":
        note(f"stopped and saved; go on with: bertkit finetune ... --out {out} --resume")
    emit([{"model": str(out), "reason": outcome.reason, "step": outcome.step, "best_step": outcome.best_step,
           "rows_set_aside": len(set_aside), **outcome.metrics}])  # fmt: skip
    ranks.exit()
