"""Output of `bertkit inspect` commands: an HTML page, or numbers as JSON."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, PRETRAINED_MODEL, Compute, open_model
from bertkit.cli.output import emit
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_writable
from bertkit.inspection import View

if TYPE_CHECKING:
    from bertkit.model import Model


@Parameter(name="*")
@dataclass(frozen=True)
class Shown:
    """Where to write the result, and the model to inspect.

    Parameters
    ----------
    out
        The HTML file to write: one page that needs no network.
    json
        Print all numbers as one line of JSON.
    model
        A folder, a hub name, or the import name of an installed model package.
    """

    out: Path | None = None
    json: bool = False
    model: str = EMBEDDING_MODEL
    compute: Compute = EXACT

    def show(self, make: Callable[["Model"], View]) -> None:
        """Make a view of the model, and write its page, print its numbers, or both.

        Raises:
            UsageError: neither is requested, or the page cannot be written; raised before the model is opened.
        """
        if self.out is None and not self.json:
            raise UsageError("nothing to write: give --out X.html for a page, --json for the numbers, or both")
        if self.out is not None:
            check_writable(self.out)
        self.write(make(open_model(self.model, self.compute)))

    def write(self, view: View) -> None:
        """Write the page of a view, print its numbers, or both."""
        if self.out is not None:
            view.html(self.out)
            if not self.json:
                emit([{"page": str(self.out), "bytes": self.out.stat().st_size}])
        if self.json:
            json.dump(view.to_dict(), sys.stdout, ensure_ascii=False)
            print()


@Parameter(name="*")
@dataclass(frozen=True)
class ShownPretrained(Shown):
    """`Shown` for views of the heads of pre-training.

    Parameters
    ----------
    model
        A model with the head of the view: a folder, a hub name, or the import name of an installed model package.
    """

    model: str = PRETRAINED_MODEL


DEFAULT, PRETRAINED = Shown(), ShownPretrained()
"""Defaults of the commands, without output, which `Shown.show` rejects."""
