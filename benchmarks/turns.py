"""Who runs when: settings are tried one by one, then the systems take turns."""

import sys
from collections.abc import Sequence
from pathlib import Path

from peers import System
from worker import Turn, Worker


def best_setting(system: System, folder: Path, threads: int, sample: Sequence[str]) -> dict:
    """The fastest of the settings its file names, each tried in a fresh process: a warm-up, then the better of two.

    Raises:
        RuntimeError: none of them works.
    """
    choices = system.peer().SETTINGS
    if len(choices) == 1:
        return choices[0]
    seconds, failure = {}, None
    for index, setting in enumerate(choices):
        try:
            worker = Worker(system.module, folder, system.precision, threads, setting, sample)
            worker.embed()
            seconds[index] = min(worker.embed().seconds for _ in range(2))
            worker.close()
            say(f"{system.name}, {shown(setting)}: {len(sample) / seconds[index]:.0f} passages/s on a sample")
        except RuntimeError as error:  # such as an instruction set this CPU lacks
            failure = error
            say(f"{system.name}, {shown(setting)}: {error}")
    if failure and not seconds:
        raise failure
    return choices[min(seconds, key=seconds.__getitem__)]


def take_turns(workers: dict[System, Worker], rounds: int) -> dict[System, list[Turn]]:
    """A warm-up each, then ``rounds`` turns each, interleaved; the warm-up stands first in each list."""
    turns = {system: [] for system in workers}
    for number in range(rounds + 1):
        for system, worker in workers.items():
            turns[system].append(worker.embed())
            say(f"{f'round {number}' if number else 'warm-up'}: {system.name}, {turns[system][-1].seconds:.2f} s")
    for worker in workers.values():
        worker.close()
    return turns


def shown(setting: dict) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items()) or "defaults"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
