"""What the training loop knows of a task, and what evaluation and prediction know of one over texts."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.architectures import Network, NetworkOutput
from bertkit.batch import Batch, LabeledBatch, LabeledEncodings
from bertkit.errors import UsageError
from bertkit.files import BadRows
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.field_types import check_field_types
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout, OnLong
from bertkit.transformer import EncoderOutput


class Loss(NamedTuple):
    """The loss of one part of a batch, and what its metrics are made of."""

    value: Tensor  # scalar; added over the parts it is the loss of the batch
    sums: Tensor  # (n,) float64 without gradient; added over parts, ranks and batches


def exact(logits: Tensor) -> Tensor:
    """Logits in the precision of losses: float32, or float64 where they have it."""
    return logits if logits.dtype == torch.float64 else logits.float()


class Task(Protocol):
    """A loss that adds up over the parts of a batch and over the ranks that share it; or one of vectors, which reads
    those of the whole batch."""

    of_vectors: ClassVar[bool]  # whether `loss` takes the vectors of a whole batch, (N, D), as its outputs

    def vectors(self, outputs: Any) -> Tensor:
        """(n, D) float32: what a loss of vectors reads of the output of the network for a part."""
        ...

    def totals(self, batch: Any) -> Tensor:
        """(k,) float64: what the losses of a batch are divided by, added over ranks before it is used."""
        ...

    def loss(self, outputs: Any, part: Any, totals: Tensor) -> Loss:
        """The share of one part in the loss of a batch with these totals, from the output of the network for it."""
        ...

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The metrics that sums stand for, "loss" among them."""
        ...


class Scorer(Protocol):
    """Metrics of examples that come a few at a time."""

    def add(self, examples: Sequence[Any], predictions: Sequence[Any]) -> None:
        """Count predictions of examples whose labels are known, in the same order.

        Raises:
            DataError: an example without a label, or with one that this task does not know.
        """
        ...

    def results(self) -> dict[str, float]:
        """The metrics of all that was counted, by name. Of "loss" and names that end in "_error" less is better."""
        ...


@dataclass(frozen=True)
class Option:
    """A choice of how to train a task: on the command line, and a parameter of its estimator."""

    type: Any  # of its value on the command line
    help: str
    default: Any = None


@dataclass(frozen=True)
class ExampleFile:
    """A file of examples, and how it is read.

    Attributes:
        labeled: False: labels are not read.
        columns: names by role, where they cannot be recognized by their names.
        label_names: the labels there may be, where the task has names; None: any.
        bad_rows: takes the rows that cannot be used; None: such a row is an error.
    """

    path: str | Path
    labeled: bool = True
    columns: Mapping[str, str] = field(default_factory=dict)
    label_names: Sequence[str] | None = None
    bad_rows: BadRows | None = None


