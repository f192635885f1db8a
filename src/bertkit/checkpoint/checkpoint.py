"""What a model directory holds, as objects."""

from dataclasses import dataclass, field
from typing import Literal

from bertkit.checkpoint.sentence import SentenceSettings
from bertkit.heads import Bert
from bertkit.tasks import TextTask
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.layout import Layout


@dataclass(frozen=True)
class Provenance:
    """Where a tensor's values came from."""

    origin: Literal["loaded", "initialised", "trained"]
    source: str = ""  # file for "loaded", seed for "initialised"


@dataclass(frozen=True)
class TrainedTask:
    """The task a model was trained for."""

    task: TextTask
    layout: Layout  # how long sequences are and what happens to longer ones
    metrics: dict[str, float] = field(default_factory=dict)  # on held-out examples


@dataclass
class Checkpoint:
    """The network with its tokenizer and settings; tensors are known by their published names."""

    network: Bert
    tokenizer: Tokenizer
    sentence: SentenceSettings | None = None  # None: not published as a sentence encoder
    label_names: tuple[str, ...] | None = None  # in id order
    problem_type: str | None = None
    trained: TrainedTask | None = None
    provenance: dict[str, Provenance] = field(default_factory=dict)
