"""The package is typed for its users: a type checker reads the README's examples as in a project that installed it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bertkit

README = Path(__file__).resolve().parents[1] / "README.md"
REVEALED = """
from typing import reveal_type

import bertkit

reveal_type(bertkit.load("model"))
reveal_type(bertkit.load("model").embed(["a text"]))
reveal_type(bertkit.SequenceClassifier("model").fit(["a text"], ["a label"]))
"""


def test_examples_of_the_readme_have_types(tmp_path: Path) -> None:
    """Without ``py.typed`` a type checker may take every name of a package for Any, which the options demand here."""
    pytest.importorskip("pyrefly")
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "bertkit").symlink_to(Path(bertkit.__file__).parent)
    pages = "".join(page.read_text(encoding="utf-8") for page in (README, README.parent / "docs/start.md"))
    blocks = re.findall(r"```python\n(.*?)```", pages, re.DOTALL)
    assert len(blocks) > 1
    for number, block in enumerate([REVEALED, *blocks]):
        (tmp_path / f"example_{number}.py").write_text(block, encoding="utf-8")
    (tmp_path / "pyrefly.toml").write_text("")
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    result = subprocess.run(
        [
            sys.executable, "-m", "pyrefly", "check", *sorted(map(str, tmp_path.glob("*.py"))),
            "--config", str(tmp_path / "pyrefly.toml"), "--output-format", "min-text", "--skip-interpreter-query",
            *(option for path in [str(installed), *others] for option in ("--site-package-path", path)),
            *("--replace-untyped-imports-with-any", "bertkit"), *("--replace-untyped-imports-with-any", "bertkit.*"),
        ],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    revealed = re.findall(r"example_0\.py.*revealed type: (.*) \[reveal-type\]", result.stdout)
    assert revealed == ["Model", "ndarray", "SequenceClassifier"], result.stdout + result.stderr
    assert result.returncode == 0, result.stdout + result.stderr
