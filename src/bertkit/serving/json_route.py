"""Routes whose bodies are parsed by orjson and checked strictly."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """Base class of request bodies: types are not converted, unknown keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class _OrjsonRequest(Request):
    async def json(self) -> Any:
        """The body; a lone surrogate, NaN, or anything else that JSON does not allow raises a JSONDecodeError."""
        return orjson.loads(await self.body())


class JsonRoute(APIRoute):
    """A route of FastAPI with orjson."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See FastAPI's."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_OrjsonRequest(request.scope, request.receive))

        return handle
