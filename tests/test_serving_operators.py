"""What operators of a server see: metrics, the log, reloads, probes and the dashboard."""

import asyncio
import gc
import json
import logging
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from random_models import our_model
from served import Server, serving

from bertkit.errors import CheckpointError
from bertkit.serving.log_lines import REQUESTS, JsonLines
from bertkit.serving.metrics import Metrics
from bertkit.serving.reload import Reload

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
SECRET = "zebra"


class Waiting:
    """Models that are opened when a test says so, each with a name and an error or none."""

    def __init__(self) -> None:
        self.asked, self.outcomes = threading.Semaphore(0), list[Any]()
        self.may_end = threading.Semaphore(0)

    def __call__(self) -> Any:
        self.asked.release()
        assert self.may_end.acquire(timeout=30)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return SimpleNamespace(all={outcome: Model()}, index=None)

    async def is_asked(self) -> None:
        assert await asyncio.to_thread(self.asked.acquire, timeout=30)

    def end(self, outcome: Any) -> None:
        self.outcomes.append(outcome)
        self.may_end.release()


class Part:
    """A part of a model, in a cycle, as modules are: it stays until cycles are searched for."""

    def __init__(self) -> None:
        self.itself = self


class Model:
    """A served model."""

    def __init__(self) -> None:
        self.part = Part()


def reloading(steps: Callable[[Reload, Waiting, Any], Any]) -> Any:
    """The service after some steps while a `Reload` runs."""

    async def run() -> Any:
        opener, warm = Waiting(), asyncio.get_running_loop().create_future()
        service: Any = SimpleNamespace(
            models=SimpleNamespace(all={"first": Model()}, index=None),
            metrics=Metrics(),
            settings=SimpleNamespace(request_timeout_seconds=30.0),
            warm=warm,
        )
        reload = Reload(opener)
        task = asyncio.ensure_future(reload.run(service, warm))
        await steps(reload, opener, service)
        task.cancel()
        return service

    return asyncio.run(run())


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0)


def reloads(service: Any, result: str) -> int:
    return int(re.findall(rf'bertkit_reload_count{{result="{result}"}} (\d+)', service.metrics.text())[0])


def test_signals_during_the_start_and_during_a_reload_each_log_a_line(caplog: Any) -> None:
    async def steps(reload: Reload, opener: Waiting, service: Any) -> None:
        reload.ask()
        reload.ask()
        assert [record.getMessage() for record in caplog.records] == [
            "SIGHUP while the models are opened for the first time: another reload follows",
            "SIGHUP ignored: a reload is waiting already",
        ]
        caplog.clear()
        service.warm.set_result(None)
        await opener.is_asked()
        reload.ask()
        assert [record.getMessage() for record in caplog.records] == [
            "SIGHUP while the models are opened again: another reload follows"
        ]
        opener.end("second")
        await opener.is_asked()
        opener.end("third")
        await until(lambda: "third" in service.models.all)

    caplog.set_level("INFO")
    service = reloading(steps)
    assert (reloads(service, "success"), reloads(service, "failure")) == (2, 0)


def test_broken_models_leave_those_that_are_served(caplog: Any) -> None:
    async def steps(reload: Reload, opener: Waiting, service: Any) -> None:
        service.warm.set_result(None)
        for number, error in enumerate([CheckpointError("no such\nfolder"), MemoryError("1 GB")], 1):
            await asyncio.sleep(0)
            reload.ask()
            await opener.is_asked()
            opener.end(error)
            await until(lambda number=number: reloads(service, "failure") == number)
            assert "first" in service.models.all

    caplog.set_level("INFO")
    reloading(steps)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "not reloaded, first served as before: no such folder",
        "not reloaded, first served as before: MemoryError: 1 GB",
    ]


def test_replaced_models_are_freed_when_the_last_request_has_ended(monkeypatch: Any) -> None:
    freed = threading.Event()
    monkeypatch.setattr("bertkit.serving.reload.exempt_from_collection", lambda: (gc.collect(), freed.set()))

    async def steps(reload: Reload, opener: Waiting, service: Any) -> None:
        service.warm.set_result(None)
        of_request = service.models.all["first"]
        part = weakref.ref(of_request.part)
        await asyncio.sleep(0)
        reload.ask()
        await opener.is_asked()
        opener.end("second")
        await until(lambda: "second" in service.models.all)
        assert not freed.is_set() and of_request is not None, "a request still uses it"
        del of_request
        await until(freed.is_set)
        assert part() is None

    reloading(steps)


