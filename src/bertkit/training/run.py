"""Run folder shared by all recipes: optimizer, resumed state, log."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertkit.device import cpu_name
from bertkit.training.feed import Feed
from bertkit.training.metrics_log import MetricsLog
from bertkit.training.optimizers import CombinedOptimizer, make_optimizer
from bertkit.training.ranks import Ranks
from bertkit.training.settings import TrainingSettings
from bertkit.training.state import TrainingState, checkpoints, differences, load_state
from bertkit.training.trainer import Trainer
from bertkit.transformer.kernels.dispatch import linear_for
from bertkit.version import __version__


@dataclass(frozen=True)
class Run:
    """One run of a recipe; ``log_line`` is called with each line for the user."""

    folder: Path  # folder of metrics and checkpoints
    ranks: Ranks
    log_line: Callable[[str], None]

    def trainer(
        self,
        network: nn.Module,
        task: Any,
        feed: Feed,
        settings: TrainingSettings,
        *,
        rate_factor: Callable[[str], float] = lambda name: 1.0,
        **options: Any,
    ) -> Trainer:
        """Trainer of a new run, or of a run resumed from its last checkpoint.

        Args:
            rate_factor: parameter name -> factor of the learning rate.
            options: further fields of `Trainer`.
        """
        optimizer = make_optimizer(
            settings.optimizer, network, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay,
            betas=settings.betas, eps=settings.eps, matrix_learning_rate=settings.matrix_learning_rate,
            rate_factor=rate_factor,
        )  # fmt: skip
        self._report_precision(settings.precision, next(network.parameters()).device)
        state = self._state(network, optimizer)
        return Trainer(
            network, task, feed, settings, optimizer, self.folder, state=state, ranks=self.ranks,
            log_line=self.log_line, **options,
        )  # fmt: skip

    def _report_precision(self, precision: str, device: torch.device) -> None:
        choice = linear_for(precision)
        if self.ranks.is_first and precision != "float32" and device.type == "cpu" and not choice.is_fast:
            self.log_line(f"precision {precision}: {choice.reason}")

    def _state(self, network: nn.Module, optimizer: CombinedOptimizer) -> TrainingState:
        saved = checkpoints(self.folder)
        if not saved:
            return TrainingState()
        state = load_state(saved[-1], network, optimizer)
        if self.ranks.is_first:
            for line in (
                f"resuming after step {state.step}, from {saved[-1]}",
                *differences(state, self.ranks.num_ranks),
            ):
                self.log_line(line)
        return state

    def log_start(self, trainer: Trainer, **facts: Any) -> None:
        """Log the settings of the run and the machine, on the first rank: the first line of metrics.jsonl."""
        if not self.ranks.is_first:
            return
        log, step = MetricsLog(self.folder), trainer.state.step
        log.write(
            "start", step, time=datetime.now(UTC).isoformat(timespec="seconds"), resumed=step > 0, **facts,
            num_parameters=sum(parameter.numel() for parameter in trainer.network.parameters()), processor=cpu_name(),
            versions={"python": platform.python_version(), "bertkit": __version__, "torch": torch.__version__},
        )  # fmt: skip
        log.close()
