"""Base classes of request bodies."""

from typing import Annotated, Literal

from pydantic import Field

from bertkit.serving.refusals import InvalidRequest
from bertkit.serving.routes import Body, accepts
from bertkit.tokenizer.layout import OnLong

Texts = Annotated[str | list[str], accepts("a text or a list of texts")]
Input = Annotated[
    str | list[int] | list[str | list[int]], accepts("a text, a list of texts, or token ids of one or several")
]
"""A text or the token ids of one, or several: a flat list of ids is one input."""


class ModelBody(Body):
    """Fields of every body."""

    model: Annotated[str | None, Field(description="A served model; by default the first that fits the route.")] = None


class TextsBody(ModelBody):
    """Fields of bodies with texts."""

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


class PromptBody(TextsBody):
    """Fields of bodies with texts for an encoder."""

    prompt_name: Annotated[str | None, Field(description="One of the model's prompts.")] = None
    input_type: Annotated[str | None, Field(description="query or document, for models with prompts.")] = None