def test_every_metric_has_an_explanation_and_a_type() -> None:
    metrics = Metrics()
    metrics.count("te_request_count", 'method="single"')
    metrics.gauges["te_queue_size"] = "Texts.", lambda: 1_234_567.0
    text = metrics.text()
    assert check_format(text) >= {"te_request_count", "te_request_duration", "te_queue_size", "process_open_fds"}
    assert "te_queue_size 1234567\n" in text
    for line in ('te_request_failure{err="overloaded"} 0', 'te_request_failure{err="timeout"} 0'):
        assert line in text, "present before the first"
    values = dict(re.findall(r"^(process_\w+) (\S+)$", text, re.MULTILINE))
    assert float(values["process_resident_memory_bytes"]) > 1e7 and float(values["process_cpu_seconds_total"]) > 0
    assert 3 < float(values["process_open_fds"]) < float(values["process_max_fds"])
    assert 1.7e9 < float(values["process_start_time_seconds"]) <= time.time()
    with pytest.raises(KeyError):
        metrics.count("te_request_failure", 'err="unheard of"')


def check_format(text: str) -> set[str]:
    """The names of the metrics of a text, after checking its lines: each family once, with explanation and type."""
    families: dict[str, str] = {}
    lines = iter(text.removesuffix("\n").split("\n"))
    for line in lines:
        if explained := re.fullmatch(r"# HELP (\w+) (\S.*\.)", line):
            typed = re.fullmatch(rf"# TYPE {explained[1]} (counter|gauge|histogram)", next(lines))
            assert typed and explained[1] not in families, line
            families[explained[1]] = typed[1]
            continue
        sample = re.fullmatch(r'(\w+?)(_bucket|_sum|_count)?(\{\w+="[^"]*"\})? (\d\S*)', line)
        assert sample, line
        name = list(families)[-1]
        assert sample[1] == name if families[name] == "histogram" else line.startswith((f"{name} ", f"{name}{{")), line
        assert float(sample[4]) >= 0
    return set(families)


def test_format_against_the_parser_of_prometheus() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="pip install prometheus_client")
    metrics = Metrics()
    metrics.observe(request_duration=0.003)
    families = {family.name: family for family in parser.text_string_to_metric_families(metrics.text())}
    assert all(
        family.documentation and family.type in ("counter", "gauge", "histogram") for family in families.values()
    )
    (total,) = [each.value for each in families["te_request_duration"].samples if each.name.endswith("_count")]
    assert total == 1


def test_messages_as_json_lines() -> None:
    formatter = JsonLines()

    def record(name: str, message: str, error: Any = None) -> logging.LogRecord:
        return logging.LogRecord(name, logging.ERROR, "", 0, message, None, error and (type(error), error, None))

    line = json.loads(formatter.format(record("bertkit.serving", 'failed: "x"\ny', ValueError("z"))))
    assert line["level"] == "error" and line["message"] == 'failed: "x"\ny' and line["traceback"] == "ValueError: z"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"])
    assert formatter.format(record(REQUESTS, '{"a":1}\n{"a":2}')) == '{"a":1}\n{"a":2}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the served model, which tests replace."""
    made = tmp_path_factory.mktemp("deployed")
    our_model("encoder", 3, max_position_embeddings=64).save(made / "model")
    our_model("encoder", 5, max_position_embeddings=64).save(made / "other")
    (made / "keys").write_text("a key\n")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server with the arguments of the container in deploy/kubernetes.yaml, and a key."""
    deployed, _ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    paths = {"/models": str(folder), "/etc/bertkit": str(folder)}
    arguments = [paths.get(part.rpartition("/")[0], "") + "/" + part.rpartition("/")[2] if "/" in part else part
                 for part in container["args"]]  # fmt: skip
    with serving("--host", "0.0.0.0", *arguments) as running:
        yield running


def embedded(server: Server, text: Any = "the cat") -> Any:
    status, answer, _ = server.request("/embed", {"inputs": text}, headers={"authorization": "Bearer a key"})
    assert status == 200, answer
    return answer


def logged(server: Server, text: str, since: int) -> str:
    """The first line of the log with a text after a number of lines."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if lines := [line for line in server.log[since:] if text in line]:
            return lines[0]
        time.sleep(0.02)
    raise AssertionError(server.log[since:])


@pytest.mark.full
def test_probes_of_the_examples_are_answered_without_a_key(server: Server) -> None:
    deployed, _ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    template = deployed["spec"]["template"]
    (container,) = template["spec"]["containers"]
    probes = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]
    scraped = template["metadata"]["annotations"]["prometheus.io/path"]
    for path in [*probes, scraped]:
        headers = {"host": "10.42.0.17:8080", "user-agent": "kube-probe/1.33"}
        assert server.request(path, headers=headers)[0] == 200, path
    assert scraped == "/metrics" and probes == ["/ready", "/ready", "/health"]
    (check,) = [service["healthcheck"]["test"] for service in compose().values() if "healthcheck" in service]
    assert check[:3] == ["CMD", "python", "-c"]
    for url, code in ((server.url.replace("0.0.0.0", "127.0.0.1"), 0), ("http://127.0.0.1:9", 1)):
        program = check[3].replace("http://127.0.0.1:8080", url)
        assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == code


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


