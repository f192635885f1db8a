"""What trains, compared: one file for each library, both with the same faces.

Each module here has a class ``Trainer(precision, threads)``; calling it with the name of a method calls that:

    prepare    (folder, dropout): the masked language model of a published folder, and a fused AdamW
    step       (examples, seed) -> loss: one optimizer step over them; the loss is the mean over their masked tokens
    evaluate   (examples) -> the same loss, without dropout, in float32
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import report
from turns import start
from worker import Worker

LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    module: str  # file of this folder
    precision: str  # "float32" or "bfloat16"

    def require(self) -> None:
        """Raises RuntimeError: its precision is emulated on this CPU."""
        if self.module == "transformers":
            report.require_fast(self.precision)


class ByName:
    """``trainer("step", ...)`` for ``trainer.step(...)``: what another process can ask for."""

    def __call__(self, method: str, *arguments: Any, **named: Any) -> Any:
        return getattr(self, method)(*arguments, **named)


OURS_BF16 = System("bertkit bf16", "bertkit", "bfloat16")
OURS_FP32 = System("bertkit fp32", "bertkit", "float32")
THEIRS_FP32 = System("transformers fp32", "transformers", "float32")
THEIRS_BF16 = System("transformers bf16 autocast", "transformers", "bfloat16")
SYSTEMS = (OURS_BF16, OURS_FP32, THEIRS_FP32, THEIRS_BF16)


def start_trainers(
    threads: int, skipped: dict[str, str], systems: Iterable[System] = SYSTEMS, rest_seconds: float = 0.2
) -> dict[System, Worker]:
    """A worker for each; why one cannot run goes to ``skipped``."""

    def make(system: System) -> Worker:
        system.require()
        module = f"trainers.{system.module}"
        return Worker(module, "Trainer", system.precision, threads, rest_seconds=rest_seconds)

    return start(systems, make, skipped)
