"""Serving: OpenAI's routes and what every request goes through, over HTTP on a free port of this machine."""

import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openai
import pytest
from served import Server, serving

import bertkit
import bertkit.serving.server
from bertkit.cli import run
from bertkit.errors import UsageError

TEXTS = ["a cat sat", "the dog ran and ran", "blue", "one two three four " * 5, "red mat"]
LONG = "a cat sat " * 40  # the tiny model has 24 positions


@pytest.fixture(scope="module")
def server(encoder: Path):
    with serving("--model", encoder, "--precision", "float32") as running:
        yield running


@pytest.fixture(scope="module")
def model(encoder: Path) -> bertkit.Model:
    return bertkit.load(encoder, device="cpu")


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.mark.cpu_only
@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("dimensions", [None, 7])
def test_openai_client_gets_the_vectors_of_the_library_bit_for_bit(client, model, encoding, dimensions):
    options = {} if dimensions is None else {"dimensions": dimensions}
    answer = client.embeddings.create(model="model", input=TEXTS, encoding_format=encoding, **options)
    results = answer.data if encoding == "float" else _decoded(answer)
    vectors = np.array([row.embedding for row in results], np.float32)
    expected = model.embed(TEXTS, normalize=True, dimensions=dimensions)
    assert vectors.shape == (5, dimensions or 20) and (vectors.view(np.uint32) == expected.view(np.uint32)).all()
    assert [row.index for row in answer.data] == list(range(5))
    assert answer.usage.prompt_tokens == sum(
        len(each) for each in model.tokenizer.encode_batch(TEXTS, max_length=24, on_long="truncate")
    )


def _decoded(answer):
    for row in answer.data:
        if isinstance(row.embedding, str):
            row.embedding = np.frombuffer(base64.b64decode(row.embedding), "<f4").tolist()
    return answer.data


def test_one_text_and_a_list_of_one_are_equal(client):
    one, several = (client.embeddings.create(model="model", input=given) for given in ("a cat", ["a cat"]))
    assert one.data[0].embedding == several.data[0].embedding


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["model"]
    assert client.models.retrieve("model").owned_by == "bertkit"
    with pytest.raises(openai.NotFoundError, match="expected one of model"):
        client.embeddings.create(model="text-embedding-3-small", input="a")


def test_rejected_token_ids_name_the_setting_to_change(server):
    for given in ([5, 6], [[5, 6], [7]]):
        status, answer, _ = server.request("/v1/embeddings", {"input": given, "model": "model"})
        assert status == 400 and set(answer["error"]) == {"message", "type", "param", "code"}
        assert "check_embedding_ctx_length=False" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"input": "", "model": "model"}, 400, "cannot be empty"),
        ({"input": [], "model": "model"}, 400, "cannot be empty"),
        ({"input": ["a", ""], "model": "model"}, 400, "cannot be empty"),
        (
            {"input": 3, "model": "model"},
            400,
            "input: expected a text, a list of texts, or token ids of one or several",
        ),
        ({"model": "model"}, 400, "input"),
        ({"input": "a", "model": "model", "dimensions": 0}, 400, "dimensions"),
        ({"input": "a", "model": "model", "dimensions": 21}, 400, "vectors have 20"),
        ({"input": "a", "model": "model", "encoding_format": "int8"}, 400, "encoding_format"),
        ({"input": LONG, "model": "model", "on_long": "error"}, 400, "more than max_length 24"),
        ({"input": "a", "model": "model", "input_type": "picture"}, 400, "input_type"),
        ({"input": "a", "model": "model", "prompt_name": "none"}, 400, "prompt_name"),
        ({"input": ["a"] * 2_049, "model": "model"}, 400, "batch size 2049 > maximum allowed batch size 2048"),
        (b"{", 400, "not JSON"),
        (b'{"input": "\\ud800"}', 400, "not JSON"),
        (b'{"input": "a", "dimensions": NaN}', 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"", 400, "body"),
        (b"[" * 100_000, 400, "not JSON"),
    ],
    ids=str,
)
def test_bad_bodies_have_one_clear_sentence(server, body, status, says):
    received, answer, _ = server.request("/v1/embeddings", body)
    assert received == status and says in answer["error"]["message"], answer


def test_unknown_tokens_and_inputs_without_a_known_one_are_counted(server):
    for inputs, unknown, empty in ((["\U0001f642 \U0001f680", "a \U0001f642"], "3", "1"), ("a", None, None)):
        _, _, headers = server.request("/v1/embeddings", {"input": inputs, "model": "model"})
        assert (headers.get("x-tokens-unknown"), headers.get("x-inputs-empty")) == (unknown, empty)


