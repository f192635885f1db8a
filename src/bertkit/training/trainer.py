"""The training loop: gradients, weight updates, evaluations and checkpoints.

A step is a function of the weights, the optimizer's state and the position of the feed, so a run that stopped anywhere
resumes bit-identically, given the same numbers of threads and ranks.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from bertkit.device import receive
from bertkit.errors import NonFiniteError, UsageError
from bertkit.files.json_files import write_json
from bertkit.tasks import Task
from bertkit.training.batch_gradients import BatchGradients
from bertkit.training.feed import Feed
from bertkit.training.metrics_log import MetricsLog
from bertkit.training.optimizers import CombinedOptimizer
from bertkit.training.ranks import Ranks, gather_full_tensor, is_sharded
from bertkit.training.settings import TrainingSettings
from bertkit.training.state import (
    TrainingState,
    checkpoint_folder,
    checkpoints,
    optimizer_tensors,
    remove_older,
    save_state,
)

EVALUATIONS, _SAVES = 20, 10
"""Evaluations, and checkpoints, of a run without such settings, if they take at most SHARE_OF_TIME of it."""
SHARE_OF_TIME = 0.1
_LOG_EVERY, _LINES = 10, 100  # steps between lines of metrics, and minimum number of lines in a shorter run


@dataclass
class Trainer:
    """One run of training: `train` repeats `_step` until the end, with evaluations and checkpoints in between.

    Without settings for them there are fewer than EVALUATIONS, or _SAVES, if by the times measured so far those of the
    whole run would take more than SHARE_OF_TIME of it; the first and the last are always made. Weights do not depend on
    them: a step has the same bits whether the weights were evaluated or saved before. The best step does: on a slow or
    busy machine fewer are compared. Where the best weights are the result, evaluations therefore do not depend on time:
    choose ``best_is_result``, or set ``evaluate_every``.
    """

    network: nn.Module
    task: Task  # computes the loss and metrics
    feed: Feed  # the batches
    settings: TrainingSettings
    optimizer: CombinedOptimizer
    run: Path  # folder of metrics and checkpoints
    save_model: Callable[..., None]  # save_model(folder, parameters=...) writes a model directory
    state: TrainingState = field(default_factory=TrainingState)  # of a resumed run: that of its checkpoint
    evaluate: Callable[[], dict[str, float]] | None = None  # metrics on held-out data
    best_by: str = "loss"  # the metric that selects the best checkpoint; NaN is never the best
    higher_is_better: bool = False  # of this metric
    keep_first: bool = False  # the initial weights may be the best
    best_is_result: bool = False  # the best weights are the result of the run
    sample: Callable[[], dict[str, Any]] | None = None  # further values to log at each evaluation
    log_line: Callable[[str], None] = tqdm.write  # called with lines of text for the user
    ranks: Ranks = field(default_factory=Ranks)  # the processes that train together
    should_stop: Callable[[], bool] = lambda: False  # asked after every step
    tensorboard: bool = False
    compile: bool = False  # by torch, for a feed whose batches have parts of one shape
    clock: Callable[[], float] = time.monotonic  # seconds; time.process_time does not depend on other programs

    _unread: Callable[[], None] | None = field(default=None, init=False)  # reads the sums and the norm of the last step
    _trained: tuple[Any, int] | None = field(default=None, init=False)  # the batch of the last step, and its position
    _seconds: dict[str, float] = field(default_factory=dict, init=False)  # of the latest evaluation and checkpoint
    _initial: float | None = field(default=None, init=False)  # the metric of the initial weights, if evaluated here
    _spent: float = field(default=0.0, init=False)  # seconds of all of them since this process started the run
    _affordable: float = field(default=1.0, init=False)  # share of all evaluations and checkpoints; equal on all ranks

    @cached_property
    def _gradients(self) -> BatchGradients:
        return BatchGradients(self.network, self.task, self.settings, self.ranks, self.compile)

    def train(self) -> str:
        """Train to the end of the run, or until ``should_stop``; returns "finished", "stopped", or "stopped early" when
        out of patience.

        Raises:
            NonFiniteError: a loss or gradient is not finite, or the loss of the last batch again before weights are
                saved; ``non-finite.json`` has the position.
            TrainingError: a checkpoint that cannot be written.
        """
        self._started = self.clock() - self.state.seconds
        self._log = MetricsLog(self.run, tensorboard=self.tensorboard) if self.ranks.is_first else None
        self._sums, self._tokens_logged, self._seconds_logged = None, self.state.num_tokens, self.state.seconds
        self.network.train()
        with ThreadPoolExecutor(1) as ahead, self._bar() as bar:
            try:
                return self._loop(ahead, bar)
            finally:
                if self._log is not None:
                    self._log.close()

    def _loop(self, ahead: ThreadPoolExecutor, bar: tqdm) -> str:
        """Step until the end; ``ahead`` prepares the next batch while one is trained on. Returns as `train`."""
        state, coming = self.state, None
        if not state.step:  # evaluate the initial weights
            improved = self._evaluate()
            if not self.keep_first:
                state.best = state.best_step = None
            elif improved:
                self._save()
            state.num_worse = 0
        stops, progress = self._sync_stop_and_progress()
        while not (stops or progress >= 1 or self._is_out_of_patience()):
            prepared = coming.result() if coming is not None else self._prepared(state.position, progress)
            batch, batch_progress = prepared
            position, state.position = state.position, self.feed.next_position(state.position, batch_progress)
            coming = self._coming(ahead, state.position, progress)
            self._step(batch, position, progress, self.feed.facts(position, batch_progress))
            before, (stops, progress) = progress, self._sync_stop_and_progress()
            self._after_step(before, progress, bar)
        self._read()
        reason = "finished" if progress >= 1 else "stopped early" if self._is_out_of_patience() else "stopped"
        improved = reason == "finished" and state.step_evaluated != state.step and self._evaluate()
        if improved or (state.step and not checkpoint_folder(self.run, state.step).is_dir()):
            self._save()
        state.seconds = self.clock() - self._started
        self._write("end", seconds=state.seconds, reason=reason)
        return reason

    def _is_out_of_patience(self) -> bool:
        """True if the last ``patience`` evaluations did not improve on the best."""
        return self.settings.patience is not None and self.state.num_worse >= self.settings.patience

    def _step(self, batch: Any, position: int, progress: float, facts: dict[str, float]) -> None:
        """One optimizer step: the weights are updated by the gradients of a batch. ``facts`` of the batch are
        logged."""
        settings, state = self.settings, self.state
        sums, norm, num_tokens = self._gradients.compute(batch, state.step)
        self._read()  # the step before, while the device computes this one
        factor = settings.schedule.factor(progress)
        facts = {"learning_rate": (settings.learning_rate or 0.0) * factor, **facts}
        self._unread = partial(self._take, receive(sums), receive(norm), position, state.step, facts)
        if norm.device.type != "cuda":
            self._read()  # before the weights change
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor
        self.optimizer.step()
        state.step += 1
        state.num_tokens += num_tokens
        self._trained = batch, position

    def _read(self) -> None:
        """Wait for the sums and the norm of the last step, if they have not been read.

        Raises:
            NonFiniteError: one of them is not finite. On a CUDA device, which computes while the next step is prepared,
                weights have changed by then; they are not saved.
        """
        unread, self._unread = self._unread, None
        if unread is not None:
            unread()

    def _take(
        self, sums: Callable[[], Tensor], norm: Callable[[], Tensor], position: int, step: int, facts: dict[str, float]
    ) -> None:
        of_batch, size = self.ranks.add(sums().double().sum(dim=0)), float(norm())
        if not (math.isfinite(size) and bool(of_batch.isfinite().all())):
            record = {"sums": str(of_batch.tolist()), "gradient_norm": str(size)}
            self._stop_at_non_finite(position, step, "the loss or a gradient", record)
        self._sums = of_batch if self._sums is None else self._sums + of_batch
        self._last = {"gradient_norm": size} | facts

    def _after_step(self, before: float, progress: float, bar: tqdm) -> None:
        settings, state = self.settings, self.state
        state.seconds = self.clock() - self._started
        bar.update(1 if settings.num_steps else state.seconds - bar.n)
        if state.step % self._log_every(progress) == 0 or progress >= 1:
            self._read()
            self._log_metrics(bar)
        improved = False
        share = 1.0 if self.best_is_result else self._affordable
        if self._is_due(settings.evaluate_every, EVALUATIONS, share, before, progress):
            improved = self._evaluate()
        if improved or self._is_due(settings.save_every, _SAVES, self._affordable, before, progress):
            self._save()

    def _log_every(self, progress: float) -> int:
        """Steps between lines of metrics, by the length of the run, which for minutes is estimated from the speed so
        far."""
        num_steps = round(self.state.step / progress)
        return self.settings.log_every or min(_LOG_EVERY, max(1, num_steps // _LINES))

    def _is_due(self, every: int | None, in_a_run: int, share: float, before: float, progress: float) -> bool:
        if every is not None:
            return self.state.step % every == 0
        number = max(0, int((in_a_run + 1) * share) - 1)  # and one at the start
        return int(progress * number) > int(before * number)

    def _affordable_share(self, seconds: float, progress: float) -> float:
        """The share of all evaluations and checkpoints that takes at most SHARE_OF_TIME of the run."""
        of_evaluation, of_save = self._seconds.get("evaluation", 0.0), self._seconds.get("checkpoint", 0.0)
        if self.settings.evaluate_every is None and self.evaluate is not None and not self.best_is_result:
            number, of_one = EVALUATIONS + 1, of_evaluation + of_save  # each can be the best, which is saved
        else:
            number, of_one = _SAVES + 1, of_save
        if not (of_one and progress):
            return 1.0
        of_run = seconds / progress
        if self._spent + 2 * of_one > SHARE_OF_TIME * of_run:  # the next one and the last
            return 0.0
        return min(1.0, SHARE_OF_TIME * of_run / (number * of_one))

    def _measured(self, what: str, started: float) -> None:
        self._seconds[what] = self.clock() - started
        self._spent += self._seconds[what]

    def _log_metrics(self, bar: tqdm) -> None:
        state = self.state
        assert self._sums is not None
        metrics = self.task.metrics(self._sums)
        seconds = max(1e-9, state.seconds - self._seconds_logged)
        speed = (state.num_tokens - self._tokens_logged) / seconds
        facts = {**metrics, **self._last, "tokens_per_second": speed}
        self._write("step", seconds=state.seconds, tokens=state.num_tokens, **facts)
        bar.set_postfix_str(f"loss {metrics['loss']:.3f}, {speed:,.0f} tokens/s", refresh=False)
        self._sums, self._tokens_logged, self._seconds_logged = None, state.num_tokens, state.seconds

    def _evaluate(self) -> bool:
        """Evaluate and log; returns True if it is the best so far."""
        if self.evaluate is None:
            return False
        self._read()
        started = self.clock()
        state, metrics = self.state, self.evaluate()
        state.step_evaluated = state.step
        self._write("evaluation", seconds=state.seconds, tokens=state.num_tokens, **metrics)
        if self.best_by not in metrics:
            raise UsageError(f"best_by={self.best_by!r}: expected one of {', '.join(metrics)}")
        value = self._of_first(metrics[self.best_by])  # other ranks may differ in the last bit
        if not state.step:
            self._initial = value
        improved = not math.isnan(value) if state.best is None else self._is_better(value, state.best)
        state.num_worse = 0 if improved else state.num_worse + 1
        if improved:
            state.best, state.best_step = value, state.step
        if self.ranks.is_first:
            shown = ", ".join(f"{name} {number:.4g}" for name, number in metrics.items())
            notes = ["best so far"] if improved and (state.step or self.keep_first) else []
            if self._initial is not None and self._is_better(self._initial, value):
                notes.append("worse than the initial weights")
            self.log_line(f"step {state.step}: {shown}" + f" ({', '.join(notes)})" * bool(notes))
            if self.sample is not None and not is_sharded(self.network):
                self._write("samples", **self.sample())
        self._measured("evaluation", started)
        return improved

    def _is_better(self, value: float, other: float) -> bool:
        return value > other if self.higher_is_better else value < other

    def _save(self) -> None:
        """Write a checkpoint, unless the last update broke the weights."""
        self._read()
        started = self.clock()
        state, facts = self.state, {}
        if self._trained is not None:
            batch, position = self._trained
            facts["loss"] = self._gradients.loss(batch)
            if not math.isfinite(facts["loss"]):
                self._stop_at_non_finite(position, state.step - 1, "after its update, the loss of its batch", {})
        state.seconds = self.clock() - self._started  # those of an evaluation included
        state.num_threads, state.num_ranks = torch.get_num_threads(), self.ranks.num_ranks
        parameters = {name: gather_full_tensor(parameter) for name, parameter in self.network.named_parameters()}
        tensors = optimizer_tensors(self.network, self.optimizer)
        if self.ranks.is_first:
            folder = checkpoint_folder(self.run, state.step)
            save_state(folder, state, tensors, partial(self.save_model, parameters=parameters))
            remove_older(self.run, self.settings.keep_last, state.best_step)
            self._write("checkpoint", path=str(folder.relative_to(self.run)), **facts)
        self.ranks.wait()
        self._measured("checkpoint", started)

    def _stop_at_non_finite(self, position: int, step: int, what: str, values: dict[str, str]) -> None:
        if self.ranks.is_first:
            write_json(self.run / "non-finite.json", {"step": step, "position": position, **values})
            self._write("end", seconds=self.state.seconds, reason="non-finite loss")
        saved = checkpoints(self.run)
        raise NonFiniteError(
            f"step {step}: {what} is not a finite number; the batch's position is in {self.run / 'non-finite.json'}. "
            "Start another run with a lower learning rate" + (f", from {saved[-1] / 'model'}" if saved else "")
        )

    def _progress(self, seconds: float) -> float:
        """The share of the run that is complete, after these seconds."""
        settings = self.settings
        if settings.num_steps is not None:
            return min(1.0, self.state.step / settings.num_steps)
        assert settings.minutes is not None
        return min(1.0, seconds / (60 * settings.minutes))

    def _sync_stop_and_progress(self) -> tuple[bool, float]:
        """Whether any rank must stop, and the progress of the first rank: the same on every rank, as is the share of
        evaluations and checkpoints that the run has time for."""
        progress = affordable = 0.0
        if self.ranks.is_first:
            seconds = self.clock() - self._started
            progress = self._progress(seconds)
            affordable = self._affordable_share(seconds, progress)
        here = torch.tensor([float(self.should_stop()), progress, affordable], dtype=torch.float64)
        stops, progress, self._affordable = self.ranks.add(here).tolist()
        return stops > 0, progress

    def _of_first(self, number: float) -> float:
        """The first rank's number, on every rank."""
        return float(self.ranks.add(torch.tensor(number if self.ranks.is_first else 0.0, dtype=torch.float64)))

    def _prepared(self, position: int, progress: float) -> tuple[Any, float]:
        """The batch at a position, and the progress that its content depends on."""
        return self.feed.batch(position, progress), progress

    def _coming(self, ahead: ThreadPoolExecutor, position: int, progress: float) -> Future[tuple[Any, float]] | None:
        """The next batch, prepared while this one trains: by its own progress, in a run of minutes by that of this
        one."""
        num_steps = self.settings.num_steps
        if num_steps is None:
            return ahead.submit(self._prepared, position, progress)
        if self.state.step + 1 >= num_steps:
            return None
        return ahead.submit(self._prepared, position, (self.state.step + 1) / num_steps)

    def _write(self, event: str, **facts: Any) -> None:
        if self._log is not None:
            self._log.write(event, self.state.step, **facts)

    def _bar(self) -> tqdm:
        settings, state = self.settings, self.state
        hidden = None if self.ranks.is_first else True
        if settings.num_steps is not None:
            return tqdm(total=settings.num_steps, initial=state.step, desc="training", unit=" steps", disable=hidden)
        assert settings.minutes is not None
        layout = "{desc} {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} s {postfix}"
        return tqdm(
            total=60 * settings.minutes, initial=state.seconds, desc="training", disable=hidden, bar_format=layout
        )
