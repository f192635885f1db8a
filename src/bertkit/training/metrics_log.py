"""Log of a run's events as JSON lines, and optionally to TensorBoard."""

import json
from pathlib import Path
from typing import Any

from bertkit.errors import DependencyError


class MetricsLog:
    """Appends to ``metrics.jsonl`` of a run folder.

    Raises:
        DependencyError: TensorBoard is requested but not installed.
    """

    def __init__(self, run: Path, *, tensorboard: bool = False) -> None:
        path = run / "metrics.jsonl"
        is_cut = path.exists() and path.stat().st_size and path.read_bytes()[-1:] != b"\n"  # by a kill while writing
        self._file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 open as long as the run
        if is_cut:
            self._file.write("\n")
        self._writer: Any = None
        if tensorboard:
            self._writer = tensorboard_writer()(str(run / "tensorboard"))

    def write(self, event: str, step: int, **facts: Any) -> None:
        """Write one event of a step."""
        self._file.write(json.dumps({"event": event, "step": step, **facts}) + "\n")
        self._file.flush()
        if self._writer is not None:
            for name, value in facts.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._writer.add_scalar(f"{event}/{name}", value, step)
            self._writer.flush()

    def close(self) -> None:
        self._file.close()
        if self._writer is not None:
            self._writer.close()


def tensorboard_writer() -> Any:
    """TensorBoard's SummaryWriter.

    Raises:
        DependencyError: it is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise DependencyError("TensorBoard is not installed: pip install 'bertkit[track]'") from None
    return SummaryWriter
