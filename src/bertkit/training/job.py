"""One run of training: a `Job` says what is special about it, and `run_job` leads every job through the same life."""

import hashlib
import json
import platform
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import nn
from tqdm import tqdm

from bertkit.device import cpu_name
from bertkit.errors import CheckpointError
from bertkit.files.json_files import json_value, member, numbers, read_json, write_json
from bertkit.files.whole_files import check_folder_writable, only_writer
from bertkit.tasks import metric_of
from bertkit.training.feed import Feed
from bertkit.training.metrics_log import MetricsLog
from bertkit.training.optimizers import make_optimizer
from bertkit.training.ranks import Ranks
from bertkit.training.run_folder import (
    claim_run_folder,
    longer_of,
    naming_full_disk,
    read_run_settings,
    released_if_refused,
    write_run_settings,
)
from bertkit.training.settings import TrainingSettings
from bertkit.training.state import (
    STATE,
    TrainingState,
    checkpoint_folder,
    checkpoints,
    differences,
    load_state,
    read_state,
    save_state,
    state_of,
)
from bertkit.training.trainer import Trainer
from bertkit.transformer.kernels.dispatch import WITHOUT_BFLOAT16
from bertkit.transformer.kernels.linear import has_fast_bfloat16
from bertkit.version import __version__

_OUTCOME = Path("run") / "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run."""

    reason: str  # "finished", "stopped early" without improvement, "stopped" on request
    step: int  # number of optimizer steps
    best_step: int | None  # the step whose weights were kept; None: the last
    metrics: dict[str, float] = field(default_factory=dict)  # on the dev examples; empty without them
    baselines: dict[str, float] = field(default_factory=dict)  # method -> score on dev without fine-tuning
    tried: list[dict[str, Any]] = field(default_factory=list)  # runs within a number of minutes: name, score, seconds


class Loop(Protocol):
    """What `run_job` needs of a training loop; `Trainer` is one."""

    network: nn.Module
    ranks: Ranks
    run: Path  # folder of its records
    state: TrainingState
    should_stop: Callable[[], bool]

    def train(self) -> str:
        """Train to the end or until ``should_stop``; returns the reason for the end."""


@dataclass
class Job(ABC):
    """What is special about a run of training: the facts that identify it, what it trains, and how it ends.

    ``out`` becomes the result. `run_job` calls the methods in the order in which they stand here.
    """

    out: Path
    _: KW_ONLY
    device: str = "auto"
    log_line: Callable[[str], None] = tqdm.write  # called with each line for the user
    ranks: Ranks = field(default_factory=Ranks)  # the processes that train together; the first one writes
    trains: bool = True  # else the model is opened and finished as it is
    state: TrainingState = field(default_factory=TrainingState, init=False)  # progress of the run

    length_names: ClassVar[tuple[str, ...]] = ()  # facts that may grow, to add steps to a finished run
    prepares_folder: ClassVar[bool] = False  # writes into its folder before it trains

    def __post_init__(self) -> None:
        self.out = self.out.absolute()  # "." has no name, and is another folder once this one is replaced

    @property
    def folder(self) -> Path:
        """Folder of the settings, metrics and checkpoints."""
        return self.out / "run"

    @property
    def record(self) -> Path:
        """File of the facts."""
        return self.folder / "settings.json"

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Examples per optimizer step, over all ranks."""

    @abstractmethod
    def check(self) -> None:
        """Raise errors of settings, devices and files before the folder is claimed."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts that must match for a run to be resumed, as JSON values."""

    def claim(self, *, resume: bool) -> None:
        """Claim the folder, or the run in it that is to be resumed or continued; called on the first rank."""
        if resume:
            _lengthen(self)
        claim_run_folder(self.out, self.record, self.facts(), resume=resume)

    def finished(self) -> Outcome | None:
        """The outcome of a finished run in the folder, which has no checkpoints left; None if there is none."""
        return None

    @abstractmethod
    def open(self, saved: Path | None) -> Loop:
        """The loop of the run, in most jobs made by `trainer`.

        Args:
            saved: the model of the last checkpoint; None: a new run.
        """

    @abstractmethod
    def start_facts(self) -> dict[str, Any]:
        """Facts to log when training starts."""

    @abstractmethod
    def finish(self, outcome: Outcome) -> Outcome:
        """Evaluate and save the result of a run that was not stopped; called on every rank."""

    def trainer(self, network: nn.Module, task: Any, feed: Feed, settings: TrainingSettings, **options: Any) -> Trainer:
        """Trainer of a new or resumed run; the arguments of `make_trainer`."""
        options = {"ranks": self.ranks, "log_line": self.log_line, **options}
        return make_trainer(self.folder, network, task, feed, settings, **options)


