"""Tests run again in a process with other settings, and what such a process loads, compiled."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parent
OF_THIS_RUN = {"OMP_NUM_THREADS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"}


def compiled(name: str, *command: str | Path) -> Path:
    """What the compiler's command writes, in a folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([*map(str, command), "-o", str(folder / name)], check=True)
    return folder / name


def environment_with(settings: Mapping[str, str], *folders: Path) -> dict[str, str]:
    """This process's environment with these settings and with these folders, then those of the tests, to import
    from."""
    kept = {name: value for name, value in os.environ.items() if name not in OF_THIS_RUN}
    paths = [*map(str, folders), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | dict(settings) | {"PYTHONPATH": os.pathsep.join(paths)}


def run_tests(environment: Mapping[str, str], *arguments: str) -> None:
    """Tests, without this run's cache and time limits, in a process with this environment; they must pass."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "0", "--tb", "short"]
    result = subprocess.run([*command, *arguments], cwd=TESTS, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout[-9_000:]}\n{result.stderr[-3_000:]}"
