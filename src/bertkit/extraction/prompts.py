"""Labels as the model reads them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from bertkit.errors import UsageError, check_several
from bertkit.extraction.settings import ExtractionSettings
from bertkit.tokenizer import Tokenizer

MOST_LABELS = 5_000
"""Labels of a call."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """Tokens before a text that name some of the labels."""

    labels: np.ndarray  # (C,) int64 indices of the labels
    tokens: np.ndarray  # (n,) int64
    label_tokens: np.ndarray  # (C,) int64 index in the sequence, after [CLS], of the token that stands for each label
    relation_tokens: np.ndarray  # (R,) int64 the same for each relation

    @property
    def marks(self) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that stand for labels and relations."""
        return self.label_tokens, self.relation_tokens

    @classmethod
    def empty(cls, num_labels: int) -> Self:
        """The prompt of a model with an encoder of labels."""
        return cls(np.arange(num_labels), *(np.empty(0, np.int64),) * 3)


def checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels in alphabetical order, so that scores do not depend on the order in which they are given.

    Raises:
        UsageError: none, too many, a str instead of several, or one that is empty or given twice.
    """
    check_several("labels", labels, in_order=False)
    names = list(labels)
    if not names:
        raise UsageError('no labels: expected what to look for, such as ["person", "place"]')
    if len(names) > MOST_LABELS:
        raise UsageError(f"{len(names):,} labels: expected at most {MOST_LABELS:,}")
    for label in names:
        if not isinstance(label, str) or not label.strip():
            raise UsageError(f"the label {label!r:.40} is empty or not a str: expected words, such as 'person'")
    repeated = [label for label, count in Counter(names).items() if count > 1]
    if repeated:
        raise UsageError(f"the label {repeated[0]!r:.40} is given twice: expected each label once")
    return tuple(sorted(names))


def prompts_of(
    labels: Sequence[str],
    tokenizer: Tokenizer,
    settings: ExtractionSettings,
    most_tokens: int,
    relations: Sequence[str] = (),
) -> list[Prompt]:
    """Prompts that name all labels: as few as possible of at most ``most_tokens``, filled in the order of the labels.
    Each names all relations.

    Raises:
        UsageError: a label, or all relations, are longer than a prompt.
    """
    after, relation_places = _after_labels(relations, tokenizer, settings)
    if len(after) > most_tokens // 2:
        raise UsageError(
            f"the relations have {len(after)} tokens: expected at most {most_tokens // 2}, the space that the model "
            "has for them; ask for some of them at a time"
        )
    prompts, indices, tokens, places = list[Prompt](), list[int](), list[int](), list[int]()

    def close() -> None:
        prompts.append(
            Prompt(np.array(indices), np.array([*tokens, *after]), np.array(places), len(tokens) + relation_places)
        )

    for index, (label, ids) in enumerate(zip(labels, tokenizer.plain_ids(labels), strict=True)):
        named = [settings.label_marker_id, *ids.tolist()]
        if len(named) + len(after) > most_tokens or not len(ids):
            raise UsageError(
                f"the label {label!r:.40} has {len(ids)} tokens: expected from 1 to "
                f"{most_tokens - len(after) - 1}, the space that the model has for labels"
            )
        if len(tokens) + len(named) + len(after) > most_tokens:
            close()
            indices, tokens, places = [], [], []
        indices.append(index)
        places.append(1 + len(tokens) + (not settings.reads_label_marker))
        tokens += named
    close()
    return prompts


def _after_labels(
    relations: Sequence[str], tokenizer: Tokenizer, settings: ExtractionSettings
) -> tuple[list[int], np.ndarray]:
    """Tokens between the labels and the text, and the index among them, plus 1 for [CLS], of that of each relation.

    Raises:
        UsageError: a relation without tokens.
    """
    marker = _marker(settings.text_marker, tokenizer)
    if (own := settings.relations) is None:
        return marker, np.empty(0, np.int64)
    tokens, places = [*marker], list[int]()
    for relation, ids in zip(relations, tokenizer.plain_ids(relations), strict=True):
        if not len(ids):
            raise UsageError(f"the relation {relation!r:.40} has no tokens: expected words, such as 'lives in'")
        places.append(1 + len(tokens) + (not own.reads_marker))
        tokens += [own.marker_id, *ids.tolist()]
    return tokens + marker, np.array(places, np.int64)


def _marker(marker: str, tokenizer: Tokenizer) -> list[int]:
    """The token of a marker; its pieces if the vocabulary lacks it, as published."""
    return (
        [tokenizer.vocabulary.id(marker)]
        if marker in tokenizer.vocabulary
        else tokenizer.plain_ids([marker])[0].tolist()
    )
