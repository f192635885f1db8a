"""Middleware for every request: id, API key, host, size and time of the body; then log and metrics."""

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

import orjson

from bertkit.serving.log_lines import REQUESTS
from bertkit.serving.refusals import NotReady, Overloaded, Refusal
from bertkit.serving.service import Service
from bertkit.serving.settings import ServerSettings
from bertkit.serving.ticket import TICKET, Ticket

Scope = dict[str, Any]
Receive = Callable[[], Any]
Send = Callable[[dict[str, Any]], Any]

PUBLIC = {"/", "/health", "/healthz", "/ready", "/ping", "/metrics"}
"""Paths that can be read without a key."""

FAILURE = "bertkit.failure"
"""Key of the kind of a refusal in the ASGI scope of its request."""

_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_READING = {"GET", "HEAD", "OPTIONS"}
"""Methods of requests without a body."""
_UNLOGGED = PUBLIC - {"/"}
_LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]"}
_LOG = logging.getLogger(REQUESTS)
_MOST_ID_CHARACTERS = 128
_SMALL_BODY_BYTES = 100_000
"""Bodies up to this size are accepted while large ones that arrive slowly occupy all the memory for bodies."""
_RETRY_SECONDS = 1.0
_LOG_SECONDS, _MOST_LINES = 0.05, 100
"""Lines of the log that are written together: those of some time, and how many at most."""


