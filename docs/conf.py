"""Sphinx: pages from Markdown, the reference from the code; nothing is fetched from the network."""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tools"))

from reference_pages import write_reference  # noqa: E402

from bertkit import __version__  # noqa: E402

write_reference(HERE / "reference" / "generated")

project, author, version, release = "bertkit", "The bertkit authors", __version__, __version__
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_missing"]  # links to files outside of docs, which tests/test_structure.py checks
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False
highlight_language = "none"  # of blocks without a language, such as outputs
html_theme = "furo"
html_title = "bertkit"
html_copy_source = False
html_show_sphinx = False


def skip_members_of_libraries(_app: Any, _what: str, _name: str, value: Any, skip: bool, _options: Any) -> bool | None:
    """True for members that classes inherit from other libraries, such as ``set_fit_request``."""
    return True if str(getattr(value, "__module__", "")).startswith("sklearn") else None


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", skip_members_of_libraries)
