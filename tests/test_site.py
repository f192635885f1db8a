"""The documentation as a site: built without the network, with warnings as errors; links, reference and widths."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from browser import browser, serious_faults  # noqa: F401

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
    program = "import gc, sys; from sphinx.cmd.build import main; gc.disable(); sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *options, str(ROOT / "docs"), str(folder / "html")]
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


class Links(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.links += [values[name] for name in ("href", "src") if name in values]


def test_links_lead_to_files_and_anchors(site: Path) -> None:
    pages = {path: Links(path) for path in site.rglob("*.html")}
    links = [(page, link) for page, opened in pages.items() for link in opened.links if "://" not in link]
    assert len(links) > 2000
    wrong = []
    for page, link in links:
        name, _, anchor = link.partition("#")
        target = (page.parent / unquote(name.partition("?")[0])).resolve() if name else page
        if not target.exists() or (anchor and unquote(anchor) not in pages[target].anchors):
            wrong.append(f"{page.relative_to(site)}: {link}")
    assert not wrong


def test_pages_fit_the_screen(site: Path, browser: Any) -> None:  # noqa: F811
    """Of a phone. Of each kind of page axe looks at one, on a phone in the dark or a wide screen in the light."""
    context = browser.new_context(viewport={"width": 360, "height": 900}, offline=True, color_scheme="dark")
    page, wide = context.new_page(), []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        if page.evaluate("document.documentElement.scrollWidth") > 360:
            wide.append(str(path.relative_to(site)))
    assert not wide
    phone, screen = (360, "dark"), (1440, "light")
    kinds = {"index": phone, "guides/serving": screen, "migration": phone, "reference/generated/settings": screen}
    for name, (width, scheme) in kinds.items():
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert serious_faults(page) == [], name
    context.close()
