"""The application: routes and error responses."""

import logging
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from bertkit.errors import BertkitError
from bertkit.serving import (
    embedding_api,
    extract_api,
    generate_api,
    health_api,
    hub_api,
    inspect_api,
    openai_api,
    redact_api,
    rerank_api,
    search_api,
    task_api,
)
from bertkit.serving.guard import counted
from bertkit.serving.refusals import InvalidRequest, Refusal, without_frames
from bertkit.serving.routes import openapi
from bertkit.serving.service import Service
from bertkit.version import __version__

_LOG = logging.getLogger("bertkit.serving")

_FAMILIES = (
    health_api, openai_api, embedding_api, rerank_api, task_api, generate_api, search_api, inspect_api, extract_api,
    redact_api, hub_api,
)  # fmt: skip


class Application:
    """An ASGI application with all routes, and their description at /openapi.json.

    It calls endpoints directly: the routing, middleware and dependencies of a framework cost more time on the event
    loop than the rest of a request.
    """

    def __init__(self, service: Service) -> None:
        self.routes = [route for family in _FAMILIES for route in family.routes]
        self.openapi = openapi(self.routes, "bertkit", __version__, service.settings.root_path)
        self._handlers = {(route.method, route.path): route.handler(service) for route in self.routes}
        self._prefixes = {route.prefix: route.path for route in self.routes if route.prefix is not None}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except Exception as error:
            response = _answer(request, _refusal_of(error))
            without_frames(error)
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        path, method = request.scope["path"], request.scope["method"]
        method = "GET" if method == "HEAD" else method  # the server sends the same response without its body
        if (handle := self._handlers.get((method, path))) is not None:
            return await handle(request)
        if path == "/openapi.json" and method == "GET":
            return Response(orjson.dumps(self.openapi), media_type="application/json")
        named = next((whole for prefix, whole in self._prefixes.items() if path.startswith(prefix)), path)
        if (handle := self._handlers.get((method, named))) is not None:
            return await handle(request)
        methods = sorted(known for known, whole in self._handlers if whole in (path, named))
        status, reason = (405, "Method Not Allowed") if methods else (404, "Not Found")
        response = _answer(request, InvalidRequest(f"{request.method} {path}: {reason}", status=status))
        if methods:
            response.headers["allow"] = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        return response


def _answer(request: Request, refusal: Refusal) -> Response:
    reply = counted(request.scope, refusal)
    return Response(reply.body, reply.status, reply.headers)


def _refusal_of(error: Exception) -> Refusal:
    """The refusal for an exception; an unexpected exception, which is a fault of the server, is logged."""
    if isinstance(error, BertkitError):
        return error if isinstance(error, Refusal) else InvalidRequest(str(error))
    _LOG.error("a request failed", exc_info=error)
    message = "internal error: see the log of the server"
    return Refusal(message, status=500, kind="Backend", metric="inference")
