"""The routes of inspection: pages that show one text inside a model, for the playground."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

from pydantic import Field

from bertkit.inference import InferenceReport
from bertkit.serving.bodies import ModelBody
from bertkit.serving.jobs import Verb, likely_tokens
from bertkit.serving.refusals import InvalidRequest
from bertkit.serving.routes import Routes
from bertkit.serving.served_models import FILL_MASK
from bertkit.serving.service import Question, Service

_MOST_TOKENS = 64
"""The memory of a view grows with the square of the tokens, times layers and heads."""

_VIEWS = {"input": "inspect_input", "attention": "inspect_attention", "lens": "inspect_lens"}
"""Functions of `bertkit.inspection`, which imports torch."""


class InspectBody(ModelBody):
    """Body of /inspect."""

    inputs: Annotated[str, Field(description="A text; a literal [MASK] becomes that token.")]
    pair: Annotated[str | None, Field(description="A second text.")] = None


def _endpoint(view: str) -> Callable[..., Question]:
    def inspect(service: Service, body: InspectBody) -> Question:
        """A self-contained page: the embeddings of a text, the attention of all heads, or the predictions of each
        layer, which needs a masked LM."""
        kinds, what = ([FILL_MASK], "a masked LM") if view == "lens" else (None, "an encoder")
        served = body.chosen(service, kinds, what)

        def pages(bodies: Sequence[InspectBody], report: InferenceReport) -> list[dict[str, Any]]:
            num_tokens = len(served.tokenizer.encode(body.inputs, body.pair, special_tokens_in_text=True))
            if num_tokens > _MOST_TOKENS:
                raise InvalidRequest(
                    f"the text has {num_tokens} tokens, a page of this server shows at most {_MOST_TOKENS}: shorten "
                    "it, or use bertkit inspect"
                )
            made = getattr(import_module("bertkit.inspection"), _VIEWS[view])(served.model, body.inputs, body.pair)
            return [{"title": made.title, "page": made.page()}]

        texts = [body.inputs, body.pair or ""]
        verb = Verb(pages, likely_tokens=lambda item: likely_tokens(texts), is_long=True)
        return Question(verb, [body], is_one=True, texts=texts, metrics="request")

    return inspect


routes = Routes("inspection")
for view in _VIEWS:
    routes.post(f"/inspect/{view}")(_endpoint(view))
