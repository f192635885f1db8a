"""A batch in parts with a maximum number of tokens: the loss and the gradients of every task equal those of the whole
batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import COLOURS, SHAPE, TASKS, examples, model_of
from random_models import error, our_model

from bertkit import Model
from bertkit.batch import LabeledBatch
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import FewShotClassification, Loss, TextTask
from bertkit.tasks.few_shot import ContrastFeed
from bertkit.tokenizer.layout import Layout
from bertkit.training import (
    TrainingSettings,
    batch_gradients,
    compute_gradients,
    compute_gradients_of_vectors,
    outputs_of,
)
from bertkit.transformer.kernels import training_kernels

pytestmark = pytest.mark.usefixtures("one_thread")

MOST_TOKENS = 60


def labeled_examples(task: str) -> list[Any]:
    """The examples of `examples_of_tasks` for a task."""
    kind, results = TASKS[task], []
    for row in examples(task):
        if task == "token-classification":
            results.append(kind.example(row["words"], row["tags"]))
        elif task == "question-answering":
            results.append(kind.example((row["question"], row["context"]), row["answers"]))
        elif task == "multiple-choice":
            results.append(kind.example((row["context"], row["choices"][:3]), row["label"]))
        else:
            label = next(row[name] for name in ("label", "labels", "score") if name in row)
            results.append(kind.example(row["text"], tuple(label) if isinstance(label, list) else label))
    return results


def model_and_batch(task: str) -> tuple[Model, TextTask, LabeledBatch]:
    if task == "few-shot-classification":
        few_shot = FewShotClassification(COLOURS)
        model = our_model(few_shot.head, 3, len(COLOURS), **SHAPE)
        given = labeled_examples("sequence-classification")
        encodings = few_shot.encode(model.tokenizer, given, Layout(24, "truncate"))
        return model, few_shot, ContrastFeed(few_shot.labeled(given, encodings), 40, seed=2).batch(0, 0.0)
    model = model_of(TASKS[task])
    given = labeled_examples(task)
    encodings = TASKS[task].encode(model.tokenizer, given, model.trained.layout)
    data = TASKS[task].labeled(given, encodings)
    return model, TASKS[task], data.take(np.arange(len(data)))


def gradients_of_vectors(
    model: Model, task: TextTask, batch: LabeledBatch, parts: Sequence[LabeledBatch], **options: Any
) -> Loss:
    def loss(vectors: torch.Tensor) -> tuple[Loss, torch.Tensor]:
        results = task.loss(vectors.requires_grad_(), batch, task.totals(batch))
        return Loss(results.value.detach(), results.sums), torch.autograd.grad(results.value, vectors)[0]

    return compute_gradients_of_vectors(
        list(model.network.parameters()), parts, lambda part: task.vectors(outputs_of(model.network, part)), loss,
        **options,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_of_vectors_equals_single_graph_with_the_same_dropout(dtype: torch.dtype) -> None:
    """The vectors of all parts in one graph, and the loss of the batch on top, against a graph for each part."""
    results = []
    for num_threads in (1, 4):  # with one the parts are computed twice, with four they keep their activations
        model, task, batch = model_and_batch("few-shot-classification")
        for module in model.network.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.2
        model.network.train()
        parts = batch.split(3)
        torch.set_num_threads(num_threads)
        loss = gradients_of_vectors(model, task, batch, parts, dtype=dtype, seed=9)
        torch.set_num_threads(1)
        results.append((loss.value, [p.grad.clone() for p in model.network.parameters() if p.grad is not None]))
    assert results[0][0] == results[1][0] and all(map(torch.equal, results[0][1], results[1][1]))

    vectors = []
    for number, part in enumerate(parts):
        with training_kernels(dtype, 9 * 1_000_003 + number):
            vectors.append(task.vectors(outputs_of(model.network, part)))
    whole = task.loss(torch.cat(vectors), batch, task.totals(batch)).value
    model.network.zero_grad()
    whole.backward()
    expected = [p.grad.to_dense() for p in model.network.parameters() if p.grad is not None]
    assert float(whole.detach()) == pytest.approx(float(results[0][0]), rel=1e-6)
    assert len(expected) == len(results[0][1])
    assert max(error(*pair) for pair in zip(results[0][1], expected, strict=True)) < (
        1e-5 if dtype == torch.float32 else 0.02
    )


@pytest.mark.parametrize("task", [*TASKS, "few-shot-classification"])
def test_gradients_and_losses_equal_those_of_the_whole_batch(task: str) -> None:
    model, kind, batch = model_and_batch(task)
    parameters = list(model.network.parameters())
    totals, gradients, losses, metrics = kind.totals(batch), [], [], []
    for parts in (batch.split(1), batch.split(2, MOST_TOKENS)):
        for parameter in parameters:
            parameter.grad = None
        if kind.of_vectors:
            results = [gradients_of_vectors(model, kind, batch, parts)]
        else:
            results = compute_gradients(
                parameters, parts, lambda part: kind.loss(outputs_of(model.network, part), part, totals)
            )
        gradients.append(torch.cat([p.grad.flatten().clone() for p in parameters if p.grad is not None]))
        losses.append(sum(float(loss.value) for loss in results))
        metrics.append(kind.metrics(torch.stack([loss.sums for loss in results]).sum(0)))
    assert len(parts) > 2 and all(part.num_tokens <= MOST_TOKENS or len(part) == 1 for part in parts)
    assert float(gradients[0].abs().max()) > 1e-3
    assert error(gradients[1], gradients[0]) < 1e-5
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_passes_respect_the_token_limit(
    tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    seen: list[tuple[int, int]] = []

    def watched(parameters: Any, parts: Sequence[LabeledBatch], loss: Any, **options: Any) -> Any:
        seen.extend((part.num_tokens, len(part)) for part in parts)
        return compute_gradients(parameters, parts, loss, **options)

    monkeypatch.setattr(batch_gradients, "compute_gradients", watched)
    settings = FinetuningSettings.of(num_epochs=1, batch_size=16, tokens_per_part=MOST_TOKENS, precision=precision)
    run = Finetuning(tmp_path / "out", encoder, "sequence-classification", settings, log_line=lambda line: None)
    run.start(labeled_examples("sequence-classification"))
    assert len(seen) > 4 and sum(number for _, number in seen) == len(examples("sequence-classification"))
    assert max(tokens for tokens, _ in seen) <= MOST_TOKENS


def test_most_tokens_by_device() -> None:
    by_device, fixed = TrainingSettings(num_steps=1, tokens_per_part=None), TrainingSettings(num_steps=1)
    assert [by_device.most_tokens(torch.device(name)) for name in ("cpu", "cuda", "mps")] == [2_048, 8_192, 8_192]
    assert fixed.most_tokens(torch.device("cpu")) == fixed.tokens_per_part == 8_192