@pytest.mark.cpu_only
def test_texts_that_are_too_long_are_cut_with_counts_or_encoded_in_windows(server, model):
    _, answer, headers = server.request("/v1/embeddings", {"input": [LONG, "a"], "model": "model"})
    assert headers["x-inputs-cut"] == "1" and int(headers["x-tokens-cut"]) == 120 - 22
    expected = model.embed([LONG], normalize=True, report=bertkit.InferenceReport())[0]
    assert (np.array(answer["data"][0]["embedding"], np.float32) == expected).all()
    windowed = server.post("/v1/embeddings", {"input": LONG, "model": "model", "on_long": "window"})
    expected = model.embed(LONG, normalize=True, on_long="window")
    assert (np.array(windowed["data"][0]["embedding"], np.float32) == expected).all()


@pytest.mark.cpu_only
def test_concurrent_clients_get_their_vectors(server, model):
    draw = np.random.default_rng(0)
    words = np.array("the of and cat dog sat mat un able run walk talk blue red green".split())
    requests = [
        [" ".join(draw.choice(words, draw.integers(1, 18))) for _ in range(draw.integers(1, 30))] for _ in range(60)
    ]
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda texts: server.post("/embed", {"inputs": texts}), requests))
    for texts, answer in zip(requests, answers, strict=True):
        expected = np.stack([model.embed(text, normalize=True) for text in texts])
        assert (np.array(answer, np.float32) == expected).all()


def test_identical_texts_that_wait_are_computed_once(server):
    before = _settled(server, "te_batch_next_tokens_sum")
    texts = ["one two three four one two three four"] * 2_000
    answer = server.post("/embed", {"inputs": texts})
    assert len(answer) == 2_000 and all(row == answer[0] for row in answer)
    assert _settled(server, "te_batch_next_tokens_sum") - before == 10


def _settled(server: Server, name: str) -> float:
    """A metric of batches, which are counted after their answers are sent."""
    value, later = -1.0, _metric(server, name)
    while value != later:
        time.sleep(0.2)
        value, later = later, _metric(server, name)
    return value


