"""Real embeddings: sentences of Python's documentation, of Wikipedia and of novels, by all-MiniLM-L6-v2 in int8."""

from pathlib import Path

import numpy as np
import report
import texts
from models import MINILM, published_folder
from turns import say

import bertkit
from bertkit.corpus.sentences import split_sentences
from bertkit.inference import InferenceReport

SOURCE = f"sentences of Python's documentation, Wikipedia and novels by {MINILM}"


def sentence_vectors(number: int) -> np.ndarray:
    """(number, 384) float32 of length 1: the vectors of distinct sentences in random order, cached on disk.

    Raises:
        RuntimeError: the texts are not on this machine, or too few.
    """
    file = report.CACHE / f"sentence-vectors-{number}.npy"
    if not file.exists():
        sentences = texts.shuffled(_sentences())[:number]
        if len(sentences) < number:
            raise RuntimeError(f"{len(sentences):,} sentences on this machine, {number:,} asked for")
        say(f"embedding {number:,} sentences, once")
        model = bertkit.load(published_folder(MINILM), precision="int8")
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, model.embed(sentences, normalize=True, report=InferenceReport()))
    return np.load(file)


def _sentences() -> list[str]:
    found = [one for passage in texts.documentation() for one in split_sentences(passage) if len(one.split()) > 3]
    paragraphs = [paragraph for novel in _novels() for paragraph in novel.read_text("utf-8").split("\n\n")]
    for paragraph in (*texts.wikitext(), *paragraphs):
        found += [one for one in split_sentences(" ".join(paragraph.split())) if 5 <= len(one.split()) <= 60]
    return list(dict.fromkeys(found))


def _novels() -> list[Path]:
    novels = sorted((texts.DATA / "english_novels").glob("*.txt"))
    if not novels:
        raise RuntimeError(f"no novels in {texts.DATA}")
    return novels
