"""The documentation of the running Python as a corpus: real English text available on every machine.

Three sources: the language topics behind ``help("with")`` (``pydoc_data/topics.py``), the docstrings of the standard
library, and those of the built-in functions and compiled modules. Files are read as text; only compiled modules, which
have no source, are imported. Each text is split into paragraphs with their file and line.
Python 3.11: 12,286 passages, 1.5 million characters, a median of 17 WordPiece tokens, two seconds.
"""

import ast
import builtins
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bertkit.errors import DataError

# Folders of the standard library that are tests, programs, tables, or deprecated.
LEFT_OUT = {"distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "turtledemo"}
# Underscored modules are excluded, except those with the documentation of a public module.
PUBLIC_NAMES = {
    "nt": "os",
    "posix": "os",
    "_collections_abc": "collections.abc",
    "_py_warnings": "warnings",
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "_pyio": "io",
    "_threading_local": "threading",
    "concurrent.futures._base": "concurrent.futures",
    "email._policybase": "email.policy",
    "importlib._abc": "importlib.abc",
    "importlib._bootstrap": "importlib.machinery",
    "importlib._bootstrap_external": "importlib.machinery",
    "importlib.resources._common": "importlib.resources",
    "importlib.resources._functional": "importlib.resources",
    "pathlib._local": "pathlib",
    "tomllib._parser": "tomllib",
    "unittest._log": "unittest",
    "xml.sax._exceptions": "xml.sax",
    "zipfile._path": "zipfile",
    "zoneinfo._zoneinfo": "zoneinfo",
}


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph of the documentation."""

    text: str  # as one line, markup removed
    source: str  # "topic: try", or the name that is documented: "json.dumps", "str.strip"
    title: str  # the heading above the paragraph, or the first sentence of its docstring
    file: str  # relative to the folder of the standard library, with "/": "json/__init__.py"; "" if compiled into
    # Python
    line: int  # line of that file, from 1; 0 if compiled into Python

    @property
    def where(self) -> str:
        """The location: "json/__init__.py:183", or a call of help() for Python's prompt."""
        return f"{self.file}:{self.line}" if self.file else f'help("{self.source}")'


def python_docs(stdlib: str | Path | None = None) -> Iterator[Passage]:
    """Yield the paragraphs of Python's documentation, in the same order every time: topics, built-ins, modules.

    Code, doctests, grammar and tables are skipped; a heading, signature or lead-in ("Arguments:") is joined to the
    paragraph it introduces. Of equal paragraphs only the first is kept. Topics come shortest first: the long ones
    ("compound") contain the short ones ("with"), and a paragraph belongs to its narrowest topic.

    Args:
        stdlib: the folder of another Python's standard library, read without that Python's built-ins.

    Raises:
        DataError: the folder lacks ``pydoc_data`` or the library's source files, as some trimmed installations do.
    """
    folder = Path(stdlib or sysconfig.get_path("stdlib"))
    compiled_passages = () if stdlib else _compiled_passages()
    seen = set()
    for passage in chain(_topic_passages(folder), compiled_passages, _docstring_passages(folder)):
        if passage.text not in seen:
            seen.add(passage.text)
            yield passage


def _topic_passages(folder: Path) -> Iterator[Passage]:
    file = "pydoc_data/topics.py"
    if not (folder / file).is_file():
        raise DataError(
            f"the language topics of Python are missing: expected {folder / file}; this installation lacks them. "
            "Use a complete Python (python.org, uv, conda; on Debian and Ubuntu: apt install libpython3-stdlib)"
        )
    source = (folder / file).read_text(encoding="utf-8")
    source_lines = source.split("\n")
    topics = next(node for node in ast.walk(_parse(source)) if isinstance(node, ast.Dict))
    names = [ast.literal_eval(key) for key in topics.keys if key]
    texts = [node for node in topics.values if isinstance(node, ast.Constant)]
    for name, node in sorted(zip(names, texts, strict=True), key=lambda pair: (len(str(pair[1].value)), pair[0])):
        lines = _lines_of_constant(node, source_lines)
        for start, title, text in _paragraphs(str(node.value)):
            yield Passage(text, f"topic: {name}", title, file, lines[start])


def _lines_of_constant(node: ast.Constant, source_lines: list[str]) -> list[int]:
    """Line of the file where each line of a string constant begins."""
    numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    if re.match("r?('{3}|\"{3})", source_lines[node.lineno - 1][node.col_offset :]):
        return list(numbers)
    lines = [node.lineno]  # adjacent strings, one line each, some of them without a newline at their end
    for number in numbers:
        lines += [number + 1] * len(re.findall(r"(?<!\\)(?:\\\\)*\\n", source_lines[number - 1]))
    return lines


def _compiled_passages() -> Iterator[Passage]:
    """Built-ins and compiled modules (math, time, os, ...) have docstrings but no source file: they are imported."""
    for module_name in ("builtins", *_compiled_modules()):
        module = importlib.import_module(module_name)
        prefix = "" if module is builtins else PUBLIC_NAMES.get(module_name, module_name) + "."
        for name, value in sorted(vars(module).items()):
            if name[0] == "_" or getattr(value, "__name__", "") != name or value.__module__ != module_name:
                continue
            members = {name: value}
            if isinstance(value, type):
                members |= {f"{name}.{key}": getattr(value, key) for key in vars(value) if key[0] != "_"}
            for dotted_name, member in members.items():
                docstring = member.__doc__ if isinstance(member.__doc__, str) else ""
                for _, title, text in _titled_paragraphs(docstring):
                    yield Passage(text, prefix + dotted_name, title, "", 0)


def _compiled_modules() -> list[str]:
    """Public compiled modules of the standard library.

    Except deprecated ones, readline, which modifies the terminal, and sys, whose functions programs replace.
    """
    left_out = {"audioop", "builtins", "nis", "ossaudiodev", "readline", "spwd", "sys"}
    names = [name for name in sorted(sys.stdlib_module_names) if name[0] != "_" and name not in left_out]
    specs = {name: importlib.util.find_spec(name) for name in names if "." not in name}
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    return [name for name, spec in specs.items() if spec and str(spec.origin).endswith(("built-in", *suffixes))]


def _docstring_passages(folder: Path) -> Iterator[Passage]:
    num_files = 0
    for path in _source_files(folder):
        file = path.relative_to(folder).as_posix()
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = PUBLIC_NAMES.get(module, module)
        if any(part.startswith("_") for part in module.split(".")):
            continue
        num_files += 1
        tree = _parse(path.read_bytes())
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
        for name, line, docstring in _docstrings(tree, module, bases):
            line += len(docstring) - len(docstring.lstrip("\n"))
            for start, title, text in _titled_paragraphs(docstring):
                yield Passage(text, name, title, file, line + start)
    if not num_files:
        raise DataError(f"no source files of the standard library in {folder}: use a Python that ships its .py files")


def _titled_paragraphs(docstring: str) -> Iterator[tuple[int, str, str]]:
    """As ``_paragraphs``; a paragraph without a heading gets the first sentence of the docstring as its title."""
    summary = ""
    for start, title, text in _paragraphs(inspect.cleandoc(docstring)):
        summary = summary or re.split(r"(?<=[.!?]) ", text)[0]
        yield start, title or summary, text


def _source_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name.isidentifier() and name not in LEFT_OUT)
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(".py"))


