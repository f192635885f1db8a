"""Text generation for requests: steps in turns on the cores, and answers in the form of text-generation-inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.generation import GenerationSettings
from bertkit.serving.engine import Engine
from bertkit.serving.refusals import ComputationFailed, InvalidRequest
from bertkit.serving.served_models import ServedGenerator, some_word
from bertkit.serving.ticket import Ticket

if TYPE_CHECKING:
    from bertkit.generation import Generated

_CONTEXT = 4
"""Tokens before a token that are decoded with it, for the characters that it adds."""


def generate(
    served: ServedGenerator, engine: Engine, text: str, settings: GenerationSettings, ticket: Ticket
) -> Generated:
    """Continue or rewrite a text; the tokens are those of the library.

    Raises:
        BertkitError: a text that is empty or longer than the model's positions.
        Overloaded: no room for the tokens of the text and the new ones.
        ComputationFailed: a probability is not finite.
        TimedOut, Canceled: the request ended before the text; the steps that remain are not computed.
    """
    generator = served.generator
    if len(text) > (most := served.most_characters):
        raise InvalidRequest(f"`inputs` must have at most {most} characters. Given: {len(text)}")
    inputs = generator.encode([text])
    _, limits = generator.prompts_and_limits(inputs, settings)
    ticket.num_tokens += len(inputs[0])
    with engine.reserved(len(inputs[0]) + limits[0] * settings.num_beams):
        (made,) = generator.generate_ids(inputs, settings, turn=partial(engine.turn, ticket=ticket))
    ticket.num_tokens += len(made.ids)
    if not np.isfinite(made.log_probs).all():
        raise ComputationFailed("Backend error: a probability is not finite")
    return made


def details_of(served: ServedGenerator, made: Generated, settings: GenerationSettings) -> dict[str, Any]:
    """The finish reason, and the tokens with log probabilities."""
    steps = enumerate(zip(made.ids, made.log_probs, strict=True))
    details = {
        "finish_reason": "eos_token" if made.has_ended else "stop_sequence" if made.is_stopped else "length",
        "generated_tokens": len(made.ids),
        "seed": None if settings.temperature is None else settings.seed,
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
    ticket = Ticket(client=None, deadline=float("inf"))
    word = some_word(served.tokenizer.vocabulary)
    for num_beams in (1, 2):
        generate(served, engine, word, replace(settings, num_beams=num_beams), ticket)
