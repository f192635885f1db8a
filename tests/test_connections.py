"""Limits on the headers of a request and refusals without a task, with a small application behind uvicorn."""

import asyncio
import contextlib
import json
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import uvicorn

from bertkit.errors import DependencyError
from bertkit.serving import connections
from bertkit.serving.connections import LimitedProtocol
from bertkit.serving.guard import Guard, Reply
from bertkit.serving.log_lines import REQUESTS
from bertkit.serving.metrics import Metrics
from bertkit.serving.settings import ServerSettings

pytestmark = pytest.mark.filterwarnings("ignore")


Connect = Callable[[], socket.socket]
LARGE = 30_000_000  # more than the buffers of the system take


async def application(scope, receive, send) -> None:
    while (await receive()).get("more_body"):
        pass
    body = bytes(LARGE) if scope["path"] == "/large" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Opens connections to a server that waits 0.4 seconds for headers."""
    monkeypatch.setattr(LimitedProtocol, "header_timeout_seconds", 0.4)
    server = uvicorn.Server(uvicorn.Config(application, port=0, http=LimitedProtocol, lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield lambda: socket.create_connection(("127.0.0.1", port), timeout=5)
    server.should_exit = True
    thread.join()


def test_the_limits_of_a_server_are_its_own_and_an_unknown_uvicorn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = connections.limited_protocol(ServerSettings(receive_timeout_seconds=3.0), lambda scope: None)
    assert (made.header_timeout_seconds, LimitedProtocol.header_timeout_seconds) == (3.0, 10.0)
    monkeypatch.setattr(connections.HttpToolsProtocol, "_start_asgi_task", lambda self, cycle: None)
    with pytest.raises(DependencyError, match=r"uvicorn .* with which bertkit serve was tested: pip"):
        connections.limited_protocol(ServerSettings(), lambda scope: None)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(65_536) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: a\r\n"])
def test_header_timeout_closes_the_connection(connect: Connect, sent: bytes) -> None:
    with connect() as client:
        client.sendall(sent)
        started = time.monotonic()
        assert is_closed(client) and time.monotonic() - started > 0.3


def test_bytes_that_trickle_in_do_not_extend_the_time(connect: Connect) -> None:
    with connect() as client, pytest.raises(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(200):
            client.sendall(b"x: y\r\n")
            time.sleep(0.05)


def test_too_many_header_bytes_close_the_connection(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedProtocol, "header_timeout_seconds", 60.0)
    with connect() as client, pytest.raises(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(2_000):
            client.sendall(b"y" * 10_000)


@pytest.mark.parametrize("head", [b"GET", b"POST"])
@pytest.mark.parametrize("flood", [b"0\r\nx: ", b"0\r\n" + b"x: y\r\n" * 11_000, b"5;", b"0;"])
def test_bytes_around_the_chunks_of_a_body_are_limited(connect: Connect, head: bytes, flood: bytes) -> None:
    with connect() as client, pytest.raises(ConnectionError):
        client.sendall(head + b" / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n" + flood)
        for _ in range(2_000):
            client.sendall(b"y" * 10_000)


def test_bodies_of_small_chunks_and_with_trailers_are_read(connect: Connect) -> None:
    sent = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nz\r\n" * 50_000
    with connect() as client:
        for _ in range(2):
            client.sendall(sent + b"0\r\nx: " + b"y" * 40_000 + b"\r\n\r\n")
            assert statuses(client, 1) == [200]


def test_without_limits_a_slow_client_is_waited_for(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("header_timeout_seconds", "send_timeout_seconds"):
        monkeypatch.setattr(LimitedProtocol, name, math.inf)
    with connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n")
        time.sleep(0.6)
        client.sendall(b"connection: close\r\n\r\n")
        time.sleep(0.6)  # most of the answer is not read
        received = 0
        while part := client.recv(1 << 20):
            received += len(part)
        assert received > LARGE


def test_body_timeout_exceeds_header_timeout_and_connections_are_kept_alive(connect: Connect) -> None:
    with connect() as client:
        for _ in range(2):
            client.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n" + b"z" * 100_000)
            time.sleep(0.6)
            client.sendall(b"z" * 100_000)
            assert statuses(client, 1) == [200]  # with its body, which may come later than the head


def test_the_rest_of_a_body_that_nobody_reads_has_to_come_in_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedProtocol, "refuse", staticmethod(lambda scope: Reply(429, b"full", {})))
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n"
    with connect() as client:
        client.sendall(head)
        assert statuses(client, 1) == [429]
        client.sendall(b"b")
        assert is_closed(client)
    with connect() as client:
        client.sendall(head)
        assert statuses(client, 1) == [429]
        client.sendall(b"body")
        time.sleep(0.6)
        client.sendall(head + b"body")
        assert statuses(client, 1) == [429]


@pytest.mark.parametrize(
    ("seconds", "pause", "rate", "is_whole"),
    [(0.02, 0.02, 10_000, True), (1.5, 0.02, 10_000, False), (0.02, 0.2, 100_000_000, False)],
)
def test_an_answer_that_is_not_read_in_time_is_dropped(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, seconds: float, pause: float, rate: int, is_whole: bool
) -> None:
    monkeypatch.setattr(LimitedProtocol, "send_timeout_seconds", 0.5)
    monkeypatch.setattr(LimitedProtocol, "send_bytes_per_second", rate)
    received = 0
    with connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        time.sleep(seconds)
        with contextlib.suppress(ConnectionError):
            while received < LARGE and (part := client.recv(1_000_000)):
                received += len(part)
                time.sleep(pause)
    assert (received >= LARGE) is is_whole


def statuses(client: socket.socket, number: int) -> list[int]:
    """The statuses of some responses."""
    received = b""
    while len(codes := re.findall(rb"HTTP/1.1 (\d+) ", received)) < number or not received.endswith((b"ok", b"full")):
        received += client.recv(65_536)
    return [int(status) for status in codes]


def test_refused_requests_keep_the_connection_and_the_order(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(scope) -> Reply | None:
        return Reply(429, b"full", {"retry-after": "2"}) if scope["path"] == "/full" else None

    monkeypatch.setattr(LimitedProtocol, "refuse", staticmethod(refuse))
    full, fine = (
        f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody".encode() for path in ("/full", "/")
    )
    with connect() as client:
        for _ in range(2):
            client.sendall(full[:-2])
            time.sleep(0.05)
            client.sendall(full[-2:])  # the rest of a body that nobody reads
            assert statuses(client, 1) == [429]
        client.sendall(full + full + fine + full)
        assert statuses(client, 4) == [429, 429, 200, 429]
        client.sendall(fine + full * 700)  # requests that wait for another one of their connection get tasks
        assert statuses(client, 701) == [200] * 700 + [429]


async def refuses_by_the_same_rules() -> None:
    engine = SimpleNamespace(seconds_waiting=1.2)
    service = SimpleNamespace(
        is_full=True,
        is_draining=False,
        engine=engine,
        metrics=Metrics(),
        settings=ServerSettings(api_keys=("secret",)),
    )
    guard = Guard(None, service, local_only=False)  # type: ignore[arg-type]

    def refused(method: str = "POST", **headers: str) -> Reply | None:
        given = {"content-type": "application/json", "authorization": "Bearer secret"} | headers
        lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "method": method, "path": "/embed", "headers": lines, "client": None}
        return guard.refuse(scope)

    reply = refused(x_request_id="mine", traceparent="00-1-2-3")
    assert reply is not None and (reply.status, reply.headers["retry-after"]) == (429, "2")
    assert (reply.headers["x-request-id"], reply.headers["traceparent"]) == ("mine", "00-1-2-3")
    assert [refused(authorization="no").status, refused(**{"content-type": "text/plain"}).status] == [401, 415]
    assert refused(content_length="9000000") is None  # closes the connection
    assert refused("GET") is None
    assert 'te_request_failure{err="overloaded"} 1' in service.metrics.text()
    service.is_full = False
    assert refused() is None


async def request_that_the_server_cancels() -> tuple[list[dict], Metrics]:
    async def application(scope, receive, send) -> None:
        await asyncio.sleep(600)

    async def send(message) -> None:
        sent.append(message)

    sent: list[dict] = []
    service = SimpleNamespace(is_full=False, is_draining=True, metrics=Metrics(), settings=ServerSettings())
    guard = Guard(application, service, local_only=False)  # type: ignore[arg-type]
    scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": [], "client": None}
    task = asyncio.ensure_future(guard(scope, lambda: None, send))
    await asyncio.sleep(0)
    task.cancel()
    await task
    return sent, service.metrics


def test_requests_that_a_stopping_server_cancels_are_answered_and_logged(caplog) -> None:
    caplog.set_level("INFO", "bertkit.serving")
    (start, body), metrics = asyncio.run(request_that_the_server_cancels())
    (line,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == REQUESTS]
    assert (line["path"], line["status"]) == ("/v1/models", 503)
    assert start["status"] == 503 and b"the server is stopping" in body["body"]
    assert 'te_request_failure{err="unhealthy"} 1' in metrics.text()


def test_a_full_service_refuses_by_the_same_rules() -> None:
    asyncio.run(refuses_by_the_same_rules())
