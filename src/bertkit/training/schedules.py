"""Learning rate schedules: factor of the peak rate by progress of the run.

Run length is a number of steps or minutes; a schedule depends only on the progress, from 0 to 1, so it serves both.
Warm-up is a share of the run, too.
"""

import math
from collections.abc import Callable

from bertkit.errors import UsageError


def linear(progress: float, warmup: float) -> float:
    """Up during warm-up, then down to 0 at the end."""
    return progress / warmup if progress < warmup else (1 - progress) / (1 - warmup)


def linear_2018(progress: float, warmup: float) -> float:
    """The published schedule (google-research/bert, optimization.py): the decrease is counted from the start of the
    run, so the rate drops when warm-up ends."""
    return progress / warmup if progress < warmup else 1 - progress


def cosine(progress: float, warmup: float) -> float:
    """Up during warm-up, then half a cosine down to 0."""
    return (
        progress / warmup if progress < warmup else 0.5 + 0.5 * math.cos(math.pi * (progress - warmup) / (1 - warmup))
    )


def trapezoid(progress: float, warmup: float) -> float:
    """Up during warm-up, constant, and down over the last fifth with 1 - square root (Haegele et al. 2024)."""
    if progress < warmup:
        return progress / warmup
    return 1.0 if progress < _LEVEL_UNTIL else 1 - math.sqrt((progress - _LEVEL_UNTIL) / (1 - _LEVEL_UNTIL))


def inverse_square_root(progress: float, warmup: float) -> float:
    """Up during warm-up, then down with the inverse square root of the step (Vaswani et al. 2017, equation 3)."""
    if not warmup:
        raise UsageError(
            f"warmup={warmup}: schedule=inverse-square-root falls from the end of its warm-up; expected above 0"
        )
    return progress / warmup if progress < warmup else math.sqrt(warmup / progress)


_LEVEL_UNTIL = 0.8

SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "linear": linear,
    "linear-2018": linear_2018,
    "cosine": cosine,
    "trapezoid": trapezoid,
    "inverse-square-root": inverse_square_root,
    "constant": lambda progress, warmup: min(1.0, progress / warmup) if warmup else 1.0,
}
"""Schedules by name, the value of the setting "schedule": functions of progress and warm-up, of both from 0 to 1."""


def learning_rate_factor(schedule: str, progress: float, warmup: float) -> float:
    """The factor of the peak learning rate at a progress from 0 to 1.

    Raises:
        UsageError: an unknown schedule, or a warm-up that is not a share below 1.
    """
    if schedule not in SCHEDULES:
        raise UsageError(f"schedule={schedule!r}: expected one of {', '.join(SCHEDULES)}")
    if not 0 <= warmup < 1:
        raise UsageError(f"warmup={warmup!r}: expected a share of the run, from 0 to below 1")
    return SCHEDULES[schedule](min(max(progress, 0.0), 1.0), warmup)
