"""The application: routes and error responses."""

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from bertkit.errors import BertkitError
from bertkit.serving.embedding_api import embedding_routes
from bertkit.serving.generate_api import generate_routes
from bertkit.serving.guard import FAILURE, refusal_body
from bertkit.serving.health_api import health_routes
from bertkit.serving.hub_api import hub_routes
from bertkit.serving.inspect_api import inspect_routes
from bertkit.serving.json_route import Handler, JsonRoute
from bertkit.serving.openai_api import openai_routes
from bertkit.serving.refusals import InvalidRequest, MalformedRequest, Refusal
from bertkit.serving.rerank_api import rerank_routes
from bertkit.serving.search_api import search_routes
from bertkit.serving.service import Service
from bertkit.serving.task_api import task_routes
from bertkit.version import __version__

_LOG = logging.getLogger("bertkit.serving")


class Application:
    """An ASGI application with all routes: endpoints with a fixed path are called directly, others by FastAPI.

    FastAPI's routing, middleware and dependencies cost more time on the event loop than the rest of a request.

    Attributes:
        fastapi: the same routes in FastAPI; its OpenAPI document is at /openapi.json.
    """

    def __init__(self, service: Service, root_path: str = "") -> None:
        self.fastapi = FastAPI(
            title="bertkit",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            separate_input_output_schemas=False,
            redirect_slashes=False,
            servers=[{"url": root_path}] if root_path else None,
        )
        self._handlers: dict[tuple[str, str], Handler] = {}
        for routes in _ROUTES:
            router = routes(service)
            self.fastapi.include_router(router)
            for route in router.routes:
                if isinstance(route, JsonRoute) and (handler := route.direct_handler()):
                    self._handlers |= {(method, route.path): handler for method in _methods_of(route)}

        async def failed(request: Request, error: Exception) -> Response:
            response = _answer(request, _refusal_of(request, error))
            if isinstance(error, HTTPException) and error.status_code == 405:
                response.headers.update(error.headers or {})
                if methods := sorted(method for method, path in self._handlers if path == request.url.path):
                    response.headers["allow"] = ", ".join(methods)
            return response

        for kind in (BertkitError, RequestValidationError, HTTPException, Exception):
            self.fastapi.add_exception_handler(kind, failed)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        handle = self._handlers.get((scope.get("method"), scope.get("path")))
        if handle is None:
            if scope.get("method") == "HEAD":
                scope = scope | {"method": "GET"}
            await self.fastapi(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await handle(request)
        except Exception as error:
            response = _answer(request, _refusal_of(request, error))
        await response(scope, receive, send)


_ROUTES = (
    health_routes,
    openai_routes,
    embedding_routes,
    rerank_routes,
    task_routes,
    generate_routes,
    search_routes,
    inspect_routes,
    hub_routes,
)


def _methods_of(route: JsonRoute) -> set[str]:
    """The methods of a route. A route of GET answers HEAD too: the server sends the same response without its body."""
    methods = route.methods or set()
    return methods | {"HEAD"} if "GET" in methods else methods


def _answer(request: Request, refusal: Refusal) -> Response:
    request.scope[FAILURE] = refusal.metric
    status, body = refusal_body(request.url.path, refusal)
    return Response(body, status, headers=refusal.headers, media_type="application/json")


def _refusal_of(request: Request, error: Exception) -> Refusal:
    """The refusal for an exception; an unexpected exception, which is a fault of the server, is logged."""
    if isinstance(error, RequestValidationError):
        return _invalid_body(error.errors())
    if isinstance(error, BertkitError):
        return error if isinstance(error, Refusal) else InvalidRequest(str(error))
    if isinstance(error, HTTPException):
        refusal = InvalidRequest(f"{request.method} {request.url.path}: {error.detail}")
        refusal.status = error.status_code
        return refusal
    _LOG.error("a request failed", exc_info=error)
    refusal = InvalidRequest("internal error: see the log of the server")
    refusal.status, refusal.kind, refusal.metric = 500, "Backend", "inference"
    return refusal


def _invalid_body(errors: Any) -> Refusal:
    """The first error of a body in one sentence."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return MalformedRequest(f"the body is not JSON: {first['ctx']['error']}")
    where = ".".join(str(part) for part in first["loc"][1:])
    if not where:
        return InvalidRequest("the body: expected a JSON object; /openapi.json describes its fields")
    return InvalidRequest(f"{where}: {first['msg']}")
