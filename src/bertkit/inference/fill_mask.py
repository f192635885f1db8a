"""What stands behind a [MASK]?"""

from dataclasses import dataclass

import numpy as np
import torch

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.inference.runner import Runner
from bertkit.inference.truncation import warn_of_truncation
from bertkit.tokenizer import Vocabulary
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import OnLong


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
    """Predict every [MASK] in a text, in the order they stand (Devlin et al. 2018, section 3.1).

    With ``on_long="truncate"`` a cut is announced by a TruncationWarning. With ``on_long="window"`` each [MASK] of a
    long text is predicted in the window that shows it the most context.

    Raises:
        UsageError: no [MASK] in the text, or ``top_k`` below 1.
        OverLengthError: too long under ``on_long="error"``.
    """
    tokenizer = runner.tokenizer
    if top_k < 1:
        raise UsageError(f"top_k={top_k}: expected at least 1")
    encodings = tokenizer.encode_batch(
        [text], max_length=runner.max_positions, on_long=on_long, special_tokens_in_text=True
    )
    num_tokens_cut = int(encodings.num_tokens_cut.sum())
    remedy = "a [MASK] there is not filled; choose on_long='window'"
    warn_of_truncation(1, int(num_tokens_cut > 0), num_tokens_cut, remedy, stacklevel=3)
    num_entries = len(tokenizer.vocabulary)

    def forward(batch: Batch, indices: np.ndarray) -> list[FilledMask]:
        masked = [
            (encodings[index], position, start + position)
            for index, start in zip(indices, batch.first_tokens.tolist(), strict=True)
            for position in range(*encodings[index].owned)
            if encodings[index].input_ids[position] == tokenizer.mask_id
        ]
        if not masked:
            return []
        positions = torch.tensor([in_batch for _, _, in_batch in masked], device=runner.device)
        logits = runner.network(batch, masked_positions=positions).logits["masked_lm"]
        probabilities = logits.softmax(-1)[:, :num_entries]  # rows beyond the vocabulary spell nothing
        best = probabilities.topk(min(top_k, num_entries))
        return [
            FilledMask(tuple(encoding.offsets[position].tolist()), _candidates(tokenizer.vocabulary, ids, scores))
            for (encoding, position, _), ids, scores in zip(
                masked, best.indices.tolist(), best.values.tolist(), strict=True
            )
        ]

    filled = [one for _, batch_filled in runner.run(encodings, forward) for one in batch_filled]
    if not filled:
        mask = tokenizer.vocabulary.special.mask
        raise UsageError(f"the text has no {mask} to fill: put {mask} where a word is missing")
    return sorted(filled, key=lambda one: one.offsets)


def _candidates(vocabulary: Vocabulary, ids: list[int], scores: list[float]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(vocabulary.token(token_id), token_id, score) for token_id, score in zip(ids, scores, strict=True)
    )
