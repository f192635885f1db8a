"""The page for trying the served models, in the style of all pages. Its script asks the routes of the server."""

from functools import cache
from importlib.resources import files

from bertkit.inspection.view import own_file
from bertkit.pages import Program, details, element, page, paragraph


@cache
def playground() -> str:
    """The HTML document."""
    key = element("input", id="key", type="password", autocomplete="off")
    access = element(
        "form",
        element("label", "Key, if the server asks for one", for_="key"),
        key,
        element("button", "Use", type="submit"),
        id="access",
    )
    parts = [
        element("p", "Asking what is served …", id="about", class_="note"),
        details("API key", access),
        element("div", id="panels"),
        element("noscript", paragraph("This page asks the server with JavaScript, which this browser does not run.")),
    ]
    program = Program(_file("playground.css"), _file("playground.js"), None, asks_server=True)
    opened = Program(own_file("attention.css"), own_file("attention.js"), None)  # in a tab with this page's policy
    return page("bertkit playground", parts, program, [opened])


def _file(name: str) -> str:
    return files("bertkit.serving").joinpath(name).read_text(encoding="utf-8")
