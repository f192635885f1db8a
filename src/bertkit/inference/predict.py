"""Predictions of a task for examples, and its metrics."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import DataError, UsageError
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Bar, Runner, encoded_chunks, inferred
from bertkit.tasks.encoded_rows import EncodedRows
from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import Layout

REMEDY = "shorten them to predict them in full"
"""What to do about examples that were cut."""

Decode = Callable[[Sequence[Any], Encodings, np.ndarray], list[Any]]
"""Signature of `TextTask.decode`."""
Read = Callable[[Any], Any]
"""Signature of `TextTask.example` and `TextTask.labeled_example`."""


def predict(
    runner: Runner, task: TextTask, examples: Iterable[Any], layout: Layout, report: InferenceReport | None
) -> list[Any]:
    """Predictions of a task, in order; without a report, cut examples and [UNK] tokens issue warnings."""
    counts = InferenceReport() if report is None else report
    parts = predict_stream(runner, task, examples, layout, counts)
    predictions = [prediction for _, part in parts for prediction in part]
    if report is None:
        counts.warn(REMEDY)
    return predictions


def evaluate(
    runner: Runner, task: TextTask, examples: Iterable[Any], layout: Layout, report: InferenceReport | None
) -> dict[str, float]:
    """Metrics of a task over labeled examples, in any form that `TextTask.labeled_example` accepts; else as `predict`.

    Raises:
        DataError: no examples; a label that is missing or unknown to the task.
    """
    counts, scorer, is_empty = InferenceReport() if report is None else report, task.scorer(), True
    for part, predictions in predict_stream(runner, task, examples, layout, counts, read=task.labeled_example):
        scorer.add(part, predictions)
        is_empty = False
    if is_empty:
        raise DataError("no examples to evaluate the model on: expected at least one")
    if report is None:
        counts.warn(REMEDY)
    return scorer.results()


def predict_stream(
    runner: Runner,
    task: TextTask,
    examples: Iterable[Any],
    layout: Layout,
    report: InferenceReport,
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
    if isinstance(examples, str):
        raise UsageError("expected a list of texts, got a str: put it in a list")
    decode = decode or task.decode
    if isinstance(examples, EncodedRows):
        encode = examples.in_chunks(task, runner.tokenizer, layout)
    else:
        encode = partial(_encode, runner, task, layout)
    coming = encoded_chunks(
        examples, encode, report,
        num_characters=lambda example: example.num_characters, doing="predicting", unit="examples",
        read=read or task.example, progress=progress,
    )  # fmt: skip
    for chunk, encodings, bar in coming:
        yield chunk, decode(chunk, encodings, head_logits(runner, task, encodings, bar))


def _encode(runner: Runner, task: TextTask, layout: Layout, chunk: Sequence[Any], first_index: int) -> Encodings:
    return task.encode(runner.tokenizer, chunk, layout, first_index)


def head_logits(runner: Runner, task: TextTask, encodings: Encodings, bar: Bar) -> np.ndarray:
    """The logits of a task's head: float32, (S, ...) for each sequence, or (T, ...) for each token.

    Args:
        bar: progress bar, advanced by the number of computed examples.
    """
    reads_pooler = runner.network.architecture.reads_pooler(task.head, runner.network.config)
    first_only = task.head in runner.network.heads and runner.network.reads_first_tokens(task.head)
    is_first = np.diff(encodings.text_index, prepend=-1) > 0

    def forward(batch: Batch, indices: np.ndarray) -> Any:
        encoded = runner.encoder(batch, with_pooled=reads_pooler, first_only=first_only)
        rows: Any = task.read_out(runner.network, encoded, batch)
        return rows if batch.is_in_arrays else rows.float().cpu()

    def on_batch(indices: np.ndarray) -> None:
        bar.update(int(is_first[indices].sum()))

    rows_per_sequence = encodings.seqlens if task.of_tokens else None
    rows = runner.run(encodings, forward, rows_per_sequence=rows_per_sequence, on_batch=on_batch)
    return np.asarray(inferred(lambda: task.logits_of(runner.network, rows)))