def _docstrings(node: ast.AST, name: str, bases: set[str]) -> Iterator[tuple[str, int, str]]:
    """Yield (dotted name, line, docstring) of a module, class or function, then of the members of a module or class.

    Underscored functions are skipped, and underscored classes without subclasses in the file.
    """
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield name, node.body[0].lineno, docstring
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name in bases or child.name.startswith("__") or not child.name.startswith("_"):
                yield from _docstrings(child, f"{name}.{child.name}", bases)
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _docstrings(child, name, bases)


_UNDERLINE = re.compile(r"\s*([*=~^#-])\1{2,}\s*$")
_SIGNATURE = re.compile(r"((async|class|exception|classmethod|staticmethod|coroutine) )?[\w.]+\(.*\)$|[\w]+(\.\w+)+$")
_ITEM_OR_DOCTEST = re.compile(r"\s*([*-] |[0-9]+[.)] |>>>)")
_CODE_OR_NOTE = re.compile(r">>>|\.\. |\$ |\(?yield |(async )?def |(New|Added|Changed|Deprecated\S*) (in|since) ver")
_PLAIN_WORD = re.compile(r"[\"'(*`“]*[A-Za-z][A-Za-z'’-]*[\")'*`”]*[.,;:!?)]*$")
_TABLE = re.compile(r"[+|][-=+| ]|={3,} +={3,}")


