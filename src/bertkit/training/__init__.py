"""The training loop.

Takes: a network, a task, a feed of batches, settings.
Gives: trained weights, checkpoints for bit-identical resumption, metrics line by line.
May import: version, later, errors, files, device, executor, batch, transformer, heads, architectures, tasks.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.training.feed import Feed
    from bertkit.training.gradients import (
        compute_gradients,
        compute_gradients_of_vectors,
        evaluate,
        outputs_of,
        without_dropout,
    )
    from bertkit.training.metrics_log import MetricsLog, tensorboard_writer
    from bertkit.training.optimizers import AdamW2018, CombinedOptimizer, make_optimizer
    from bertkit.training.ranks import Ranks, gather_full_tensor
    from bertkit.training.run import Run
    from bertkit.training.run_folder import (
        claim_run_folder,
        naming_full_disk,
        read_run_settings,
        released_if_refused,
        write_run_settings,
    )
    from bertkit.training.schedules import SCHEDULES, learning_rate_factor
    from bertkit.training.settings import OPTIMIZERS, TrainingSettings
    from bertkit.training.signals import stop_signals
    from bertkit.training.state import TrainingState, checkpoint_folder, checkpoints
    from bertkit.training.trainer import EVALUATIONS, SHARE_OF_TIME, Trainer

__getattr__, __dir__ = on_demand(__name__)

__all__ = [
    "EVALUATIONS",
    "OPTIMIZERS",
    "SCHEDULES",
    "SHARE_OF_TIME",
    "AdamW2018",
    "CombinedOptimizer",
    "Feed",
    "MetricsLog",
    "Ranks",
    "Run",
    "Trainer",
    "TrainingSettings",
    "TrainingState",
    "checkpoint_folder",
    "checkpoints",
    "claim_run_folder",
    "compute_gradients",
    "compute_gradients_of_vectors",
    "evaluate",
    "gather_full_tensor",
    "learning_rate_factor",
    "make_optimizer",
    "naming_full_disk",
    "outputs_of",
    "read_run_settings",
    "released_if_refused",
    "stop_signals",
    "tensorboard_writer",
    "without_dropout",
    "write_run_settings",
]
