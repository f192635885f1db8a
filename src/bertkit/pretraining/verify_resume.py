"""Is a resumed run the uninterrupted one? Kill a short run at random moments, go on with it, compare the weights."""

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import TrainingError


@dataclass(frozen=True)
class ResumeCheck:
    """What became of the two runs."""

    uninterrupted: str  # sha256 of the final weights
    resumed: str
    steps_when_killed: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        return self.uninterrupted == self.resumed


def verify_resume(
    arguments: Sequence[str], folder: Path, *, num_kills: int, seed: int, tell: Callable[[str], None]
) -> ResumeCheck:
    """Run ``bertkit pretrain ARGUMENTS`` twice in new folders, once killed again and again (SIGKILL).

    Raises:
        TrainingError: a run that fails by itself.
    """
    whole, killed = folder / "uninterrupted", folder / "killed"
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    _wait(_start(arguments, whole))
    seconds = time.monotonic() - start
    tell(f"the uninterrupted run took {seconds:.0f} s")
    draw, steps = random.Random(seed), []
    killed.mkdir()
    for name in ("recipe.json", "vocab.txt", "shard"):  # prepared once: what is tested is the training
        source = whole / name
        if source.is_dir():
            shutil.copytree(source, killed / name)
        elif source.is_file():
            shutil.copy(source, killed / name)
    for _ in range(num_kills):
        process = _start([*arguments, "--resume"], killed)
        _wait_for_training(process, killed)
        try:
            process.wait(draw.uniform(0.0, max(0.5, 0.5 * seconds / num_kills)))
            break  # it was faster
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        steps.append(_last_step(killed))
        tell(f"killed after step {steps[-1]}")
    _wait(_start([*arguments, "--resume"], killed))
    return ResumeCheck(_digest(whole), _digest(killed), tuple(steps))


def _start(arguments: Sequence[str], run: Path) -> subprocess.Popen:
    program = "from bertkit.cli import main; main()"
    command = [sys.executable, "-c", program, "pretrain", *arguments, "--out", str(run)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _wait(process: subprocess.Popen) -> None:
    _, errors = process.communicate()
    if process.returncode:
        last = errors.strip().splitlines()[-1:] or ["no message"]
        raise TrainingError(f"the run ended with code {process.returncode}: {last[0]}")


def _wait_for_training(process: subprocess.Popen, run: Path) -> None:
    """Until the session's first line of metrics is there, or it ended."""
    path = run / "metrics.jsonl"
    before = path.stat().st_size if path.exists() else 0
    while process.poll() is None and (not path.exists() or path.stat().st_size == before):
        time.sleep(0.02)


def _last_step(run: Path) -> int:
    lines = (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else []
    steps = [line.partition('"step": ')[2].partition(",")[0].partition("}")[0] for line in lines]
    return max((int(step) for step in steps if step.isdigit()), default=0)


def _digest(run: Path) -> str:
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()
