"""Ask the documentation of your Python a question in your own words.

    python examples/ask_python_docs.py                                # five questions, then yours
    python examples/ask_python_docs.py "how do I copy a folder?"      # yours alone

The documentation is cut into paragraphs; each becomes a vector, once. A question is compared with all of them by
meaning: no word need be shared.
"""

import argparse
import hashlib
import inspect
import sys
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import bertkit
from bertkit.corpus import python_docs

MODEL = "all-MiniLM-L6-v2"
QUESTIONS = [
    "How do I copy a folder with everything inside it?",
    "Can I write a small throwaway function without giving it a name?",
    "What is the middle value of my numbers?",
    "Which values count as false?",
    "How do I remember the results of a slow function so it is not computed again?",
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask the documentation of your Python a question in your own words.")
    parser.add_argument("question", nargs="*", help="your question; without one, five prepared ones are answered")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="of the index (default: .demo)")
    arguments = parser.parse_args()

    started = time.perf_counter()
    with open_index(arguments.folder) as index:
        for question in [" ".join(arguments.question)] if arguments.question else QUESTIONS:
            answer(question, index)
        print(f"\nFiles stand in {sysconfig.get_path('stdlib')}. {time.perf_counter() - started:.1f} seconds in all.")

        if not arguments.question and sys.stdin.isatty():
            print("\nYour turn (an empty line ends):")
            while question := read_line("> "):
                started = time.perf_counter()
                answer(question, index)
                print(f"\n{time.perf_counter() - started:.2f} seconds")


def open_index(folder: Path) -> bertkit.Index:
    """The index of this Python's documentation, made if it is not there; one that was interrupted is continued."""
    code = inspect.getsource(sys.modules[python_docs.__module__])
    version = hashlib.sha256(f"{sys.version} in {sys.base_prefix}, {MODEL}\n{code}".encode()).hexdigest()[:12]
    index = bertkit.Index.open(folder / version, MODEL)
    complete = folder / version / "complete"
    if not complete.exists():
        print("Embedding the passages of Python's documentation, once (under a minute on two cores) ...")
        report = index.add(documents())
        print(f"{report.num_embedded:,} passages embedded; {report.num_cut} are longer than the model reads.")
        complete.touch()
    return index


def documents() -> Iterator[bertkit.Document]:
    """The paragraphs of the documentation, each with what it is about, as a paragraph alone seldom names it."""
    for number, passage in enumerate(python_docs()):
        title = passage.source if passage.text.startswith(passage.title) else f"{passage.source}: {passage.title}"
        yield bertkit.Document(str(number), passage.text, title, metadata={"where": passage.where})


def answer(question: str, index: bertkit.Index) -> None:
    """Print the three passages that fit a question best."""
    print(f"\n{question}")
    for result in index.search(question, k=3, mode="dense"):  # by meaning: questions are in everyday words
        print(f"  {result.context}  ({result.metadata['where']})")
        for line in textwrap.wrap(result.text, 96, max_lines=4, placeholder=" ..."):
            print(f"        {line}")


def read_line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        return ""


if __name__ == "__main__":
    main()
