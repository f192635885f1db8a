"""A real browser for tests of pages: Debian's Chromium, driven by Playwright; skipped with a reason if absent."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE = "the accessibility checker axe-core is not installed: pip install axe-playwright-python"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A running browser, for one module: while it runs, its thread is inside an event loop and cannot start another."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Callable[..., Any]:
    """Open a page's content from a file, offline; at the end of the block there must be no other requests and no
    errors."""

    @contextmanager
    def open_page(content: str, *, width: int = 1440, is_interactive: bool = False, **options: Any) -> Iterator[Any]:
        file = tmp_path / "page.html"
        file.write_text(content, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        page = context.new_page()
        requests, complaints = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(file.as_uri())
        if is_interactive:
            page.wait_for_selector("html[data-ready]")
        yield page
        assert (requests, complaints) == ([file.as_uri()], []), (requests, complaints)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
        context.close()

    return open_page


def serious_faults(page: Any) -> list[str]:
    """Serious and critical violations reported by axe-core, which cannot inspect frames of a file."""
    sync_playwright = pytest.importorskip("axe_playwright_python.sync_playwright", reason=AXE)
    violations = sync_playwright.Axe().run(page, options={"iframes": False}).response["violations"]
    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in violations
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]
