"""Final losses of training in bfloat16 and in float32, over seeds, from the same weights."""

import statistics
from itertools import islice

import texts
from masked_text import token_steps
from models import masked_lm_folder
from trainers import OURS_BF16, OURS_FP32, start_trainers
from turns import say

SHAPE = "4 layers x 256"
SOURCE = "documentation passages"
SEEDS = (0, 1, 2)  # of the order of texts, of what is masked, and of dropout
NUM_STEPS = 200
NUM_LAST_STEPS = 50
TOKENS_PER_STEP = 1_024
DROPOUT = 0.1


def measure(threads: int, scale: float, skipped: dict[str, str]) -> dict:
    """The mean loss of the last steps for each precision and seed."""
    folder = masked_lm_folder(SHAPE)
    ids = texts.token_ids(SOURCE, folder, max_length=128)
    num_steps, num_last = (max(1, round(number * scale)) for number in (NUM_STEPS, NUM_LAST_STEPS))
    workers = start_trainers(threads, skipped, (OURS_FP32, OURS_BF16), rest_seconds=0)
    means = {system.name: [] for system in workers}
    for seed in SEEDS:
        steps = list(islice(token_steps(ids, TOKENS_PER_STEP, seed), num_steps))
        for system, worker in workers.items():
            worker.turn("prepare", folder, DROPOUT)
            losses = [worker.turn("step", step, seed * num_steps + number).result for number, step in enumerate(steps)]
            means[system.name].append(statistics.mean(losses[-num_last:]))
            say(f"seed {seed}, {system.name}: {losses[0]:.3f} to {means[system.name][-1]:.4f}")
    for worker in workers.values():
        worker.close()
    return {
        "model": SHAPE,
        "texts": SOURCE,
        "dropout": DROPOUT,
        "tokens_per_step": TOKENS_PER_STEP,
        "num_steps": num_steps,
        "num_last_steps": num_last,
        "mean_losses": means,
    }


def describe(found: dict) -> list[str]:
    fp32, bf16 = (found["mean_losses"][system.name] for system in (OURS_FP32, OURS_BF16))
    deviation = statistics.stdev(fp32)
    difference = statistics.mean(bf16) - statistics.mean(fp32)
    verdict = "within" if abs(difference) <= 2 * deviation else "NOT within"
    rows = [
        f"- {name}: {', '.join(f'{loss:.4f}' for loss in losses)}; mean {statistics.mean(losses):.4f}, standard "
        f"deviation {statistics.stdev(losses):.4f}"
        for name, losses in found["mean_losses"].items()
    ]
    return [
        f"{found['model']}, {found['texts']}, dropout {found['dropout']}: mean loss of the last "
        f"{found['num_last_steps']} of {found['num_steps']} steps of {found['tokens_per_step']} tokens, for "
        f"{len(fp32)} seeds.",
        "",
        *rows,
        "",
        f"bf16 differs by {difference:+.4f}: {verdict} two standard deviations of fp32.",
        "",
    ]
