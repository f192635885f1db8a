"""Generation of token ids by greedy search and sampling, independent of text and network.

The result for a text does not depend on the others: rows that end leave the batch, and random numbers depend only on
the index of the text and the step.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from bertkit.checkpoint.generation_rules import Ending
from bertkit.compiled import compiled
from bertkit.device import receive, send
from bertkit.executor import on_one_core
from bertkit.generation.settings import GenerationSettings
from bertkit.randomness import key_of, uniform


class Decoding(Protocol):
    """Rows of tokens being generated: the interface of a model for generation."""

    def start(self, prompts: Sequence[np.ndarray]) -> Tensor:
        """(R, V) logits of the token after each prompt, whose ids are (n,) int64 with n of at least 1."""

    def step(self, tokens: np.ndarray, parents: np.ndarray) -> Tensor:
        """(R, V) logits after one more token of each row.

        Args:
            tokens: (R,) int64.
            parents: (R,) int64, the row of the previous call that each row continues; others are dropped.
        """


@dataclass
class Generated:
    """The continuation of one prompt."""

    ids: list[int] = field(default_factory=list)  # without the prompt; includes the end id, if any
    score: float = 0.0  # sum of log probabilities; for beams divided by length ** length_penalty
    has_ended: bool = False  # False: cut off at max_new_tokens, or stopped
    log_probs: list[float] = field(default_factory=list)  # of each of ``ids``
    is_stopped: bool = False  # by a text of ``stop``
    candidates: list[list[tuple[int, float]]] = field(
        default_factory=list
    )  # (id, probability) of each step, best first


Steps = Generator[Callable[[], Any], Any, list[Generated]]
"""A generation: yields the computation of each step, receives its result, and returns what was generated."""


def completed(steps: Steps) -> list[Generated]:
    """What was generated, when each step is computed at once."""
    result = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as end:
            return end.value
        result = step()


def generation_steps(
    decoding: Decoding,
    prompts: Sequence[np.ndarray],
    limits: Sequence[int],
    settings: GenerationSettings,
    ending: Ending,
    first_index: int = 0,
    is_stopped: Callable[[list[int]], bool] = lambda ids: False,
) -> Steps:
    """Continue each prompt token by token, greedily or by sampling.

    Args:
        limits: maximum number of new tokens of each.
        first_index: index of the first prompt, for its random numbers.
        is_stopped: True if the ids generated so far end a text, in addition to the end ids.
    """
    results = [Generated() for _ in prompts]
    rows = list(range(len(prompts)))  # the prompt of each row
    logits = yield partial(decoding.start, prompts)
    while rows:
        steps = [len(results[row].ids) for row in rows]
        forces_end = np.array([limits[row] == step + 1 for row, step in zip(rows, steps, strict=True)])
        counters = [(first_index + row, step) for row, step in zip(rows, steps, strict=True)]
        with on_one_core():  # OpenMP's threads would keep the other cores busy for a while
            log_probs = next_log_probs(logits, ending, forces_end)
            if settings.temperature is not None:
                log_probs = log_probs.cpu()  # to draw from all of them
            drawn = _choose(log_probs, settings, counters)
            number = min(settings.num_candidates, log_probs.shape[1])
            chosen, chosen_log_probs, *likeliest = _received(
                drawn, log_probs.gather(1, drawn[:, None])[:, 0], *(log_probs.topk(number) if number else ())
            )
        stays = []
        for number, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
            result = results[row]
            result.ids.append(token)
            result.log_probs.append(float(chosen_log_probs[number]))
            result.score += result.log_probs[-1]
            if likeliest:
                values, indices = likeliest
                numbers = values[number].exp().tolist()
                result.candidates.append(list(zip(indices[number].tolist(), numbers, strict=True)))
            result.has_ended = token in ending.end_ids
            result.is_stopped = not result.has_ended and is_stopped(result.ids)
            if not (result.has_ended or result.is_stopped) and len(result.ids) < limits[row]:
                stays.append(number)
        parents = np.array(stays, np.int64)
        rows = [rows[number] for number in stays]
        if rows:
            logits = yield partial(decoding.step, chosen.numpy()[parents], parents)
    return results


def _received(*tensors: Tensor) -> list[Tensor]:
    """Tensors on the CPU: a GPU is waited for once, when all are on their way."""
    waits = [receive(tensor) for tensor in tensors]
    return [wait() for wait in waits]


def next_log_probs(logits: Tensor, ending: Ending, is_last: np.ndarray) -> Tensor:
    """(R, V) log probabilities. Forbidden ids get -inf, without normalizing the others again unless the rules ask for
    it; so do all but the end id in the last step, if the end is forced."""
    log_probs = logits.float().log_softmax(dim=-1)
    if ending.forbidden_ids:
        log_probs = log_probs.index_fill(1, send(torch.tensor(ending.forbidden_ids), logits.device), -torch.inf)
    if ending.forced_end_id is not None and is_last.any():
        only_end = torch.full_like(log_probs[0], -torch.inf)
        only_end[ending.forced_end_id] = 0.0
        log_probs = torch.where(send(torch.from_numpy(is_last), logits.device)[:, None], only_end, log_probs)
    return log_probs.log_softmax(dim=-1) if ending.renormalizes else log_probs


def _choose(log_probs: Tensor, settings: GenerationSettings, counters: Sequence[tuple[int, int]]) -> Tensor:
    """(R,) int64 chosen tokens; ``counters`` are the prompt and the step of each row. To draw, on the CPU."""
    if settings.temperature is None:
        if log_probs.device.type != "cpu":
            return log_probs.argmax(dim=-1)
        return torch.from_numpy(log_probs.numpy().argmax(axis=-1))  # several times as fast
    probs = kept_probs(log_probs, settings).cumsum(dim=-1).numpy()
    chosen = np.empty(len(probs), np.int64)
    for row, (index, step) in enumerate(counters):
        drawn = _draw(settings.seed or 0, index, step) * probs[row, -1]
        chosen[row] = min(np.searchsorted(probs[row], drawn, side="right"), probs.shape[1] - 1)  # NaN sorts last
    return torch.from_numpy(chosen)


@compiled
def _draw(seed, index, step):
    """A random float64 from 0 to below 1, for a step of a text."""
    return uniform(key_of(seed, 0, index), step)


def kept_probs(log_probs: Tensor, settings: GenerationSettings) -> Tensor:
    """(R, V) float64 probabilities that sampling draws from: 0 for tokens outside top_k and top_p."""
    assert settings.temperature is not None
    likeliest = log_probs.amax(dim=-1, keepdim=True)
    scaled = (log_probs - likeliest).double() / settings.temperature  # finite for the likeliest token
    if settings.top_k is not None and settings.top_k < scaled.shape[1]:
        lowest = scaled.topk(settings.top_k).values[:, -1:]
        scaled = scaled.masked_fill(scaled < lowest, -torch.inf)
    probs = scaled.softmax(dim=-1)
    if settings.top_p is not None and settings.top_p < 1:
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered  # probability of likelier tokens
        keeps = torch.zeros_like(probs, dtype=torch.bool).scatter(1, order, before < settings.top_p)
        probs = probs * keeps
    return probs / probs.sum(dim=-1, keepdim=True)
