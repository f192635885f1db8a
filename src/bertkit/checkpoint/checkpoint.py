"""The content of a model directory, as objects."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from bertkit import tasks
from bertkit.architectures import Network, initialize
from bertkit.architectures.tensor_names import module_of
from bertkit.checkpoint.config_file import default_label_names
from bertkit.checkpoint.late_interaction import LateInteraction
from bertkit.checkpoint.sentence import SentenceSettings
from bertkit.checkpoint.sparse import SparseSettings
from bertkit.errors import MissingHeadError, UsageError, check_several
from bertkit.tasks.task import TextTask
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.layout import Layout
from bertkit.transformer import EncoderConfig
from bertkit.transformer.modules import as_torch


@dataclass(frozen=True)
class Provenance:
    """The origin of a tensor's values."""

    origin: Literal["loaded", "initialized", "trained"]
    source: str = ""  # file for "loaded", seed for "initialized"


@dataclass(frozen=True)
class TrainedTask:
    """The task a model was trained for."""

    task: TextTask
    layout: Layout  # maximum sequence length, and what happens to longer texts
    metrics: dict[str, float] = field(default_factory=dict)  # on held-out examples
    card: str = field(default="", compare=False)  # README.md of its directory

    @property
    def has_names(self) -> bool:
        """False for a published model whose labels are LABEL_0 and so on."""
        names = self.task.label_names or ()
        return names != default_label_names(len(names))

    def with_settings(self, **settings: Any) -> Self:
        """A copy with other settings of the task, such as ``no_answer_threshold``, or names for LABEL_0 and so on.

        Raises:
            UsageError: a setting that the task does not have, or an invalid value.
        """
        if "label_names" in settings:
            names = settings.pop("label_names")
            return self._with_label_names(names).with_settings(**settings)
        known = tasks.task_settings(self.task)
        for name in settings:
            if name not in known:
                raise UsageError(f"{self.task.name} has no setting {name!r}: expected any of {', '.join(known)}")
        return replace(self, task=replace(self.task, **settings))

    def _with_label_names(self, names: Sequence[str]) -> Self:
        known = self.task.label_names or ()
        if tuple(names) == known:
            return self
        if len(set(names)) != len(known) or self.has_names:
            raise UsageError(
                f"label names {', '.join(names):.80}: this model has {len(known)} labels, {', '.join(known):.80}; "
                "expected these, or for LABEL_0 and so on as many different names"
            )
        task = type(self.task).of_published(tuple(names), self.task.problem_type)
        return replace(self, task=task or replace(self.task, label_names=tuple(names)))


@dataclass
class Checkpoint:
    """The network with its tokenizer and settings; tensors are named as published."""

    parts: Network  # encoder and heads, with arrays until `network` is asked for
    tokenizer: Tokenizer
    sentence: SentenceSettings | None = None  # None: not published as a sentence encoder
    sparse: SparseSettings = field(default_factory=SparseSettings)  # of sparse vectors, where there is a masked LM head
    late: LateInteraction | None = None  # None: not published as a late interaction model
    label_names: tuple[str, ...] | None = None  # in id order
    problem_type: str | None = None
    score_activation: str | None = None  # for cross-encoders, a name from OUTPUT_ACTIVATIONS; None: not stored
    trained: TrainedTask | None = None
    generation: dict[str, Any] = field(default_factory=dict)  # generation_config.json
    provenance: dict[str, Provenance] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        """Encoder and heads, with torch's parameters."""
        self.parts = as_torch(self.parts)
        return self.parts

    def mark_trained(self) -> None:
        """Record that every tensor that is not frozen was trained, so that its head may predict."""
        published = self.network.architecture.names.published
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad:
                self.provenance[published(name)] = Provenance("trained")

    def require_trained(self, part: str) -> None:
        """Check that a head, or "pooler", exists and was trained.

        Raises:
            MissingHeadError: it does not exist, or has its initial weights.
        """
        prefix, published = module_of(part), self.parts.architecture.names.published
        if part != "pooler":
            self.parts.require_head(part)
        for name, _ in self.parts.get_submodule(prefix).named_parameters():
            origin = self.provenance.get(published(f"{prefix}.{name}"))
            if origin is not None and origin.origin == "initialized":
                what = "pooler" if part == "pooler" else f"{part} head"
                raise MissingHeadError(
                    f"the {what} was never trained ({published(f'{prefix}.{name}')} still has its initial values): "
                    "train it before asking it for predictions"
                )

    def require_trained_head(self, head: str) -> None:
        """`require_trained` for a head, and for the pooler if the head uses it."""
        self.require_trained(head)
        if self.parts.architecture.reads_pooler(head, self.parts.config):
            self.require_trained("pooler")

    def trained_heads(self) -> list[str]:
        """The heads that `require_trained_head` accepts."""
        trained = []
        for name in self.parts.heads:
            with suppress(MissingHeadError):
                self.require_trained_head(name)
                trained.append(name)
        return trained


def check_label_names(label_names: Sequence[str]) -> None:
    """Check that each label has a different name, by which predictions refer to it.

    Raises:
        UsageError: not a sequence of different str.
    """
    check_several("label_names", label_names)
    if not all(isinstance(name, str) for name in label_names):
        raise UsageError(f"label_names={label_names!r:.80}: expected a list of str")
    if len(set(label_names)) < len(label_names):
        raise UsageError(f"label_names={label_names!r:.80}: expected a different name for each label")


def new_checkpoint(
    config: EncoderConfig, tokenizer: Tokenizer, heads: Sequence[str], label_names: Sequence[str] | None, seed: int
) -> Checkpoint:
    """A checkpoint with initial weights.

    Raises:
        UsageError: the vocabulary has more entries than the word embedding has rows, a head is unknown, or
            ``label_names`` is not a list of different str.
    """
    check_label_names(label_names or ())
    if len(tokenizer.vocabulary) > config.vocab_size:
        raise UsageError(
            f"vocab_size={config.vocab_size}: the vocabulary has {len(tokenizer.vocabulary)} entries; expected at "
            "most vocab_size"
        )
    network = Network(config, heads, num_labels=len(label_names) if label_names else 2).eval()
    initialize(network, config, seed)
    origin = Provenance("initialized", f"seed {seed}")
    provenance = {network.architecture.names.published(name): origin for name, _ in network.named_parameters()}
    labels = tuple(label_names) if label_names else None
    return Checkpoint(network, tokenizer, label_names=labels, provenance=provenance)
