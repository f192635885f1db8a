"""A training run's folder to its report.

Takes: what a run has written of itself, recipe.json and metrics.jsonl.
Gives: its numbers, what they say in plain words, and a self-contained page.
May import: errors, files, pages.
"""

from bertkit.training_report.findings import findings_of
from bertkit.training_report.recorded_run import TrainingRun, read_run
from bertkit.training_report.report import training_report, write_training_report

__all__ = ["TrainingRun", "findings_of", "read_run", "training_report", "write_training_report"]
