"""Baselines without fine-tuning: a constant prediction, and a classifier on frozen features.

Frozen features are the vectors of texts as the model was published, of a pair (u, v) the vectors |u - v| and u * v
(Conneau et al. 2017, section 3.1), of words those of their first pieces; on them logistic regression, for numbers ridge
regression. Shape letters: N examples, W words, T tokens, C labels, E width of the features.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertkit.batch import IGNORED, Batch
from bertkit.inference import EmbedReport, Runner
from bertkit.model import Model
from bertkit.tasks import JudgedTask, TextExample, TextTask
from bertkit.tasks.logistic_regression import logistic_regression
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout

FROZEN = "frozen features"
_MOST_ROWS = 20_000
"""Texts, or words, that the frozen features are fitted to; of more a random part."""
_MAX_ITER = 100
_RIDGE_PENALTY = 1.0


def baselines_of(
    task: TextTask,
    layout: Layout,
    train: Sequence[Any],
    dev: Sequence[Any],
    metric: str,
    *,
    frozen: Callable[[], Model],
    tokenizer: Tokenizer,
) -> dict[str, float]:
    """A metric on dev examples, by the name of the method: first of a constant prediction, then of
    classifiers and taggers that of `FROZEN` features.

    Each text is read once. A threshold that the task sets on dev examples is set for these as well. A correlation with
    a constant is 0 here.

    Args:
        frozen: opens the encoder as it was published; called where the task has frozen features.
    """
    if not isinstance(task, JudgedTask):
        name, predictions = task.constant_predictions(train, dev)
        return {name: _score(task, dev, predictions, metric)}
    encodings, (name, constant) = task.encode(tokenizer, dev, layout), task.constant_logits(train)
    number = len(encodings.input_ids if task.of_tokens else encodings)
    logits = _frozen_logits(task, layout, train, dev, encodings, frozen())
    return {
        name: _score_of_logits(task, dev, encodings, np.tile(constant, (number, 1)), metric),
        FROZEN: _score_of_logits(task, dev, encodings, logits, metric),
    }


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better: of losses and errors it is not."""
    return metric != "loss" and not metric.endswith("_error")


def comparison(metric: str, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
    """In one line, what fine-tuning reached and what is reached without it.

    >>> comparison("accuracy", {"accuracy": 0.821}, {"most frequent label": 0.013, "frozen features": 0.863})
    'accuracy on dev 0.821; most frequent label 0.013, frozen features 0.863: fine-tuning is worse by 0.042'
    """
    if not metrics:
        return "without dev examples the quality of the model is unknown: evaluate it with bertkit evaluate"
    sign = 1 if higher_is_better(metric) else -1
    gain = sign * metrics[metric] - max(sign * value for value in baselines.values())
    others = ", ".join(f"{name} {value:.3f}" for name, value in baselines.items())
    verdict = f"{'better' if gain >= 0 else 'worse'} by {abs(gain):.3f}"
    return f"{metric} on dev {metrics[metric]:.3f}; {others}: fine-tuning is {verdict}"


def _score_of_logits(
    task: TextTask, dev: Sequence[Any], encodings: Encodings, logits: np.ndarray, metric: str
) -> float:
    tuned = task.with_calibrated_thresholds(dev, task.decode(dev, encodings, logits))
    return _score(tuned, dev, tuned.decode(dev, encodings, logits), metric)


def _score(task: TextTask, dev: Sequence[Any], predictions: Sequence[Any], metric: str) -> float:
    scorer = task.scorer()
    scorer.add(dev, predictions)
    value = scorer.results()[metric]
    return 0.0 if math.isnan(value) else value


def _frozen_logits(
    task: JudgedTask, layout: Layout, train: Sequence[Any], dev: Sequence[Any], encodings: Encodings, model: Model
) -> np.ndarray:
    """What the head of the task would give for ``encodings`` of ``dev``: (T, C), or a row for each sequence."""
    if task.of_words:
        some = _some(train, [len(example.tags or ()) for example in train])
        data = task.labeled(some, task.encode(model.tokenizer, some, layout))
        vectors, labels = _token_vectors(model, data.encodings, torch.Tensor.cpu), torch.from_numpy(data.labels)
        is_word = labels != IGNORED
        weight, bias = _classifier(vectors[is_word], labels[is_word], len(task.label_names or ()))
        return _token_vectors(model, encodings, lambda states: F.linear(states.cpu(), weight, bias)).numpy()
    some = _some(train, [1] * len(train))
    targets, vectors = torch.from_numpy(task.targets(some)), _text_vectors(model, some, layout)
    if targets.ndim == 2:
        of_labels = [_classifier(vectors, has.long(), 2) for has in targets.T]
        weight, bias = (torch.stack([one[1] - one[0] for one in parts]) for parts in zip(*of_labels, strict=True))
    elif targets.is_floating_point():
        weight, bias = _ridge_regression(vectors, targets)
    else:
        weight, bias = _classifier(vectors, targets, len(task.label_names or ()))
    return F.linear(_text_vectors(model, dev, layout), weight, bias).numpy()[encodings.text_index]


def _some(train: Sequence[Any], num_rows: Sequence[int]) -> list[Any]:
    """As many examples as have _MOST_ROWS rows together, drawn at random."""
    order = np.random.default_rng(0).permutation(len(train))
    before = np.cumsum(np.array(num_rows)[order]) - np.array(num_rows)[order]
    return [train[number] for number in order[before < _MOST_ROWS].tolist()]


def _text_vectors(model: Model, examples: Sequence[TextExample], layout: Layout) -> Tensor:
    """(N, E) float32."""
    options: dict[str, Any] = {
        "normalize": True, "max_length": layout.max_length, "on_long": layout.on_long, "stride": layout.stride,
    }  # fmt: skip

    def vectors(texts: Sequence[str]) -> np.ndarray:
        return model.embed(texts, report=EmbedReport(), **options)

    first = vectors([example.text for example in examples])
    pairs = [example.pair for example in examples if example.pair is not None]
    if not pairs:
        return torch.from_numpy(first)
    second = vectors(pairs)
    return torch.from_numpy(np.concatenate([np.abs(first - second), first * second], axis=1))


def _token_vectors(model: Model, encodings: Encodings, transform: Callable[[Tensor], Tensor]) -> Tensor:
    """(T, ...) float32: what ``transform`` makes of the hidden states of tokens, scaled to length 1."""
    runner = Runner(model.network, model.tokenizer, model.encoder)

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        return transform(F.normalize(runner.encoder(batch, with_pooled=False).last_hidden_state.float(), dim=-1))

    return runner.run(encodings, forward, rows_per_sequence=encodings.seqlens)


def _classifier(vectors: Tensor, labels: Tensor, num_labels: int) -> tuple[Tensor, Tensor]:
    """(C, E) weights and (C,) biases of logistic regression, float32."""
    weight, bias = logistic_regression(vectors, labels, num_labels, max_iter=_MAX_ITER)
    return weight.float(), bias.float()


def _ridge_regression(vectors: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(1, E) weights and (1,) bias with the least squared error plus penalty of the weights, float32: scikit-learn's
    Ridge at its defaults."""
    vectors, targets = vectors.double(), targets.double()
    middle, mean = vectors.mean(dim=0), targets.mean()
    apart = vectors - middle
    penalty = _RIDGE_PENALTY * torch.eye(apart.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(apart.T @ apart + penalty, apart.T @ (targets - mean))
    return weight[None].float(), (mean - middle @ weight)[None].float()
