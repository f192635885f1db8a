"""Real texts: the documentation of the running Python, and public data in ``../shared/data``.

Each function raises a RuntimeError with the reason if its texts are not on this machine.
"""

import csv
import hashlib
import random
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from peers import batching

from bertkit.corpus import python_docs

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@cache
def documentation() -> list[str]:
    """Passages of Python's documentation: short texts of different lengths."""
    return [passage.text for passage in python_docs()]


@cache
def wikitext() -> list[str]:
    """Paragraphs of Wikipedia articles: long."""
    lines = [line.strip() for line in open_data("wikitext2/wiki.test.raw").read_text(encoding="utf-8").split("\n")]
    for written, mark in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", ".")):
        lines = [line.replace(written, mark) for line in lines]
    return [line for line in lines if line and not line.startswith("= ")]


def tweets() -> list[str]:
    """Tweets: short."""
    return [text for text, _ in labeled_tweets("train")]


@cache
def labeled_tweets(split: str) -> list[tuple[str, str]]:
    """Tweets of "train" or "test", each with its sentiment: negative, neutral or positive."""
    with open_data(f"tweet_sentiment_extraction/{split}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"].strip(), row["sentiment"]) for row in csv.DictReader(file)]
    return [(text, label) for text, label in rows if text]


SOURCES: dict[str, Callable[[], list[str]]] = {
    "documentation passages": documentation,
    "wikitext paragraphs": wikitext,
    "tweets": tweets,
}


def shuffled(texts: list[str]) -> list[str]:
    """The texts in a random order that is always the same."""
    return random.Random(0).sample(texts, len(texts))


def token_ids(source: str, published: Path, max_length: int) -> list[list[int]]:
    """Token ids of every text of a source, shuffled, cut at ``max_length``, with at least one word."""
    tokenizer = batching.open_tokenizer(published, max_length)
    return [ids for ids in batching.token_ids(tokenizer, shuffled(SOURCES[source]())) if len(ids) > 2]


def description(texts: Sequence[str], published: Path) -> dict:
    """Numbers of texts and tokens, and a hash of the texts."""
    lengths = [len(ids) for ids in batching.token_ids(batching.open_tokenizer(published), texts)]
    return {
        "num_texts": len(texts),
        "sha256": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16],
        "num_tokens": sum(lengths),
        "median_tokens": statistics.median(lengths),
        "longest_tokens": max(lengths),
    }


def open_data(file: str) -> Path:
    """A file of ``../shared/data``."""
    path = DATA / file
    if not path.is_file():
        raise RuntimeError(f"../shared/data/{file} is not there")
    return path
