"""Ask the documentation of your Python a question in your own words.

    python examples/ask_python_docs.py                                # five questions, then yours
    python examples/ask_python_docs.py "how do I copy a folder?"      # yours alone

Paragraphs of the documentation become vectors, once. A question is compared with all of them by meaning: no word need
be shared. To be ready within a minute, it has the language topics without their longest paragraphs, and the first
paragraph on each module, class and function, and on most methods.
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
from bertkit.corpus import Passage, python_docs
from bertkit.machine_code import num_compiled

MODEL = "all-MiniLM-L6-v2"
LONGEST = 350  # characters of a paragraph: longer ones seldom are the answer, and take most of the time
AT_ONCE = 256  # documents between two reports of progress
SECONDS_BETWEEN_REPORTS = 2
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
        report(f"\nFiles stand in {sysconfig.get_path('stdlib')}. {time.perf_counter() - started:.1f} seconds in all.")

        if not arguments.question and sys.stdin.isatty():
            print("\nYour turn (an empty line ends):")
            while question := read_line("> "):
                started = time.perf_counter()
                answer(question, index)
                print(f"\n{time.perf_counter() - started:.2f} seconds")


def open_index(folder: Path) -> bertkit.Index:
    """The index of this Python's documentation, made if it is not there; one that was interrupted is continued."""
    code = inspect.getsource(sys.modules[python_docs.__module__]) + inspect.getsource(documents)
    version = hashlib.sha256(f"{sys.version} in {sys.base_prefix}, {MODEL}\n{code}".encode()).hexdigest()[:12]
    complete = folder / version / "complete"
    if complete.exists():
        return bertkit.Index.open(folder / version, MODEL)
    started = time.perf_counter()
    report("Loading the model, and compiling it for this processor, once ...")
    index = bertkit.Index.open(folder / version, MODEL)
    index.encoder.embed_query(["Is everything compiled?"])
    report(f"  {num_compiled()} functions compiled, {time.perf_counter() - started:.0f} seconds")
    report("Embedding passages of Python's documentation, once ...")
    add(index, list(documents()))
    complete.touch()
    return index


def add(index: bertkit.Index, passages: list[bertkit.Document]) -> None:
    """Add passages to an index, and report how many are done and the seconds left."""
    started = reported = time.perf_counter()
    num_characters, num_embedded = sum(len(passage.text) for passage in passages), 0
    for first in range(0, len(passages), AT_ONCE):
        num_embedded += sum(len(passage.text) for passage in passages[first : first + AT_ONCE])
        index.add(passages[first : first + AT_ONCE])
        now, num_done = time.perf_counter(), min(first + AT_ONCE, len(passages))
        if now - reported > SECONDS_BETWEEN_REPORTS and num_done < len(passages):
            left = (now - started) * (num_characters / num_embedded - 1)
            report(f"  {num_done:,} of {len(passages):,} passages, {left:.0f} seconds left")
            reported = now
    report(f"  {len(passages):,} passages embedded, {time.perf_counter() - started:.0f} seconds")


def documents() -> Iterator[bertkit.Document]:
    """Paragraphs of the documentation, each with what it is about, as a paragraph alone seldom names it."""
    described: set[str] = set()
    for number, passage in enumerate(python_docs()):
        if is_topic(passage) or (passage.source not in described and is_well_known(passage)):
            described.add(passage.source)
            if len(passage.text) <= LONGEST:
                title = (
                    passage.source if passage.text.startswith(passage.title) else f"{passage.source}: {passage.title}"
                )
                yield bertkit.Document(str(number), passage.text, title, metadata={"where": passage.where})


def is_topic(passage: Passage) -> bool:
    """Whether a passage is about the language."""
    return passage.source.startswith("topic: ")


def is_well_known(passage: Passage) -> bool:
    """Whether a passage is about a module, class or function, or about a method outside of packages."""
    *parents, name = passage.source.split(".")
    is_in_package = "/" in passage.file
    return not name.startswith("_") and len(parents) <= (1 if is_in_package else 2)


def answer(question: str, index: bertkit.Index) -> None:
    """Print the three passages that fit a question best."""
    print(f"\n{question}")
    for result in index.search(question, k=3, mode="dense"):  # by meaning: questions are in everyday words
        print(f"  {result.context}  ({result.metadata['where']})")
        for line in textwrap.wrap(result.text, 96, max_lines=4, placeholder=" ..."):
            print(f"        {line}")


def report(line: str) -> None:
    """Print a line at once, also if the output is not a terminal."""
    print(line, flush=True)


def read_line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        return ""


if __name__ == "__main__":
    main()
