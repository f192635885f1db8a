"""The interface of tasks over texts, from examples to predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bertkit.batch import Batch, LabeledBatch, LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.tasks.example_file import ExampleFile, GuessRank
from bertkit.tasks.examples import Sequences, encode_sequences
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.field_types import check_field_types
from bertkit.tasks.loss import Loss, LossFunction, exact
from bertkit.tasks.scorer import Scorer
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.layout import Layout, OnLong

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bertkit.architectures import Network, NetworkOutput
    from bertkit.transformer import EncoderOutput


@dataclass(frozen=True)
class Option:
    """A training option of a task: a command line option, and a parameter of its estimator."""

    type: Any  # type of its value on the command line
    help: str
    default: Any = None
    is_of_reading: bool = False  # it decides how labeled files are read


class RowTask(ABC):
    """A task that trains on the rows of files."""

    name: ClassVar[str]  # its key in TASKS
    example_type: ClassVar[type]  # its kind of rows
    options: ClassVar[Mapping[str, Option]] = {}  # options of training, by name
    training_defaults: ClassVar[Mapping[str, Any]] = {}  # settings of training that differ from the general defaults
    files: ClassVar[str] = "Examples with labels: csv, tsv, jsonl or parquet."  # help on its files
    models: ClassVar[str] = "The model to start from: a folder, a hub name, or the import name of an installed package."
    first_model: ClassVar[str | None] = None  # to start from, unless one is given; None: a sentence encoder
    guess_rank: ClassVar[GuessRank | None] = None  # None: never guessed by a file
    about: ClassVar[str] = ""  # help on its training: the result, and where defaults come from

    @classmethod
    @abstractmethod
    def read(cls, file: ExampleFile) -> Iterator[Any]:
        """Read the examples of a file, one at a time.

        Raises:
            DataError: a file or a row that cannot be used.
            UsageError: columns for a format with fixed columns.
        """

    @classmethod
    def read_dev(cls, file: ExampleFile, train: Sequence[Any]) -> Iterator[Any]:
        """Read a file of dev examples, which is described as the files of the training examples were."""
        return cls.read(file)

    @classmethod
    def in_dataset(cls, example: Any, number: int) -> Any:
        """An example with the index of its file, for tasks that keep files apart."""
        return example

    @classmethod
    def check_columns(cls, examples: Sequence[Any], columns: Mapping[str, str]) -> None:
        """Check training examples against the columns, by role, that were given for their files.

        Raises:
            DataError: a column whose labels no example has.
        """
        return None  # most tasks have nothing to check

    @classmethod
    def contradiction(cls, examples: Sequence[Any]) -> str:
        """What in the labeled examples of a file says that they are not of this task; "" without anything."""
        return ""

    @classmethod
    def labels_in(cls, options: Mapping[str, Any]) -> Sequence[str] | None:
        """Allowed labels in training files, by the options of training; None: any."""
        return None


@dataclass(frozen=True)
class TextTask(RowTask):
    """A task over texts, from examples to predictions: a frozen dataclass whose fields are its settings.

    Settings are JSON values (tuples for lists) and are stored in the model directory, except ``label_names``, which are
    in ``config.json``. Its rows are `Example`; its loss is a `LossFunction` of the logits of its head.
    """

    head: ClassVar[str]  # its head, a name from HEADS; "": it uses sentence vectors
    of_tokens: ClassVar[bool]  # a row of logits belongs to a token, else to a sequence
    best_by: ClassVar[str]  # the metric that selects the best weights
    on_long: ClassVar[OnLong] = "truncate"  # default policy for examples that are too long
    whole: ClassVar[str] = ""  # why an example is not split into windows; "": the policy may be "window"
    feed: ClassVar[type[LabeledFeed]] = LabeledFeed  # the batches of training

    of_vectors: ClassVar[bool] = False  # as `Task.of_vectors`; the last layer of the head is then not trained by
    # gradients but fitted again for every evaluation
    unit_vectors: ClassVar[bool | None] = True  # of a saved sentence encoder: length 1; None: as the initial model
    about: ClassVar[str] = (
        "The head starts fitted to the frozen encoder; the first log line is the quality of these frozen features, and "
        "with dev examples nothing worse is kept. Defaults are those of the BERT paper, for example batches of 32, "
        "except for the learning rate and epochs, which depend on the task, the encoder's width and the number of "
        "examples. The last line compares the result on dev with simpler methods."
    )
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
    def check_options(cls, options: Mapping[str, Any], examples: Sequence[Any] | None = None) -> None:
        """Check that the task has every option, and that names of models are str, which runs record; and training
        examples, if given.

        Raises:
            UsageError: an unknown option, or a path.
            DataError: no examples.
        """
        for name, value in options.items():
            if name not in cls.options:
                raise UsageError(f"{cls.name} has no {name}: expected {' or '.join(cls.options) or 'no options'}")
            if isinstance(value, Path):
                raise UsageError(f"{name}={value!r}: expected a str, such as {str(value)!r}")
        if examples is not None and not examples:
            raise DataError("no examples to train on: expected at least one")

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
    def example(cls, item: Any, label: Any = None, location: str = "") -> Any:
        """Convert a caller's input, such as a str or a tuple of them, to an example; examples are returned as they
        are."""

    @classmethod
    def read_dev(cls, file: ExampleFile, train: Sequence[Any]) -> Iterator[Any]:
        """As `RowTask.read_dev`, with the labels of the training examples."""
        usable = cls.usable(train)[0] if file.bad_rows is not None and file.bad_rows.skip else train
        task = cls.of_examples(usable, file.options)
        return task.read(replace(file, label_names=task.known_labels, options={**file.options, **task.reading_options}))

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

    @property
    def loss_function(self) -> LossFunction:
        """The loss of the logits of the head, or of vectors for a task without a head or of vectors; a task whose loss
        needs more than these overrides `loss`, `totals` and `metrics`."""
        raise NotImplementedError(f"{self.name} has no loss_function")

    @property
    def is_recordable(self) -> bool:
        """As `Task.is_recordable`."""
        return self.loss_function.is_recordable

    def totals(self, batch: LabeledBatch) -> Tensor:
        """As `Task.totals`."""
        return self.loss_function.totals(batch)

    def vectors(self, outputs: NetworkOutput) -> Tensor:
        assert outputs.vectors is not None, f"the head of {self.name} has no vectors"
        return outputs.vectors.float()

    def loss(self, outputs: Any, part: LabeledBatch, totals: Tensor) -> Loss:
        """As `Task.loss`."""
        if not self.of_vectors:
            outputs = exact(outputs.logits[self.head]) if self.head else self.vectors(outputs)
        return self.loss_function.loss(outputs, part, totals)

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """As `Task.metrics`."""
        return self.loss_function.metrics(sums)

    def sequences(self, examples: Sequence[Any]) -> Sequences:
        """The texts of the sequences of examples; by default one sequence for each, of its text or two texts."""
        pairs = [example.texts[1] for example in examples if len(example.texts) > 1]
        return Sequences([example.texts[0] for example in examples], pairs or None)

    def encode(self, tokenizer: Tokenizer, examples: Sequence[Any], layout: Layout, first_index: int = 0) -> Encodings:
        """Encode examples, in order, as one or more sequences each; ``text_index`` is the index of the example.

        Args:
            first_index: index of the first example in errors, for examples in parts.

        Raises:
            OverLengthError: an example is too long under ``on_long="error"``.
            UsageError: an over-length policy that this task does not support.
        """
        return encode_sequences(
            tokenizer, examples, layout, first_index, self.sequences(examples), with_offsets=self.of_tokens,
            whole=self.whole,
        )  # fmt: skip

    @abstractmethod
    def labeled(self, examples: Sequence[Any], encodings: Encodings) -> LabeledEncodings:
        """Add labels to encodings.

        Raises:
            DataError: a label that is missing, unknown, or does not fit the text.
        """

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """The input of `decode`, a row for each sequence of a batch or each token: the head's logits, or without a head
        the sentence vectors."""
        return network.head_logits(self.head, encoded, batch) if self.head else network.sentence_vectors(encoded, batch)

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

    @property
    def fitting_loss(self) -> LossFunction | None:
        """The loss by which the head is fitted to a frozen encoder, a convex function of the weights of the last layer;
        None: the head is not fitted."""
        return None if self.of_vectors or not self.head else self.loss_function

    def fold_target_scaling(self, head: nn.Module) -> Self:
        """The task after training; changes the head to predict targets in their own unit."""
        return self

    def unfold_target_scaling(self, head: nn.Module, initial: Any) -> Self:
        """The reverse of `fold_target_scaling`: the task as it was trained, by ``initial``, that of `of_examples`."""
        return self
