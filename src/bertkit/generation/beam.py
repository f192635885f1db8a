"""Beam search: the best continuations of each prompt, by their log probability and length.

As transformers' generate with ``early_stopping=False``: of the ``2 num_beams`` best continuations (with E > 1 end ids
the ``(1 + E) num_beams`` best, so that ``num_beams`` of them can continue) those that end among the first ``num_beams``
are finished, the best others continue, and a prompt is complete when no running beam can exceed the finished ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from bertkit.checkpoint.generation_rules import Ending
from bertkit.executor import on_one_core
from bertkit.generation.engine import Decoding, Generated, Steps, next_log_probs
from bertkit.generation.settings import GenerationSettings


@dataclass
class _Search:
    """The beams of one prompt."""

    limit: int
    num_beams: int
    length_penalty: float
    ids: list[list[int]] = field(default_factory=lambda: [[]])
    scores: list[float] = field(default_factory=lambda: [0.0])  # sums of log probabilities, best first
    log_probs: list[list[float]] = field(default_factory=lambda: [[]])  # of the ids
    rows: list[int] = field(default_factory=list)  # row of each beam in the batch
    finished: list[Generated] = field(default_factory=list)
    is_done: bool = False

    def advance(self, log_probs: torch.Tensor, end_ids: tuple[int, ...]) -> None:
        """Extend the beams by one token, given its (beams, V) ``log_probs``."""
        totals = log_probs.double() + torch.tensor(self.scores, dtype=torch.float64)[:, None]
        wanted = (1 + max(1, len(end_ids))) * self.num_beams
        best = totals.flatten().topk(min(wanted, totals.numel()))
        length, vocab_size = len(self.ids[0]) + 1, log_probs.shape[1]
        kept: list[tuple[list[int], float, int, list[float]]] = []
        for rank, (score, index) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            if score == -np.inf:
                break
            beam, token = divmod(index, vocab_size)
            ids, has_ended = [*self.ids[beam], token], token in end_ids
            own = [*self.log_probs[beam], float(log_probs[beam, token])]
            if (has_ended or length == self.limit) and rank < self.num_beams:
                self.finished.append(Generated(ids, score / length**self.length_penalty, has_ended, own))
            elif not has_ended and len(kept) < self.num_beams:
                kept.append((ids, score, self.rows[beam], own))
        self.finished = sorted(self.finished, key=lambda one: -one.score)[: self.num_beams]
        if not kept or length == self.limit:
            self.is_done = True
            return
        self.ids, self.scores, self.rows, self.log_probs = map(list, zip(*kept, strict=True))
        if len(self.finished) == self.num_beams:
            self.is_done = self.scores[0] / length**self.length_penalty <= self.finished[-1].score


def beam_steps(
    decoding: Decoding,
    prompts: Sequence[np.ndarray],
    limits: Sequence[int],
    settings: GenerationSettings,
    ending: Ending,
) -> Steps:
    """The best continuation of each prompt; arguments as in `generation_steps`."""
    searches = [_Search(limit, settings.num_beams, settings.length_penalty) for limit in limits]
    for row, search in enumerate(searches):
        search.rows = [row]
    running = list(searches)
    logits = yield partial(decoding.start, prompts)
    while running:
        is_last = np.array([search.limit == len(search.ids[0]) + 1 for search in running for _ in search.rows])
        with on_one_core():  # as in `generation_steps`
            log_probs, row = next_log_probs(logits, ending, is_last).cpu(), 0
            for search in running:
                own = log_probs[row : row + len(search.rows)]
                row += len(search.rows)
                search.advance(own, ending.end_ids)
        running = [search for search in running if not search.is_done]
        if not running:
            break
        parents = np.array([row for search in running for row in search.rows], np.int64)
        tokens = np.array([ids[-1] for search in running for ids in search.ids], np.int64)
        logits = yield partial(decoding.step, tokens, parents)
        row = 0
        for search in running:
            search.rows = list(range(row, row + len(search.ids)))
            row += len(search.ids)
    return [search.finished[0] for search in searches]