class Reply(NamedTuple):
    """A response without a route."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        """The headers as bytes, with the length of the body."""
        return [*_encoded(self.headers), (b"content-length", b"%d" % len(self.body))]


class Guard:
    """An ASGI application around another one.

    Args:
        local_only: reject requests with another host name, which a page in a browser can send
            (DNS rebinding).
    """

    def __init__(self, app: Any, service: Service, *, local_only: bool) -> None:
        self._app, self._service, self._local_only = app, service, local_only
        self._keys = [key.encode() for key in service.settings.api_keys]
        self._lines: list[str] = []  # for the log
        self._num_body_bytes = 0  # in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = self._path(scope["path"])
        headers = dict(scope["headers"])
        started, ticket = time.perf_counter(), self._ticket(scope, headers)
        scope[TICKET] = ticket
        status = 499

        async def send_and_note(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_encoded(_echoed(ticket, headers))]
            elif ticket.num_answer_bytes:
                await send(message | {"more_body": True})
                message = {"type": "http.response.body"}  # is sent when the client has read most of the answer
            await send(message)

        try:
            refusal = self._refusal(scope, headers)
            if refusal is None and scope["method"] not in _READING:
                refusal, receive = await self._with_body(scope, ticket, receive)
            if refusal is None:
                await self._app(scope, receive, send_and_note)
            else:
                await _send(send_and_note, refusal)
        except asyncio.CancelledError:
            if status != 499 or not self._service.is_draining:
                raise  # the response has begun, or it is not the server that cancels what takes too long to end
            await _send(send_and_note, counted(scope, NotReady("the server is stopping")))
        finally:
            self._num_body_bytes -= ticket.num_body_bytes
            if ticket.num_answer_bytes and not ticket.is_canceled:  # else a thread may still use the memory
                self._service.release(ticket)
            self._count(scope, ticket, status, time.perf_counter() - started)

    def refuse(self, scope: Scope) -> Reply | None:
        """The response to a request that comes while the service is full; None for any other request, and if pages of
        other origins read the responses, which need further headers."""
        if not self._service.is_full or self._service.settings.cors_origins:
            return None
        scope = scope | {"path": self._path(scope["path"])}
        started, headers = time.perf_counter(), dict(scope["headers"])
        reply = self._refusal(scope, headers)
        if reply is None or "connection" in reply.headers:
            return None
        ticket = self._ticket(scope, headers)
        self._count(scope, ticket, reply.status, time.perf_counter() - started)
        return reply._replace(headers=reply.headers | _echoed(ticket, headers))

    def _path(self, path: str) -> str:
        """The path of a route: without the prefix of a proxy, and without a slash at its end."""
        prefix = self._service.settings.root_path
        if path == prefix or path.startswith(prefix + "/"):
            path = path.removeprefix(prefix)
        return path.rstrip("/") or "/"

    def _ticket(self, scope: Scope, headers: dict[bytes, bytes]) -> Ticket:
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        if not (0 < len(request_id) <= _MOST_ID_CHARACTERS and request_id.isprintable()):
            request_id = os.urandom(16).hex()
        return Ticket(
            client=(headers.get(b"authorization"), scope.get("client")),
            deadline=time.perf_counter() + self._service.settings.request_timeout_seconds,
            request_id=request_id,
        )

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Reply | None:
        """The response to a request that is rejected before reading its body; None to accept it."""
        path, is_read = scope["path"], scope["method"] in _READING
        if self._local_only and _host(headers) not in _LOCAL_HOSTS:
            message = "without API keys this server accepts only the hosts localhost and 127.0.0.1: use one of them"
            return _refused(path, 403, message, "forbidden")
        if not (is_read and path in PUBLIC) and not self._has_key(headers):
            if not _is_openai(path):
                return Reply(401, b"", {"www-authenticate": "Bearer"})
            message = "the API key is missing or wrong: send 'Authorization: Bearer KEY' with a key of this server"
            return _refused(path, 401, message, "invalid_api_key")
        if scope["method"] == "POST" and not _is_json(headers):
            return _refused(path, 415, "expected a body of content-type application/json", "unsupported_media_type")
        if (coding := headers.get(b"content-encoding", b"identity").lower()) != b"identity":
            message = f"content-encoding {coding.decode('latin-1')!r:.40}: send the body without compression"
            return _refused(path, 415, message, "unsupported_media_type")
        if b"upgrade" in headers and not is_read:  # the parser takes the body for another protocol
            message = "upgrade: this server speaks HTTP/1.1 only: choose this version in the client"
            return _last(_refused(path, 400, message, "unsupported_upgrade"))
        if int(headers.get(b"content-length", b"0") or 0) > self._service.settings.max_body_bytes:
            return self._too_large(path)
        if not is_read and self._service.is_full:  # refused before its body is parsed: refusals have to be cheap
            return counted(scope, Overloaded("Model is overloaded", self._service.engine.seconds_waiting))
        return None

    def _has_key(self, headers: dict[bytes, bytes]) -> bool:
        if not self._keys:
            return True
        given = headers.get(b"authorization", b"")
        if given[:7].lower() == b"bearer ":
            given = given[7:]
        return sum(hmac.compare_digest(given, key) for key in self._keys) > 0  # compare all, to avoid a timing side
        # channel

    def _too_large(self, path: str) -> Reply:
        most = self._service.settings.max_body_bytes
        return _last(_refused(path, 413, f"the body exceeds {most:,} bytes: send several requests", "body_too_large"))

    async def _with_body(self, scope: Scope, ticket: Ticket, receive: Receive) -> tuple[Reply | None, Receive]:
        """An error response or None, and a receiver of the complete body."""
        settings, parts, path, started = self._service.settings, [], scope["path"], time.perf_counter()
        most = settings.receive_timeout_seconds
        while True:
            seconds, size = time.perf_counter() - started, ticket.num_body_bytes
            try:
                async with asyncio.timeout(min(most, most + size / settings.receive_bytes_per_second - seconds)):
                    message = await receive()
            except TimeoutError:
                return _too_slow(path, size, time.perf_counter() - started, settings), receive
            if message["type"] == "http.disconnect":
                return Reply(499, b"", {}), receive
            parts.append(message.get("body", b""))
            ticket.num_body_bytes += len(parts[-1])
            self._num_body_bytes += len(parts[-1])
            if ticket.num_body_bytes > settings.max_body_bytes:
                return self._too_large(path), receive
            has_no_room = self._num_body_bytes > settings.max_body_bytes_in_progress
            if has_no_room and ticket.num_body_bytes > _SMALL_BODY_BYTES:
                return _last(counted(scope, Overloaded("Model is overloaded", _RETRY_SECONDS))), receive
            if not message.get("more_body"):
                break
        whole: list[dict[str, Any]] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]
        now = time.perf_counter()
        ticket.started, ticket.deadline = now, now + settings.request_timeout_seconds

        async def receive_whole() -> dict[str, Any]:
            return whole.pop() if whole else await receive()

        return None, receive_whole

    def _count(self, scope: Scope, ticket: Ticket, status: int, seconds: float) -> None:
        if scope["path"] in _UNLOGGED:
            return
        metrics, failure = self._service.metrics, scope.get(FAILURE)
        if ticket.num_inputs or failure:
            method = 'method="batch"' if ticket.num_inputs > 1 else 'method="single"'
            metrics.count("te_request_count", method)
            if failure:
                metrics.count("te_request_failure", f'err="{failure}"')
            elif status == 200:
                metrics.count("te_request_success", method)
                self._observe(ticket, seconds)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "request_id": ticket.request_id,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "milliseconds": round(1e3 * seconds, 2),
            "inputs": ticket.num_inputs,
            "tokens": ticket.num_tokens,
            "queue_milliseconds": round(1e3 * ticket.queue_seconds, 2),
        }
        if not self._lines:
            asyncio.get_running_loop().call_later(_LOG_SECONDS, self.write_log)
        self._lines.append(orjson.dumps(line).decode())
        if len(self._lines) >= _MOST_LINES or self._service.is_draining:  # the loop may end before the time is over
            self.write_log()

    def write_log(self) -> None:
        """Write the lines of the last requests at once: the logger costs more than a line."""
        if self._lines:
            _LOG.info("\n".join(self._lines))
            self._lines.clear()

    def _observe(self, ticket: Ticket, seconds: float) -> None:
        metrics = self._service.metrics
        parts = {
            "duration": seconds,
            "tokenization_duration": ticket.tokenization_seconds,
            "queue_duration": ticket.queue_seconds,
            "inference_duration": ticket.inference_seconds,
        }
        verbs = ["request"] if ticket.verb == "request" else ["request", ticket.verb]
        metrics.observe(
            request_input_length=ticket.num_tokens,
            **{f"{verb}_{part}": value for verb in verbs for part, value in parts.items()},
        )
        if ticket.verb != "request":
            metrics.count(f"te_{ticket.verb}_success", number=ticket.num_inputs)


def _is_openai(path: str) -> bool:
    """Whether the clients of a path expect errors as from OpenAI."""
    return path.startswith("/v") or path == "/embeddings"


def reply_of(path: str, refusal: Refusal) -> Reply:
    """The response of a refusal, in the format of the clients of a path."""
    if _is_openai(path):
        status = 400 if refusal.status == 422 else refusal.status
        error = {"message": str(refusal), "type": _OPENAI_TYPES.get(status, "invalid_request_error")}
        return _as_json(status, {"error": error | {"param": None, "code": refusal.code}}, refusal)
    return _as_json(refusal.status, {"error": str(refusal), "error_type": refusal.kind}, refusal)


def counted(scope: MutableMapping[str, Any], refusal: Refusal) -> Reply:
    """The response of a refusal that counts in the metrics."""
    scope[FAILURE] = refusal.metric
    return reply_of(scope["path"], refusal)


def _refused(path: str, status: int, message: str, code: str) -> Reply:
    return reply_of(path, Refusal(message, status=status, code=code))


def _too_slow(path: str, size: int, seconds: float, settings: ServerSettings) -> Reply:
    message = (
        f"{size:,} bytes of the body came in {seconds:.1f} seconds, and not the end: expected a part at least every "
        f"{settings.receive_timeout_seconds:g} seconds, and after these {settings.receive_bytes_per_second:,} bytes "
        "per second"
    )
    return _last(_refused(path, 408, message, "timeout"))


def _last(reply: Reply) -> Reply:
    """A response after which the connection is closed: the rest of the body is not read."""
    return reply._replace(headers=reply.headers | {"connection": "close"})


def _as_json(status: int, body: Any, refusal: Refusal) -> Reply:
    return Reply(status, orjson.dumps(body), {"content-type": "application/json"} | refusal.headers)


def _host(headers: dict[bytes, bytes]) -> str:
    """The host that a request names, without its port."""
    host = headers.get(b"host", b"").decode("latin-1").lower()
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _is_json(headers: dict[bytes, bytes]) -> bool:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _echoed(ticket: Ticket, headers: dict[bytes, bytes]) -> dict[str, str]:
    echoed = {"x-request-id": ticket.request_id}
    if b"traceparent" in headers:
        echoed["traceparent"] = headers[b"traceparent"].decode("latin-1")
    return echoed


async def _send(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.lines})
    await send({"type": "http.response.body", "body": reply.body})
