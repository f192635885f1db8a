"""Output of `bertkit inspect` commands: an HTML page, or numbers as JSON."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from bertkit.cli.output import emit
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_writable
from bertkit.inspection import View


@Parameter(name="*")
@dataclass(frozen=True)
class Shown:
    """Where to write the result.

    Parameters
    ----------
    out
        The HTML file to write: one page that needs no network.
    json
        Print all numbers as one line of JSON.
    """

    out: Path | None = None
    json: bool = False


NOWHERE = Shown()
"""The default, which `show` rejects."""


def show(shown: Shown, make: Callable[[], View]) -> None:
    """Make a view, and write its page, print its numbers, or both.

    Raises:
        UsageError: neither is requested, or the page cannot be written; raised before the view is made.
    """
    if shown.out is None and not shown.json:
        raise UsageError("nothing to write: give --out X.html for a page, --json for the numbers, or both")
    if shown.out is not None:
        check_writable(shown.out)
    view = make()
    if shown.out is not None:
        view.html(shown.out)
        if not shown.json:
            emit([{"page": str(shown.out), "bytes": shown.out.stat().st_size}])
    if shown.json:
        json.dump(view.to_dict(), sys.stdout, ensure_ascii=False)
        print()
