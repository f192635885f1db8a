"""Ask the documentation of your Python a question in your own words.

    python examples/ask_python_docs.py                                # five questions, then yours
    python examples/ask_python_docs.py "how do I copy a folder?"      # yours alone

The idea, from top to bottom of this file: cut the documentation into paragraphs; turn each into a vector with a
sentence encoder, once, and keep the vectors on disk; turn the question into a vector with the same encoder; the
paragraphs whose vectors point most nearly the same way are the answer. No word need be shared.
"""

import argparse
import hashlib
import inspect
import json
import sys
import sysconfig
import textwrap
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

import bertkit
from bertkit.corpus import Passage, python_docs
from bertkit.files.whole_files import whole_file
from bertkit.neighbors import top_k

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
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where vectors are kept (default: .demo)")
    arguments = parser.parse_args()

    started = time.perf_counter()
    model = bertkit.load(MODEL)
    passages, vectors = read_index(arguments.folder) or build_index(arguments.folder, model)

    for question in [" ".join(arguments.question)] if arguments.question else QUESTIONS:
        answer(question, model, passages, vectors)
    print(f"\nFiles stand in {sysconfig.get_path('stdlib')}. {time.perf_counter() - started:.1f} seconds in all.")

    if not arguments.question and sys.stdin.isatty():
        print("\nYour turn (an empty line ends):")
        while question := read_line("> "):
            started = time.perf_counter()
            answer(question, model, passages, vectors)
            print(f"\n{time.perf_counter() - started:.2f} seconds")


def answer(question: str, model: "bertkit.Model", passages: list[Passage], vectors: np.ndarray) -> None:
    """Print the three passages nearest in meaning. Vectors have length 1, so the dot product is the cosine."""
    scores, ids = top_k(model.embed([question]), vectors, k=3)
    print(f"\n{question}")
    for score, passage in zip(scores[0], (passages[i] for i in ids[0]), strict=True):
        print(f"  {score:.2f}  {passage.source}  ({passage.where})")
        for line in textwrap.wrap(passage.text, 96, max_lines=4, placeholder=" ..."):
            print(f"        {line}")


def build_index(folder: Path, model: "bertkit.Model") -> tuple[list[Passage], np.ndarray]:
    """Cut the documentation into passages, embed each, and keep both in the folder."""
    passages = list(python_docs())
    print(f"Embedding {len(passages):,} passages of Python's documentation, once (under a minute on two cores) ...")
    report = bertkit.EmbedReport()  # counts what was cut: MiniLM reads 256 tokens
    vectors = model.embed([passage.in_context for passage in passages], report=report)
    print(f"{report.num_tokens:,} tokens; {report.num_texts_cut} passages were longer than the model reads.")

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fingerprint.json").unlink(missing_ok=True)  # gone first and written last: it vouches for the others
    with whole_file(folder / "vectors.npy") as path, path.open("wb") as file:
        np.save(file, vectors)
    with whole_file(folder / "passages.jsonl") as path:
        path.write_text("".join(json.dumps(asdict(passage)) + "\n" for passage in passages), encoding="utf-8")
    with whole_file(folder / "fingerprint.json") as path:
        path.write_text(json.dumps(fingerprint(folder), indent=2) + "\n", encoding="utf-8")
    return passages, vectors


def read_index(folder: Path) -> tuple[list[Passage], np.ndarray] | None:
    """What ``build_index`` kept; None if there is nothing, or something that no longer fits."""
    try:
        if json.loads((folder / "fingerprint.json").read_text(encoding="utf-8")) != fingerprint(folder):
            return None
    except (OSError, ValueError):
        return None
    lines = (folder / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    return [Passage(**json.loads(line)) for line in lines], np.load(folder / "vectors.npy")


def fingerprint(folder: Path) -> dict[str, str]:
    """What the vectors depend on: the Python and the code that cut its documentation, the passages, the model."""
    code = inspect.getsource(sys.modules[python_docs.__module__])
    return {
        "python": f"{sys.version} in {sys.base_prefix}",
        "python_docs.py": hashlib.sha256(code.encode()).hexdigest(),
        "passages.jsonl": hashlib.sha256((folder / "passages.jsonl").read_bytes()).hexdigest(),
        "model": MODEL,
    }


def read_line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        return ""


if __name__ == "__main__":
    main()