def run_job(job: Job, *, resume: bool = False, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Lead a run from its folder to its result; a stopped run is saved, and resumes with the same bits.

    A finished run resumes, too, if its length has grown: from the weights that were kept.

    Raises:
        UsageError: invalid settings; ranks with other settings or data; ``out`` cannot be written, or has other files
            or another run, or this one and ``resume`` is false, or another process trains it.
        DataError: unusable input.
        TrainingError: a loss that is not a number (NonFiniteError), a full disk, a checkpoint that cannot be written.
    """
    with naming_full_disk(job.out), ExitStack() as at_end:
        return _run(job, resume, should_stop, at_end)


def _run(job: Job, resume: bool, should_stop: Callable[[], bool], at_end: ExitStack) -> Outcome:
    def claim() -> None:
        job.claim(resume=resume)
        at_end.enter_context(only_writer(job.folder))

    check_folder_writable(job.out)
    job.ranks.check_batch_size(job.batch_size)
    if not job.ranks.is_first:
        job.log_line = lambda line: None
    job.check()
    if job.ranks.num_ranks > 1:
        job.ranks.check_same(_digest(job.facts()), "settings and data")
    is_there = job.out.is_dir() and any(job.out.iterdir())
    job.ranks.wait()
    if is_there or job.prepares_folder:
        if job.ranks.is_first:
            claim()
        job.ranks.wait()
    if (outcome := job.finished()) is not None:
        job.log_line(f"{job.out} is finished already")
        return outcome
    saved = checkpoints(job.folder)
    trainer = job.open(saved[-1] / "model" if saved else None)
    trainer.should_stop, job.state = should_stop, trainer.state
    if job.ranks.is_first and not (is_there or job.prepares_folder):
        claim()  # only now, after all checks of the input

    def has_results() -> bool:
        return job.prepares_folder or not job.ranks.is_first or bool(
            set(checkpoints(job.folder)) - {checkpoint_folder(job.folder, 0)}
        )  # fmt: skip

    with released_if_refused(job.folder, has_results):
        log_start(trainer, **job.start_facts())
        reason = trainer.train() if job.trains else "finished"
    outcome = Outcome(reason, trainer.state.step, trainer.state.best_step)
    return outcome if reason == "stopped" else job.finish(outcome)


def _digest(facts: Mapping[str, Any]) -> int:
    content = json.dumps(json_value(facts), sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "little")


def _lengthen(job: Job) -> None:
    """Make the finished run in the folder one that is resumed, if it is this one with more steps."""
    before = read_run_settings(job.record)
    if before is None or job.finished() is None:
        return
    state = state_of((read_json(job.out / _OUTCOME) or {}).get("state"))
    change = longer_of(before, job.facts(), job.length_names)
    if state is None or change is None:
        return
    job.log_line(
        f"{job.out} is a finished run: training continues with {change}, from the weights that were kept (step "
        f"{state.step}); the averages of the optimizer start again, and the learning rate is that of the longer run"
    )

    def copy_model(folder: Path) -> None:
        shutil.copytree(job.out, folder, ignore=lambda parent, _: ["run"] if Path(parent) == job.out else [])

    write_run_settings(job.record, job.facts())
    save_state(checkpoint_folder(job.folder, state.step), state, {}, copy_model)


def write_run_records(job: Job, outcome: Outcome, folder: Path) -> None:
    """Write the settings, the metrics and the outcome of a run to the subfolder ``run`` of its result, with the
    progress at the step whose weights were kept, so that steps can be added."""
    (folder / "run").mkdir()
    for name in (job.record.name, "metrics.jsonl"):
        shutil.copy(job.folder / name, folder / "run" / name)
    step = outcome.step if outcome.best_step is None else outcome.best_step
    write_outcome(outcome, folder, read_state(checkpoint_folder(job.folder, step) / STATE))


def write_outcome(outcome: Outcome, folder: Path, state: TrainingState | None = None) -> None:
    """Record an outcome in the folder of its model.

    Args:
        state: progress at the step of the weights.
    """
    write_json(folder / _OUTCOME, asdict(outcome) | ({} if state is None else {"state": asdict(state)}))


def read_outcome(folder: Path) -> Outcome:
    """The outcome of the run that made a model.

    Raises:
        CheckpointError: the record is missing or malformed.
    """
    path = folder / _OUTCOME
    content = read_json(path)
    if content is None:
        raise CheckpointError(
            f"{path} is missing: expected the record of a finished run; load its model, or train it again"
        )
    reason, step = member(content, "reason", str, path), member(content, "step", int, path)
    best_step, tried = member(content, "best_step", int, path), member(content, "tried", list, path, [])
    metrics, baselines = (numbers(member(content, name, dict, path, {})) for name in ("metrics", "baselines"))
    return Outcome(reason, step, best_step, metrics, baselines, [numbers(row) for row in tried])


def make_trainer(
    folder: Path,
    network: nn.Module,
    task: Any,
    feed: Feed,
    settings: TrainingSettings,
    *,
    rate_factor: Callable[[str], float] = lambda name: 1.0,
    best_by: str = "loss",
    **options: Any,
) -> Trainer:
    """Trainer of a new run, or of a run resumed from its last checkpoint.

    Args:
        folder: folder of metrics and checkpoints.
        best_by: the metric that selects the best weights, unless the settings name one.
        rate_factor: parameter name -> factor of the learning rate.
        options: further fields of `Trainer`.
    """
    settings.check_length()
    assert settings.learning_rate is not None
    optimizer = make_optimizer(
        settings.optimizer, network, learning_rate=settings.learning_rate, rate_factor=rate_factor
    )
    saved = checkpoints(folder)
    state = load_state(saved[-1], network, optimizer) if saved else TrainingState()
    best_by = settings.best_by or best_by
    trainer = Trainer(
        network, task, feed, settings, optimizer, folder, state=state, best_by=best_by,
        higher_is_better=metric_of(best_by).higher_is_better, **options,
    )  # fmt: skip
    is_on_cpu = next(network.parameters()).device.type == "cpu"
    if trainer.ranks.is_first:
        if settings.precision == "bfloat16" and is_on_cpu and not has_fast_bfloat16():
            trainer.log_line(f"precision bfloat16: {WITHOUT_BFLOAT16}")
        if saved:
            trainer.log_line(f"resuming after step {state.step}, from {saved[-1]}")
            for line in differences(state, trainer.ranks.num_ranks):
                trainer.log_line(line)
    return trainer


def log_start(trainer: Loop, **facts: Any) -> None:
    """Log the facts of a run and the machine, on the first rank: the first line of metrics.jsonl."""
    if not trainer.ranks.is_first:
        return
    log, step = MetricsLog(trainer.run), trainer.state.step
    log.write(
        "start", step, time=datetime.now(UTC).isoformat(timespec="seconds"), resumed=step > 0, **facts,
        num_parameters=sum(parameter.numel() for parameter in trainer.network.parameters()), processor=cpu_name(),
        versions={"python": platform.python_version(), "bertkit": __version__, "torch": torch.__version__},
    )  # fmt: skip
    log.close()
