"""Compare the weights of a run that is killed and resumed with those of an uninterrupted one."""

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoint.content_hash import file_sha256
from bertkit.errors import TrainingError
from bertkit.reports.recorded_run import logged_events

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
    arguments: Sequence[str], folder: Path, *, num_kills: int, seed: int, log: Callable[[str], None], num_ranks: int = 1
) -> ResumeCheck:
    """Run ``bertkit ARGUMENTS`` twice in new folders; one of the runs is killed (SIGKILL) and resumed.

    Its processes are killed at a random moment after writing a checkpoint, so that the next ones can resume from it.

    Args:
        arguments: a command that trains and its arguments, without ``--out`` and ``--resume``.
        num_ranks: number of processes that train together.

    Raises:
        TrainingError: a run failed without being killed.
    """
    whole, killed = folder / "uninterrupted", folder / "killed"
    folder.mkdir(parents=True, exist_ok=True)
    _wait(_start(arguments, whole, num_ranks), whole)
    steps = [event for event in _events(whole) if event["event"] == "step"]
    seconds = steps[-1]["seconds"] - steps[0]["seconds"]
    log(f"the uninterrupted run trained for {seconds:.1f} s")
    draw, killed_after = random.Random(seed), []
    killed.mkdir()
    prepared = ("recipe.json", "vocab.txt", "shard") if (whole / "recipe.json").is_file() else ()
    for name in prepared:  # by pre-training, only once: training is what is tested
        source = whole / name
        if source.is_dir():
            shutil.copytree(source, killed / name)
        elif source.is_file():
            shutil.copy(source, killed / name)
    for _ in range(num_kills):
        processes = _start([*arguments, "--resume"], killed, num_ranks)
        _wait_for_checkpoint(processes[0], killed)
        try:
            processes[0].wait(draw.uniform(0.0, 0.5 * seconds / num_kills))
            _wait(processes, killed)
            break  # it finished first
        except subprocess.TimeoutExpired:
            for process in processes:
                process.kill()
                process.wait()
        killed_after.append(max(event["step"] for event in _events(killed)))
        log(f"killed after step {killed_after[-1]}")
    _wait(_start([*arguments, "--resume"], killed, num_ranks), killed)
    starts = [event["step"] for event in _events(killed) if event["event"] == "start"]
    after_kills = starts[1 : len(killed_after) + 1]
    resumed_from = tuple(step for step in after_kills if 0 < step < steps[-1]["step"])
    return ResumeCheck(_digest(whole), _digest(killed), tuple(killed_after), resumed_from)


def _start(arguments: Sequence[str], run: Path, num_ranks: int) -> list[subprocess.Popen]:
    """The processes of a run, with the environment that torchrun gives them."""
    command, environment = [*_COMMAND, *arguments, "--out", str(run)], dict(os.environ)
    if num_ranks > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(num_ranks)}
    processes = []
    with open(_messages(run), "wb") as messages:  # an unread pipe would fill up and block the run
        for rank in map(str, range(num_ranks)):
            of_rank = environment | ({"RANK": rank, "LOCAL_RANK": rank} if num_ranks > 1 else {})
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages, env=of_rank))
    return processes


def _messages(run: Path) -> Path:
    return run.with_suffix(".log")


def _wait(processes: Sequence[subprocess.Popen], run: Path) -> None:
    if code := next(filter(None, [process.wait() for process in processes]), 0):
        last = _messages(run).read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise TrainingError(f"the run ended with code {code}: {last[0]}")


def _wait_for_checkpoint(process: subprocess.Popen, run: Path) -> None:
    """Wait until the process has written a checkpoint, or ended."""
    before = _num_checkpoints(run)
    while process.poll() is None and _num_checkpoints(run) == before:
        time.sleep(0.02)


def _num_checkpoints(run: Path) -> int:
    return sum(event["event"] == "checkpoint" for event in _events(run))


def _events(run: Path) -> list[dict[str, Any]]:
    return logged_events(_file(run, "metrics.jsonl", "run").parent)


def _digest(run: Path) -> str:
    return file_sha256(_file(run, "model.safetensors", "model"))


def _file(run: Path, name: str, subfolder: str) -> Path:
    """A file of a run: that in the subfolder, if there is one."""
    path = run / subfolder / name
    return path if path.exists() else run / name
