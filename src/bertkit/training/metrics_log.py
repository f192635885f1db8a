"""Log of a run's events as JSON lines, and optionally to TensorBoard."""

import json
import os
from pathlib import Path
from typing import Any

from bertkit.errors import required
from bertkit.files.json_files import json_value


class MetricsLog:
    """Appends to ``metrics.jsonl`` of a run folder; numbers that are not finite become null.

    Raises:
        DependencyError: TensorBoard is requested but not installed.
    """

    def __init__(self, run: Path, *, tensorboard: bool = False) -> None:
        writer = tensorboard_writer() if tensorboard else None
        self._file = open(run / "metrics.jsonl", "ab+")  # noqa: SIM115 open as long as the run
        self._file.seek(max(0, self._file.seek(0, os.SEEK_END) - 1))
        if self._file.read() not in (b"", b"\n"):  # a kill while writing cut the last line
            self._file.write(b"\n")
        self._writer: Any = writer and writer(str(run / "tensorboard"))

    def write(self, event: str, step: int, **facts: Any) -> None:
        """Write one event of a step."""
        self._file.write(json.dumps(json_value({"event": event, "step": step, **facts})).encode() + b"\n")
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
    return required("torch.utils.tensorboard", "TensorBoard is not installed", "track").SummaryWriter
