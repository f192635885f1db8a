"""The documentation as a site: built without the network, with warnings as errors, and its reference is complete."""

import subprocess
import sys
from pathlib import Path

import pytest

import bertkit
from bertkit.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    folder = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", str(folder / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / "html"


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    assert len(pages) > 30
    assert not [page for page in pages if not (site / page.with_suffix(".html")).is_file()]


def test_reference_has_every_name_command_and_route(site: Path) -> None:
    reference = {
        path.stem: path.read_text(encoding="utf-8") for path in (site / "reference" / "generated").glob("*.html")
    }
    names = [name for name in bertkit.__all__ if callable(getattr(bertkit, name)) and name != "BertkitError"]
    assert len(names) > 30 and not [name for name in names if f'id="bertkit.{name}"' not in reference["python"]]
    assert not [name for name in COMMANDS if f"bertkit {name}" not in reference["command_line"]]
    assert "/v1/embeddings" in reference["http"] and "learning_rate" in reference["settings"]
    assert "UsageError" in reference["exceptions"]


def test_pages_fetch_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text and 'rel="stylesheet" href="http' not in text, page
