"""Systems measured in turns, so that a slow minute of the machine affects all of them."""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from worker import Turn, Worker

Key = TypeVar("Key")


def start(systems: Iterable[Key], make: Callable[[Key], Worker], skipped: dict[str, str]) -> dict[Key, Worker]:
    """A worker for each system; if one cannot run, the reason is added to ``skipped`` under the system's name."""
    workers = {}
    for system in systems:
        try:
            workers[system] = make(system)
        except RuntimeError as error:
            skipped[system.name] = re.sub(r"(/[\w.+-]+)+/", "", str(error))  # no folders in results
            say(f"{system.name}: skipped, {skipped[system.name]}")
    return workers


def take_turns(
    workers: dict[Key, Worker], rounds: int, *arguments: Any, settings: dict[Key, dict] | None = None
) -> dict[Key, list[Turn]]:
    """A warm-up of each system, then ``rounds`` interleaved turns; the warm-up is the first item of each list."""
    turns = {system: [] for system in workers}
    for number in range(rounds + 1):
        for system, worker in workers.items():
            turns[system].append(worker.turn(*arguments, **(settings or {}).get(system, {})))
            say(f"{f'round {number}' if number else 'warm-up'}: {system.name}, {turns[system][-1].seconds:.2f} s")
    return turns


def shown(setting: dict) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items()) or "defaults"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
