"""Error responses: exceptions with HTTP status and codes for both families of clients."""

import math
from collections.abc import Sequence
from typing import Any

from bertkit.errors import BertkitError


class Refusal(BertkitError):
    """Base class of error responses.

    Attributes:
        status: the HTTP status.
        kind: ``error_type`` of text-embeddings-inference; its name in the metrics is ``metric``.
        code: ``code`` of OpenAI's errors.

    Args:
        attributes: those that differ from the ones of the class.
    """

    status = 422
    kind = "Validation"
    metric = "validation"
    code: str | None = None

    def __init__(self, message: str, retry_after_seconds: float | None = None, **attributes: Any) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        vars(self).update(attributes)

    @property
    def headers(self) -> dict[str, str]:
        """Response headers: when to retry."""
        if self.retry_after_seconds is None:
            return {}
        return {"retry-after": str(max(1, math.ceil(self.retry_after_seconds)))}


class InvalidRequest(Refusal):
    """Inputs with a wrong form or size."""


class MalformedRequest(Refusal):
    """A body that is not JSON, or an option that requests may not use."""

    status = 400


class EmptyInput(Refusal):
    """No inputs, or an empty one."""

    status = 400
    kind, metric = "Empty", "validation"


class TooManyInputs(Refusal):
    """More inputs than a request may have."""

    metric = "batch_size"


class UnknownModel(Refusal):
    """A model that is not served."""

    status = 404
    code = "model_not_found"


class WrongModelKind(Refusal):
    """A route that none of the served models supports."""

    status = 424
    kind, metric = "Backend", "model_type"


class CannotGenerate(WrongModelKind):
    """/generate without a generative model."""

    status = 400


class ComputationFailed(Refusal):
    """A result that is not finite, or a failure inside the model."""

    status = 424
    kind, metric = "Backend", "inference"


class Overloaded(Refusal):
    """The queue is full."""

    status = 429
    kind, metric = "Overloaded", "overloaded"
    code = "rate_limit_exceeded"


class TimedOut(Refusal):
    """The deadline of the request passed while it waited."""

    status = 503
    kind, metric = "Overloaded", "timeout"


class NotReady(Refusal):
    """The server is warming up, or stopping."""

    status = 503
    kind, metric = "Unhealthy", "unhealthy"


class Canceled(Refusal):
    """The client closed the connection."""

    status = 499
    kind, metric = "Canceled", "dropped"


def without_frames(error: BaseException) -> BaseException:
    """The error without those before it and without the frames that it came through: one of them can hold what holds
    the error, and would keep a replaced model until the next search for such cycles."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def refuse_empty(inputs: Sequence[Any], field: str, *, is_one: bool = False) -> None:
    """Raise an EmptyInput if there are no inputs, or for the first empty one, which it names by its index."""
    if not inputs or (is_one and not inputs[0]):
        raise EmptyInput(f"`{field}` cannot be empty")
    if (index := next((index for index, one in enumerate(inputs) if not one), None)) is not None:
        raise EmptyInput(f"`{field}[{index}]` cannot be empty: each of the {len(inputs)} inputs needs a text")
