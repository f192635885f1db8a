"""Predictions of a task for examples, and its metrics."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from tqdm import tqdm

from bertkit.batch import Batch
from bertkit.errors import DataError, UsageError
from bertkit.inference.runner import Runner, chunks, inferred
from bertkit.inference.truncation import warn_of_truncation, warn_of_unknown
from bertkit.tasks import TextTask
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import Layout
from bertkit.tokenizer.tokenizer import refuse_table

Decode = Callable[[Sequence[Any], Encodings, np.ndarray], list[Any]]
"""Signature of `TextTask.decode`."""
Read = Callable[[Any], Any]
"""Signature of `TextTask.example` and `TextTask.labeled_example`."""


@dataclass
class PredictReport:
    """Counts of a prediction run."""

    num_examples: int = 0
    num_tokens: int = 0  # tokens computed, special tokens and window overlaps included
    num_cut: int = 0  # examples longer than the limit, which were cut
    num_tokens_cut: int = 0
    num_unknown: int = 0  # [UNK] tokens
    num_empty: int = 0  # texts or pairs without a single known token: empty, or only [UNK]


def predict(
    runner: Runner, task: TextTask, examples: Iterable[Any], layout: Layout, report: PredictReport | None
) -> list[Any]:
    """Predictions of a task, in order; without a report, cut examples and [UNK] tokens issue warnings."""
    counts = PredictReport() if report is None else report
    parts = predict_stream(runner, task, examples, layout, counts)
    predictions = [prediction for _, part in parts for prediction in part]
    warn_unless_reported(counts, report)
    return predictions


def evaluate(
    runner: Runner, task: TextTask, examples: Iterable[Any], layout: Layout, report: PredictReport | None
) -> dict[str, float]:
    """Metrics of a task over labeled examples, in any form that `TextTask.labeled_example` accepts; else as `predict`.

    Raises:
        DataError: no examples; a label that is missing or unknown to the task.
    """
    counts, scorer, is_empty = PredictReport() if report is None else report, task.scorer(), True
    for part, predictions in predict_stream(runner, task, examples, layout, counts, read=task.labeled_example):
        scorer.add(part, predictions)
        is_empty = False
    if is_empty:
        raise DataError("no examples to evaluate the model on: expected at least one")
    warn_unless_reported(counts, report)
    return scorer.results()


def predict_stream(
    runner: Runner,
    task: TextTask,
    examples: Iterable[Any],
    layout: Layout,
    report: PredictReport,
    *,
    read: Read | None = None,
    decode: Decode | None = None,
    progress: bool | None = None,
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Predict in bounded memory.

    Args:
        examples: inputs of ``read``; if they have a length, the progress bar shows the total.
        read: turns an input into an example; None: `TextTask.example`.
        decode: turns logits into predictions; None: `TextTask.decode`.

    Yields:
        Up to some thousand examples and their predictions, in order; ``report`` is kept up to date.

    Raises:
        OverLengthError: an example is too long under ``on_long="error"``.
        DataError, UsageError: an example that is invalid for this task; a str or a table instead of examples.
    """
    refuse_table(examples)
    if isinstance(examples, str):
        raise UsageError("expected a list of texts, got a str: put it in a list")
    read, decode = read or task.example, decode or task.decode
    total = len(examples) if isinstance(examples, Sized) else None
    hidden = None if progress is None else not progress
    with tqdm(total=total, desc="predicting", unit=" examples", delay=2, disable=hidden, leave=False) as bar:
        for chunk in chunks(map(read, examples), num_characters=lambda example: example.num_characters):
            encodings = task.encode(runner.tokenizer, chunk, layout, report.num_examples)
            report.num_examples += len(chunk)
            report.num_tokens += len(encodings.input_ids)
            report.num_cut += encodings.num_texts_cut
            report.num_tokens_cut += int(encodings.num_tokens_cut.sum())
            report.num_unknown += int(encodings.num_unknown.sum())
            report.num_empty += int(encodings.are_empty().sum())
            yield chunk, decode(chunk, encodings, head_logits(runner, task, encodings, bar))


def warn_unless_reported(counts: PredictReport, report: PredictReport | None) -> None:
    """Issue warnings about cut examples and [UNK] tokens if the caller gave no report."""
    if report is None:
        remedy = "shorten them to predict them in full"
        warn_of_truncation(counts.num_examples, counts.num_cut, counts.num_tokens_cut, remedy, stacklevel=4)
        warn_of_unknown(counts.num_unknown, counts.num_tokens, stacklevel=4)


def head_logits(runner: Runner, task: TextTask, encodings: Encodings, bar: tqdm) -> np.ndarray:
    """The logits of a task's head: float32, (S, ...) for each sequence, or (T, ...) for each token.

    Args:
        bar: progress bar, advanced by the number of computed examples.
    """
    reads_pooler = runner.network.architecture.reads_pooler(task.head, runner.network.config)
    first_only = task.head in runner.network.heads and runner.network.reads_first_tokens(task.head)
    is_first = np.diff(encodings.text_index, prepend=-1) > 0

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        encoded = runner.encoder(batch, with_pooled=reads_pooler, first_only=first_only)
        return task.read_out(runner.network, encoded, batch).float().cpu()

    def on_batch(indices: np.ndarray) -> None:
        bar.update(int(is_first[indices].sum()))

    rows_per_sequence = encodings.seqlens if task.of_tokens else None
    rows = runner.run(encodings, forward, rows_per_sequence=rows_per_sequence, on_batch=on_batch)
    return inferred(lambda: task.logits_of(runner.network, rows)).numpy()
