"""Text generation for requests: a step at a time, and answers in the form of text-generation-inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.generation import GenerationSettings
from bertkit.serving.engine import Engine
from bertkit.serving.jobs import likely_tokens
from bertkit.serving.refusals import ComputationFailed, InvalidRequest
from bertkit.serving.served_models import ServedGenerator, some_word

if TYPE_CHECKING:
    from bertkit.generation import Generated
    from bertkit.generation.engine import Steps

_CONTEXT = 4
"""Tokens before a token that are decoded with it, for the characters that it adds."""


class Continuation:
    """A text in generation, a step at a time.

    Raises:
        InvalidRequest: a text that is far too long.
    """

    def __init__(self, served: ServedGenerator, text: str, settings: GenerationSettings) -> None:
        if len(text) > (most := served.most_characters):
            raise InvalidRequest(f"`inputs` must have at most {most} characters. Given: {len(text)}")
        self._served, self._text, self._settings = served, text, settings
        self._steps: Steps | None = None
        self._result: Any = None  # of the last step
        self._num_steps = 0
        self.num_prompt_tokens = likely_tokens(text, served.max_length)

    def num_tokens_left(self) -> int:
        """About the number of tokens to compute."""
        settings = self._settings
        num_new = (settings.max_new_tokens or 1) - self._num_steps
        return max(1, num_new) * settings.num_beams + self.num_prompt_tokens * (not self._num_steps)

    def step(self) -> Generated | None:
        """Compute a step; the text after the last one, with the tokens of the library.

        Raises:
            BertkitError: a text that is empty or longer than the model's positions.
            ComputationFailed: a probability is not finite.
        """
        if self._steps is None:
            inputs = self._served.generator.encode([self._text])
            self.num_prompt_tokens = len(inputs[0])
            self._steps = self._served.generator.steps(inputs, self._settings)
        try:
            self._result = self._steps.send(self._result)()
        except StopIteration as end:
            (made,) = end.value
            if not np.isfinite(made.log_probs).all():
                raise ComputationFailed("Backend error: a probability is not finite") from None
            return made
        self._num_steps += 1
        return None


def details_of(served: ServedGenerator, made: Generated, settings: GenerationSettings) -> dict[str, Any]:
    """The finish reason, and the tokens with log probabilities."""
    steps = enumerate(zip(made.ids, made.log_probs, strict=True))
    details = {
        "finish_reason": "eos_token" if made.has_ended else "stop_sequence" if made.is_stopped else "length",
        "generated_tokens": len(made.ids),
        "seed": settings.seed,
        "prefill": [],
        "tokens": [_token(served, made.ids[:step], token, log_prob) for step, (token, log_prob) in steps],
    }
    if made.candidates:
        details["top_tokens"] = [
            [_token(served, made.ids[:step], token, math.log(prob)) for token, prob in candidates if prob > 0]
            for step, candidates in enumerate(made.candidates)
        ]
    return details


def _token(served: ServedGenerator, before: Sequence[int], token: int, log_prob: float) -> dict[str, Any]:
    context = list(before[-_CONTEXT:])
    generator, ending = served.generator, served.generator.ending
    is_special = token in ending.end_ids
    text = (
        generator.spelled(token)
        if is_special
        else generator.decode([*context, token])[len(generator.decode(context)) :]
    )
    return {"id": token, "text": text, "logprob": log_prob, "special": is_special}


def warm_up_generator(served: ServedGenerator, engine: Engine) -> None:
    """Prepare the weights, and generate a few tokens."""
    settings = GenerationSettings(max_new_tokens=3, precision=served.precision)
    inputs = served.generator.encode([some_word(served.tokenizer.vocabulary)])
    for num_beams in (1, 2):
        engine.cores.submit(served.generator.generate_ids, inputs, replace(settings, num_beams=num_beams)).result()
