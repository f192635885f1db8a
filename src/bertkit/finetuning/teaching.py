"""Teacher vectors and scores for training examples, with a cache."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import UsageError
from bertkit.inference import InferenceReport
from bertkit.inference.vector_cache import kept_scores, kept_vectors
from bertkit.locate import locate
from bertkit.model import Model, load
from bertkit.tasks import TaughtText, TextSet
from bertkit.tasks.examples import QUERY


def taught(
    options: Mapping[str, Any], parts: Sequence[Sequence[Any]], kept: Path, device: str = "auto"
) -> list[Sequence[Any]]:
    """Add the vectors or scores of the teacher and the guide in the options to the examples that lack them.

    Args:
        options: "teacher", a sentence encoder, a cross-encoder or a late-interaction model; "guide", a sentence
            encoder.
        kept: cache folder of vectors and scores by the content of the models, created if missing.

    Raises:
        UsageError: alignment with a teacher that is not a sentence encoder, or a cross-encoder with several labels.
    """
    results = list(parts)
    aligned = any(isinstance(example, TaughtText) for part in results for example in part)
    ways: dict[str, tuple[str, Any, Any]] = {
        "teacher": ("vectors", _with_vectors, _lacks_vector) if aligned else ("scores", _with_scores, _lacks_scores)
    }
    if not aligned:  # alignment refuses a guide
        ways["guide"] = "vectors", _with_guide, _lacks_guide
    for option, (kind, add, lacks) in ways.items():
        if options.get(option) and any(lacks(example) for part in results for example in part):
            model = load(options[option], device=device)
            folder = kept / kind / content_hash(locate(options[option]))
            results = [add(model, part, folder) for part in results]
    return results


def _lacks_scores(row: TextSet) -> bool:
    return not row.scores and row.score is None


def _lacks_guide(row: TextSet) -> bool:
    return row.guide is None


def _lacks_vector(example: TaughtText) -> bool:
    return example.vector is None


def _with_vectors(teacher: Model, examples: Sequence[TaughtText], kept: Path) -> list[Any]:
    if "masked_lm" in teacher.network.heads and teacher.checkpoint.sentence is None:
        raise UsageError("the teacher is not a sentence encoder: choose one, such as all-MiniLM-L6-v2")
    if not examples:
        return []
    vectors = kept_vectors(kept, [example.text for example in examples], lambda texts: _embedded(teacher, texts))
    return [replace(example, vector=vector) for example, vector in zip(examples, vectors, strict=True)]


def _embedded(teacher: Model, texts: list[str], prompt: str | None = None) -> Iterator[np.ndarray]:
    for _, vectors in teacher.embed_stream(texts, report=InferenceReport(), prompt=prompt):
        yield vectors


def _with_scores(teacher: Model, examples: Sequence[TextSet], kept: Path) -> list[TextSet]:
    """Add scores to rows without them: from a cross-encoder, or inner products of a sentence encoder with its
    prompts."""
    rows = [row for row in examples if _lacks_scores(row)]
    pairs = [(row.query, text) for row in rows for text in row.texts[1:]]
    if not pairs:
        return list(examples)
    scores = kept_scores(kept, pairs, lambda queries, texts: _scores(teacher, queries, texts)).tolist()
    results, start = [], 0
    for row in examples:
        if not _lacks_scores(row):
            results.append(row)
            continue
        end = start + len(row.texts) - 1
        results.append(replace(row, scores=tuple(scores[start:end])))
        start = end
    return results


def _with_guide(guide: Model, examples: Sequence[TextSet], kept: Path) -> list[TextSet]:
    """Add the vectors of a guide model, with its prompts, to rows."""
    if not examples:
        return []
    texts = [text for row in examples for text in row.texts]
    is_query = np.array([role == QUERY for row in examples for role in row.roles])
    vectors: np.ndarray = np.empty((len(texts), guide.embed("", report=InferenceReport()).shape[0]), np.float32)
    for chosen, prompt in zip((is_query, ~is_query), guide.sentence_settings.retrieval_prompts, strict=True):
        folder = kept / hashlib.sha256(prompt.encode()).hexdigest()[:16]
        some = [texts[index] for index in np.flatnonzero(chosen)]
        vectors[chosen] = kept_vectors(folder, some, lambda missing, prompt=prompt: _embedded(guide, missing, prompt))
    ends = np.cumsum([len(row.texts) for row in examples])
    return [replace(row, guide=part) for row, part in zip(examples, np.split(vectors, ends[:-1]), strict=True)]


def _scores(teacher: Model, queries: list[str], texts: list[str]) -> np.ndarray:
    """(N,) float32."""
    if teacher.scores_pairs:
        teacher.rank("", [])  # which refuses several labels
        return teacher.score_pairs(queries, texts)
    sides = []
    for side, prompt in zip((queries, texts), teacher.sentence_settings.retrieval_prompts, strict=True):
        numbers = {text: number for number, text in enumerate(dict.fromkeys(side))}
        vectors = teacher.embed(list(numbers), report=InferenceReport(), prompt=prompt)
        sides.append(vectors[[numbers[text] for text in side]])
    return np.einsum("ne,ne->n", *sides).astype(np.float32)
