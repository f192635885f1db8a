"""Runs that train vectors of words or tokens in one process, by loops of their own."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import nn
from tqdm import tqdm

from bertkit.errors import UsageError
from bertkit.files.whole_files import whole_file, whole_folder
from bertkit.training import Job, Outcome, TrainingState, read_outcome, run_job, write_run_records
from bertkit.words.encoder import StaticEncoder
from bertkit.words.finite import check_trained

SAVE_SECONDS = 60.0
"""Seconds between two writes of the state."""


class VectorJob(Job):
    """A run that trains vectors; ``out`` becomes a StaticEmbedding folder.

    Subclasses are dataclasses that declare ``settings`` and ``data``.
    """

    settings: Any
    data: Any
    loop_type: ClassVar[type["VectorLoop"]]
    work: ClassVar[str]  # its name and a verb, for errors

    def start(self, data: Any, *, resume: bool = False, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train on data to the end or until ``should_stop``; errors as those of the class and `run_job`."""
        return run_job(replace(self, data=data), resume=resume, should_stop=should_stop)

    @abstractmethod
    def digests(self) -> dict[str, str]:
        """Digests of the data, by what they are."""

    def facts(self) -> dict[str, Any]:
        return self.start_facts() | {"digests": self.digests()}

    def start_facts(self) -> dict[str, Any]:
        return {"settings": self.settings.values(), "examples": len(self.data)}

    def check(self) -> None:
        self.ranks.check_single(self.work)

    def finished(self) -> Outcome | None:
        return read_outcome(self.out) if (self.out / "modules.json").is_file() else None

    def open(self, saved: Path | None) -> "VectorLoop":
        self._loop = self.loop_type(self)
        return self._loop

    def finish(self, outcome: Outcome) -> Outcome:
        outcome = replace(outcome, metrics=self._loop.metrics())
        with whole_folder(self.out, overwrite=True) as folder:
            self._loop.encoder().save(folder, overwrite=True)
            write_run_records(self, outcome, folder)
        return outcome


class VectorLoop:
    """The loop of a `VectorJob`; its state is saved every minute and at a stop. A `Trainer` sums dense gradients; those
    of a table of vectors are sparse."""

    network: nn.Module
    num_steps: int
    work: int  # of all steps, in units of progress
    unit: ClassVar[str] = " steps"

    def __init__(self, job: VectorJob) -> None:
        self.settings, self.ranks, self.run, self.state = job.settings, job.ranks, job.folder, TrainingState()
        self.should_stop: Callable[[], bool] = lambda: False
        self._file = self.run / "state.safetensors"

    @abstractmethod
    def steps(self) -> Iterator[int]:
        """Take the next steps and count them in the state; yields the units of progress of each."""

    @abstractmethod
    def arrays(self) -> Mapping[str, np.ndarray]:
        """What a resumed run needs besides the number of steps."""

    @property
    @abstractmethod
    def vectors(self) -> np.ndarray:
        """The trained vectors, (N, D) float32."""

    @abstractmethod
    def encoder(self) -> StaticEncoder:
        """The encoder of the present vectors."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """What is known of the whole run."""

    def saved(self) -> dict[str, np.ndarray]:
        """The arrays of the state on disk, with which the run is resumed; empty if it is new.

        Raises:
            UsageError: the file cannot be read.
        """
        if not self._file.is_file():
            return {}
        try:
            arrays = load_file(self._file)
        except SafetensorError as error:
            raise UsageError(
                f"{self._file} cannot be read as the state of a run ({error}): remove the folder, and start again"
            ) from None
        self.state.step = int(arrays.pop("step"))
        return arrays

    def train(self) -> str:
        """Train to the end or until ``should_stop``; returns the reason for the end."""
        state, saved = self.state, time.monotonic()
        done = self.work * state.step // self.num_steps
        with tqdm(
            total=self.work, initial=done, desc="training", unit=self.unit, unit_scale=True, delay=2, disable=None
        ) as bar:
            while state.step < self.num_steps and not self.should_stop():
                for progress in self.steps():
                    bar.update(progress)
                if time.monotonic() - saved > SAVE_SECONDS:
                    self._save()
                    saved = time.monotonic()
        check_trained(self.vectors, self.settings.learning_rate)
        if 0 < state.step < self.num_steps:
            self._save()
        return "finished" if state.step == self.num_steps else "stopped"

    def _save(self) -> None:
        with whole_file(self._file) as temporary:
            arrays = {**self.arrays(), "step": np.array(self.state.step)}
            save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, temporary)
