"""Compare the weights of a run that is killed and resumed with those of an uninterrupted one."""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoint.content_hash import file_sha256
from bertkit.errors import TrainingError

_COMMAND = (sys.executable, "-m", "bertkit")


@dataclass(frozen=True)
class ResumeCheck:
    """The results of both runs."""

    uninterrupted: str  # sha256 of the final weights
    resumed: str
    killed_after_steps: tuple[int, ...]
    resumed_from_steps: tuple[int, ...]  # checkpoints that a process resumed from

    @property
    def verdict(self) -> str:
        """One of "exact", "different", "inconclusive" (no killed run was resumed from a checkpoint)."""
        if self.uninterrupted != self.resumed:
            return "different"
        return "exact" if self.resumed_from_steps else "inconclusive"


def verify_resume(
    arguments: Sequence[str], folder: Path, *, num_kills: int, seed: int, log: Callable[[str], None]
) -> ResumeCheck:
    """Run ``bertkit pretrain ARGUMENTS`` twice in new folders; one of the runs is killed (SIGKILL) and resumed.

    Each process is killed at a random moment after writing a checkpoint, so that the next one can resume from it.

    Raises:
        TrainingError: a run failed without being killed.
    """
    whole, killed = folder / "uninterrupted", folder / "killed"
    folder.mkdir(parents=True, exist_ok=True)
    _wait(_start(arguments, whole), whole)
    steps = [event for event in _events(whole) if event["event"] == "step"]
    seconds = steps[-1]["seconds"] - steps[0]["seconds"]
    log(f"the uninterrupted run trained for {seconds:.1f} s")
    draw, killed_after = random.Random(seed), []
    killed.mkdir()
    for name in ("recipe.json", "vocab.txt", "shard"):  # prepared only once: training is what is tested
        source = whole / name
        if source.is_dir():
            shutil.copytree(source, killed / name)
        elif source.is_file():
            shutil.copy(source, killed / name)
    for _ in range(num_kills):
        process = _start([*arguments, "--resume"], killed)
        _wait_for_checkpoint(process, killed)
        try:
            process.wait(draw.uniform(0.0, 0.5 * seconds / num_kills))
            break  # it finished first
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        killed_after.append(max(event["step"] for event in _events(killed)))
        log(f"killed after step {killed_after[-1]}")
    _wait(_start([*arguments, "--resume"], killed), killed)
    starts = [event["step"] for event in _events(killed) if event["event"] == "start"]
    after_kills = starts[1 : len(killed_after) + 1]
    resumed_from = tuple(step for step in after_kills if 0 < step < steps[-1]["step"])
    return ResumeCheck(_digest(whole), _digest(killed), tuple(killed_after), resumed_from)


def _start(arguments: Sequence[str], run: Path) -> subprocess.Popen:
    command = [*_COMMAND, "pretrain", *arguments, "--out", str(run)]
    with open(_messages(run), "wb") as messages:  # an unread pipe would fill up and block the run
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages)


def _messages(run: Path) -> Path:
    return run.with_suffix(".log")


def _wait(process: subprocess.Popen, run: Path) -> None:
    if process.wait():
        last = _messages(run).read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise TrainingError(f"the run ended with code {process.returncode}: {last[0]}")


def _wait_for_checkpoint(process: subprocess.Popen, run: Path) -> None:
    """Wait until the process has written a checkpoint, or ended."""
    before = _num_checkpoints(run)
    while process.poll() is None and _num_checkpoints(run) == before:
        time.sleep(0.02)


def _num_checkpoints(run: Path) -> int:
    return sum(event["event"] == "checkpoint" for event in _events(run))


def _events(run: Path) -> list[dict[str, Any]]:
    """The complete lines of metrics.jsonl; a line may be incomplete while it is written, or after a kill."""
    path = run / "metrics.jsonl"
    events = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def _digest(run: Path) -> str:
    return file_sha256(run / "model" / "model.safetensors")
