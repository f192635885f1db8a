"""Fill-mask: the most likely tokens for each [MASK]."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import UsageError, checked_count
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner
from bertkit.later import Tensor
from bertkit.tasks.probabilities import softmax
from bertkit.tokenizer import Vocabulary
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import OnLong
from bertkit.transformer.kernels.arrays import floats

_MASKS_AT_A_TIME = 64
"""Those with probabilities of the whole vocabulary in memory."""


@dataclass(frozen=True)
class Candidate:
    """One entry of the vocabulary for a [MASK]."""

    token: str
    token_id: int
    score: float  # probability, 0 to 1


@dataclass(frozen=True)
class FilledMask:
    """A [MASK] and its most likely tokens, best first."""

    offsets: Span  # characters of the text
    candidates: tuple[Candidate, ...]


def fill_mask(runner: Runner, text: str, *, top_k: int = 5, on_long: OnLong = "error") -> list[FilledMask]:
    """Predict every [MASK] in a text, in order (Devlin et al. 2018, section 3.1).

    With ``on_long="truncate"`` cutting issues a TruncationWarning, and [UNK] tokens an UnknownWordsWarning. With
    ``on_long="window"`` each [MASK] of a long text is predicted in the window with the most context.

    Raises:
        UsageError: no [MASK] in the text, ``top_k`` below 1, or a left-to-right model.
        OverLengthError: too long under ``on_long="error"``.
    """
    runner.require_bidirectional()
    tokenizer = runner.tokenizer
    top_k = checked_count("top_k", top_k)
    encodings = tokenizer.encode_batch(
        [text], max_length=runner.max_positions, on_long=on_long, special_tokens_in_text=True
    )
    InferenceReport.of(encodings, 1).warn("a [MASK] in the removed part is not filled; choose on_long='window'")
    num_entries = len(tokenizer.vocabulary)

    masked = [
        [position for position in range(*encoding.owned) if encoding.input_ids[position] == tokenizer.mask_id]
        for encoding in encodings
    ]
    if not any(masked):
        mask = tokenizer.vocabulary.special.mask
        raise UsageError(f"the text has no {mask} to fill: put {mask} where a word is missing")

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        starts = batch.first_tokens.tolist()
        positions = [start + each for start, index in zip(starts, indices, strict=True) for each in masked[index]]
        return runner.encoder(batch, with_pooled=False).last_hidden_state[positions]

    states = runner.run(encodings, forward, rows_per_sequence=np.array([len(positions) for positions in masked]))
    head, word_embedding = runner.network.require_head("masked_lm"), runner.network.encoder.embeddings.word.weight
    best_ids: list[list[int]] = []
    best_scores: list[list[float]] = []
    for start in range(0, len(states), _MASKS_AT_A_TIME):
        logits = runner.one(partial(head, states[start : start + _MASKS_AT_A_TIME], word_embedding))  # (P, V)
        probabilities = softmax(floats(logits))[:, :num_entries]  # rows beyond the vocabulary have no token
        for row in probabilities:
            best = _best(row, top_k)
            best_ids.append(best.tolist())
            best_scores.append(row[best].tolist())
    offsets = [
        tuple(encoding.offsets[each].tolist())
        for encoding, positions in zip(encodings, masked, strict=True)
        for each in positions
    ]
    filled = [
        FilledMask(span, _candidates(tokenizer.vocabulary, ids, scores))
        for span, ids, scores in zip(offsets, best_ids, best_scores, strict=True)
    ]
    return sorted(filled, key=lambda one: one.offsets)


def _best(probabilities: np.ndarray, top_k: int) -> np.ndarray:
    """The ids of the most likely entries, best first; of equal ones the lowest."""
    top_k = min(top_k, len(probabilities))
    ids = np.flatnonzero(probabilities >= np.partition(probabilities, -top_k)[-top_k])
    return ids[np.argsort(-probabilities[ids], kind="stable")][:top_k]


def _candidates(vocabulary: Vocabulary, ids: list[int], scores: list[float]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(vocabulary.token(token_id), token_id, score) for token_id, score in zip(ids, scores, strict=True)
    )
