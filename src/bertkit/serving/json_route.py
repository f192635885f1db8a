"""Routes whose bodies are parsed by orjson and checked strictly, without FastAPI's machinery for each request."""

from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Body(BaseModel):
    """Base class of request bodies: types are not converted, unknown keys are ignored, and null in a field with a
    default means the default, since many clients write null for what their user did not set."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fields = cls.model_fields
        return {
            name: value
            for name, value in given.items()
            if value is not None or name not in fields or fields[name].is_required()
        }


def accepts(what: str) -> WrapValidator:
    """Annotation of a field of several types, whose error says what is accepted, not what the first type lacks."""

    def validate(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise PydanticCustomError("accepts", "expected {what}", {"what": what + _odd_one(value)}) from None

    return WrapValidator(validate)


_JSON_TYPES = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
}


def _odd_one(value: Any) -> str:
    """A note of the first element of a list whose type is not that of the first one, or none that inputs have."""
    if isinstance(value, list) and value:
        expected = type(value[0]) if isinstance(value[0], str | list | int) else str
        for index, one in enumerate(value):
            if type(one) is not expected:
                return f"; element {index} of {len(value)} is {_JSON_TYPES.get(type(one), 'null')}"
    return ""


class _OrjsonRequest(Request):
    async def json(self) -> Any:
        """The body; a lone surrogate, NaN, or anything else that JSON does not allow raises a JSONDecodeError."""
        return orjson.loads(await self.body())


class JsonRoute(APIRoute):
    """A route of FastAPI whose endpoint has the parameters `body` and `request`, or none, and those of its path."""

    def get_route_handler(self) -> Handler:
        """FastAPI's function, with orjson: it checks parameters of paths."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_OrjsonRequest(request.scope, request.receive))

        return handle

    def direct_handler(self) -> Handler | None:
        """A function that parses the body and calls the endpoint; None for a route with parameters in its path."""
        endpoint, body_type = self.endpoint, get_type_hints(self.endpoint).get("body")
        if self.param_convertors:
            return None
        if body_type is not None:

            async def with_body(request: Request) -> Response:
                return await endpoint(_parsed(body_type, await request.body()), request)

            return with_body

        async def without_body(request: Request) -> Response:
            result = await endpoint()
            if isinstance(result, Response):
                return result
            return Response(orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS), media_type="application/json")

        return without_body


def _parsed(body_type: type[BaseModel], data: bytes) -> BaseModel:
    """A body, or a RequestValidationError with the errors that FastAPI reports."""
    if not data:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    try:
        return body_type.model_validate(orjson.loads(data), from_attributes=True)
    except orjson.JSONDecodeError as error:
        where = ("body", error.pos)
        raise RequestValidationError([{"type": "json_invalid", "loc": where, "ctx": {"error": error.msg}}]) from None
    except ValidationError as error:
        rows = [row | {"loc": ("body", *row["loc"])} for row in error.errors(include_url=False, include_input=False)]
        raise RequestValidationError(rows) from None
