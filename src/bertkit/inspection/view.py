"""Base class of views: numbers, and a self-contained page."""

from abc import ABC, abstractmethod
from dataclasses import is_dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertkit.errors import UsageError
from bertkit.files.json_files import json_value
from bertkit.files.whole_files import whole_file
from bertkit.pages import Markup, Program, page

MAX_PAGE_BYTES = 5_000_000
"""Maximum page size in bytes."""


class View(ABC):
    """Numbers of an inspection, and a page that shows them; displayed inline in notebooks."""

    title: ClassVar[str]
    smaller: ClassVar[str] = "give a shorter text"  # how to get a smaller page

    def numbers(self) -> dict[str, Any]:
        """The numbers by name: arrays, numbers, texts, and lists, dicts and dataclasses of these; by default all
        fields."""
        return dict(vars(self))

    @abstractmethod
    def parts(self) -> list[Markup]:
        """The parts of the page."""

    def rows(self) -> list[dict[str, Any]]:
        """The main numbers as the rows of a table, each a dict by column; empty if only a page can show them."""
        return []

    def program(self) -> Program | None:
        """The script of an interactive page; None for a static page."""
        return None

    def framed(self) -> list[Program]:
        """The programs of pages that this page embeds."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON values; None for numbers that are not finite."""
        return json_value(_plain(self.numbers()))

    def page(self) -> str:
        """The whole HTML document.

        Raises:
            UsageError: the page exceeds 5 MB.
        """
        content = page(self.title, self.parts(), self.program(), self.framed())
        if (size := len(content.encode())) > MAX_PAGE_BYTES:
            raise UsageError(
                f"the page has {size / 1e6:.1f} MB, the limit is {MAX_PAGE_BYTES / 1e6:.0f} MB: {self.smaller}"
            )
        return content

    def html(self, path: str | Path) -> None:
        """Write one self-contained HTML file, atomically.

        Raises:
            UsageError: the page is larger than 5 MB, or ``path`` is in a folder that does not exist.
        """
        content = self.page()
        with whole_file(path) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{escape(self.title)}" srcdoc="{escape(self.page())}" sandbox="allow-scripts" '
            'width="100%" height="720" frameborder="0"></iframe>'
        )


def own_file(name: str) -> str:
    """The text of a style sheet or script of this package."""
    return files("bertkit.inspection").joinpath(name).read_text(encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