def _metric(server: Server, name: str) -> float:
    lines = server.request("/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + " ", name + "{")))


def test_request_ids_and_traceparent_are_echoed_and_logged(server):
    sent = {"x-request-id": "mine-17", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    _, _, headers = server.request("/embed", {"inputs": "a"}, headers=sent)
    assert headers["x-request-id"] == "mine-17" and headers["traceparent"] == sent["traceparent"]
    assert _logged(server, '"request_id":"mine-17"')


def _logged(server: Server, text: str) -> bool:
    """Whether a line of the log has a text, within ten seconds."""
    deadline = time.monotonic() + 10
    while not any(text in line for line in server.log) and time.monotonic() < deadline:
        time.sleep(0.05)
    return any(text in line for line in server.log)


def test_bodies_of_another_type_or_size_are_rejected_before_any_work(server):
    status, answer, _ = server.request("/embed", b"{}", headers={"content-type": "text/plain"})
    assert status == 415 and "application/json" in answer["error"]
    status, answer, _ = server.request("/embed", b"{}", headers={"content-encoding": "gzip"})
    assert status == 415 and "content-encoding 'gzip': send the body without compression" in answer["error"]
    for upgrade in ("h2c", "websocket"):  # as Java's HttpClient sends by default
        status, answer, _ = server.request("/embed", b"{}", headers={"connection": "upgrade", "upgrade": upgrade})
        assert status == 400 and "HTTP/1.1 only" in answer["error"]
    with socket.create_connection(_address(server)) as connection:  # 64 MB are announced, and not waited for
        connection.sendall(
            b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 64000000\r\n\r\n"
        )
        assert connection.recv(4_096).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection(_address(server)) as connection:  # not announced
        connection.sendall(
            b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        answer = b""
        for _ in range(200):
            try:
                connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")
            except OSError:
                break
        answer = connection.recv(4_096)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_head_of_more_than_64_kb_is_refused_however_it_arrives(server):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Filler: "
    for filler, parts, is_answered in ((1_000, 1, True), (200_000, 1, False), (200_000, 20, False)):
        with socket.create_connection(_address(server)) as connection:
            sent = head + b"a" * filler + b"\r\n\r\n"
            answer = b""
            try:
                for start in range(0, len(sent), -(-len(sent) // parts)):
                    connection.sendall(sent[start : start + -(-len(sent) // parts)])
                    time.sleep(0.01 * (parts > 1))
                answer = connection.recv(4_096)
            except ConnectionError:
                pass  # closed while it was sent
        assert answer.startswith(b"HTTP/1.1 200 ") is is_answered, (filler, parts, answer)


def test_a_body_of_64_megabytes_is_refused_while_others_are_served(server):
    answers: list[bytes] = []

    def send() -> None:
        head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(_address(server)) as connection:
            connection.sendall(head + b"Content-Length: 64000000\r\n\r\n")
            try:
                for _ in range(64):
                    connection.sendall(b" " * 1_000_000)
            except OSError:
                pass  # the server has closed the connection
            try:
                answers.append(connection.recv(4_096))
            except ConnectionError:
                answers.append(b"closed")

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for _ in range(10):
        assert server.request("/health")[0] == 200
        assert server.post("/embed", {"inputs": "a cat"})
    for sender in senders:
        sender.join(30)
    assert len(answers) == 4 and all(answer.startswith(b"HTTP/1.1 413 ") or answer == b"closed" for answer in answers)


def _address(server: Server) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_head_is_answered_as_get_without_a_body(server):
    for path in ("/", "/health", "/ready", "/metrics", "/info", "/v1/models/model"):
        status, body, headers = server.request(path, method="HEAD")
        assert (status, body, headers.keys()) == (200, "", server.request(path)[2].keys())


def test_other_methods_are_answered_with_those_that_are_allowed(server):
    for method, path, allowed in (
        ("OPTIONS", "/embed", "POST"),
        ("OPTIONS", "/health", "GET, HEAD"),
        ("DELETE", "/embed", "POST"),
        ("GET", "/v1/embeddings", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("OPTIONS", "/v1/models/model", "GET, HEAD"),
    ):
        status, _, headers = server.request(path, b"{}" if method == "POST" else None, method=method)
        assert (status, headers["allow"]) == (405, allowed), (method, path)
    assert server.request("/no-such-path", method="OPTIONS")[0] == 404


def test_browser_origins_are_rejected(server):
    status, answer, _ = server.request("/embed", {"inputs": "a"}, headers={"host": "evil.example"})
    assert status == 403 and "localhost" in answer["error"]


@pytest.mark.full
def test_disconnected_clients_do_not_affect_others(server):
    for _ in range(20):
        with socket.create_connection(_address(server)) as connection:
            body = b'{"inputs": ["' + b'a cat sat", "'.join([b""] * 500) + b'a"]}'
            head = "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, as of kill -9
    assert server.post("/embed", {"inputs": "a"})
    deadline = time.monotonic() + 10
    while _metric(server, "te_queue_size") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _metric(server, "te_queue_size") == 0


@pytest.mark.full
@pytest.mark.cpu_only
def test_a_unix_socket_is_served_and_removed(encoder, model, tmp_path):
    path = tmp_path / "socket"
    with serving("--model", encoder, "--unix-socket", path) as server:
        assert server.url == f"unix:{path}"
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("POST", "/embed", json.dumps({"inputs": TEXTS[:1]}), {"content-type": "application/json"})
        vectors = json.loads(connection.getresponse().read())
        connection.close()
        server.process.terminate()
        assert server.process.wait(60) == 0 and not path.exists()
    assert (np.array(vectors, np.float32) == model.embed(TEXTS[:1], normalize=True)).all()


@pytest.mark.full
@pytest.mark.cpu_only
def test_the_socket_of_a_successor_stays(encoder, tmp_path):
    path = tmp_path / "socket"
    with serving("--model", encoder, "--unix-socket", path) as server, socket.socket(socket.AF_UNIX) as successor:
        path.unlink()
        successor.bind(str(path))
        server.process.terminate()
        assert server.process.wait(60) == 0 and path.is_socket()


@pytest.mark.full
def test_a_failed_warm_up_is_an_error(encoder, monkeypatch, capsys):
    def fail(models, batches):
        raise UsageError("no memory is left")

    monkeypatch.setattr(bertkit.serving.server, "_warm_up", fail)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert run(["serve", "--model", str(encoder), "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "no memory is left" in error and "ready" not in error
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


_SLOW = """
import sys, time
import bertkit.serving.server as server
from bertkit.cli import main

def slow(*_):
    print("began", flush=True)
    print("and not flushed")
    time.sleep(600)

setattr(server, sys.argv[1], slow)
sys.argv[1:] = ["serve", "--port", "0", "--unix-socket", sys.argv[3], "--model", sys.argv[2]]
main()
"""


@pytest.mark.full
@pytest.mark.parametrize(("slow", "number"), [("_open", signal.SIGTERM), ("_warm_up", signal.SIGINT)])
def test_a_signal_ends_a_server_that_is_not_ready_at_once(slow, number, encoder, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-c", _SLOW, slow, str(encoder), str(tmp_path / "socket")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"began\n"
        process.send_signal(signal.SIGHUP)  # noted for later
        noted = b"SIGHUP while the models are opened for the first time: another reload follows\n"
        assert process.stderr.readline() == noted
        process.send_signal(number)
        assert process.wait(10) == 0 and process.stderr.read() == b""
        assert process.stdout.read() == b"and not flushed\n"
    assert not (tmp_path / "socket").exists()


_SIGNALED = """
import os, signal, sys, time
import bertkit.serving.server as server
from bertkit.cli import main

def signaled(*arguments, opened=server._open):
    models = opened(*arguments)
    sys.setswitchinterval(10)  # as in a long call that keeps the interpreter's lock
    os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass
    return models

server._open = signaled
sys.argv[1:] = ["serve", "--port", "0", "--unix-socket", sys.argv[2], "--model", sys.argv[1]]
main()
"""


@pytest.mark.full
def test_a_signal_while_loading_ends_is_not_lost(encoder, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _SIGNALED, str(encoder), str(tmp_path / "socket")]
    assert subprocess.run(command, env=environment, timeout=60, check=True, stderr=subprocess.PIPE).stderr == b""


_STOPPED_SOON = """
import sys
from dataclasses import replace
import bertkit.serving.server as server
from bertkit.cli import main

def soon(load, settings, *arguments, serve=server._serve):
    return serve(load, replace(settings, drain_timeout_seconds=1), *arguments)

server._serve = soon
sys.argv[1:] = ["serve", "--port", "0", "--unix-socket", sys.argv[2], "--model", sys.argv[1]]
main()
"""


@pytest.mark.full
def test_stop_while_an_answer_is_not_read_is_no_fault(encoder, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _STOPPED_SOON, str(encoder), str(tmp_path / "socket")]
    body = json.dumps({"inputs": ["one two three " * 4] * 1_000}).encode()
    head = "POST /embed_all HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length:"
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True) as process,
        socket.socket(socket.AF_UNIX) as client,
    ):
        try:
            assert process.stderr is not None and " ready at " in process.stderr.readline()
            client.connect(str(tmp_path / "socket"))
            client.sendall(f"{head} {len(body)}\r\n\r\n".encode() + body)
            assert client.recv(12) == b"HTTP/1.1 200"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            log = process.stderr.read()
        finally:
            process.kill()
        assert "timeout graceful shutdown exceeded" in log and "Traceback" not in log, log


@pytest.mark.full
def test_keys_protect_every_route_but_health(encoder, tmp_path):
    (tmp_path / "keys").write_text("\ufefffirst key\n\nsecond\n", encoding="utf-8")
    with serving("--model", encoder, "--api-key-file", tmp_path / "keys") as server:
        for path in ("/health", "/ready", "/metrics"):
            assert server.request(path)[0] == 200
        for wrong in ({}, {"authorization": "Bearer third"}, {"authorization": "Bearer "}):
            for path in ("/info", "/v1/models", "/openapi.json", "/no-such-path"):
                assert server.request(path, headers=wrong)[0] == 401
            assert server.request("/embed", {"inputs": "a"}, headers=wrong)[:2] == (401, "")
            status, answer, _ = server.request("/v1/embeddings", {"input": "a"}, headers=wrong)
            assert status == 401 and answer["error"]["code"] == "invalid_api_key"
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="second")
        assert len(client.embeddings.create(model="model", input="a").data[0].embedding) == 20
        # SIGHUP opens the models again; SIGTERM answers what is in progress and ends with 0
        server.process.send_signal(signal.SIGHUP)
        assert _logged(server, "reloaded model")
        headers = {"authorization": "bearer first key"}
        statuses: list[int] = []
        body = {"inputs": ["one two three " * 4 + str(number) for number in range(300)]}
        threads = [
            threading.Thread(target=lambda: statuses.append(server.request("/embed", body, headers=headers)[0]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        while f"\nte_embed_count {1 + 8 * 300}\n" not in server.request("/metrics")[1]:  # all are in progress
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert statuses == [200] * 8
        assert server.process.wait(20) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "70000"], "--port 70000: expected 0 to 65535"),
        (["--model", "no/such/folder"], "no/such/folder"),
        (["--host", "256.1.1.1"], "cannot listen at 256.1.1.1"),
        (["--host", "a..b"], "cannot listen at a..b"),
        (["--api-key-file", "utf-16"], "utf-16 is not UTF-8"),
        (["--api-key-file", "empty"], "empty has no keys"),
        (["--api-key-file", "comments"], "comments: a line begins with #"),
        (["--model", "a/model", "--model", "a/model"], "--model a/model: given twice"),
    ],
)
def test_bad_arguments_exit_with_2_and_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("\n")
    Path("comments").write_text("key\n# of team A\n")
    Path("utf-16").write_text("key", encoding="utf-16")
    assert run(["serve", *arguments]) == 2
    error = capsys.readouterr().err
    is_open = "without --api-key-file: whoever reaches this machine can use the server" in error
    assert is_open == ("--host" in arguments)
    assert says in error and error.count("\n") == 1 + is_open
