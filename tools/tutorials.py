"""Run the pages of docs/tutorials, and turn them into notebooks and scripts.

    python tools/tutorials.py                      # run each page; report outputs that differ from the page
    python tools/tutorials.py 01 04 --write        # of pages 01 and 04, write the real outputs into the page
    python tools/tutorials.py --folder notebooks   # write each page as NAME.ipynb and NAME.py, without running it

A page is Markdown. Its blocks of ```python and ```bash run in order, Python in one namespace, in a new folder with a
copy of examples/data. A block of ```text directly below one is what it prints. On such a line, "..." stands for any
text; on a line by itself, for any number of lines. Words and integers must be equal; decimal numbers may differ by two
units of their last digit, as processors add in different orders. With --write, outputs that match remain as they are,
and a picture that a page links to as images/NAME is copied from NAME in the folder of the run.
"""

import argparse
import contextlib
import io
import os
import re
import resource
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(
    r"^```(?P<language>python|bash)\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```\n)?", re.M | re.S
)
NUMBER = re.compile(r"((?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?)")


@dataclass(frozen=True)
class Block:
    """A block of code of a page, and the output below it."""

    language: str  # python or bash
    code: str
    output: str  # "" if none is shown
    line: int  # of the first line of code, from 1
    start: int  # characters of the page, from the opening fence to the end of the output
    end: int


def pages() -> list[Path]:
    """The tutorials, in order."""
    return sorted(TUTORIALS.glob("[0-9]*.md"))


def blocks(text: str) -> list[Block]:
    """The blocks of code of a page."""
    return [
        Block(
            match["language"],
            match["code"],
            match["output"] or "",
            text.count("\n", 0, match.start("code")) + 1,
            match.start(),
            match.end(),
        )
        for match in BLOCK.finditer(text)
    ]


def outputs(text: str, name: str, commands: Mapping[str, str] | None = None) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the working directory; yields each with what it printed.

    Args:
        text: the page.
        name: its file name, for tracebacks.
        commands: replacements of parts of commands, such as of a number of minutes.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.language == "python":
                code = "\n" * (block.line - 1) + block.code  # so that tracebacks name the line of the page
                exec(compile(code, name, "exec"), namespace)
            else:
                run_commands(block.code, commands or {})
        yield block, printed.getvalue()


def run_commands(code: str, replacements: Mapping[str, str]) -> None:
    """Run the lines of a bash block that call bertkit, in this process; lines that call make are for the reader.

    Raises:
        RuntimeError: another program, or a command that fails.
    """
    from bertkit.cli import run

    for line in filter(str.strip, code.replace("\\\n", " ").splitlines()):
        for old, new in replacements.items():
            line = line.replace(old, new)
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            continue
        if program != "bertkit" or run(words) != 0:
            raise RuntimeError(f"expected a command of bertkit that succeeds: {line}")


def same_line(shown: str, printed: str) -> bool:
    """True if a line of a page stands for a printed line."""
    shown, printed = " ".join(shown.split()), " ".join(printed.split())
    parts = NUMBER.split(shown)  # text and decimal numbers in turn
    texts = [re.escape(part).replace(re.escape("..."), ".*?") for part in parts[::2]]
    match = re.fullmatch(r"(-?\d+\.\d+(?:e[+-]?\d+)?)".join(texts), printed)
    return match is not None and all(
        abs(float(number) - float(other)) <= 2.001 * unit(number)
        for number, other in zip(parts[1::2], match.groups(), strict=True)
    )


def unit(number: str) -> float:
    """One unit of the last digit of a decimal number: 0.01 for 3.14, 1e-07 for 2.5e-06."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def same(shown: str, printed: str) -> bool:
    """True if the output on a page stands for what was printed."""
    expected, lines = shown.rstrip().splitlines(), printed.rstrip().splitlines()
    if "..." in (line.strip() for line in expected):
        index = next(index for index, line in enumerate(expected) if line.strip() == "...")
        before, after = expected[:index], expected[index + 1 :]
        return any(
            same("\n".join(before), "\n".join(lines[:index])) and same("\n".join(after), "\n".join(lines[end:]))
            for end in range(index, len(lines) + 1)
        )
    return len(expected) == len(lines) and all(map(same_line, expected, lines))


@contextlib.contextmanager
def folder_of_a_reader() -> Iterator[Path]:
    """A new working directory with a copy of examples/data, as in a clone."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(ROOT / "examples" / "data", "examples/data")
        yield Path(folder)


