"""Routes about the server: health, readiness, models, metrics."""

from typing import Any

from starlette.responses import Response

from bertkit.inference.embed import EmbedOptions, embedding_dim
from bertkit.serving.playground import playground
from bertkit.serving.refusals import NotReady
from bertkit.serving.routes import Routes
from bertkit.serving.served_models import CLASSIFICATION, FEATURES, RERANKING, Served, ServedModel
from bertkit.serving.service import Service
from bertkit.version import __version__

_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


routes = Routes("server")


@routes.get("/")
def page(service: Service) -> Response:
    """A page for trying the served models, without external requests."""
    return Response(playground(), media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)


@routes.get("/healthz", "/ping", is_described=False)
@routes.get("/health")
def health(service: Service) -> Response:
    """Liveness: an empty response that never waits for the queue."""
    return Response()


@routes.get("/ready")
def ready(service: Service) -> Response:
    """Readiness: 503 until kernels are compiled and batches of every shape were computed, and while stopping."""
    if service.is_draining:
        raise NotReady("the server is stopping")
    if not service.is_ready:
        raise NotReady("the server is warming up")
    return Response()


@routes.get("/metrics")
def metrics(service: Service) -> Response:
    """Counters and histograms in the text format of Prometheus."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


@routes.get("/info")
def info(service: Service) -> dict[str, Any]:
    """The first model in the format of text-embeddings-inference, all models under `models`, and the limits."""
    settings, index = service.settings, service.models.index
    return {
        **_described(service.models.first),
        "max_concurrent_requests": settings.max_concurrent_requests,
        "max_batch_tokens": settings.max_queue_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_inputs,
        "auto_truncate": True,
        "tokenization_workers": settings.max_concurrent_requests,
        "version": __version__,
        "sha": None,
        "docker_label": None,
        "models": [_described(served) for served in service.models.all.values()],
        "store": None if index is None else {"model": index.store.identity.model_name, "num_passages": len(index)},
    }


def _described(served: Served) -> dict[str, Any]:
    return {
        "model_id": served.name,
        "model_sha": None,
        "model_dtype": served.precision,
        "served_model_name": served.name,
        "model_type": _model_type(served),
        "max_input_length": served.max_length,
        "kinds": sorted(served.kinds),
        "dimensions": _dimensions(served),
        "prompts": list(served.prompts),
    }


def _dimensions(served: Served) -> int | None:
    if not isinstance(served, ServedModel) or FEATURES not in served.kinds:
        return None
    return embedding_dim(served.model._runner, served.model.sentence_settings, EmbedOptions(normalize=True))


def _model_type(served: Served) -> dict[str, Any]:
    if not isinstance(served, ServedModel) or served.kind not in (FEATURES, CLASSIFICATION, RERANKING):
        return {served.kind: {}}
    if served.kind == FEATURES:
        return {"embedding": {"pooling": served.model.sentence_settings.pooling}}
    names = dict(enumerate(served.task.label_names or ()))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return {"reranker" if served.kind == RERANKING else "classifier": labels}
