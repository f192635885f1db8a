"""Speed of the whole pre-training loop on real text, with batching, clipping and optimizer: tokens per second without
padding."""

import statistics
from pathlib import Path

import report
from comparison import number
from pretrain_texts import MAX_LENGTH, SHAPES, prepare
from pretrainers import BATCH_SIZE
from trainers import OURS_BF16, OURS_FP32, SYSTEMS, THEIRS_BF16, THEIRS_FP32, System
from turns import say, start
from worker import Turn, Worker

NUM_STEPS = {"4 layers x 256": 8, "BERT-base": 1}  # of a turn
MOST_ROUNDS = {"BERT-base": 2}  # a step takes up to half a minute
EXPLANATION = (
    "tokens/s: real tokens, padding not counted, of the whole loop; median of the turns. Masked language modeling at "
    f"15 %, {BATCH_SIZE} sequences of at most {MAX_LENGTH} tokens a step, dropout 0.1, AdamW, gradients clipped. "
    "blocks: novels cut into sequences of the full length, as bertkit cuts them; paragraphs: a paragraph a sequence, "
    "cut at the full length and padded to the longest of the batch. vs: speed over transformers' loop of that kind. "
    "peak: most memory its process held meanwhile."
)
_ROWS = (
    *((OURS_BF16, "blocks"), (OURS_FP32, "blocks")),
    *((THEIRS_FP32, "paragraphs"), (THEIRS_BF16, "paragraphs"), (THEIRS_FP32, "blocks"), (THEIRS_BF16, "blocks")),
)
_COMPARED = [row for row in _ROWS if row[0] in (THEIRS_FP32, THEIRS_BF16)]
_COLUMNS = (
    *("system", "tokens/s", "vs fp32, paragraphs", "vs bf16, paragraphs", "vs fp32, blocks", "vs bf16, blocks"),
    *("tokens a step", "peak MiB", "seconds a step"),
)
_Row = tuple[System, str]


def measure(work: Path, threads: int, rounds: int, skipped: dict[str, str]) -> list[dict]:
    """One table for each shape; the reason why a system is missing is added to ``skipped``."""
    tables = []
    for shape, num_steps in NUM_STEPS.items():
        say(shape)
        try:
            folder = prepare(work, shape)
        except RuntimeError as error:
            skipped[shape] = str(error)
            continue
        workers = start(SYSTEMS, lambda system, at=folder: _worker(system, at, threads), skipped)
        turns: dict[_Row, list[Turn]] = {row: [] for row in _ROWS if row[0] in workers}
        for number_of_round in range(min(rounds, MOST_ROUNDS.get(shape, rounds)) + 1):
            for (system, sequences), taken in turns.items():
                taken.append(workers[system].turn("steps", num_steps, sequences))
                workers[system].forget_peak()  # and make room for the others
                name = f"round {number_of_round}" if number_of_round else "warm-up"
                say(f"{name}: {system.name}, {sequences}, {taken[-1].seconds:.2f} s")
        for worker in workers.values():
            worker.close()
        tables.append({"model": shape, "vocabulary": SHAPES[shape][1], "systems": _rows(turns, num_steps)})
    return tables


def _worker(system: System, folder: Path, threads: int) -> Worker:
    system.require()
    worker = Worker(f"pretrainers.{system.module}", "Pretrainer", threads)
    worker.turn("start", folder, system.precision)
    return worker


def _rows(turns: dict[_Row, list[Turn]], num_steps: int) -> list[dict]:
    rates = {row: statistics.median(turn.result / turn.seconds for turn in taken[1:]) for row, taken in turns.items()}
    return [
        {
            "system": _name(row),
            "tokens_per_second": round(rates[row], 1),
            "ratios": {_name(other): rates[row] / rates[other] for other in _COMPARED if other in rates},
            "tokens_per_step": statistics.mean(turn.result for turn in taken[1:]) / num_steps,
            "peak_bytes": max(turn.peak_bytes for turn in taken),
            "seconds_per_step": [round(turn.seconds / num_steps, 4) for turn in taken[1:]],
        }
        for row, taken in turns.items()
    ]


def _name(row: _Row) -> str:
    return ", ".join((row[0].name, row[1]))


def describe(tables: list[dict]) -> list[str]:
    lines = []
    for table in tables:
        rows = [
            [
                row["system"],
                f"{row['tokens_per_second']:.0f}",
                *(number(row["ratios"].get(_name(other)), ".2f") for other in _COMPARED),
                f"{row['tokens_per_step']:.0f}",
                f"{row['peak_bytes'] / 2**20:.0f}",
                f"{min(row['seconds_per_step']):.2f}-{max(row['seconds_per_step']):.2f}",
            ]
            for row in table["systems"]
        ]
        lines += [f"## {table['model']}", "", report.markdown_table(list(_COLUMNS), *rows), ""]
    return [*lines, EXPLANATION, ""]
