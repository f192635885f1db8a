"""Interfaces of tasks: Task for the training loop, TextTask for evaluation and prediction over texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from bertkit.batch import Batch, LabeledBatch, LabeledEncodings
from bertkit.errors import UsageError
from bertkit.later import torch
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.field_types import check_field_types
from bertkit.tasks.scorer import Scorer
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout, OnLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertkit.architectures import Network, NetworkOutput
    from bertkit.transformer import EncoderOutput


class Loss(NamedTuple):
    """The loss of one part of a batch, and the sums for its metrics."""

    value: Tensor  # scalar; the sum over parts is the loss of the batch
    sums: Tensor  # (n,) without gradient, on any device; summed in float64 over parts, ranks and batches


def exact(logits: Tensor) -> Tensor:
    """Logits in the precision of losses: float32, or float64 if they have it."""
    return logits if logits.dtype == torch.float64 else logits.float()


def sums_of(loss: Tensor, *counts: Tensor | float) -> Tensor:
    """A loss and counts as (1 + counts,) float64 on the device of the loss, float32 on MPS, which lacks it."""
    device, dtype = loss.device, torch.float32 if loss.device.type == "mps" else torch.float64
    return torch.stack(
        [
            one.detach().to(device, dtype)
            if isinstance(one, torch.Tensor)
            else torch.full((), one, dtype=dtype, device=device)
            for one in (loss, *counts)
        ]
    )


def mean_of(loss: Tensor, total: Tensor) -> Tensor:
    """A summed loss divided by a total, on the CPU or the loss's device, that is a number of rows or of their weights;
    0 counts as 1."""
    return loss / torch.where(total == 0, torch.ones_like(total), total).to(loss.dtype)


class Task(Protocol):
    """A loss that is a sum over the parts of a batch and over the ranks that share it; or a loss of vectors, which uses
    those of the whole batch."""

    of_vectors: ClassVar[bool] = False  # `loss` receives the vectors of a whole batch, (N, D), as outputs
    is_recordable: ClassVar[bool] = False  # `loss` reads no number of a device, so that a CUDA graph can record it

    def vectors(self, outputs: Any) -> Tensor:
        """(n, D) float32: input of a loss of vectors, from the network's output for a part."""
        raise NotImplementedError

    def totals(self, batch: Any) -> Tensor:
        """(k,) float64: denominators of the losses of a batch on the CPU, summed over ranks before use."""
        ...

    def loss(self, outputs: Any, part: Any, totals: Tensor) -> Loss:
        """The share of one part in the loss of a batch with these totals, which may be on the CPU or the part's device,
        from the output of the network for it."""
        ...

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Metrics from sums, including "loss"."""
        ...


@dataclass(frozen=True)
class Option:
    """A training option of a task: a command line option, and a parameter of its estimator."""

    type: Any  # type of its value on the command line
    help: str
    default: Any = None
    is_of_reading: bool = False  # it decides how labeled files are read


@dataclass(frozen=True)
class TextTask(ABC):
    """A task over texts, from examples to predictions: a frozen dataclass whose fields are its settings.

    Settings are JSON values (tuples for lists) and are stored in the model directory, except ``label_names``, which are
    in ``config.json``. An example has ``texts`` (equal for repeated examples), its label if known, ``location``, the
    file and line for errors, and ``num_characters``.
    """

    name: ClassVar[str]  # its key in TASKS
    head: ClassVar[str]  # its head, a name from HEADS; "": it uses sentence vectors
    of_tokens: ClassVar[bool]  # a row of logits belongs to a token, else to a sequence
    best_by: ClassVar[str]  # the metric that selects the best weights
    on_long: ClassVar[OnLong] = "truncate"  # default policy for examples that are too long
    reads_windows: ClassVar[bool] = True  # the policy may be "window"
    example_type: ClassVar[type]  # type of its examples
    feed: ClassVar[type[LabeledFeed]] = LabeledFeed  # the batches of training
    options: ClassVar[Mapping[str, Option]] = {}  # options of `of_examples`, by name
    training_defaults: ClassVar[Mapping[str, Any]] = {}  # fine-tuning settings that differ from the general defaults

    of_vectors: ClassVar[bool] = False  # as `Task.of_vectors`; the last layer of the head is then not trained by
    # gradients but fitted again for every evaluation
    is_recordable: ClassVar[bool] = False  # as `Task.is_recordable`
    unit_vectors: ClassVar[bool | None] = True  # of a saved sentence encoder: length 1; None: as the initial model
    promises: ClassVar[tuple[str, ...]] = ()  # what a threshold of predictions can promise: error, recall, precision
    has_soft_labels: ClassVar[bool] = False  # a student can learn the probabilities of its one label of C
    probability_function: ClassVar[str | None] = None  # softmax or sigmoid: from logits to the labels' probabilities
    problem_type: ClassVar[str | None] = None  # problem_type in config.json, if published models have one
    pipeline: ClassVar[str]  # pipeline tag of the Hugging Face hub
    peft_type: ClassVar[str | None] = None  # task type of the PEFT library

    label_names: tuple[str, ...] | None = None  # of the head's outputs, in order; None: their meaning is fixed

    def __post_init__(self) -> None:
        """Check settings from arguments or files; tasks add their own ranges. Lists become tuples.

        Raises:
            UsageError: an invalid value.
        """
        for part in fields(self):
            if isinstance(value := getattr(self, part.name), list):
                object.__setattr__(self, part.name, tuple(value))
        check_field_types(self)

    @property
    def has_thresholds(self) -> bool:
        """Whether predictions depend on thresholds that were chosen on dev examples."""
        return False

    @property
    def prompts(self) -> dict[str, str]:
        """Prompts by name, which a sentence encoder is saved with."""
        return {}

    @property
    def vector_width(self) -> int | None:
        """Required width of sentence vectors: a Dense layer is added for others; None: any width."""
        return None

    @property
    def score_activation(self) -> str | None:
        """Activation of cross-encoder scores, a name from OUTPUT_ACTIVATIONS; None: not a cross-encoder."""
        return None

    @property
    def known_labels(self) -> tuple[str, ...] | None:
        """Label names that examples may have; None for tasks without names."""
        return self.label_names

    @property
    def sequence_form(self) -> Any:
        """A value that is equal for tasks whose `encode` is equal; by default all settings."""
        return self

    @property
    def reading_options(self) -> dict[str, Any]:
        """``ExampleFile.options`` by which files are read as for training."""
        return {}

    @classmethod
    def unusable_examples(cls, examples: Sequence[Any], *, held_out: bool = False) -> list[tuple[Any, str]]:
        """Examples that cannot be used, each with the reason; with ``held_out``, dev examples that do not fit the
        training examples. Removing them may make further examples unusable: see `usable`."""
        return []

    @classmethod
    def usable(cls, examples: Sequence[Any], *, held_out: bool = False) -> tuple[list[Any], list[tuple[Any, str]]]:
        """The examples without those of `unusable_examples`, and these, each with the reason."""
        kept, others = list(examples), []
        while kept and (unusable := cls.unusable_examples(kept, held_out=held_out)):
            others += unusable
            removed = {id(example) for example, _ in unusable}
            kept = [example for example in kept if id(example) not in removed]
        return kept, others

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Check that the task has every option, and that names of models are str, which runs record.

        Raises:
            UsageError: an unknown option, or a path.
        """
        for name, value in options.items():
            if name not in cls.options:
                raise UsageError(f"{cls.name} has no {name}: expected {' or '.join(cls.options) or 'no options'}")
            if isinstance(value, Path):
                raise UsageError(f"{name}={value!r}: expected a str, such as {str(value)!r}")

    @classmethod
    @abstractmethod
    def of_examples(cls, examples: Sequence[Any], options: Mapping[str, Any]) -> Self:
        """Create a task from training examples: their labels, and settings that depend on them.

        Args:
            options: training options, such as "class_weights" and "label_smoothing".

        Raises:
            DataError: no examples, or unusable labels.
            UsageError: an option that this task does not have.
        """

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        """Create a task for a published model with this head; None: the model is for another task.

        Args:
            label_names, problem_type: from its config.json.
        """
        return None

    @classmethod
    @abstractmethod
    def read(cls, file: ExampleFile) -> Iterator[Any]:
        """Read the examples of a file, one at a time.

        Raises:
            DataError: a file or a row that cannot be used.
            UsageError: columns for a format with fixed columns.
        """

    @classmethod
    def labels_in(cls, options: Mapping[str, Any]) -> Sequence[str] | None:
        """Allowed labels in training files, by the options of `of_examples`; None: any."""
        return None

    def advice_on(self, train: Sequence[Any]) -> str | None:
        """Advice on training examples from which a model of this task learns little; None: no advice."""
        return None

    def choices_for(self, train: Sequence[Any]) -> Iterator[str]:
        """Lines of the log: choices that were made from the training examples, such as a scheme of tags, and advice."""
        if sentence := self.advice_on(train):
            yield f"note: {sentence}"

    def card_facts(self) -> dict[str, Any]:
        """Facts for the model card, by name, in addition to settings that differ from the defaults."""
        return {}

    @classmethod
    @abstractmethod
    def card_example(cls, example: Any) -> str:
        """Python code of a typical input, for the model card."""

    @classmethod
    @abstractmethod
    def example(cls, item: Any, label: Any = None, location: str = "") -> Any:
        """Convert a caller's input, such as a str or a tuple of them, to an example; examples are returned as they
        are."""

    @classmethod
    def in_dataset(cls, example: Any, number: int) -> Any:
        """An example with the index of its file, for tasks that keep files apart."""
        return example

    @classmethod  # noqa: B027  # most tasks have nothing to check
    def check_columns(cls, examples: Sequence[Any], columns: Mapping[str, str]) -> None:
        """Check training examples against the columns, by role, that were given for their files.

        Raises:
            DataError: a column whose labels no example has.
        """

    def labeled_example(self, item: Any) -> Any:
        """Convert a pair (input, label), with an input for `example`, to an example; examples are returned as they are.

        Raises:
            DataError: a label that does not fit the input.
            UsageError: another type.
        """
        if isinstance(item, self.example_type):
            return item
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise UsageError(
                f"a labeled example is {item!r:.80}: expected a pair (input, label), where input is what predict() "
                f"takes, or a {self.example_type.__name__}"
            )
        return self.example(*item)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """See `Task.totals`: (1,) number of rows of labels."""
        return torch.tensor([len(batch.labels)], dtype=torch.float64)

    def vectors(self, outputs: NetworkOutput) -> Tensor:
        assert outputs.vectors is not None, f"the head of {self.name} has no vectors"
        return outputs.vectors.float()

    @abstractmethod
    def loss(self, outputs: Any, part: LabeledBatch, totals: Tensor) -> Loss:
        """See `Task.loss`."""

    @abstractmethod
    def metrics(self, sums: Tensor) -> dict[str, float]:
        """See `Task.metrics`."""

    @abstractmethod
    def encode(self, tokenizer: Tokenizer, examples: Sequence[Any], layout: Layout, first_index: int = 0) -> Encodings:
        """Encode examples, in order, as one or more sequences each; ``text_index`` is the index of the example.

        Args:
            first_index: index of the first example in errors, for examples in parts.

        Raises:
            OverLengthError: an example is too long under ``on_long="error"``.
            UsageError: an over-length policy that this task does not support.
        """

    @abstractmethod
    def labeled(self, examples: Sequence[Any], encodings: Encodings) -> LabeledEncodings:
        """Add labels to encodings.

        Raises:
            DataError: a label that is missing, unknown, or does not fit the text.
        """

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """The input of `decode`, a row for each sequence of a batch or each token: the head's logits, or vectors for a
        task that predicts from vectors."""
        return network.head_logits(self.head, encoded, batch)

    def logits_of(self, network: Network, rows: Tensor) -> Tensor:
        """The logits for `decode`, from the rows of `read_out` for all sequences in order."""
        return rows

    @abstractmethod
    def decode(self, examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
        """A typed prediction for each example, a frozen dataclass of JSON values; labels are ignored.

        Args:
            encodings: from ``encode`` for these examples.
            logits: float32, (S, ...) a row for each sequence, or (T, ...) for each token, from `read_out`.
        """

    @abstractmethod
    def scorer(self) -> Scorer:
        """A new scorer."""

    def constant_predictions(self, train: Sequence[Any], dev: Sequence[Any]) -> tuple[str, list[Any]]:
        """A constant baseline: the same prediction for every dev example, the best for the training examples, and the
        method's name. A `JudgedTask` has `constant_logits` instead."""
        raise NotImplementedError

    @property
    def entity_types(self) -> tuple[str, ...]:
        """Types of the entities that predictions can have, sorted; empty for a task without entities."""
        return ()

    def with_calibrated_thresholds(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Self:
        """The task with the best thresholds on these held-out examples."""
        return self

    def over_vectors(self, example: Any) -> Self | None:
        """The task with a head over sentence vectors, for examples of this kind; None: not supported."""
        return None

    def adopt_head(self, head: nn.Module, stored: TextTask | None) -> bool:
        """Adapt a stored head: its rows get the order of the labels of this task.

        Args:
            stored: the task that it was trained for; None: unknown.

        Returns:
            False if the tasks or their labels differ, or the head is not trained by gradients; it is then unchanged.
        """
        if stored is None or stored.name != self.name or self.of_vectors:
            return False
        names, known = self.known_labels or (), stored.known_labels or ()
        if {*names} != {*known}:
            return False
        last: Any = head.classifier
        for parameter in last.parameters() if names else ():
            parameter.data = parameter.data[[known.index(name) for name in names]]
        return True

    def fitted_by(self) -> TextTask | None:
        """The task whose loss, a convex function of the weights of the last layer, fits the head to a frozen encoder;
        None: the head is not fitted."""
        return None if self.of_vectors or not self.head else self

    def fold_target_scaling(self, head: nn.Module) -> Self:
        """The task after training; changes the head to predict targets in their own unit."""
        return self

    def unfold_target_scaling(self, head: nn.Module, initial: Any) -> Self:
        """The reverse of `fold_target_scaling`: the task as it was trained, by ``initial``, that of `of_examples`."""
        return self
