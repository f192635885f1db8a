"""bertkit pretrain"""

import sys
from functools import partial

from bertkit.cli.output import OutPath, emit, note
from bertkit.cli.recipes import RunOptions
from bertkit.errors import NonFiniteError


def command(
    *,
    options: RunOptions,
    out: OutPath,
    resume: bool = False,
    shard: bool = False,
    compile: bool = False,
    tensorboard: bool = False,
) -> None:
    """Pre-train a model from raw text.

    Ctrl-C or SIGTERM finishes the step, saves and exits, or exits at once while text is being prepared; --resume
    continues bit-identically to an uninterrupted run. Under torchrun every process computes its share of each batch.

    Parameters
    ----------
    out
        The folder of the run: checkpoints, metrics.jsonl, and at the end the model.
    resume
        Resume the run in the folder from its last checkpoint; start it if there is none.
    shard
        Under torchrun, keep a shard of every parameter in each process, for models too large for one.
    compile
        On a CUDA device, compile the network with torch: once, as batches are padded to one shape.
    tensorboard
        Also write metrics for TensorBoard.
    """
    from tqdm import tqdm

    from bertkit.pretraining import Pretraining
    from bertkit.training import Ranks, checkpoints, stop_signals

    recipe, inputs = options.read(), options.inputs()
    log_line = partial(tqdm.write, file=sys.stderr)  # above the progress bar
    with stop_signals(log_line) as should_stop:
        ranks = Ranks.from_environment(options.device)
        run = Pretraining(
            out, recipe, inputs, ranks=ranks, log_line=log_line, device=options.device, shard=shard,
            compile=compile, tensorboard=tensorboard,
        )  # fmt: skip
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
