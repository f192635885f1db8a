"""Settings of fine-tuning, and their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from bertkit.errors import UsageError
from bertkit.tasks.field_types import AboveZero, Count, NotNegative, Range
from bertkit.tasks.settings import Settings
from bertkit.tokenizer.layout import Layout, OnLong
from bertkit.training import TrainingSettings
from bertkit.training.distillation import DistillationSettings
from bertkit.training.settings import epochs_of_new_layers

PAPER: Mapping[str, Any] = {"learning_rate": 2e-5, "num_epochs": 3}
"""Devlin et al. 2018, appendix A.3, for encoders of width 768 and 1,024."""

NARROWEST, NARROW = 256, 512
"""Largest hidden sizes with the measured rates; larger ones use the paper's. Measured at 256 and 384
(docs/guides/finetuning.md)."""

FROM_FITTED: Mapping[str, Any] = {"learning_rate": 1e-4, "num_epochs": 3}
"""For a narrow encoder with a fitted head."""

FROM_FITTED_NARROWEST: Mapping[str, Any] = {"learning_rate": 3e-4, "num_epochs": 3}
"""The same for the narrowest encoders."""

FROM_DRAWN: Mapping[str, Any] = {"learning_rate": 5e-4, "num_epochs": 3}
"""For a narrow encoder with a randomly initialized head; the number of epochs grows for small data sets."""

HEAD_SETTINGS = ("head", "new_head", "max_length", "on_long", "stride", "precision", "seed")
"""Settings on which a fitted head depends."""


def default_settings(hidden_size: int, num_batches: int, head: str = "fitted") -> dict[str, Any]:
    """Default learning rate and number of epochs.

    Args:
        hidden_size: width of the encoder.
        num_batches: optimizer steps per epoch.
        head: as in `FinetuningSettings`.

    >>> default_settings(hidden_size=384, num_batches=47)
    {'learning_rate': 0.0001, 'num_epochs': 3}
    >>> default_settings(hidden_size=256, num_batches=47)
    {'learning_rate': 0.0003, 'num_epochs': 3}
    >>> default_settings(hidden_size=384, num_batches=47, head="drawn")
    {'learning_rate': 0.0005, 'num_epochs': 11}
    """
    if head != "drawn":
        of_width = FROM_FITTED_NARROWEST if hidden_size <= NARROWEST else FROM_FITTED
        return dict(of_width if hidden_size <= NARROW else PAPER)
    return {
        "learning_rate": (FROM_DRAWN if hidden_size <= NARROW else PAPER)["learning_rate"],
        "num_epochs": epochs_of_new_layers(num_batches),
    }


LOOP = TrainingSettings.of(batch_size=32, tokens_per_part=None, learning_rate=None, warmup=0.1, keep_last=1)
"""Default settings of the loop."""


@dataclass(frozen=True)
class FinetuningSettings(Settings):
    """Settings of a fine-tuning run, its estimator parameters and its command line options.

    The defaults are those of the BERT paper (Devlin et al. 2018, appendix A.3), except for Adam's bias correction,
    without which runs on small data sometimes fail (Mosbach et al. 2021), and for learning rate and epochs: if not
    given, they are those of `default_settings`. ``FinetuningSettings.of(**PAPER)`` has the paper's.

    Parameters
    ----------
    head
        fitted: a head on the pooling that the encoder was trained with, fitted to the frozen encoder before training;
        published: the head of the published class, also fitted; drawn: that head with random initial weights.
    new_head
        Replace the head of a model that was fine-tuned for the same task and labels. By default it is kept.
    training
        Settings of the training loop, of which three are special here.
    minutes
        Search for the best model within this time: frozen features, contrastive fine-tuning if there are few rows, and
        fine-tuning at several learning rates.
    num_steps
        Optimizer steps, instead of num_epochs.
    learning_rate
        Peak learning rate; if the task has no default, 3e-4 for encoders up to 256 wide and 1e-4 up to 512, 5e-4 for
        both with head=drawn; 2e-5 for wider ones.
    num_epochs
        Passes over the examples; if the task has no default, 3, or more for few examples with head=drawn.
    head_learning_rate
        Peak learning rate of the head; by default that of the encoder.
    layer_decay
        Learning rate of a layer relative to that of the layer above.
    frozen_layers
        Freeze the embeddings and this number of the lowest layers; by default nothing is frozen.
    lora_rank
        Train low-rank updates (LoRA) of this rank instead of the encoder's weights; they are saved both merged and
        separately.
    lora_alpha
        LoRA scaling: the update is multiplied by lora_alpha / lora_rank.
    max_length
        Maximum sequence length in tokens; by default the model's limit.
    on_long
        Policy for longer sequences; by default window for tags and answers, truncate for other tasks.
    stride
        Number of tokens from the start of one window to the next, with on_long=window.
    evaluations_per_epoch
        Evaluations on the dev examples per epoch.
    """

    training: TrainingSettings = LOOP
    head: Literal["fitted", "published", "drawn"] = "fitted"
    new_head: bool = False
    num_epochs: Count | None = None
    head_learning_rate: NotNegative | None = None
    layer_decay: Annotated[float, Range("a share above 0, at most 1", lambda value: 0 < value <= 1)] = 1.0
    frozen_layers: Annotated[int, Range("an integer of at least 0", lambda value: value >= 0)] | None = None
    lora_rank: Count | None = None
    lora_alpha: AboveZero = 16.0
    max_length: int | None = None
    on_long: OnLong | None = None
    stride: int | None = None
    evaluations_per_epoch: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_epochs", "minutes"):
            num_steps, length = self.training.num_steps, self.values()[name]
            if num_steps is not None and length is not None:
                raise UsageError(f"num_steps={num_steps} and {name}={length:g} both set the length: omit one")
        if self.lora_rank is not None and self.frozen_layers is not None:
            raise UsageError("lora_rank freezes the encoder already: omit frozen_layers")
        Layout(self.max_length, self.on_long or "window", self.stride)

    def check_untimed(self, work: str, instead: str) -> None:
        """Raise a UsageError if ``minutes`` is set, for work that it does not limit."""
        if (minutes := self.training.minutes) is not None:
            raise UsageError(f"minutes={minutes:g} does not limit {work}: omit it, or {instead}")

    def completed(self, values: Mapping[str, Any]) -> Self:
        """A copy in which these values replace None, except that no number of epochs is added to ``num_steps``."""
        is_of_steps = self.training.num_steps is not None
        return super().completed(
            {name: value for name, value in values.items() if not (is_of_steps and name == "num_epochs")}
        )

    @property
    def head_rate_factor(self) -> float:
        """Learning rate of the head relative to that of the encoder."""
        rate = self.training.learning_rate or 1.0
        return 1.0 if self.head_learning_rate is None else self.head_learning_rate / rate

    def of_loop(self, steps_per_epoch: int) -> TrainingSettings:
        """The settings of the training loop; the learning rate and the epochs or steps must be set."""
        num_steps = self.training.num_steps
        if num_steps is None:
            assert self.num_epochs is not None
            num_steps = steps_per_epoch * self.num_epochs
        every = {"evaluate_every": -(-steps_per_epoch // self.evaluations_per_epoch), "save_every": steps_per_epoch}
        return self.training.changed(num_steps=num_steps).completed(every)


_WEIGHTS = DistillationSettings()


@dataclass(frozen=True)
class StudentSettings(FinetuningSettings):
    """Settings of the fine-tuning of a student, which learns from a teacher.

    Parameters
    ----------
    distillation
        Weights of the losses.
    """

    distillation: DistillationSettings = _WEIGHTS
