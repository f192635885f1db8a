"""Initialize the head by fitting it to the features of the frozen encoder.

A randomly initialized head distorts good features before it is useful (Kumar et al. 2022, "Fine-tuning can distort
pretrained features and underperform out-of-distribution"). Here its last layer starts at the minimum of the task's loss
with a weight penalty: logistic regression for classes, ridge regression for numbers. The loss is convex in
that layer, and the features are computed once. Shape letters: R rows of features, E their width, C outputs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.architectures import prepare
from bertkit.architectures.tensor_names import module_of
from bertkit.batch import IGNORED, Batch, LabeledBatch, LabeledEncodings
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.errors import DataError
from bertkit.inference import Runner
from bertkit.model import Model
from bertkit.tasks import TextTask
from bertkit.tasks.encoded_rows import EncodedRows, encodings_of
from bertkit.tasks.linear_fit import FEW_SHOT_PENALTY, INVERSE_PENALTIES, minimize
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges

MOST_ROWS = 20_000
"""Feature rows that are enough to fit a head: of larger data, random examples are used until they have as many."""

_NUM_FOLDS, _MOST_FOLDED = 5, 2_000  # folds; with more examples a single fifth is held out
_FEWEST_FOLDED = 10  # examples; with fewer, the penalty of few-shot classification is used
_FIRST_ITERATIONS, _ITERATIONS = 100, 1_000


@dataclass(frozen=True)
class FittedHead:
    """Result of fitting a head."""

    num_examples: int  # number of training examples; 0: a trained head was kept
    inverse_penalty: float  # what scikit-learn calls C
    num_held_out: int  # number of examples in cross-validation
    metrics: dict[str, float]  # in cross-validation; empty with fewer than ten examples


def fit_new_head(model: Model, examples: Sequence[Any], precision: str) -> FittedHead | None:
    """Fit the last layer of the head to the frozen encoder, with the best penalty in cross-validation, unless it was
    trained already; None if the task does not fit its head.

    Args:
        precision: precision of the encoder, "float32" or "bfloat16".

    Raises:
        DataError: all examples have the same features.
    """
    task = model.trained.task
    if task.fitting_loss is None:
        return None
    if task.head in model.checkpoint.trained_heads():
        return FittedHead(0, 0.0, 0, {})
    features = FrozenFeatures.of(model, examples, precision)
    penalty, num_held_out, metrics = best_penalty(features)
    _set_last_layer(model, *features.fit(np.arange(len(features.examples)), penalty, _ITERATIONS))
    return FittedHead(len(features.examples), penalty, num_held_out, metrics)


def refit_head(model: Model, data: LabeledEncodings) -> None:
    """Refit the last layer to the current encoder, for tasks that do not train it by gradients; else do nothing."""
    task = model.trained.task
    if task.of_vectors and task.fitting_loss is not None:
        rows = head_features(model, data, "float32")
        part = LabeledBatch(_NO_BATCH, torch.from_numpy(data.labels))
        _set_last_layer(model, *_fit(task, rows, part, _last_layer(model), FEW_SHOT_PENALTY, _ITERATIONS))


def head_features(model: Model, data: LabeledEncodings, precision: str) -> Tensor:
    """(R, E) float32: the input of the head's last layer for each sequence, pair or token, without dropout."""
    network, task = model.network, model.trained.task
    was_training = network.training
    network.eval()
    runner = Runner(network, model.tokenizer, prepare(network.encoder, precision))
    reads_pooler = network.architecture.reads_pooler(task.head, network.config)
    head: Any = network.heads[task.head]
    apart = getattr(head, "num_vectors", 1) == 2  # the texts of a pair may be in different batches

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        taken = network.head_input(task.head, runner.encoder(batch, with_pooled=reads_pooler), batch)
        return (taken if apart else head.features(taken)).float().cpu()

    rows = runner.run(data.encodings, forward, rows_per_sequence=data.encodings.seqlens if task.of_tokens else None)
    network.train(was_training)
    with torch.inference_mode():
        return head.features(rows) if apart else rows


