"""Time of an epoch as in tutorials, with every text padded to the maximum length, and of the same epoch packed."""

from collections.abc import Callable, Sequence
from itertools import islice

import report
import texts
from masked_text import Example, num_tokens, sequence_steps, token_steps
from models import masked_lm_folder
from trainers import OURS_BF16, OURS_FP32, THEIRS_BF16, THEIRS_FP32, System, start_trainers
from training_steps import TOKENS_PER_STEP
from turns import say
from worker import Worker

SHAPE = "MiniLM-L6 shape"
DROPOUT = 0.1
MAX_LENGTHS = (64, 128, 256, 512)
SOURCES = ("wikitext paragraphs", "documentation passages")
NUM_STEPS = 2  # after a warm-up
EXPLANATION = (
    f"Minutes for an epoch over all texts; {SHAPE}, dropout {DROPOUT}. padded: transformers, every text padded to the "
    f"maximum length. packed: bertkit. {TOKENS_PER_STEP} tokens a step for both, padding included. Estimated from "
    f"{NUM_STEPS} steps after a warm-up; padded steps are measured once for each maximum length, since a padded text "
    "costs the same whatever it holds. real tokens: share of the padded ones that is no padding."
)
_PADDED, _PACKED = (THEIRS_FP32, THEIRS_BF16), (OURS_FP32, OURS_BF16)


def measure(threads: int, skipped: dict[str, str]) -> list[dict]:
    """One row for each source of texts and maximum length; reasons for missing rows are added to ``skipped``."""
    folder = masked_lm_folder(SHAPE)
    workers = start_trainers(threads, skipped)
    for worker in workers.values():
        worker.turn("prepare", folder, DROPOUT)
    seconds_per_text: dict[int, dict[str, float]] = {}
    rows = []
    for source in SOURCES:
        for max_length in MAX_LENGTHS:
            try:
                ids = texts.token_ids(source, folder, max_length)
            except RuntimeError as error:
                skipped[f"epoch over {source}"] = str(error)
                break
            say(f"epoch over {source}, maximum length {max_length}")
            if max_length not in seconds_per_text:
                steps = list(islice(sequence_steps(ids, TOKENS_PER_STEP // max_length, seed=0), NUM_STEPS + 1))
                seconds_per_text[max_length] = _seconds_per(len, steps, _PADDED, workers, pad_to=max_length)
            steps = list(islice(token_steps(ids, TOKENS_PER_STEP, seed=0), NUM_STEPS + 1))
            seconds_per_token = _seconds_per(num_tokens, steps, _PACKED, workers)
            num_real = sum(map(len, ids))
            rows.append(
                {
                    "texts": source,
                    "max_length": max_length,
                    "num_texts": len(ids),
                    "num_tokens": num_real,
                    "epoch_seconds": {
                        **{name: len(ids) * seconds for name, seconds in seconds_per_text[max_length].items()},
                        **{name: num_real * seconds for name, seconds in seconds_per_token.items()},
                    },
                }
            )
    for worker in workers.values():
        worker.close()
    return rows


def _seconds_per(
    size: Callable[[Sequence[Example]], int],
    steps: list[list[Example]],
    systems: Sequence[System],
    workers: dict[System, Worker],
    **setting: int,
) -> dict[str, float]:
    """Seconds of each system for one text or token; the first step is a warm-up, with a quarter of its texts."""
    seconds = {system: 0.0 for system in systems if system in workers}
    for seed, step in enumerate(steps):
        for system in seconds:
            taken = workers[system].turn("step", step if seed else step[::4], seed, **setting).seconds
            say(f"{f'step {seed}' if seed else 'warm-up'}: {system.name}, {taken:.2f} s")
            seconds[system] += taken if seed else 0.0
    return {system.name: total / sum(map(size, steps[1:])) for system, total in seconds.items()}


def describe(rows: list[dict]) -> list[str]:
    names = [system.name for system in (*_PADDED, *_PACKED)]
    padded, packed = THEIRS_FP32.name, OURS_BF16.name
    cells = []
    for row in rows:
        seconds = row["epoch_seconds"]
        times = [f"{seconds[name] / 60:.1f}" if name in seconds else "-" for name in names]
        ratio = f"{seconds[padded] / seconds[packed]:.1f}" if {padded, packed} <= set(seconds) else "-"
        share = row["num_tokens"] / (row["num_texts"] * row["max_length"])
        cells.append([row["texts"], f"{row['max_length']}", f"{share:.0%}", *times, ratio])
    header = ["texts", "maximum length", "real tokens", "padded, transformers fp32", "bf16 autocast"]
    header += ["packed, bertkit fp32", "bf16", "padded fp32 / packed bf16"]
    return ["## An epoch, padded or packed", "", report.markdown_table(header, *cells), "", EXPLANATION, ""]
