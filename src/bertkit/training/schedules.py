"""Learning rate schedules: factor of the peak rate by progress of the run.

Run length is a number of steps or minutes; a schedule depends only on the progress, from 0 to 1, so it serves both.
Warm-up is a share of the run, too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bertkit.tasks.field_types import Range, Share
from bertkit.tasks.settings import Choice

_LEVEL_UNTIL = 0.8
_BEFORE_THE_FALL = Range(
    "a share above 0 and below 1, as the rate falls from the end of its warm-up", lambda value: 0 < value < 1
)


@dataclass(frozen=True)
class Schedule(Choice, ABC):
    """A schedule. Its fields are its settings; a subclass in a file and a line in `SCHEDULES` add a schedule.

    Parameters
    ----------
    warmup
        Share of the run in which the learning rate rises linearly to its peak.
    """

    warmup: Share = 0.01

    @classmethod
    def kinds(cls) -> Mapping[str, type["Schedule"]]:
        return SCHEDULES

    def factor(self, progress: float) -> float:
        """The factor of the peak learning rate at a progress from 0 to 1."""
        progress = min(max(progress, 0.0), 1.0)
        return progress / self.warmup if progress < self.warmup else self.after_warmup(progress)

    @abstractmethod
    def after_warmup(self, progress: float) -> float:
        """The factor at a progress from the end of warm-up to 1."""


@dataclass(frozen=True)
class Linear(Schedule):
    """Down to 0 at the end."""

    name: ClassVar[str] = "linear"

    def after_warmup(self, progress: float) -> float:
        return (1 - progress) / (1 - self.warmup)


@dataclass(frozen=True)
class Linear2018(Schedule):
    """The published schedule (google-research/bert, optimization.py): the decrease is counted from the start of the
    run, so the rate drops when warm-up ends."""

    name: ClassVar[str] = "linear-2018"

    def after_warmup(self, progress: float) -> float:
        return 1 - progress


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine down to 0."""

    name: ClassVar[str] = "cosine"

    def after_warmup(self, progress: float) -> float:
        return 0.5 + 0.5 * math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup))


@dataclass(frozen=True)
class Trapezoid(Schedule):
    """Constant, and down over the last fifth with 1 - square root (Haegele et al. 2024)."""

    name: ClassVar[str] = "trapezoid"

    def after_warmup(self, progress: float) -> float:
        return 1.0 if progress < _LEVEL_UNTIL else 1 - math.sqrt((progress - _LEVEL_UNTIL) / (1 - _LEVEL_UNTIL))


@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """Down with the inverse square root of the step, from the end of warm-up (Vaswani et al. 2017, equation 3)."""

    warmup: Annotated[float, _BEFORE_THE_FALL] = 0.01

    name: ClassVar[str] = "inverse-square-root"

    def after_warmup(self, progress: float) -> float:
        return math.sqrt(self.warmup / progress)


@dataclass(frozen=True)
class Constant(Schedule):
    """The peak rate."""

    name: ClassVar[str] = "constant"

    def after_warmup(self, progress: float) -> float:
        return 1.0


SCHEDULES: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Linear, Linear2018, Cosine, Trapezoid, InverseSquareRoot, Constant)
}
"""Schedules by name, the value of the setting "schedule"."""
