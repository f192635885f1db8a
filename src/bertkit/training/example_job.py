"""A run of training on examples, with dev examples that select the best weights: what such jobs share."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from bertkit.errors import DataError, UsageError
from bertkit.files.whole_files import whole_folder
from bertkit.tasks.examples import digest_of
from bertkit.training.job import Job, Outcome, read_outcome, run_job, write_run_records
from bertkit.training.settings import TrainingSettings
from bertkit.training.state import checkpoint_folder, checkpoints


class ExampleJob(Job):
    """A job with the fields ``settings``, ``train`` and ``dev`` (`FinetuningSettings` and others, and examples).

    Subclasses are dataclasses that declare these fields; ``out`` becomes the model.
    """

    settings: Any  # a tree with a part ``training``
    train: Sequence[Any]
    dev: Sequence[Any]

    length_names: ClassVar[tuple[str, ...]] = ("settings.num_epochs", "settings.num_steps", "settings.minutes")
    result_file: ClassVar[str] = "config.json"  # which the folder of a finished run has
    of_dev: ClassVar[tuple[str, ...]] = ("patience", "best_by")  # settings that need dev examples

    def start(
        self,
        train: Sequence[Any],
        dev: Sequence[Any] = (),
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train on examples, and keep the weights that are best on ``dev``, or the last ones without it.

        Raises:
            DataError: no examples, or unusable ones.
            UsageError, TrainingError: as `run_job`.
        """
        return run_job(self.prepared(train, dev), resume=resume, should_stop=should_stop)

    def prepared(self, train: Sequence[Any], dev: Sequence[Any]) -> Self:
        """This run with its examples."""
        return replace(self, train=train, dev=dev)

    @property
    def batch_size(self) -> int:
        return self.settings.training.batch_size

    @abstractmethod
    def known_metrics(self) -> Collection[str]:
        """Metrics of dev examples that can select the best weights; none: they are known when the model is opened."""

    def check(self) -> None:
        if not self.train:
            raise DataError("no examples to train on: expected at least one")
        self.settings.training.check_dev(self.dev, self.of_dev)
        best_by, known = self.settings.training.best_by, self.known_metrics()
        if best_by is not None and known and best_by not in known:
            raise UsageError(f"best_by={best_by!r}: expected one of {', '.join(known)}")

    def facts(self) -> dict[str, Any]:
        return self.start_facts() | {
            "settings": TrainingSettings.facts(self.settings),
            "digests": {"training": digest_of(self.train), "dev": digest_of(self.dev)},
        }

    def finished(self) -> Outcome | None:
        is_finished = (self.out / self.result_file).is_file() and not checkpoints(self.folder)
        return read_outcome(self.out) if is_finished else None

    def finish(self, outcome: Outcome) -> Outcome:
        if not self.ranks.is_first:
            return outcome
        step = outcome.best_step
        best = None if step is None or step == outcome.step else checkpoint_folder(self.folder, step) / "model"
        outcome = self.result(outcome, best)
        with whole_folder(self.out, overwrite=True) as folder:
            self.write(folder, best)
            write_run_records(self, outcome, folder)
        return outcome

    @abstractmethod
    def result(self, outcome: Outcome, best: Path | None) -> Outcome:
        """The outcome with the metrics of the result; called once, on the first rank.

        Args:
            best: folder of the model with the best weights; None: those of the last step.
        """

    @abstractmethod
    def write(self, folder: Path, best: Path | None) -> None:
        """Write the result to a folder; after `result`."""
