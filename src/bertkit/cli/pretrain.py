"""bertkit pretrain"""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.output import emit, note
from bertkit.errors import NonFiniteError


def command(
    *,
    corpus: Annotated[list[str], Parameter(consume_multiple=True)],
    out: Path,
    recipe: str = "cpu-minutes",
    held_out: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    vocab: Path | None = None,
    model: str | None = None,
    new_head: bool = False,
    column: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    resume: bool = False,
    device: str = "auto",
    shard: bool = False,
    tensorboard: bool = False,
) -> None:
    """Pre-train a model from raw text.

    Ctrl-C or SIGTERM finishes the step, saves and exits, or exits at once while text is being prepared; --resume
    continues bit-identically to an uninterrupted run. Under torchrun every process computes its share of each batch.

    Parameters
    ----------
    corpus
        txt, jsonl, csv, tsv or parquet files, folders of them, or python-docs for the running Python's documentation.
    out
        The folder of the run: checkpoints, metrics.jsonl, and at the end the model.
    recipe
        bert-2018, bert-modern, cpu-minutes, domain-adapt, or a TOML file.
    held_out
        Files to evaluate on; without them a share of the documents of the corpus is held out.
    vocab
        A vocab.txt; by default one is trained on the corpus.
    model
        The checkpoint to continue from, if the recipe does: a folder, a hub name or an installed model package.
    new_head
        Give a checkpoint without a masked LM head a new one.
    column
        The column or key that holds the text.
    minutes
        Minutes to train, instead of the length in the recipe.
    steps
        Optimizer steps to train, instead of the length in the recipe.
    set
        Settings to change, such as training.batch_size=128 or model.config.num_hidden_layers=6.
    resume
        Resume the run in the folder from its last checkpoint; start it if there is none.
    device
        auto, cpu, cuda.
    shard
        Under torchrun, keep a shard of every parameter in each process, for models too large for one.
    tensorboard
        Also write metrics for TensorBoard.
    """
    from tqdm import tqdm

    from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length
    from bertkit.training import Ranks, checkpoints, stop_signals

    changes = set or ()
    read = with_length(read_recipe(recipe, changes), num_steps=steps, minutes=minutes, changes=changes)
    inputs = Inputs(tuple(corpus), tuple(held_out or ()), vocab, model, new_head, column)
    log_line = partial(tqdm.write, file=sys.stderr)  # above the progress bar
    with stop_signals(log_line) as should_stop:
        ranks = Ranks.from_environment(device)
        run = Pretraining(
            out, read, inputs, ranks=ranks, log_line=log_line, device=device, shard=shard, tensorboard=tensorboard
        )
        try:
            reason = run.start(resume=resume, should_stop=should_stop)
        except NonFiniteError as error:
            way = "--set training.learning_rate=LOWER"
            if checkpoints(out):
                way = f"--model THAT {way} model.from_checkpoint=true, without --vocab"
            raise NonFiniteError(f"{error} (--out ELSEWHERE {way})") from None
        ranks.shutdown()
    if ranks.is_first:
        if reason == "stopped":
            note(f"stopped and saved; resume with: bertkit pretrain ... --out {out} --resume")
        emit(
            [
                {
                    "run": str(out),
                    "reason": reason,
                    "step": run.state.step,
                    "tokens": run.state.num_tokens,
                    "masked_lm_loss": run.metrics["masked_lm_loss"] if reason == "finished" else None,
                    "best_step": run.state.best_step,
                    "best_masked_lm_loss": run.state.best,
                }
            ]
        )
    ranks.exit()
