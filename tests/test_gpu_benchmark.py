"""The script that checks and measures everything on a GPU runs to its end on a simulated one, and its checks hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_gpu_library import simulation

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_every_part_runs_and_holds(shared_data: Path, tmp_path: Path) -> None:
    script = ["benchmarks/gpu.py", "--quick", "--minutes", "14", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *script], cwd=ROOT, env=simulation(), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    results = json.loads(path.read_text())
    assert results["skipped"] == {} and results["chip"] == "simulated GPU"
    figures = {
        f"{part}, {name}": value for part, of_part in results["parts"].items() for name, value in of_part.items()
    }
    holds = {name: value for name, value in figures.items() if "holds" in name}
    assert len(holds) == 26 and all(holds.values()), results["parts"]
    assert figures["graphs, recorded"] and figures["compilation, graphs"] == 1
    assert figures["pre-training at 128, compiled, tokens a second"] > 0
