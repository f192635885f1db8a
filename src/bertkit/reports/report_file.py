"""The two files of a report: a page, and the same figures as JSON."""

from pathlib import Path

from bertkit.errors import UsageError
from bertkit.files.whole_files import check_not_input, check_writable


def checked_report(path: str | Path, *inputs: str | Path) -> tuple[Path, Path]:
    """The paths of a report's page and of its JSON file, both writable.

    Args:
        path: path of the page, ending in .html; the other file has the ending .json.
        inputs: files that the report must not replace.

    Raises:
        UsageError: another ending, no such folder, a folder of that name, or one of the inputs.
    """
    page = Path(path)
    if page.suffix != ".html":
        raise UsageError(
            f"cannot write the report {page}: expected a name that ends in .html (the figures go to .json)"
        )
    figures = page.with_suffix(".json")
    for file in (page, figures):
        check_writable(file)
        check_not_input(file, *inputs)
    return page, figures
