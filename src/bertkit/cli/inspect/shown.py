"""Options shared by the `bertkit inspect` commands: one or two models, and the output, a page or JSON."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, PRETRAINED_MODEL, Compute, open_model
from bertkit.cli.output import ModelName, OutPath, emit
from bertkit.errors import UsageError, checked_count
from bertkit.files.whole_files import check_writable

if TYPE_CHECKING:
    from bertkit.inspection import View
    from bertkit.model import Model

Text = Annotated[str, Parameter(help="The text; a literal [MASK] becomes that token.")]
Pair = Annotated[str | None, Parameter(help="A second text.")]
Texts = Annotated[Path, Parameter(help="txt, jsonl, csv, tsv or parquet: one text per row.")]
Limit = Annotated[int, Parameter(help="Maximum number of texts to read.")]
SentenceLimit = Annotated[int, Parameter(help="Maximum number of sentences to read from each file.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Inspected:
    """The models, and where to write the result.

    Parameters
    ----------
    against
        A second model, shown beside the first.
    out
        The HTML file to write, a self-contained page.
    json
        Print all numbers as one line of JSON, instead of a table.
    """

    model: ModelName = EMBEDDING_MODEL
    against: str | None = None
    out: OutPath | None = None
    json: bool = False
    compute: Compute = EXACT

    def __post_init__(self) -> None:
        if self.against == self.model:
            raise UsageError(f"--against {self.against} and the model are the same: choose another model")


@Parameter(name="*")
@dataclass(frozen=True)
class InspectedPretrained(Inspected):
    """The same for views that need a masked LM or next sentence head.

    Parameters
    ----------
    model
        A model with the head that the view needs: a folder, a hub name, or the import name of an installed model
        package.
    """

    model: str = PRETRAINED_MODEL


@Parameter(name="*")
@dataclass(frozen=True)
class Recorded(Compute):
    """Device and precision of views of inner values, which the prepared encoders of other precisions do not keep.

    Parameters
    ----------
    precision
        float32, or float64 for reference.
    """

    precision: Literal["float32", "float64"] = "float32"


RECORDED = Recorded()


@Parameter(name="*")
@dataclass(frozen=True)
class InspectedInside(Inspected):
    """The same for views of inner values."""

    compute: Recorded = RECORDED


@Parameter(name="*")
@dataclass(frozen=True)
class InspectedLens(InspectedPretrained):
    """The same for views of inner values through a head."""

    compute: Recorded = RECORDED


ENCODER, PRETRAINED = Inspected(), InspectedPretrained()
INSIDE, LENS = InspectedInside(), InspectedLens()
"""Defaults."""


def some_texts(texts: Path, column: str | None, limit: int) -> list[str]:
    """The first texts of a file; a limit below 1 raises a UsageError."""
    from bertkit.corpus.texts import read_texts

    return list(islice(read_texts(texts, column), checked_count("limit", limit)))


def show(inspected: Inspected, make: "Callable[[Model], View]", *inputs: Path | None, has_rows: bool = True) -> None:
    """Make the view of a model, or of two side by side, print its table or numbers, and write its page.

    Args:
        inputs: files that the view is made of, which its page must not replace.
        has_rows: the view has a table, so that no other output is needed.

    Raises:
        UsageError: as in `write`.
    """
    from bertkit.inspection import SideBySideView

    def view() -> "View":
        names = [inspected.model, *([inspected.against] if inspected.against else [])]
        views = [make(open_model(name, inspected.compute)) for name in names]
        return views[0] if len(views) == 1 else SideBySideView(tuple(names), tuple(views))

    write(inspected, view, *inputs, has_rows=has_rows)


def write(shown: Inspected, make: "Callable[[], View]", *inputs: Path | None, has_rows: bool = True) -> None:
    """Make a view, print its table or numbers, and write its page.

    Raises:
        UsageError: no output is requested of a view without a table, or the page cannot be written; raised before the
            view is made.
    """
    if shown.out is None and not shown.json and not has_rows:
        raise UsageError("nothing to write: give --out X.html for a page, --json for the numbers, or both")
    if shown.out is not None:
        check_writable(shown.out, *inputs, endings=(".html",))
    view = make()
    if shown.out is not None:
        view.html(shown.out)
    if shown.json:
        json.dump(view.to_dict(), sys.stdout, ensure_ascii=False)
        print()
    elif has_rows:
        emit(view.rows())
    elif shown.out is not None:
        emit([{"page": str(shown.out), "bytes": shown.out.stat().st_size}])
