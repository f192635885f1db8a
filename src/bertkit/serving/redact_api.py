"""Route /redact: texts without personal data.

The blocks that a tagger reads are items of the engine, as those of any other request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from bertkit.redaction import Redactor
from bertkit.redaction.redactor import REGIONS
from bertkit.redaction.spans import blocks_of
from bertkit.serving.bodies import ModelBody, Texts
from bertkit.serving.refusals import refuse_empty
from bertkit.serving.routes import Routes
from bertkit.serving.served_models import TAGGING, ServedModel
from bertkit.serving.service import Question, Service, Work
from bertkit.serving.ticket import Ticket
from bertkit.serving.verbs import Prediction

_BYTES_PER_REPLACEMENT = 100
"""About those of its JSON."""


class RedactBody(ModelBody):
    """Body of /redact."""

    inputs: Annotated[Texts, Field(description="A text of any length, or several.")]
    kinds: Annotated[
        list[str] | None, Field(min_length=1, description="What to replace, such as EMAIL; by default everything.")
    ] = None
    regions: Annotated[
        list[str] | None,
        Field(description="Countries of telephone numbers without an international prefix; by default US GB DE FR."),
    ] = None
    is_json: Annotated[bool, Field(description="The texts are JSON, and stay valid.")] = False


@dataclass(frozen=True)
class _Predicted:
    """A tagger whose predictions are known."""

    trained: Any
    predictions: Mapping[str, Any]  # by block

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """As `Model.predict`."""
        return [self.predictions[text] for text in texts]


def redact_routes(service: Service) -> Routes:
    """The route, for an app."""
    routes = Routes("tasks")

    @routes.post("/redact")
    def redact(body: RedactBody) -> Question | Work:
        """The text with placeholders for personal data, what was replaced, and the tagger, null without one; a list for
        each of several texts. Names and places need a served token classification."""
        is_one = isinstance(body.inputs, str)
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        refuse_empty(texts, "inputs", is_one=is_one)
        served = _tagger(service, body)
        uses_tagger = _redactor(body, None if served is None else served.model).report.tagger

        def redacted(predictions: Sequence[Any], ticket: Ticket) -> Any:
            tagger = None
            if served is not None:
                tagger = _Predicted(served.model.trained, dict(zip(blocks, predictions, strict=True)))
            rows, redactor = [], _redactor(body, tagger)
            for text in texts:
                result = redactor.redact(text)
                ticket.reserve(len(result.text) + len(result.replacements) * _BYTES_PER_REPLACEMENT)
                name = served.name if served is not None and uses_tagger else None
                rows.append(asdict(result) | {"tagger": name})
            return rows[0] if is_one else rows

        blocks = [block for text in texts for block in blocks_of(text)] if uses_tagger else []
        if served is None or not blocks:
            return Work(texts, lambda ticket: redacted([], ticket), metrics="predict")
        return Question(texts, Prediction(served, "window"), blocks, redacted)

    return routes


def _redactor(body: RedactBody, tagger: Any) -> Redactor:
    regions = REGIONS if body.regions is None else body.regions
    return Redactor(body.kinds, regions=regions, tagger=tagger, is_json=body.is_json)


def _tagger(service: Service, body: RedactBody) -> ServedModel | None:
    """The named tagger, or else the first one with entities, if there is one."""
    if body.model is not None:
        return service.models.choose(body.model, [TAGGING], "a token classification")[0]
    for served in service.models.all.values():
        if isinstance(served, ServedModel) and TAGGING in served.kinds and served.task.entity_types:
            return served
    return None
