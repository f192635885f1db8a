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
from bertkit.serving.openai_api import openai_routes
from bertkit.serving.refusals import InvalidRequest, MalformedRequest, Refusal
from bertkit.serving.rerank_api import rerank_routes
from bertkit.serving.search_api import search_routes
from bertkit.serving.service import Service
from bertkit.serving.task_api import task_routes
from bertkit.version import __version__

_LOG = logging.getLogger("bertkit.serving")


def application(service: Service) -> FastAPI:
    """A FastAPI application with all routes; its OpenAPI document is at /openapi.json."""
    app = FastAPI(
        title="bertkit", version=__version__, docs_url=None, redoc_url=None, separate_input_output_schemas=False
    )
    for routes in (
        health_routes,
        openai_routes,
        embedding_routes,
        rerank_routes,
        task_routes,
        generate_routes,
        search_routes,
        inspect_routes,
        hub_routes,
    ):
        app.include_router(routes(service))

    @app.exception_handler(BertkitError)
    async def refused(request: Request, error: BertkitError) -> Response:
        return _answer(request, error if isinstance(error, Refusal) else InvalidRequest(str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _answer(request, _refusal_of(error.errors()))

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        refusal = InvalidRequest(f"{request.method} {request.url.path}: {error.detail}")
        refusal.status = error.status_code
        return _answer(request, refusal)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        _LOG.error("a request failed", exc_info=error)
        refusal = InvalidRequest("internal error: see the log of the server")
        refusal.status, refusal.kind, refusal.metric = 500, "Backend", "inference"
        return _answer(request, refusal)

    return app


def _answer(request: Request, refusal: Refusal) -> Response:
    request.scope[FAILURE] = refusal.metric
    status, body = refusal_body(request.url.path, refusal)
    return Response(body, status, headers=refusal.headers, media_type="application/json")


def _refusal_of(errors: Any) -> Refusal:
    """The first error of a body in one sentence."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return MalformedRequest(f"the body is not JSON: {first['ctx']['error']}")
    where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return InvalidRequest(f"{where}: {first['msg']}")
