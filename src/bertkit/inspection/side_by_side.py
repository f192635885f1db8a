"""The same view of two models on one page."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bertkit.errors import UsageError
from bertkit.inspection.view import View, own_file
from bertkit.pages import Markup, Program, element


@dataclass(frozen=True, eq=False)
class SideBySideView(View):
    """Two views in separate frames: side by side, or stacked on a narrow screen.

    Raises:
        UsageError: other than two views of the same kind with different names.
    """

    title: ClassVar[str] = "Two models"
    smaller: ClassVar[str] = "give a shorter text, or one model for each page"
    names: tuple[str, ...]  # of the models
    views: tuple[View, ...]

    def __post_init__(self) -> None:
        kinds = {view.title for view in self.views}
        if len(self.views) != 2 or len(set(self.names)) != 2 or len(kinds) != 1:
            raise UsageError(f"views {sorted(kinds)} of models {list(self.names)}: expected two models and one kind")

    def numbers(self) -> dict[str, Any]:
        return {"models": dict(zip(self.names, (view.numbers() for view in self.views), strict=True))}

    def rows(self) -> list[dict[str, Any]]:
        pairs = zip(self.names, self.views, strict=True)
        return [{"model": name} | row for name, view in pairs for row in view.rows()]

    def parts(self) -> list[Markup]:
        return [
            element(
                "div",
                [
                    element(
                        "section",
                        element("h2", name),
                        element("iframe", srcdoc=view.page(), title=f"{view.title} of {name}"),
                    )
                    for name, view in zip(self.names, self.views, strict=True)
                ],
                class_="beside",
            )
        ]

    def program(self) -> Program:
        return Program(own_file("side_by_side.css"), own_file("side_by_side.js"), None)

    def framed(self) -> list[Program]:
        return [program for view in self.views if (program := view.program()) is not None]
