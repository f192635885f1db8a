"""The two files of a report: a page, and the same figures as JSON."""

from pathlib import Path

from bertkit.errors import UsageError
from bertkit.files import check_writable


def checked_report(path: str | Path) -> tuple[Path, Path]:
    """The paths of a report's page and of its JSON file, both writable.

    Args:
        path: path of the page, ending in .html; the other file has the ending .json.

    Raises:
        UsageError: another ending, no such folder, or a folder of that name.
    """
    page = Path(path)
    if page.suffix != ".html":
        raise UsageError(
            f"cannot write the report {page}: expected a name that ends in .html (the figures go to .json)"
        )
    figures = page.with_suffix(".json")
    check_writable(page)
    check_writable(figures)
    return page, figures
