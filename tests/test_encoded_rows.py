"""Examples are encoded once in a run, and encodings of some of them equal those of these examples alone."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples_of_tasks import NUM_ROWS, TASKS, examples, model_of, write

from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import SequenceClassification, read_examples
from bertkit.tasks.encoded_rows import EncodedRows, encodings_of
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.usefixtures("one_thread")


def equal(first: Encodings, second: Encodings) -> bool:
    return all(np.array_equal(getattr(first, part.name), getattr(second, part.name)) for part in fields(first))


@pytest.mark.parametrize("task", TASKS)
def test_encodings_of_some_examples_equal_those_of_these_alone(task: str, tmp_path: Path) -> None:
    rows = EncodedRows(read_examples(task, write(tmp_path / "rows.jsonl", examples(task))))
    model, kind = model_of(TASKS[task]), TASKS[task]
    layout = Layout(9, kind.on_long)
    whole, indices = rows.encoded(kind, model.tokenizer, layout), np.array([1, 2, 7, 30])
    alone = kind.encode(model.tokenizer, [rows[index] for index in indices], layout)
    assert equal(encodings_of(whole, indices), alone) and len(whole) >= len(rows) == NUM_ROWS
    in_chunks = rows.in_chunks(kind, model.tokenizer, layout)
    for part in (rows[:10], rows[10:]):
        assert equal(in_chunks(part, 99), kind.encode(model.tokenizer, part, layout))


def test_encodings_are_kept_for_each_form_layout_and_tokenizer() -> None:
    task = TASKS["sequence-classification"]
    assert isinstance(task, SequenceClassification)
    tokenizer, rows = model_of(task).tokenizer, EncodedRows([task.example("a cat sat"), task.example("the dog")])
    assert EncodedRows.of(rows) is rows
    kept = rows.encoded(task, tokenizer, Layout(9))
    assert rows.encoded(replace(task, label_smoothing=0.1), tokenizer, Layout(9)) is kept  # the same sequences
    assert rows.encoded(task, model_of(task).tokenizer, Layout(9)) is kept  # an equal tokenizer
    for other in (
        rows.encoded(task, tokenizer, Layout(4, "truncate")),
        rows.encoded(replace(task, num_vectors=1), tokenizer, Layout(9)),
        rows.encoded(task, replace(tokenizer, truncation_side="left"), Layout(9)),
    ):
        assert other is not kept


@pytest.mark.parametrize("task", ["sequence-classification", "multi-label-classification", "token-classification"])
def test_a_run_tokenizes_every_row_once(task: str, encoder: Path, tmp_path: Path, monkeypatch) -> None:
    rows = list(read_examples(task, write(tmp_path / "rows.jsonl", examples(task))))
    texts: list[str] = []
    encode_batch = Tokenizer.encode_batch

    def counted(self: Tokenizer, batch: list[str], *arguments: Any, **options: Any) -> Encodings:
        texts.extend(batch)
        return encode_batch(self, batch, *arguments, **options)

    monkeypatch.setattr(Tokenizer, "encode_batch", counted)
    Finetuning(tmp_path / "out", encoder, task, FinetuningSettings.of(num_epochs=2)).start(rows, rows[:20])
    assert len(texts) == len(rows) + 20
