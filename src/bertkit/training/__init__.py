"""The training loop.

Takes: a network, a task, a feed of batches, settings.
Gives: trained weights, checkpoints for bit-identical resumption, metrics line by line.
May import: version, later, errors, files, device, executor, batch, transformer, heads, architectures, tasks.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.training.example_job import ExampleJob as ExampleJob
    from bertkit.training.feed import Feed as Feed
    from bertkit.training.gradients import compute_gradients as compute_gradients
    from bertkit.training.gradients import compute_gradients_of_vectors as compute_gradients_of_vectors
    from bertkit.training.gradients import evaluate as evaluate
    from bertkit.training.gradients import outputs_of as outputs_of
    from bertkit.training.gradients import without_dropout as without_dropout
    from bertkit.training.job import Job as Job
    from bertkit.training.job import Loop as Loop
    from bertkit.training.job import Outcome as Outcome
    from bertkit.training.job import make_trainer as make_trainer
    from bertkit.training.job import read_outcome as read_outcome
    from bertkit.training.job import run_job as run_job
    from bertkit.training.job import write_outcome as write_outcome
    from bertkit.training.job import write_run_records as write_run_records
    from bertkit.training.job_kinds import JobKind as JobKind
    from bertkit.training.metrics_log import MetricsLog as MetricsLog
    from bertkit.training.metrics_log import tensorboard_writer as tensorboard_writer
    from bertkit.training.optimizers import OPTIMIZERS as OPTIMIZERS
    from bertkit.training.optimizers import OptimizerSettings as OptimizerSettings
    from bertkit.training.optimizers import make_optimizer as make_optimizer
    from bertkit.training.optimizers.adamw_2018 import AdamW2018 as AdamW2018
    from bertkit.training.ranks import Ranks as Ranks
    from bertkit.training.ranks import gather_full_tensor as gather_full_tensor
    from bertkit.training.run_folder import claim_run_folder as claim_run_folder
    from bertkit.training.run_folder import longer_of as longer_of
    from bertkit.training.run_folder import read_run_settings as read_run_settings
    from bertkit.training.run_folder import released_if_refused as released_if_refused
    from bertkit.training.run_folder import write_run_settings as write_run_settings
    from bertkit.training.schedules import SCHEDULES as SCHEDULES
    from bertkit.training.schedules import Schedule as Schedule
    from bertkit.training.search import search as search
    from bertkit.training.settings import TrainingSettings as TrainingSettings
    from bertkit.training.signals import stop_signals as stop_signals
    from bertkit.training.state import TrainingState as TrainingState
    from bertkit.training.state import checkpoints as checkpoints
    from bertkit.training.trainer import EVALUATIONS as EVALUATIONS
    from bertkit.training.trainer import SHARE_OF_TIME as SHARE_OF_TIME
    from bertkit.training.trainer import Trainer as Trainer

__getattr__, __dir__ = on_demand(__name__)
