"""The application: routes and error responses."""

import logging
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from bertkit.errors import BertkitError
from bertkit.serving.embedding_api import embedding_routes
from bertkit.serving.extract_api import extract_routes
from bertkit.serving.generate_api import generate_routes
from bertkit.serving.guard import counted
from bertkit.serving.health_api import health_routes
from bertkit.serving.hub_api import hub_routes
from bertkit.serving.inspect_api import inspect_routes
from bertkit.serving.openai_api import openai_routes
from bertkit.serving.redact_api import redact_routes
from bertkit.serving.refusals import InvalidRequest, Refusal, without_frames
from bertkit.serving.rerank_api import rerank_routes
from bertkit.serving.routes import openapi
from bertkit.serving.search_api import search_routes
from bertkit.serving.service import Service
from bertkit.serving.task_api import task_routes
from bertkit.version import __version__

_LOG = logging.getLogger("bertkit.serving")

_FAMILIES = (
    health_routes, openai_routes, embedding_routes, rerank_routes, task_routes, generate_routes, search_routes,
    inspect_routes, extract_routes, redact_routes, hub_routes,
)  # fmt: skip


class Application:
    """An ASGI application with all routes, and their description at /openapi.json.

    It calls endpoints directly: the routing, middleware and dependencies of a framework cost more time on the event
    loop than the rest of a request.
    """

    def __init__(self, service: Service) -> None:
        self.routes = [route for family in _FAMILIES for route in family(service)]
        self.openapi = openapi(self.routes, "bertkit", __version__, service.settings.root_path)
        self._handlers = {(route.method, route.path): route.handler(service.respond) for route in self.routes}
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
