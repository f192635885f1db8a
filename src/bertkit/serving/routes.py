"""Routes with typed bodies, which are parsed by orjson and checked strictly, and their OpenAPI document."""

import inspect
import re
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, get_type_hints

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from bertkit.serving.refusals import InvalidRequest, MalformedRequest

Endpoint = Callable[..., Any]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
BodyType = TypeVar("BodyType", bound="Body")
EndpointType = TypeVar("EndpointType", bound=Endpoint)


class Body(BaseModel):
    """Base class of request bodies: types are not converted, unknown fields are refused, and null in a field means that
    it is absent, unless it is required: many clients write null for what their user did not set."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=(), defer_build=True)
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Fields of known clients that change nothing here."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        required = {name for name, field in cls.model_fields.items() if field.is_required()}
        return {
            name: value
            for name, value in given.items()
            if name not in cls.ignored and (value is not None or name in required)
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
    str: "a string", int: "a number", float: "a number", bool: "a boolean", list: "an array", dict: "an object",
}  # fmt: skip

_WORDS = {" after validation": "", "a valid boolean": "true or false", "a valid dictionary": "an object"}


def _odd_one(value: Any) -> str:
    """A note of the first element of a list whose type is not that of the first one, or none that inputs have."""
    if isinstance(value, list) and value:
        expected = type(value[0]) if isinstance(value[0], str | list | int) else str
        for index, one in enumerate(value):
            if type(one) is not expected:
                return f"; element {index} of {len(value)} is {_JSON_TYPES.get(type(one), 'null')}"
    return ""


def checked(body_type: type[BodyType], given: Any) -> BodyType:
    """A body.

    Raises:
        InvalidRequest: a field is missing, unknown, or has another type.
    """
    try:
        return body_type.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where, value = ".".join(map(str, first["loc"])), first["input"]
    if not where and not isinstance(given, dict):
        raise InvalidRequest("the body: expected a JSON object; /openapi.json describes its fields")
    said = re.sub("^(Input should be|(List|String) should have)", "expected", first["msg"])
    for of_pydantic, ours in _WORDS.items():
        said = said.replace(of_pydantic, ours)
    if first["type"] == "extra_forbidden":
        said = f"an unknown field: expected {', '.join(body_type.model_fields)}"
    shown = f" is {value!r:.40}" if isinstance(value, str | int | float) and first["type"] != "accepts" else ""
    raise InvalidRequest(f"{where}{shown}: {said}")


def parsed(body_type: type[BodyType], data: bytes) -> BodyType:
    """A body of JSON; see `checked`.

    Raises:
        MalformedRequest: it is not JSON; neither are NaN and a lone surrogate.
    """
    try:
        return checked(body_type, orjson.loads(data or b"null"))
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(f"the body is not JSON: {error.msg}") from None


@dataclass(frozen=True)
class Route:
    """A path and its endpoint: from the service, and a `body` if it has this parameter, to a Response, a dict that is
    sent as JSON, or what the service is asked.

    Args:
        path: may end with ``{name}``, which is the rest of a path, and a parameter of the endpoint.
    """

    method: str
    path: str
    endpoint: Endpoint
    tag: str
    is_described: bool = True

    @property
    def prefix(self) -> str | None:
        """The path before a name; None for one without a name."""
        return self.path.removesuffix("{name}") if self.path.endswith("{name}") else None

    @property
    def body_type(self) -> type[Body] | None:
        return get_type_hints(self.endpoint).get("body")

    def handler(self, service: Any) -> Handler:
        """A function that parses the body, calls the endpoint, and answers with what the service makes of it."""
        body_type, endpoint, prefix = self.body_type, self.endpoint, self.prefix

        async def handle(request: Request) -> Response:
            arguments: dict[str, Any] = {}
            if prefix is not None:
                arguments["name"] = request.scope["path"].removeprefix(prefix)
            if body_type is not None:
                arguments["body"] = parsed(body_type, await request.body())
            result = endpoint(service, **arguments)
            if isinstance(result, Response):
                return result
            if isinstance(result, dict):
                return Response(orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS), media_type="application/json")
            return await service.respond(request, result)

        return handle

    def described(self) -> dict[str, Any]:
        """The operation in the OpenAPI document."""
        body, text = self.body_type, inspect.getdoc(self.endpoint) or ""
        answer = {"description": "The answer.", "content": {"application/json": {"schema": {}}}}
        operation: dict[str, Any] = {
            "tags": [self.tag],
            "summary": text.partition("\n")[0],
            "description": text,
            "operationId": f"{self.method.lower()}{self.path.translate(str.maketrans('/-{}', '____'))}",
            "responses": {"200": answer, "4XX": {"description": "The reason of a refusal, in `error`."}},
        }
        if self.prefix is not None:
            operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
        if body is not None:
            schema = {"$ref": _REFERENCE.format(model=body.__name__)}
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        return operation


class Routes(list[Route]):
    """Routes with a common tag, collected by decorators: the decorated endpoint answers POST requests of some paths, or
    GET and HEAD requests."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag
        self.post, self.get = partial(self._collect, "POST"), partial(self._collect, "GET")

    def _collect(self, method: str, *paths: str, is_described: bool = True) -> Callable[[EndpointType], EndpointType]:
        def collect(endpoint: EndpointType) -> EndpointType:
            self.extend(Route(method, path, endpoint, self._tag, is_described) for path in paths)
            return endpoint

        return collect


_REFERENCE = "#/components/schemas/{model}"


def openapi(routes: Collection[Route], title: str, version: str, root_path: str) -> dict[str, Any]:
    """The OpenAPI document of some routes.

    Args:
        root_path: prefix of all paths behind a proxy.
    """
    paths: dict[str, Any] = {}
    for route in routes:
        if route.is_described:
            paths.setdefault(route.path, {})[route.method.lower()] = route.described()
    bodies = {body for route in routes if (body := route.body_type)}
    inputs: Any = [(body, "validation") for body in sorted(bodies, key=lambda body: body.__name__)]
    _, definitions = models_json_schema(inputs, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }
