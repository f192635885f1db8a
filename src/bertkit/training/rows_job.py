"""Runs that train on the rows of files."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

from bertkit.files import skipped_lines
from bertkit.tasks.examples import digest_of
from bertkit.training.job import Job, Outcome, read_outcome, run_job
from bertkit.training.settings import TrainingSettings
from bertkit.training.state import checkpoints


@dataclass
class RowsJob(Job):
    """A run that trains on examples, and keeps the weights that are best on others; it has ``settings``, with those of
    the loop in ``training``."""

    _: KW_ONLY
    skip_bad: bool = False  # skip examples that cannot be used or are too long; else they are errors
    skipped: Sequence[str] = ()  # locations and reasons of skipped examples; the run adds its own
    train: Sequence[Any] = field(default=(), repr=False)
    dev: Sequence[Any] = field(default=(), repr=False)

    length_names: ClassVar[tuple[str, ...]] = ("settings.num_epochs", "settings.num_steps", "settings.minutes")
    result: ClassVar[str] = "config.json"  # a file that only a finished model has

    def start(
        self,
        train: Sequence[Any],
        dev: Sequence[Any] = (),
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train, and keep the weights that are best on ``dev``, or the last ones without it; only the first rank has
        metrics.

        Raises:
            DataError: no examples, or unusable ones.
            UsageError, TrainingError: as `run_job`.
        """
        run = replace(self, train=train, dev=dev)
        outcome = run_job(run, resume=resume, should_stop=should_stop)
        self.skipped = run.skipped
        return outcome

    def log_skipped(self) -> None:
        """Log the number of skipped examples, and the reasons for the first ones."""
        for line in skipped_lines(self.skipped):
            self.log_line(line)

    @property
    def batch_size(self) -> int:
        return vars(self)["settings"].training.batch_size

    def facts(self) -> dict[str, Any]:
        return self.start_facts() | {
            "settings": TrainingSettings.facts(vars(self)["settings"]),
            "digests": {"training": digest_of(self.train), "dev": digest_of(self.dev)},
        }

    def finished(self) -> Outcome | None:
        is_finished = (self.out / self.result).is_file() and not checkpoints(self.folder)
        return read_outcome(self.out) if is_finished else None
