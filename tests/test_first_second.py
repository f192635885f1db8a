"""What answers at once: help, and commands that look something up, load neither torch nor numba."""

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bertkit.cli import COMMANDS

SLOW_TO_IMPORT = ("torch", "numba")


def python(code: str) -> str:
    """The output of a process in which importing torch or numba raises, naming who does it."""
    refuse = f"""
        import sys
        for name in {SLOW_TO_IMPORT}:
            sys.modules[name] = None  # import fails
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(refuse) + textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_help_of_every_command_loads_neither_torch_nor_numba() -> None:
    """Of the commands in commands, too, such as ``vocab train``."""
    output = python(
        """
        from bertkit.cli import COMMANDS, app, run

        def names(commands, *path):
            yield path
            for name in commands:
                if not name.startswith("-"):
                    yield from names(commands[name], *path, name)

        for path in names(app()):
            if path:
                run([*path, "--help"])
                print("help of", *path)
        """
    )
    shown = [line.removeprefix("help of ") for line in output.splitlines() if line.startswith("help of ")]
    assert {*COMMANDS, "vocab train", "words train", "inspect lens"} <= {*shown}
