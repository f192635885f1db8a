"""bertkit pretrain"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import OutPath, note
from bertkit.cli.recipes import RunOptions
from bertkit.cli.training_command import run_training
from bertkit.errors import NonFiniteError

if TYPE_CHECKING:
    from bertkit.training import Ranks


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
    from bertkit.pretraining import Pretraining
    from bertkit.training import checkpoints

    recipe, inputs = options.read(), options.inputs()
    best_by = recipe.objective.best_by

    def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
        run = Pretraining(
            out, recipe, inputs, ranks=ranks, log_line=note, device=options.device, shard=shard, compile=compile,
            tensorboard=tensorboard,
        )  # fmt: skip
        try:
            outcome = run.start(resume=resume, should_stop=should_stop)
        except NonFiniteError as error:
            way = "--learning-rate LOWER"
            if checkpoints(out):
                way = f"--model THAT {way} --from-checkpoint, without --vocab"
            raise NonFiniteError(f"{error} (--out ELSEWHERE {way})") from None
        return {
            "run": str(out), "reason": outcome.reason, "step": outcome.step, "tokens": run.state.num_tokens,
            best_by: outcome.metrics.get(best_by),
            "best_step": run.state.best_step, f"best_{best_by}": run.state.best,
        }  # fmt: skip

    run_training("pretrain", out, options.device, start)