def _paragraphs(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (index of its first line, heading above it, paragraph as one line) for the prose in ``text``."""
    headings: list[tuple[int, str]] = []  # (minimum indent of the text below it, heading or signature)
    literal_indent = sys.maxsize  # deeper blocks are code, after a line that ends with "::"
    lead_in, lead_start = "", 0
    for start, lines in _blocks(text):
        indent = len(lines[0]) - len(lines[0].lstrip())
        if len(lines) > 1 and _UNDERLINE.match(lines[1]):
            headings, lead_in = [(0, _clean(lines[0]))], ""
            start, lines = start + 2, lines[2:]
        if indent > literal_indent or not lines:
            lead_in = ""
            continue
        literal_indent = indent if lines[-1].endswith("::") else sys.maxsize
        headings = [(least, heading) for least, heading in headings if indent >= least]
        paragraph = _clean(_unwrap(lines))
        if all(_SIGNATURE.match(line.strip()) for line in lines):
            headings.append((indent + 1, lines[0].strip()))
            lead_in, lead_start = ", ".join(line.strip() for line in lines), start
        elif start and paragraph.endswith(":") and len(paragraph.split()) <= 12:
            lead_in, lead_start = paragraph[:-1], start
        else:
            if _is_prose(lines, paragraph):
                title = headings[-1][1] if headings else ""
                yield (lead_start, title, f"{lead_in}: {paragraph}") if lead_in else (start, title, paragraph)
            lead_in = ""


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (index of the first line, lines) of the blocks between blank lines; list items and doctests are separate
    blocks."""
    block: list[str] = []
    for index, line in enumerate([*text.expandtabs().split("\n"), ""]):
        if block and (not line.strip() or _ITEM_OR_DOCTEST.match(line)):
            yield index - len(block), block
            block = []
        if line.strip():
            block.append(line)


def _unwrap(lines: list[str]) -> str:
    """Join hard-wrapped lines; a word broken at its hyphen ("non-", "virtual") is joined without a blank."""
    return re.sub(r"(?<=[a-z])- (?=[a-z])", "-", " ".join(" ".join(lines).split()))


def _is_prose(lines: list[str], paragraph: str) -> bool:
    if _CODE_OR_NOTE.match(paragraph) or "::=" in paragraph or any(_TABLE.match(line.strip()) for line in lines):
        return False
    words = paragraph.split()
    num_plain = sum(bool(_PLAIN_WORD.match(word)) for word in words)
    num_listed = sum(word.endswith(",") for word in words)
    return len(words) >= 3 and num_plain >= 0.5 * len(words) > num_listed and not _is_python(lines)


def _is_python(lines: list[str]) -> bool:
    """Whether the block compiles; short phrases compile, too ("return value"), and are no good passages either."""
    try:
        _parse(textwrap.dedent("\n".join(lines)))
    except (SyntaxError, ValueError):
        return False
    return True


def _parse(source: str | bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old docstrings hold invalid escapes
        return ast.parse(source)


_MARKUP = [
    (re.compile(r":[a-z:]+:`[~!]?([^`<]+?)(?: <[^`>]*>)?`"), r"\1"),  # :class:`Foo` -> Foo
    (re.compile(r"`([^`<]+) <[^`>]+>`_+"), r"\1"),  # `text <url>`_ -> text
    (re.compile(r"``(.+?)``|`([^`']+)[`']_?"), r"\1\2"),  # ``code``, `name` and `name' -> name
    (re.compile(r"(?<![\w*])\*{1,2}(?=\w)([^*]*[\w.:!?)])\*{1,2}(?![\w*])"), r"\1"),  # *word* and **word** -> word
    (re.compile(r"^(?:[*•+-]|[0-9]+[.)]) "), ""),  # the mark of a list's item
    (re.compile(r" \[[0-9]{1,2}\](?!\w)"), ""),  # footnotes
    (re.compile(r"::$"), ":"),
]


def _clean(text: str) -> str:
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())
