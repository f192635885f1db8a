"""A small example of every task: the task, a model with random weights, labeled rows, files of them, and commands."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from random_models import our_model

from bertkit import Model
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.cli import run
from bertkit.tasks import (
    MultiLabelClassification,
    MultipleChoice,
    OrdinalRegression,
    QuestionAnswering,
    Regression,
    SequenceClassification,
    TextTask,
    TokenClassification,
)
from bertkit.tokenizer.layout import Layout

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 1,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
WORDS = "the of and cat dog sat mat un run walk talk blue red green one two three four".split()
COLOURS = ("blue", "green", "red")
TAGS = ("O", "B-PER", "I-PER")
NUM_ROWS = 31
TASKS: dict[str, TextTask] = {
    task.name: task
    for task in (
        SequenceClassification(COLOURS),
        MultiLabelClassification(COLOURS),
        Regression(),
        OrdinalRegression(levels=("bad", "fair", "good")),
        TokenClassification(TAGS),
        QuestionAnswering(),
        MultipleChoice(),
    )
}


def model_of(task: TextTask) -> Model:
    """A model with random weights, marked as trained."""
    model = our_model(task.head, 3, len(task.label_names or "ab"), **SHAPE)
    model.checkpoint.label_names, model.checkpoint.problem_type = task.label_names, task.problem_type
    model.checkpoint.trained = TrainedTask(task, Layout(24, task.on_long))
    return model


def examples(task: str) -> list[dict[str, Any]]:
    draw = np.random.default_rng(7)
    results = []
    for number in range(NUM_ROWS):
        words = [str(word) for word in draw.choice(WORDS, int(draw.integers(4, 12)))]
        text, label = " ".join(words), int(draw.integers(3))
        results.append(
            {
                "sequence-classification": {"text": text, "label": COLOURS[label]},
                "multi-label-classification": {"text": text, "labels": list(COLOURS[:label])},
                "regression": {"text": text, "score": label / 2},
                "ordinal-regression": {"text": text, "label": ("bad", "fair", "good")[label]},
                "token-classification": {
                    "words": words,
                    "tags": ["O", "B-PER", *["I-PER"] * label, *["O"] * (len(words) - 2 - label)],
                },
                "question-answering": {
                    "question": words[0], "context": text, "answers": text[3 : 5 + label], "answer_start": 3,
                    "id": f"q{number}",
                },
                "multiple-choice": {"context": text, "choices": words[: 3 + number % 2], "label": label},
            }[task]
        )  # fmt: skip
    return results


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def call(capsys, *arguments: str) -> tuple[int, list[dict], str]:
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, [json.loads(line) for line in captured.out.splitlines()], captured.err


def first_note(lines: Sequence[str]) -> str:
    """The first line of a run's log after those that name its labels."""
    return next(line for line in lines if " labels: " not in line)
