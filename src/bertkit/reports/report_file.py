"""The two files of a report: a page, and the same figures as JSON."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertkit.files import write_json
from bertkit.files.whole_files import check_writable
from bertkit.pages import Markup, section, write_page
from bertkit.reports.parts import html_of


def checked_report(path: str | Path, *inputs: str | Path) -> tuple[Path, Path]:
    """The paths of a report's page and of its JSON file, both writable.

    Args:
        path: path of the page, ending in .html; the other file has the ending .json.
        inputs: files that the report must not replace.

    Raises:
        UsageError: another ending, no such folder, a folder of that name, or one of the inputs.
    """
    page = Path(path)
    figures = page.with_suffix(".json")
    check_writable(page, *inputs, endings=(".html",))
    check_writable(figures, *inputs)
    return page, figures


def write_report(path: str | Path, title: str, figures: Mapping[str, Any], parts: Iterable[Markup]) -> None:
    """Write a page of parts, and the figures to a file of the same name with the ending .json.

    Raises:
        UsageError: as `checked_report`.
    """
    page, json_path = checked_report(path)
    write_json(json_path, figures)
    write_page(page, title, list(parts))


def sections(content: Iterable[tuple[str, Iterable[Any]]]) -> Iterator[Markup]:
    """Sections of a page from titles and parts (`reports.parts`), without those that have no part for pages."""
    for title, parts in content:
        if made := [html for part in parts if (html := html_of(part)) is not None]:
            yield section(title, *made)
