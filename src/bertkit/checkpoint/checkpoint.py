"""What a model directory holds, as objects."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from bertkit.architectures import Network
from bertkit.checkpoint.sentence import SentenceSettings
from bertkit.errors import UsageError
from bertkit.tasks import TextTask, task_settings
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.layout import Layout


@dataclass(frozen=True)
class Provenance:
    """Where a tensor's values came from."""

    origin: Literal["loaded", "initialized", "trained"]
    source: str = ""  # file for "loaded", seed for "initialized"


@dataclass(frozen=True)
class TrainedTask:
    """The task a model was trained for."""

    task: TextTask
    layout: Layout  # how long sequences are and what happens to longer ones
    metrics: dict[str, float] = field(default_factory=dict)  # on held-out examples
    card: str = field(default="", compare=False)  # README.md of its directory

    def with_settings(self, **settings: Any) -> Self:
        """With other settings of the task, such as its ``no_answer_threshold``.

        Raises:
            UsageError: a setting that the task does not have, or a value that it cannot have.
        """
        known = task_settings(self.task)
        for name in settings:
            if name not in known:
                raise UsageError(f"{self.task.name} has no setting {name!r}: expected some of {', '.join(known)}")
        return replace(self, task=replace(self.task, **settings))


@dataclass
class Checkpoint:
    """The network with its tokenizer and settings; tensors are known by their published names."""

    network: Network
    tokenizer: Tokenizer
    sentence: SentenceSettings | None = None  # None: not published as a sentence encoder
    label_names: tuple[str, ...] | None = None  # in id order
    problem_type: str | None = None
    trained: TrainedTask | None = None
    provenance: dict[str, Provenance] = field(default_factory=dict)