@dataclass(frozen=True)
class FrozenFeatures:
    """Features of examples, and the rows of each example."""

    task: TextTask
    model: Model
    examples: Sequence[Any]
    data: LabeledEncodings
    rows: Tensor  # (R, E)

    @classmethod
    def of(cls, model: Model, examples: Sequence[Any], precision: str) -> "FrozenFeatures":
        task, layout = model.trained.task, model.trained.layout
        encodings = EncodedRows.of(examples).encoded(task, model.tokenizer, layout)
        indices = _some(len(examples), encodings, task)
        some = [examples[index] for index in indices.tolist()]
        data = task.labeled(some, encodings_of(encodings, indices))
        rows = head_features(model, data, precision)
        if not torch.isfinite(rows).all():
            raise DataError("the encoder's features are not finite numbers: its weights are damaged")
        if len(rows) > 1 and bool((rows == rows[:1]).all()):
            raise DataError(
                f"the encoder gives all {len(some)} training examples the same features: expected different texts; "
                "check the text column"
            )
        return cls(task, model, some, data, rows)

    def fit(
        self, indices: np.ndarray, inverse_penalty: float, max_iter: int, start: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Fit (C, E) weights and (C,) biases, zeros in a layer without them, to the examples at ``indices``."""
        rows, part = self._part(indices)
        return _fit(self.task, rows, part, _last_layer(self.model), inverse_penalty, max_iter, start)

    def loss(self, indices: np.ndarray, layer: tuple[Tensor, Tensor]) -> float:
        """Summed loss of the examples at ``indices``."""
        rows, part = self._part(indices)
        return float(_loss_of(self.task, part)(F.linear(rows.double(), *layer)))

    def logits(self, indices: np.ndarray, layer: tuple[Tensor, Tensor]) -> tuple[list[Any], Encodings, np.ndarray]:
        """Examples at ``indices``, with their sequences and logits: the arguments of `TextTask.decode`."""
        some = [self.examples[index] for index in indices.tolist()]
        encodings = encodings_of(self.data.encodings, indices)
        rows = self.rows[self._row_indices(self._groups(indices))]
        return some, encodings, F.linear(rows.double(), *layer).float().numpy()

    def _groups(self, indices: np.ndarray) -> np.ndarray:
        """Groups of sequences of the examples at ``indices``."""
        example_of = self.data.encodings.text_index[:: self.data.group_size]
        starts, ends = (np.searchsorted(example_of, indices, side) for side in ("left", "right"))
        return ranges(starts, ends - starts)

    def _row_indices(self, groups: np.ndarray) -> np.ndarray:
        if self.task.of_tokens:
            seqlens, starts = self.data.encodings.seqlens, self.data.encodings.cu_seqlens[:-1]
            return ranges(starts[groups], seqlens[groups])
        rows_per_group = len(self.rows) // len(self.data)
        return (groups[:, None] * rows_per_group + np.arange(rows_per_group)).ravel()

    def _part(self, indices: np.ndarray) -> tuple[Tensor, LabeledBatch]:
        groups = self._groups(indices)
        part, rows = self.data.take(groups), self.rows[self._row_indices(groups)]
        if self.data.of_tokens:  # tokens without a label do not count in the loss
            has_label = part.labels != IGNORED
            rows, part = rows[has_label], replace(part, labels=part.labels[has_label])
        return rows, part


def best_penalty(features: FrozenFeatures) -> tuple[float, int, dict[str, float]]:
    """The inverse penalty with the lowest held-out loss, the number of held-out examples, and their metrics."""
    number = len(features.examples)
    if number < _FEWEST_FOLDED:
        return FEW_SHOT_PENALTY, 0, {}
    folds = list(folds_of(features))
    losses, layers = {}, {}
    for penalty in (FEW_SHOT_PENALTY,) if features.task.of_vectors else INVERSE_PENALTIES:
        before = layers
        layers = {
            index: features.fit(kept, penalty, _FIRST_ITERATIONS, before.get(index))
            for index, (kept, _) in enumerate(folds)
        }
        losses[penalty] = sum(features.loss(held_out, layers[index]) for index, (_, held_out) in enumerate(folds))
        if losses[penalty] > min(losses.values()):  # convex in the penalty up to noise
            layers = before
            break
    scorer, num_held_out = features.task.scorer(), 0
    for index, (_, held_out) in enumerate(folds):
        given = features.logits(held_out, layers[index])
        scorer.add(given[0], features.task.decode(*given))
        num_held_out += len(held_out)
    return min(losses, key=losses.__getitem__), num_held_out, scorer.results()


def folds_of(features: FrozenFeatures, *, all_rows: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices of the training and held-out examples of each fold, stratified by label.

    Args:
        all_rows: hold out every example once, even with many examples.
    """
    number, labels = len(features.examples), features.data.labels
    order = np.random.default_rng(0).permutation(number)
    if labels.ndim == 1 and labels.dtype.kind == "i" and not features.data.of_tokens:
        first_group = np.searchsorted(features.data.encodings.text_index[:: features.data.group_size], order)
        order = order[np.argsort(labels[first_group], kind="stable")]
    fold_of = np.empty(number, np.int64)
    fold_of[order] = np.arange(number) % _NUM_FOLDS
    for fold in range(_NUM_FOLDS if all_rows or number <= _MOST_FOLDED else 1):
        yield np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)


