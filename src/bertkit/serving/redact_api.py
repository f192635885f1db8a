"""Route /redact: texts without personal data."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from bertkit.inference import InferenceReport
from bertkit.redaction import Redaction, RedactionSteps, Redactor
from bertkit.serving.extract_api import FindBody, as_json, finder
from bertkit.serving.jobs import Function
from bertkit.serving.routes import Routes
from bertkit.serving.served_models import TAGGING, ServedModel
from bertkit.serving.service import Question, Service
from bertkit.serving.ticket import Ticket


class RedactBody(FindBody):
    """Body of /redact."""

    kinds: Annotated[
        list[str] | None, Field(min_length=1, description="What to replace, such as EMAIL; by default everything.")
    ] = None
    regions: Annotated[
        list[str] | None,
        Field(description="Countries of telephone numbers without an international prefix; by default US GB DE FR."),
    ] = None
    is_json: Annotated[bool, Field(description="The texts are JSON, and stay valid.")] = False


def redact_routes(service: Service) -> Routes:
    """The route, for an app."""
    routes = Routes("tasks")

    @routes.post("/redact")
    def redact(body: RedactBody) -> Question:
        """The text with placeholders for personal data, what was replaced, and the tagger, null without one; a list for
        each of several texts. Names need a served token classification, or an extraction model and labels."""
        texts, is_one = body.texts()
        served = _tagger(service, body)
        redactor = Redactor(
            body.kinds,
            regions=body.regions,
            tagger=None if served is None else served.model,
            labels=body.labels,
            threshold=body.threshold,
            is_json=body.is_json,
        )
        name = served.name if served is not None and redactor.report.tagger else None

        def step(steps: Sequence[RedactionSteps], report: InferenceReport) -> list[list[Redaction]] | None:
            made = steps[0].next()
            return None if made is None else [made]

        def answer(results: list[list[Redaction]], ticket: Ticket) -> Any:
            rows = [as_json(each, ticket) | {"tagger": name} for each in results[0]]
            return rows[0] if is_one else rows

        verb = Function(step, lambda steps: 2 * len(texts) + steps.num_left // 4)
        return Question(texts, verb, [RedactionSteps(redactor, texts)], answer)

    return routes


def _tagger(service: Service, body: RedactBody) -> ServedModel | None:
    """The model that finds names; if none is named, and there is none that fits, None."""
    if body.model is None and body.labels is None:
        models = [each for each in service.models.all.values() if isinstance(each, ServedModel)]
        return next((each for each in models if TAGGING in each.kinds and each.task.entity_types), None)
    return finder(service, body.model)
