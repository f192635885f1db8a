"""The script that checks and measures everything on a GPU runs to its end, here on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_every_part_runs_on_the_cpu(shared_data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "benchmarks/gpu.py",
        "--device",
        "cpu",
        "--quick",
        "--minutes",
        "14",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    results = json.loads(path.read_text())
    assert results["skipped"] == {} and results["chip"] == "cpu, not a GPU"
    kept = {name: value for part in results["parts"].values() for name, value in part.items() if "holds" in name}
    assert len(kept) == 17 and all(kept.values()), results["parts"]
    assert results["parts"]["pre-training at 128"]["compiled, tokens a second"] > 0
