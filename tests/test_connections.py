"""Limits on the headers of a request, with a small application behind uvicorn."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvicorn

from bertkit.serving.connections import LimitedProtocol

pytestmark = pytest.mark.filterwarnings("ignore")


Connect = Callable[[], socket.socket]


async def application(scope, receive, send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


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
        assert is_closed(client) and 0.3 < time.monotonic() - started < 4


def test_bytes_that_trickle_in_do_not_extend_the_time(connect: Connect) -> None:
    started = time.monotonic()
    with connect() as client, pytest.raises(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(200):
            client.sendall(b"x: y\r\n")
            time.sleep(0.05)
    assert time.monotonic() - started < 4


def test_too_many_header_bytes_close_the_connection(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedProtocol, "header_timeout_seconds", 60.0)
    with connect() as client, pytest.raises(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nx: ")
        for _ in range(2_000):
            client.sendall(b"y" * 10_000)


def test_body_timeout_exceeds_header_timeout_and_connections_are_kept_alive(connect: Connect) -> None:
    with connect() as client:
        for _ in range(2):
            client.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n" + b"z" * 100_000)
            time.sleep(0.6)
            client.sendall(b"z" * 100_000)
            assert client.recv(65_536).startswith(b"HTTP/1.1 200")
