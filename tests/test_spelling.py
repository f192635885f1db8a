"""Common misspellings in pages, docstrings and messages."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "benchmarks/NOTES.md",
    "examples",
    "src",
]
# abbreviations, a word without its accent, categories of Unicode, instructions of processors, an operator
WORDS = "pres,caf,nd,sme,nin"


def misspelled(*paths: str | Path) -> str:
    pytest.importorskip("codespell_lib", reason="codespell is not installed")
    command = [
        sys.executable,
        "-m",
        "codespell_lib",
        "--skip",
        "*.svg,*.pyc,*.nb?,_build,acceptability-*",
        "-L",
        WORDS,
        *map(str, paths),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def test_nothing_is_misspelled() -> None:
    assert misspelled(*PAGES) == ""


def test_a_misspelled_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("Each page is recieved whole.\n")
    assert "recieved ==> received" in misspelled(tmp_path)
