"""Speed of optimizer steps over the same texts, from the same weights: tokens per second without padding."""

import statistics
from itertools import islice

import report
import texts
from comparison import number
from masked_text import Example, num_tokens, sequence_steps, token_steps
from models import SHAPES, masked_lm_folder
from trainers import THEIRS_BF16, THEIRS_FP32, System, start_trainers
from turns import say
from worker import Turn, Worker

TOKENS_PER_STEP = 4_096
MAX_LENGTH = 128
WORKLOADS = (("wikitext paragraphs", 0.1), ("wikitext paragraphs", 0.0), ("documentation passages", 0.1))
MOST_ROUNDS = {"BERT-base": 2}  # a step takes up to half a minute
TOO_MUCH = {("BERT-base", "documentation passages")}  # padded, the peer's logits of a step outgrow 24 GB
NUM_EVALUATION_TEXTS = 16
EXPLANATION = (
    "tokens/s: real tokens, padding not counted; median of the steps. vs fp32, vs bf16: speed over transformers' fp32 "
    f"and bf16 autocast. loss: mean over the masked tokens of {NUM_EVALUATION_TEXTS} fixed texts, without dropout, "
    "before and after these few steps: the same before, nearly the same after. peak: most memory its process held "
    "meanwhile."
)
_COLUMNS = ("system", "tokens/s", "vs fp32", "vs bf16", "loss before", "after", "peak MiB", "seconds a step")


def measure(threads: int, rounds: int, scale: float, skipped: dict[str, str]) -> list[dict]:
    """One table for each shape, source of texts and dropout; reasons for missing ones are added to ``skipped``."""
    workers = start_trainers(threads, skipped)
    tables = []
    for shape in SHAPES:
        folder = masked_lm_folder(shape)
        for source, dropout in WORKLOADS:
            if (shape, source) in TOO_MUCH:
                continue
            name = f"{shape}, {source}, dropout {dropout}"
            say(name)
            try:
                ids = texts.token_ids(source, folder, MAX_LENGTH)
            except RuntimeError as error:
                skipped[name] = str(error)
                continue
            tokens_per_step = max(1, round(TOKENS_PER_STEP * scale))
            steps = [
                next(token_steps(ids, tokens_per_step // 8, seed=1)),  # warm-up
                *islice(token_steps(ids, tokens_per_step, seed=0), min(rounds, MOST_ROUNDS.get(shape, rounds))),
            ]
            about = {
                "model": shape,
                "texts": source,
                "dropout": dropout,
                "max_length": MAX_LENGTH,
                "mean_tokens": round(statistics.mean(map(len, ids)), 1),
                "tokens_of_steps": [num_tokens(step) for step in steps[1:]],
            }
            for worker in workers.values():
                worker.turn("prepare", folder, dropout)
                worker.forget_peak()
            evaluation = next(sequence_steps(ids, NUM_EVALUATION_TEXTS, seed=2))
            before = _losses(workers, evaluation)
            turns = _take_turns(workers, steps)
            tables.append(about | {"systems": _rows(turns, steps, before, _losses(workers, evaluation))})
    for worker in workers.values():
        worker.close()
    return tables


def _losses(workers: dict[System, Worker], evaluation: list[Example]) -> dict[System, float]:
    return {system: worker.turn("evaluate", evaluation).result for system, worker in workers.items()}


def _take_turns(workers: dict[System, Worker], steps: list[list[Example]]) -> dict[System, list[Turn]]:
    turns = {system: [] for system in workers}
    for seed, step in enumerate(steps):
        for system, worker in workers.items():
            turns[system].append(worker.turn("step", step, seed))
            say(f"{f'step {seed}' if seed else 'warm-up'}: {system.name}, {turns[system][-1].seconds:.2f} s")
    return turns


def _rows(
    turns: dict[System, list[Turn]],
    steps: list[list[Example]],
    before: dict[System, float],
    after: dict[System, float],
) -> list[dict]:
    tokens = [num_tokens(step) for step in steps]
    rates = {
        system: statistics.median(count / turn.seconds for count, turn in zip(tokens[1:], taken[1:], strict=True))
        for system, taken in turns.items()
    }
    return [
        {
            "system": system.name,
            "precision": system.precision,
            "tokens_per_second": round(rates[system], 1),
            "ratio_to_fp32": rates[system] / rates[THEIRS_FP32] if THEIRS_FP32 in rates else None,
            "ratio_to_bf16": rates[system] / rates[THEIRS_BF16] if THEIRS_BF16 in rates else None,
            "loss_before": before[system],
            "loss_after": after[system],
            "peak_bytes": max(turn.peak_bytes for turn in taken),
            "seconds": [round(turn.seconds, 4) for turn in taken[1:]],
        }
        for system, taken in turns.items()
    ]


def describe(tables: list[dict]) -> list[str]:
    lines = []
    for table in tables:
        rows = [
            [
                row["system"],
                f"{row['tokens_per_second']:.0f}",
                number(row["ratio_to_fp32"], ".2f"),
                number(row["ratio_to_bf16"], ".2f"),
                f"{row['loss_before']:.4f}",
                f"{row['loss_after']:.4f}",
                f"{row['peak_bytes'] / 2**20:.0f}",
                f"{min(row['seconds']):.2f}-{max(row['seconds']):.2f}",
            ]
            for row in table["systems"]
        ]
        lines += [
            f"## {table['model']}, {table['texts']}, dropout {table['dropout']}",
            "",
            f"{len(table['tokens_of_steps'])} steps of {round(statistics.mean(table['tokens_of_steps']))} real tokens; "
            f"texts cut at {table['max_length']}, mean {table['mean_tokens']} tokens.",
            "",
            report.markdown_table(list(_COLUMNS), *rows),
            "",
        ]
    return [*lines, EXPLANATION, ""]