def with_outputs(text: str, printed: list[tuple[Block, str]]) -> str:
    """A page with these outputs below its blocks."""
    for block, output in reversed(printed):
        if not same(block.output, output):
            fence = f"```{block.language}\n{block.code}```\n"
            below = f"\n```text\n{output.rstrip()}\n```\n" if output.strip() else ""
            text = text[: block.start] + fence + below + text[block.end :]
    return text


def copy_pictures(text: str, folder: Path) -> None:
    """Copy the pictures that a page links to and that its run made."""
    for name in re.findall(r"\]\(images/([\w.-]+)\)", text):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, TUTORIALS / "images" / name)


def notebook(text: str) -> Any:
    """A page as a notebook (nbformat 4) with its outputs; commands are lines that begin with an exclamation mark."""
    from nbformat import v4

    cells, end = [], 0
    for block in blocks(text):
        if prose := text[end : block.start].strip():
            cells.append(v4.new_markdown_cell(prose))
        code = block.code.rstrip()
        if block.language == "bash":
            code = "\n".join(f"!{line}" for line in code.replace("\\\n", " ").splitlines())
        shown = [v4.new_output("stream", name="stdout", text=block.output)] if block.output else []
        cells.append(v4.new_code_cell(code, outputs=shown))
        end = block.end
    if prose := text[end:].strip():
        cells.append(v4.new_markdown_cell(prose))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # random otherwise
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def script(text: str) -> str:
    """A page as a script: prose as comments, commands as calls of another process."""
    import jupytext

    pages_notebook = notebook(text)
    for cell in pages_notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("!"):  # prose can begin with a picture
            lines = [shlex.split(line[1:], comments=True) for line in cell.source.splitlines()]
            calls = [["-m", *words] for words in lines if words and words[0] == "bertkit"]
            cell.source = "import subprocess\nimport sys\n\n" + "\n".join(
                f"subprocess.run([sys.executable, *{words!r}], check=True)" for words in calls
            )
    return jupytext.writes(pages_notebook, fmt="py:percent")


def write_notebooks(paths: list[Path], folder: Path) -> None:
    """Write each page as a notebook and as a script."""
    import nbformat

    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        nbformat.write(notebook(text), folder / f"{path.stem}.ipynb")
        (folder / f"{path.stem}.py").write_text(script(text), encoding="utf-8", newline="\n")


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def check(path: Path, write: bool) -> bool:
    """Run a page, report differences, or write its outputs; return whether it shows them now."""
    text, start, right = path.read_text(encoding="utf-8"), processor_seconds(), True
    with folder_of_a_reader() as folder:
        printed = list(outputs(text, path.name))
        if write:
            path.write_text(with_outputs(text, printed), encoding="utf-8", newline="\n")
            copy_pictures(text, folder)
    for block, output in printed:
        if not same(block.output, output):
            right = write
            shown = "now shows" if write else f"shows\n{block.output}\nand printed"
            print(f"{path.name}:{block.line} {shown}\n{output}")
    print(f"{path.name}: {processor_seconds() - start:.0f} s of processor time")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the beginnings of names of pages; all without")
    parser.add_argument("--write", action="store_true", help="write the outputs of this run into the pages")
    parser.add_argument("--folder", type=Path, help="write notebooks and scripts there, and run nothing")
    arguments = parser.parse_args()
    paths = [path for path in pages() if not arguments.names or path.name.startswith(tuple(arguments.names))]
    if arguments.folder:
        write_notebooks(paths, arguments.folder)
        return 0
    wrong = [path for path in paths if not check(path, arguments.write)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