@dataclass(frozen=True)
class TextTask(ABC):
    """A task over texts, from examples to predictions: a frozen dataclass whose fields are its settings.

    The settings are JSON values (tuples for lists) and are kept in the model directory, but for ``label_names``, which
    ``config.json`` holds. An example has its texts, its label where it is known, ``place``, the file and line that
    errors name, and ``num_characters``.
    """

    name: ClassVar[str]  # its key in TASKS
    head: ClassVar[str]  # the head of HEADS that it trains and reads; "": it reads sentence vectors
    of_tokens: ClassVar[bool]  # whether a row of logits belongs to a token; else to a sequence
    best_by: ClassVar[str]  # the metric that decides which weights are the best
    on_long: ClassVar[OnLong] = "truncate"  # what is done with examples that are too long, unless asked otherwise
    example_type: ClassVar[type]  # of the examples that it reads
    feed: ClassVar[type[LabeledFeed]] = LabeledFeed  # the batches of training
    options: ClassVar[Mapping[str, Option]] = {}  # of `of_examples`, by name
    training_defaults: ClassVar[Mapping[str, Any]] = {}  # fine-tuning settings that differ from the usual ones

    of_vectors: ClassVar[bool] = False  # as `Task.of_vectors`; the last layer of the head is then not trained by
    # gradients but fitted again for every evaluation
    unit_vectors: ClassVar[bool] = True  # whether a model saved as a sentence encoder is to scale vectors to length 1
    problem_type: ClassVar[str | None] = None  # what config.json calls the kind of labels, where published models do
    keeps_head: ClassVar[bool] = (
        False  # whether training continues with a stored head that has the same number of labels
    )
    pipeline: ClassVar[str]  # what the Hugging Face hub calls the task
    peft_type: ClassVar[str | None] = None  # what the PEFT library calls it

    label_names: tuple[str, ...] | None = None  # of the head's outputs, in order; None: their meaning is fixed

    def __post_init__(self) -> None:
        """Check the settings, from an argument or a file; tasks add their own ranges. Lists become tuples.

        Raises:
            UsageError: a value that the setting cannot have.
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
        """Texts put before inputs, by name, that a sentence encoder is saved with."""
        return {}

    @property
    def vector_width(self) -> int | None:
        """Width that sentence vectors must have: a Dense layer is added where they have another; None: any."""
        return None

    @property
    def score_activation(self) -> str | None:
        """Activation of the scores of a cross-encoder, a name from OUTPUT_ACTIVATIONS; None: it is none."""
        return None

    @property
    def known_labels(self) -> tuple[str, ...] | None:
        """The names that examples may have as labels; None: they have none."""
        return self.label_names

    @classmethod
    def unusable_examples(cls, examples: Sequence[Any], *, held_out: bool = False) -> list[tuple[Any, str]]:
        """Training examples that cannot be used, with ``held_out`` dev examples that do not fit the others,
        and why: each once, for those who set them aside. Without them others may become so."""
        return []

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Check that every option is one of the task's.

        Raises:
            UsageError: it is not.
        """
        for name in options:
            if name not in cls.options:
                raise UsageError(f"{cls.name} has no {name}: expected {' or '.join(cls.options) or 'no options'}")

    @classmethod
    @abstractmethod
    def of_examples(cls, examples: Sequence[Any], options: Mapping[str, Any]) -> Self:
        """The task that training examples show: their labels, and settings that depend on them.

        Args:
            options: how to train it, as the user asks: "class_weights", "label_smoothing" and the like.

        Raises:
            DataError: no examples, or labels that cannot be learned.
            UsageError: an option that this task does not have.
        """

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        """The task of a model that was published with this head; None: the model is not for this task.

        Args:
            label_names, problem_type: as its config.json says.
        """
        return None

    @classmethod
    @abstractmethod
    def read(cls, file: ExampleFile) -> Iterator[Any]:
        """The examples of a file, one at a time.

        Raises:
            DataError: a file or a row that cannot be used.
            UsageError: columns for a reader that has none.
        """

    @classmethod
    def labels_in(cls, options: Mapping[str, Any]) -> Sequence[str] | None:
        """The labels there may be in training files, by the options of `of_examples`; None: any."""
        return None

    @classmethod
    @abstractmethod
    def card_example(cls, example: Any) -> str:
        """Python code of an input like that of an example, for the model card."""

    @classmethod
    @abstractmethod
    def example(cls, item: Any, label: Any = None, place: str = "") -> Any:
        """The example of what a caller has: a str, a tuple of them, or an example already."""

    @classmethod
    def in_dataset(cls, example: Any, number: int) -> Any:
        """An example of one of several files, for tasks that keep these apart."""
        return example

    @classmethod
    def labeled_example(cls, item: Any) -> Any:
        """The example of a pair (input, label), where the input is what `example` takes; or an example already.

        Raises:
            DataError: a label that does not fit the input.
            UsageError: something else.
        """
        if isinstance(item, cls.example_type):
            return item
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise UsageError(
                f"a labeled example is {item!r:.80}: expected a pair (input, label), where input is what predict() "
                f"takes, or a {cls.example_type.__name__}"
            )
        return cls.example(*item)

    def totals(self, batch: LabeledBatch) -> Tensor:
        """As `Task.totals`: (1,) rows of labels."""
        return torch.tensor([len(batch.labels)], dtype=torch.float64)

    def vectors(self, outputs: NetworkOutput) -> Tensor:
        """As `Task.vectors`."""
        assert outputs.vectors is not None, f"the head of {self.name} has no vectors"
        return outputs.vectors.float()

    @abstractmethod
    def loss(self, outputs: Any, part: LabeledBatch, totals: Tensor) -> Loss:
        """As `Task.loss`."""

    @abstractmethod
    def metrics(self, sums: Tensor) -> dict[str, float]:
        """As `Task.metrics`."""

    @abstractmethod
    def encode(self, tokenizer: Tokenizer, examples: Sequence[Any], layout: Layout, first_index: int = 0) -> Encodings:
        """The sequences of examples, in order, one or more for each, whose ``text_index`` is the example's number.

        Args:
            first_index: the number that errors give the first example, for examples that come in parts.

        Raises:
            OverLengthError: an example is too long under ``on_long="error"``.
            UsageError: an over-length policy that this task cannot follow.
        """

    @abstractmethod
    def labeled(self, examples: Sequence[Any], encodings: Encodings) -> LabeledEncodings:
        """The same with what is to be learned of them.

        Raises:
            DataError: a label that is missing, unknown, or does not fit the text.
        """

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """What `decode` reads, a row for each sequence of a batch or each token: the logits of the head. A task that
        predicts from vectors gives vectors instead."""
        return network.head_logits(self.head, encoded, batch)

    def logits_of(self, network: Network, rows: Tensor) -> Tensor:
        """The logits that `decode` reads, from the rows of `read_out` of all sequences in order."""
        return rows

    @abstractmethod
    def decode(self, examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
        """A typed prediction for each example, a frozen dataclass of JSON values; labels are not looked at.

        Args:
            encodings: as ``encode`` gave them for these examples.
            logits: float32, (S, ...) a row for each sequence, or (T, ...) for each token, as `read_out` gave them.
        """

    @abstractmethod
    def scorer(self) -> Scorer:
        """An empty count of predictions."""

    def constant_predictions(self, train: Sequence[Any], dev: Sequence[Any]) -> tuple[str, list[Any]]:
        """The same prediction for every dev example, the best for the training examples, and the name of this method:
        a baseline. A `JudgedTask` has `constant_logits` instead."""
        raise NotImplementedError

    def with_calibrated_thresholds(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Self:
        """The task with the thresholds that are best on these held-out examples."""
        return self

    def over_vectors(self, example: Any) -> Self | None:
        """The task with a head over sentence vectors, for examples like this one; None: it has no such head."""
        return None

    def fitted_by(self) -> "TextTask | None":
        """The task whose loss, a convex function of the weights of the last layer, fits the head to a frozen encoder;
        None: the head is not fitted."""
        return None if self.of_vectors or not self.head else self

    def fold_target_scaling(self, head: nn.Module) -> Self:
        """The task after training, when its head is changed to compute targets in their own unit."""
        return self
