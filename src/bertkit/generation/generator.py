"""What all models generate texts with: in groups of similar length, in the given order."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from bertkit.batch import Batch, batch_of_ids
from bertkit.checkpoint.generation_rules import Ending
from bertkit.errors import UsageError
from bertkit.generation.beam import beam_steps
from bertkit.generation.engine import Decoding, Generated, Steps, completed, generation_steps
from bertkit.generation.settings import GenerationSettings
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.older_files import ELSEWHERE
from bertkit.transformer.prepared.weight_versions import WeightVersions

_USUAL_TOKENS, _ROWS = 128, 16
"""Default maximum number of new tokens; number of texts generated at the same time."""


@dataclass(frozen=True)
class GeneratedText:
    """The generated text for one prompt or source."""

    text: str
    score: float  # log probability of its tokens; for beams divided by length ** length_penalty
    num_tokens: int
    has_ended: bool  # False: cut off at the maximum number of tokens, or ended by a text of ``stop``
    candidates: list[list[tuple[str, float]]]  # the likeliest tokens of each step with their probabilities


def check_lengths(what: str, inputs: Sequence[np.ndarray], num_positions: int) -> None:
    """Raise a UsageError for an empty input of token ids, or one with more tokens than positions."""
    for index, own in enumerate(inputs):
        if not 1 <= len(own) <= num_positions:
            raise UsageError(
                f"{what} {index} has {len(own)} tokens: expected from 1 to the model's {num_positions} positions; "
                "shorten it"
            )


class Generator(ABC):
    """Base class: texts in groups of similar length, results in the given order."""

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # of what it generates
    network: nn.Module  # to train
    first_ids: list[int]  # before a target in training
    max_lengths: tuple[int, int]  # maximum tokens of a source, 0 for a model without sources, and of a target
    ending: Ending  # ids that end a text

    def __init__(self) -> None:
        self._prepared: dict[str, tuple[WeightVersions, Any]] = {}

    def generate(self, texts: Sequence[str], settings: GenerationSettings | None = None) -> list[GeneratedText]:
        """Generate a text for each text, independent of the others.

        Raises:
            UsageError: a text that is empty or longer than the model's positions, unfitting settings, or a str or a
                table instead of texts.
        """
        results = self.generate_ids(self.encode(texts), settings or GenerationSettings())
        return [self._as_text(one) for one in results]

    def generate_ids(self, inputs: Sequence[np.ndarray], settings: GenerationSettings) -> list[Generated]:
        """`generate` for token ids, (n,) int64 for each text."""
        return completed(self.steps(inputs, settings))

    def steps(self, inputs: Sequence[np.ndarray], settings: GenerationSettings) -> Steps:
        """`generate_ids`, step by step, for a caller that does something else between them."""
        results: list[Generated] = [Generated() for _ in inputs]
        prompts, limits = self.prompts_and_limits(inputs, settings)
        order = sorted(range(len(inputs)), key=lambda index: len(inputs[index]))
        if settings.temperature is not None:
            order = list(range(len(inputs)))  # random numbers follow this order
        for first in range(0, len(order), _ROWS):
            group = order[first : first + _ROWS]
            group_inputs = [inputs[index] for index in group]
            group_prompts, group_limits = [prompts[index] for index in group], [limits[index] for index in group]
            decoding = yield partial(self.decoding, group_inputs, settings.precision)
            given = decoding, group_prompts, group_limits, settings, self.ending
            if settings.num_beams > 1:
                made = yield from beam_steps(*given)
            else:
                made = yield from generation_steps(*given, first, partial(self._is_stopped, settings.stop))
            for index, one in zip(group, made, strict=True):
                results[index] = one
        return results

    def _is_stopped(self, stops: Sequence[str], ids: list[int]) -> bool:
        return bool(stops) and any(stop in self.decode(ids) for stop in stops)

    def _as_text(self, one: Generated) -> GeneratedText:
        candidates = [[(self.spelled(token), prob) for token, prob in step] for step in one.candidates]
        return GeneratedText(self.decode(one.ids), one.score, len(one.ids), one.has_ended, candidates)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids, without end ids and ids beyond the vocabulary, for which some models have rows."""
        size, ends = len(self.target_tokenizer.vocabulary), self.ending.end_ids
        return self.target_tokenizer.decode([token for token in ids if token < size and token not in ends])

    def spelled(self, token: int) -> str:
        """The spelling of a token; empty for an id beyond the vocabulary."""
        tokens = self.target_tokenizer.vocabulary.tokens
        return tokens[token].removeprefix(ELSEWHERE) if token < len(tokens) else ""

    def _limits(self, lengths: Sequence[int], num_positions: int, settings: GenerationSettings) -> list[int]:
        """Maximum number of new tokens of each prompt; the last token needs no position."""
        return [min(settings.max_new_tokens or _USUAL_TOKENS, num_positions - length + 1) for length in lengths]

    def _kept(self, precision: str, network: Any, prepare: Any) -> Any:
        """The network prepared at a precision; prepared again if the weights changed."""
        weights, prepared = self._prepared.get(precision, (None, None))
        if weights is None or not weights.are_unchanged():
            weights, prepared = WeightVersions(network), prepare(precision)
            self._prepared[precision] = weights, prepared
        return prepared

    def batch(self, rows: Sequence[np.ndarray]) -> Batch:
        """`batch_of_ids` on the device of the network."""
        return batch_of_ids(rows).to(next(self.network.parameters()).device)

    @abstractmethod
    def save(
        self, directory: str | Path, *, overwrite: bool = False, parameters: Mapping[str, Tensor] | None = None
    ) -> None:
        """Write a folder that transformers opens; arguments and errors as in `save_checkpoint`."""

    @abstractmethod
    def record_training(self, task: str, metrics: dict[str, float]) -> None:
        """Store the results of a training run in the model, if its format supports it."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """(n,) int64 input ids of each text."""

    @abstractmethod
    def prompts_and_limits(
        self, inputs: Sequence[np.ndarray], settings: GenerationSettings
    ) -> tuple[list[np.ndarray], list[int]]:
        """Initial tokens of each row, and the maximum number of new tokens.

        Raises:
            UsageError: an input that is empty or too long.
        """

    @abstractmethod
    def decoding(self, inputs: Sequence[np.ndarray], precision: str) -> Decoding:
        """Decoding of a group of inputs."""
