"""Benchmarks of many long runs: each finished run writes a file, and is repeated only if its definition has changed."""

import argparse
import fnmatch
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import report
from turns import say

from bertkit.files.json_files import read_json, write_json


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command line options of such a benchmark."""
    parser.add_argument("--list", action="store_true", help="list the runs, and which are finished")
    parser.add_argument("--only", metavar="PATTERN", help="runs of this name; * stands for any characters")
    parser.add_argument("--scale", type=_share, default=1.0, help="share of the full size, above 0 and at most 1")


class LongRuns(ABC):
    """All runs of a benchmark at one ``scale``; their results are written to a folder in ``out``."""

    def __init__(self, benchmark: str, out: Path, scale: float, threads: int) -> None:
        self.scale, self.threads = scale, threads
        self._results = out / f"{benchmark}-runs-{scale:g}"
        self._results.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def names(self) -> list[str]:
        """Names of all runs, in an order in which they can be executed."""

    @abstractmethod
    def definition(self, name: str) -> dict[str, Any] | None:
        """All settings that determine the result of a run; None if they depend on runs that are not finished."""

    @abstractmethod
    def perform(self, name: str) -> dict[str, Any]:
        """Execute a run and return its figures.

        Raises:
            RuntimeError: it failed, or its data are not on this machine.
        """

    def is_timed(self, name: str) -> bool:
        """True for a timed run, which is executed alone. The other runs follow, ``threads`` of them at once."""
        return True

    @abstractmethod
    def summary(self, result: dict[str, Any]) -> str:
        """A finished run in a few words."""

    def result(self, name: str) -> dict[str, Any] | None:
        """The stored figures of a run, with its definition, date and machine; None if it has not been executed with its
        present definition."""
        result = read_json(self._results / f"{name}.json")
        return result if result is not None and result["run"] == _as_json(self.definition(name)) else None

    def carry_out(self, options: argparse.Namespace) -> bool:
        """List the runs, or execute those that the options select; True if these are all runs.

        Raises:
            RuntimeError: no such run, one that depends on others, or one that failed.
        """
        if options.list:
            print("\n".join(self._states()))
            return False
        names = fnmatch.filter(self.names(), options.only or "*")
        if not names:
            raise RuntimeError(f"no run {options.only!r}: expected one of {', '.join(self.names())}")
        for name in filter(self.is_timed, names):
            self._do(name)
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(self._do, [name for name in names if not self.is_timed(name)]))
        return not options.only

    def finished(self) -> dict[str, dict[str, Any]]:
        """The results of all runs by name.

        Raises:
            RuntimeError: a run is not finished.
        """
        results = {name: self.result(name) for name in self.names()}
        if None in results.values():
            raise RuntimeError("not all runs are finished: --list shows which")
        return results  # pyrefly: ignore

    def _states(self) -> Iterator[str]:
        for name in self.names():
            if (result := self.result(name)) is not None:
                yield f"{name}: finished {result['date']}, {self.summary(result)}"
            else:
                is_defined = self.definition(name) is not None
                yield f"{name}: not finished" + ("" if is_defined else ", depends on earlier runs")

    def _do(self, name: str) -> None:
        definition = self.definition(name)
        if definition is None:
            raise RuntimeError(f"{name}: its settings depend on earlier runs; finish those first")
        if self.result(name) is not None:
            say(f"{name}: finished before")
            return
        say(f"{name}: begins")
        result = {"run": _as_json(definition)} | report.circumstances(self.threads)
        result |= self.perform(name)
        write_json(self._results / f"{name}.json", result)
        say(f"{name}: {self.summary(result)}")


def _as_json(facts: dict[str, Any] | None) -> Any:
    return json.loads(json.dumps(facts))


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and at most 1, got {text}")
    return value
