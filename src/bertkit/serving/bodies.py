"""Fields that request bodies have in common."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from bertkit.serving.refusals import InvalidRequest, refuse_empty
from bertkit.serving.routes import Body, accepts
from bertkit.serving.served_models import FEATURES, ServedModel, role_of
from bertkit.serving.service import Service
from bertkit.tokenizer.layout import OnLong

Texts = Annotated[str | list[str], accepts("a text or a list of texts")]
Input = Annotated[
    str | list[int] | list[str | list[int]], accepts("a text, a list of texts, or token ids of one or several")
]
"""A text or the token ids of one, or several: a flat list of ids is one input."""

Dimensions = Annotated[int | None, Field(ge=1, description="Keep the first N components.")]
PromptName = Annotated[str | None, Field(description="One of the model's prompts, which is put before the text.")]


class ModelBody(Body):
    """Fields of every body."""

    model: Annotated[str | None, Field(description="A served model; by default the first that fits the route.")] = None

    def chosen(self, service: Service, kinds: Sequence[str] | None, what: str) -> ServedModel:
        """The model; see `ServedModels.choose`."""
        return service.models.choose(self.model, kinds, what)[0]


class OneOrMoreBody(ModelBody):
    """Fields of bodies with a text or several."""

    inputs: Annotated[Texts, Field(description="A text of any length, or several.")]

    @property
    def is_one(self) -> bool:
        return isinstance(self.inputs, str)

    @property
    def as_list(self) -> list[str]:
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

    @property
    def texts(self) -> list[str]:
        """The texts.

        Raises:
            EmptyInput: no text, or an empty one.
        """
        refuse_empty(self.as_list, "inputs", is_one=self.is_one)
        return self.as_list


class PromptFields(ModelBody):
    """Fields of bodies for a model with prompts."""

    prompt_name: PromptName = None
    input_type: Annotated[str | None, Field(description="query or document, for models with prompts.")] = None

    def role(
        self, service: Service, kind: str = FEATURES, what: str = "an embedding"
    ) -> tuple[ServedModel, str | None]:
        """The model, and the role of the texts."""
        served, named_role = service.models.choose(self.model, [kind], what)
        return served, role_of(self.input_type) or named_role


class TextsBody(ModelBody):
    """Fields of bodies with texts that can be too long."""

    truncate: Annotated[bool | None, Field(description="Truncate texts that are too long, or refuse them.")] = None
    truncation_direction: Annotated[
        Literal["Left", "left", "Right", "right"], Field(description="Only right: the end of a text is cut.")
    ] = "right"
    on_long: Annotated[
        OnLong | None, Field(description="Instead of truncate; window encodes the whole text, in windows.")
    ] = None

    @property
    def asked_policy(self) -> OnLong | None:
        """The requested policy for texts that are too long, or None.

        Raises:
            InvalidRequest: the request asks to cut the beginning of texts.
        """
        if self.truncation_direction.lower() == "left":
            raise InvalidRequest("truncation_direction left: this server cuts the end of a text, choose right")
        if self.truncate is None:
            return self.on_long
        return self.on_long or ("truncate" if self.truncate else "error")

    @property
    def policy(self) -> OnLong:
        """The policy for texts that are too long; by default they are cut, as in text-embeddings-inference."""
        return self.asked_policy or "truncate"


class PromptBody(TextsBody, PromptFields):
    """Fields of bodies with texts for a model with prompts."""


class InputsBody(PromptBody):
    """Fields of bodies with texts or their token ids."""

    inputs: Annotated[Input, Field(description="A text, its token ids, or a list of texts.")]


def inputs_of(given: Any, field: str = "inputs") -> list[str | tuple[int, ...]]:
    """The inputs as a list.

    Args:
        given: an `Input`.
        field: where a client has written them, for errors.

    Raises:
        EmptyInput: no input, or an empty one.
    """
    is_one = isinstance(given, str) or (given and all(isinstance(one, int) for one in given))
    inputs: list[Any] = [given] if is_one else list(given)
    refuse_empty(inputs, field, is_one=bool(is_one))
    return [one if isinstance(one, str) else tuple(one) for one in inputs]