def _fit(
    task: TextTask,
    rows: Tensor,
    part: LabeledBatch,
    layer: nn.Linear,
    inverse_penalty: float,
    max_iter: int,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    length = rows.double().square().sum(dim=-1).mean().sqrt()  # 1 for vectors of length 1
    scaled = None if start is None else (start[0] * length, start[1])
    features = rows.double() / length
    loss, has_bias = _loss_of(task, part), layer.bias is not None
    weight, bias = minimize(loss, features, layer.out_features, inverse_penalty, max_iter, scaled, has_bias=has_bias)
    return weight / length, bias


def _loss_of(task: TextTask, part: LabeledBatch) -> Callable[[Tensor], Tensor]:
    """Summed loss as a function of the logits."""
    assert task.fitting_loss is not None
    labels = part.labels.double() if part.labels.is_floating_point() else part.labels
    function, part, totals = task.fitting_loss, replace(part, labels=labels), task.fitting_loss.totals(part)
    return lambda logits: function.loss(logits, part, totals).value * float(totals[0])


def _last_layer(model: Model) -> Any:
    head: Any = model.network.heads[model.trained.task.head]
    return head.classifier


def _set_last_layer(model: Model, weight: Tensor, bias: Tensor) -> None:
    task, network, layer = model.trained.task, model.network, _last_layer(model)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if layer.bias is not None:
            layer.bias.copy_(bias)
    parts = [task.head, *(["pooler"] if network.architecture.reads_pooler(task.head, network.config) else [])]
    for part in parts:
        prefix = module_of(part)
        for name, _ in network.get_submodule(prefix).named_parameters():
            model.checkpoint.provenance[network.architecture.names.published(f"{prefix}.{name}")] = Provenance(
                "trained"
            )


def _some(number: int, encodings: Encodings, task: TextTask) -> np.ndarray:
    """Indices of random examples, ascending: as many as are needed for MOST_ROWS rows, or all if they have fewer."""
    counts = np.bincount(encodings.text_index, encodings.seqlens if task.of_tokens else None, minlength=number)
    order = np.random.default_rng(0).permutation(number)
    before = np.cumsum(counts[order]) - counts[order]
    return np.sort(order[before < MOST_ROWS])


_NO_BATCH: Any = None
