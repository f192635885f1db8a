"""/generate, as in text-generation-inference."""

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from bertkit.generation import GenerationSettings
from bertkit.inference import InferenceReport
from bertkit.serving.bodies import ModelBody
from bertkit.serving.generation import Continuation, details_of
from bertkit.serving.jobs import Verb
from bertkit.serving.refusals import EmptyInput, MalformedRequest
from bertkit.serving.routes import Body, Routes
from bertkit.serving.served_models import CONTINUING
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket

_NOT_OFFERED = {
    "adapter_id": (None,), "best_of": (None, 1), "decoder_input_details": (None, False), "frequency_penalty": (None, 0),
    "grammar": (None,), "repetition_penalty": (None, 1), "truncate": (None,), "typical_p": (None, 1),
    "watermark": (None, False), "no_repeat_ngram_size": (None, 0), "min_new_tokens": (None, 0), "min_length": (None, 0),
    "early_stopping": (None, False), "clean_up_tokenization_spaces": (None, False),
    "truncation": (None, "do_not_truncate"),
}  # fmt: skip
"""Unsupported parameters of known clients, with their values that have no effect; any other may only be None."""

_MOST_SEED = 2**63 - 1


class GenerateParameters(Body):
    """How a text is generated; by default the most likely token is chosen at each step."""

    model_config = ConfigDict(extra="allow")

    max_new_tokens: Annotated[int, Field(ge=1, description="Maximum number of new tokens.")] = 100
    num_beams: Annotated[int, Field(ge=1, le=16, description="Beams; 1: no beam search.")] = 1
    length_penalty: Annotated[float, Field(ge=-10, le=10, description="Exponent of the length in beam scores.")] = 1.0
    do_sample: Annotated[bool | None, Field(description="Sample; temperature, top_k and top_p imply it.")] = None
    temperature: Annotated[float | None, Field(gt=0, le=1_000, description="Divides the logits; 1 if sampling.")] = None
    top_k: Annotated[int | None, Field(ge=1, description="Sample from the K most likely tokens.")] = None
    top_p: Annotated[float | None, Field(gt=0, le=1, description="Nucleus sampling: total probability to keep.")] = None
    seed: Annotated[
        int | None, Field(ge=0, le=_MOST_SEED, description="Seed, only if sampling; by default random, and reported.")
    ] = None
    stop: Annotated[
        list[Annotated[str, Field(min_length=1)]] | None,
        Field(max_length=16, description="Texts that stop the generation."),
    ] = None
    details: Annotated[bool, Field(description="Also return tokens and the finish reason.")] = False
    top_n_tokens: Annotated[
        int | None, Field(ge=0, le=20, description="In details: the N most likely tokens at each step.")
    ] = None
    return_full_text: Annotated[bool, Field(description="Put the prompt before its continuation.")] = False

    def settings(self, precision: str) -> GenerationSettings:
        """The settings of the library.

        Raises:
            MalformedRequest: an unsupported parameter.
            UsageError: parameters that exclude each other.
        """
        for name, value in (self.model_extra or {}).items():
            if value not in _NOT_OFFERED.get(name, (None,)):
                raise MalformedRequest(f"parameters.{name} is {value!r:.40}: not supported by this server, omit it")
        is_sampled = self.do_sample or any(value is not None for value in (self.temperature, self.top_k, self.top_p))
        return GenerationSettings(
            max_new_tokens=self.max_new_tokens,
            num_beams=self.num_beams,
            length_penalty=self.length_penalty,
            temperature=(self.temperature or 1.0) if is_sampled else None,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=secrets.randbelow(2**32) if is_sampled and self.seed is None else self.seed,
            stop=tuple(self.stop or ()),
            precision=precision,
            num_candidates=self.top_n_tokens or 0,
        )


class GenerateBody(ModelBody):
    """Body of /generate."""

    inputs: Annotated[str, Field(description="A prompt to continue, or a text to rewrite.")]
    parameters: Annotated[GenerateParameters | None, Field(description="How tokens are chosen.")] = None
    stream: Annotated[bool, Field(description="Only false: a text is sent when it is complete.")] = False


routes = Routes("text-generation-inference")


@routes.post("/generate")
def generate(service: Service, body: GenerateBody) -> Question:
    """Continue a prompt, or rewrite a text, with a model that generates."""
    served = service.models.choose_generator(body.model)
    if not body.inputs:
        raise EmptyInput("`inputs` cannot be empty")
    if body.stream:
        raise MalformedRequest("stream is true: this server does not stream, omit it")
    parameters = body.parameters or GenerateParameters()
    settings = parameters.settings(served.precision)
    before = body.inputs if parameters.return_full_text and served.kind == CONTINUING else ""

    def step(texts: Sequence[Continuation], report: InferenceReport) -> list[Any] | None:
        made = texts[0].step()
        return None if made is None else [made]

    def text_of(results: list[Any], ticket: Ticket) -> Any:
        (made,) = results
        ticket.num_tokens += continuation.num_prompt_tokens + len(made.ids)
        answer: dict[str, Any] = {"generated_text": before + served.generator.decode(made.ids)}
        return answer | ({"details": details_of(served, made, settings)} if parameters.details else {})

    continuation = Continuation(served, body.inputs, settings)
    verb = Verb(step, likely_tokens=Continuation.num_tokens_left, is_long=True)
    return Question(verb, [continuation], text_of, texts=[body.inputs])
