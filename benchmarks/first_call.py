"""Seconds until a new process has its first tokens, with an empty cache of machine code and with a filled one."""

import os
import statistics
import subprocess
import sys
import tempfile

_PROGRAM = """
import sys, time
from bertkit import Tokenizer
tokenizer = Tokenizer.from_vocab(sys.argv[1])
start = time.perf_counter()
tokenizer.encode("I was thirsty!")
print(time.perf_counter() - start)
"""


def first_call_seconds(vocabulary: str, rounds: int) -> dict[str, float]:
    """Medians over ``rounds`` pairs of processes: "cold", with an empty cache folder, and "warm", with the cache that
    the first process wrote."""
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for found in seconds.values():
                found.append(_first_call(vocabulary, folder))
    return {state: statistics.median(found) for state, found in seconds.items()}


def _first_call(vocabulary: str, folder: str) -> float:
    command = [sys.executable, "-c", _PROGRAM, vocabulary]
    environment = os.environ | {"NUMBA_CACHE_DIR": folder}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