@pytest.mark.full
def test_queries_of_the_dashboard_name_metrics_and_labels_that_exist(server: Server) -> None:
    embedded(server)
    status, text, headers = server.request("/metrics")
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    check_format(text)
    names = set(re.findall(r"^(\w+)(?:\{|\s)", text, re.MULTILINE))
    labels = set(re.findall(r'[{,](\w+)="', text)) | {"job", "instance"}
    dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    assert len(queries) > 15
    words = {"sum", "by", "le", "rate", "histogram_quantile", "increase", "label_values", "min"}
    for query in queries:
        used = set(re.findall(r"[a-z_]\w+", re.sub(r'"[^"]*"|\$\w+|\[[^\]]*\]', "", query))) - words
        assert {name for name in used if name not in labels} <= names, query
        assert used & names, query
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${datasource}"}


@pytest.mark.full
def test_metrics_under_unusual_requests(server: Server) -> None:
    key = {"authorization": "Bearer a key"}
    for path, method, status in (
        ("/metrics", "POST", 405), ("/metrics", "DELETE", 405), ("/metrics", "HEAD", 200), ("/metrics/", "GET", 200),
        ("/metrics?name[]=te_queue_size", "GET", 200), ("/metrics/te_queue_size", "GET", 404),
    ):  # fmt: skip
        body = {} if method == "POST" else None
        answer = server.request(path, body, method=method, headers=key | {"accept": "application/openmetrics-text"})
        assert answer[0] == status, (path, method, answer)
        if status == 405:
            assert answer[2]["allow"] == "GET, HEAD" and "error" in answer[1]
    assert server.request("/metrics", {}, method="POST")[0] == 401, "only reading needs no key"


@pytest.mark.full
def test_log_of_json_lines_has_every_request_and_never_a_text(server: Server) -> None:
    since = len(server.log)
    embedded(server, f"the {SECRET} cat")
    headers = {"authorization": "Bearer a key", "x-request-id": "mine-18"}
    for body in ({"inputs": ""}, {"inputs": [SECRET, 3]}, f'{{"inputs": "{SECRET}', {SECRET: 1}):
        sent = body.encode() if isinstance(body, str) else body
        assert server.request("/embed", sent, headers=headers)[0] >= 400
    assert server.request(f"/embed?text={SECRET}", {"inputs": SECRET}, headers=headers)[0] == 200
    assert server.request("/embed", {"inputs": SECRET}, headers={"x-request-id": "last"})[0] == 401
    logged(server, '"last"', since)
    rows = [json.loads(line) for line in server.log]
    assert any(" ready at " in row.get("message", "") for row in rows)
    requests = [row for row in rows[since:] if "path" in row][-7:]
    assert [row["status"] for row in requests[:1] + requests[-2:]] == [200, 200, 401]
    assert [row["request_id"] for row in requests[1:]] == ["mine-18"] * 5 + ["last"]
    keys = {"time", "request_id", "method", "path", "status", "milliseconds", "inputs", "tokens", "queue_milliseconds"}
    assert all(row.keys() == keys and row["path"] == "/embed" for row in requests)
    assert requests[0]["tokens"] > 2 and requests[0]["milliseconds"] > 0
    assert SECRET not in "".join(server.log)


@pytest.mark.full
def test_reload_takes_what_the_folder_holds_and_keeps_the_models_if_it_is_broken(server: Server, folder: Path) -> None:
    def ask_for_reload(text: str) -> str:
        since = len(server.log)
        server.process.send_signal(signal.SIGHUP)
        message = json.loads(logged(server, text, since))["message"]
        assert "\n" not in message
        return message

    model, before = folder / "model", embedded(server)
    (model / "config.json").rename(folder / "config.json")
    message = ask_for_reload("not reloaded, model served as before: ")
    assert "config.json" in message and embedded(server) == before
    (folder / "config.json").rename(model / "config.json")
    model.rename(folder / "gone")
    message = ask_for_reload("not reloaded, model served as before: ")
    assert str(model) in message and embedded(server) == before
    weights = (folder / "gone" / "model.safetensors").read_bytes()
    shutil.copytree(folder / "gone", model)
    (model / "model.safetensors").write_bytes(weights[:1_000])
    assert "model.safetensors" in ask_for_reload("not reloaded, model served as before: ")
    assert embedded(server) == before
    shutil.rmtree(model)
    shutil.copytree(folder / "other", model)
    texts = ["one two three " * 8 + str(number) for number in range(900)]
    answers: list[Any] = []
    earlier = embedded(server, texts[:3])
    thread = threading.Thread(target=lambda: answers.append(embedded(server, texts)))
    thread.start()
    assert ask_for_reload("reloaded model") == "reloaded model"
    thread.join()
    assert answers[0][:3] in (earlier, embedded(server, texts[:3])), "a request is answered by one of the models"
    after = embedded(server)
    assert after != before
    text = server.request("/metrics")[1]
    assert 'bertkit_reload_count{result="failure"} 3' in text and 'bertkit_reload_count{result="success"} 1' in text
