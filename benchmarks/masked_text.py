"""Real text for masked language modeling: the same examples with the same masks for every trainer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MASK_ID = 103  # of the vocabulary all models here share
MASKED_SHARE = 0.15
NOT_PREDICTED = -100


@dataclass(frozen=True)
class Example:
    """One sequence of L tokens."""

    input_ids: np.ndarray  # (L,) int64, some of them [MASK]
    labels: np.ndarray  # (L,) int64, the token that was there; NOT_PREDICTED where nothing was masked


def masked(ids: Sequence[int], generator: np.random.Generator) -> Example:
    """Mask at least one token, and none of the special ones at the ends."""
    inputs, labels = np.array(ids, np.int64), np.full(len(ids), NOT_PREDICTED, np.int64)
    chosen = 1 + np.flatnonzero(generator.random(len(ids) - 2) < MASKED_SHARE)
    if not len(chosen):
        chosen = generator.integers(1, len(ids) - 1, 1)
    labels[chosen] = inputs[chosen]
    inputs[chosen] = MASK_ID
    return Example(inputs, labels)


def token_steps(ids: Sequence[Sequence[int]], tokens_per_step: int, seed: int) -> Iterator[list[Example]]:
    """Endless optimizer steps, each of the fewest sequences with at least ``tokens_per_step`` tokens."""
    step, tokens = [], 0
    for example in _endless(ids, seed):
        step.append(example)
        tokens += len(example.input_ids)
        if tokens >= tokens_per_step:
            yield step
            step, tokens = [], 0


def sequence_steps(ids: Sequence[Sequence[int]], sequences_per_step: int, seed: int) -> Iterator[list[Example]]:
    """Endless optimizer steps of ``sequences_per_step`` sequences."""
    examples = _endless(ids, seed)
    while True:
        yield [next(examples) for _ in range(sequences_per_step)]


def num_tokens(examples: Sequence[Example]) -> int:
    return sum(len(example.input_ids) for example in examples)


def num_masked(examples: Sequence[Example]) -> int:
    return sum(int((example.labels != NOT_PREDICTED).sum()) for example in examples)


def _endless(ids: Sequence[Sequence[int]], seed: int) -> Iterator[Example]:
    """All texts in random order, then in another random order with new masks, and so on."""
    generator = np.random.default_rng(seed)
    while True:
        for index in generator.permutation(len(ids)):
            yield masked(ids[index], generator)
