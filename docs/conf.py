"""Sphinx: pages from Markdown, the reference from the code; nothing is fetched from the network."""

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tools"))

from reference_pages import write_reference  # noqa: E402

from bertkit import __version__  # noqa: E402

write_reference(HERE / "reference" / "generated")

project, author, version, release = "bertkit", "The bertkit authors", __version__, __version__
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False
toc_object_entries = False  # each class and function has a heading already
highlight_language = "none"  # of blocks that name none, such as the output of a command
html_theme = "furo"
html_title = "bertkit"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

PAGES = {  # files outside of this folder that are pages of the site
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}


def links_of_the_site(text: str, file: Path, page: Path) -> str:
    """Text of a file with links that hold on its page.

    A link to a file of the repository that is not a page leads to a copy of the file, and a folder is named only.
    """

    def on_the_site(match: re.Match[str]) -> str:
        label, path, anchor = match["label"], match["path"], match["anchor"] or ""
        target = (file.parent / path).resolve()
        if not path or "://" in path or not target.exists():
            return match[0]
        if target.is_dir():
            return f"{label} (`{target.relative_to(ROOT)}`)"
        target = HERE / PAGES.get(str(target.relative_to(ROOT)), target)
        link = os.path.relpath(target, page.parent)
        return f"[{label}]({link}{anchor})" if target.is_relative_to(HERE) else f"[{label}](path:{link})"

    return re.sub(r"(?<!!)\[(?P<label>[^\[\]]+)\]\((?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)", on_the_site, text)


def _rewrite_page(_app: Any, name: str, text: list[str]) -> None:
    page = HERE / f"{name}.md"
    text[0] = links_of_the_site(text[0], page, page)


def _rewrite_included(_app: Any, file: Path, _page: str, text: list[str]) -> None:
    file = (HERE / file).resolve()
    text[0] = links_of_the_site(text[0], file, HERE / PAGES[file.name])


def skip_members_of_libraries(_app: Any, _what: str, _name: str, value: Any, skip: bool, _options: Any) -> bool | None:
    """True for members that classes inherit from other libraries, such as ``set_fit_request``."""
    return True if str(getattr(value, "__module__", "")).startswith("sklearn") else None


def _reachable_by_keyboard(_app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Code and tables scroll sideways on narrow screens, with the arrow keys too."""
    if "body" in context:
        context["body"] = re.sub(r'<(pre|div(?= class="table-wrapper))\b', r'<\1 tabindex="0"', context["body"])


def setup(app: Any) -> None:
    app.connect("source-read", _rewrite_page)
    app.connect("include-read", _rewrite_included)
    app.connect("html-page-context", _reachable_by_keyboard)
    app.connect("autodoc-skip-member", skip_members_of_libraries)
