"""The accuracy of an exported graph on labeled examples, beside that of the model it was made from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bertkit import inference
from bertkit.batch import collate, length_sorted_batches
from bertkit.errors import UsageError
from bertkit.evidence.pair_scores import cosines_of_pairs, measured_pairs, scores_of_pairs
from bertkit.evidence.scores import measured_scores
from bertkit.export.comparison import pad_token_id, padded
from bertkit.export.runtimes import Runtime
from bertkit.heads import OUTPUT_ACTIVATIONS
from bertkit.inference import EmbedOptions, InferenceReport, Runner
from bertkit.inference.embed import prompt_of
from bertkit.inference.runner import rows_in_order
from bertkit.model import Model
from bertkit.tasks import JudgedTask, Similarity, TextSet, TextTask
from bertkit.tokenizer import Encodings

_TOKENS_PER_BATCH = 2_048


@dataclass(frozen=True)
class Accuracy:
    """What an export costs on labeled examples."""

    metric: str
    num_examples: int
    model: float  # the metric of the model
    exported: float  # of the graph
    loss: float  # the first minus the second
    low: float  # 95 % interval of the loss over examples
    high: float


def kind_of_examples(model: Model, head: str) -> type[TextTask]:
    """The task whose example files show the accuracy of an exported model; `Similarity`: scored pairs.

    Args:
        head: the head whose logits the graph computes; "": sentence vectors.

    Raises:
        UsageError: a model whose accuracy is not measured here.
    """
    trained = model.checkpoint.trained
    if trained is not None and isinstance(trained.task, JudgedTask):
        return type(trained.task)
    if head in ("", "sequence_classification"):
        return Similarity
    raise UsageError(
        "int8 is checked with labeled examples of classifiers, taggers, regression, cross-encoders and sentence "
        "encoders: export this model in float32"
    )


def accuracy_of(
    runtime: Runtime, model: Model, head: str, input_names: Sequence[str], max_length: int, examples: Sequence[Any]
) -> Accuracy:
    """Compare the metric of a graph with that of the model.

    Args:
        head: the head whose logits the graph computes; "": sentence vectors.
        max_length: of the sequences, in tokens.
        examples: labeled examples of the model's task; for sentence encoders and cross-encoders scored pairs.

    Raises:
        DataError: examples without labels or scores.
    """
    pad_id, names = pad_token_id(model), tuple(input_names)
    runner = _GraphRunner(model.network, model.tokenizer, model.encoder, runtime, names, pad_id)
    if kind_of_examples(model, head) is Similarity:
        ours = scores_of_pairs(model, examples)
        theirs = _scores_of_pairs(runner, model, examples) if head else _cosines(runner, model, examples, max_length)
        measured, lost = measured_pairs(examples, ours), measured_pairs(examples, ours, theirs)
        metric = next(name for name in ("spearman", "average_precision") if name in measured)
    else:
        trained = model.checkpoint.trained
        assert trained is not None and isinstance(trained.task, JudgedTask)
        task, metric = trained.task, trained.task.best_by
        examples = [task.labeled_example(example) for example in examples]
        ours = model.predict(examples, report=InferenceReport())
        theirs = inference.predict(runner, task, examples, trained.layout, InferenceReport())
        measured, lost = measured_scores(task, examples, ours), measured_scores(task, examples, ours, theirs)
    value, loss = measured[metric].value, lost[metric]
    return Accuracy(metric, len(examples), value, value - loss.value, loss.value, loss.low, loss.high)


@dataclass(frozen=True)
class _GraphRunner(Runner):
    """A runner that computes by a graph."""

    runtime: Runtime
    input_names: tuple[str, ...]
    pad_id: int

    def run(
        self,
        encodings: Encodings,
        forward: Any = None,
        *,
        rows_per_sequence: np.ndarray | None = None,
        tokens_per_batch: int | None = None,
        on_batch: Callable[[np.ndarray], object] = lambda indices: None,
    ) -> Tensor:
        """The outputs of the graph, in the order of `Runner.run`; ``forward`` is not called."""
        batches, results = length_sorted_batches(encodings.seqlens, tokens_per_batch or _TOKENS_PER_BATCH), []
        for indices in batches:
            inputs = padded(collate(encodings.take(indices)), self.input_names, self.pad_id)
            (rows,) = self.runtime(inputs).values()
            results.append(torch.from_numpy(rows[inputs["attention_mask"] == 1] if rows.ndim == 3 else rows))
            on_batch(indices)
        return rows_in_order(results, batches, rows_per_sequence)


def _cosines(runner: _GraphRunner, model: Model, rows: Sequence[TextSet], max_length: int) -> np.ndarray:
    prompt = prompt_of(EmbedOptions(), model.sentence_settings)

    def embed(texts: list[str]) -> np.ndarray:
        given = [prompt + text for text in texts]
        vectors = runner.run(runner.tokenizer.encode_batch(given, max_length=max_length, on_long="truncate"))
        return normalize(vectors, dim=-1).numpy()

    return cosines_of_pairs(embed, rows)


def _scores_of_pairs(runner: _GraphRunner, model: Model, rows: Sequence[TextSet]) -> np.ndarray:
    queries, texts = [row.query for row in rows], [row.positives[0] for row in rows]
    logits = inference.score_pairs(runner, "Identity", queries, texts)
    activation = OUTPUT_ACTIVATIONS[model.checkpoint.score_activation or "Sigmoid"]
    return activation(torch.from_numpy(logits)).numpy().astype(np.float64)
