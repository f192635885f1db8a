"""Throughput and latency of embedding servers: the highest rate of requests within a limit of response time.

    python benchmarks/serve.py [--servers NAME ...] [--most-p99-ms 250] [--threads 2] [--out benchmarks/results]

Short passages of Python's documentation, one in each request, are sent to all-MiniLM-L6-v2 behind HTTP at rising rates
(open loop: a request is sent when it is due) until the 99th percentile of the time to an answer exceeds a limit. The
generator shares the machine with the server. infinity needs a separate environment, and INFINITY, the path of its
program:

    python -m venv other
    other/bin/pip install 'infinity-emb[server,torch,ct2]==0.0.77' 'transformers<4.49' 'click<8.2' torch==2.13.0 \
        ctranslate2==4.5.0
    INFINITY=other/bin/infinity_emb python benchmarks/serve.py
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import report
import texts
from models import MINILM, converted_folder, published_folder
from peers import SYSTEMS
from servers import body_of
from turns import say

from bertkit.sizing.load import Client, Load, loads_at_rising_rates, offer

EXPLANATION = (
    "rate: the highest offered rate at which the 99th percentile stayed under the limit and all were answered, at the "
    "first or second try. "
    "p50, p99: there. unloaded: the same at 5 requests a second."
)
Command = Callable[[Path, int, int], list[str]]
"""From the model's folder, a port and a number of threads to a command line."""

_SECONDS, _FIRST_RATE, _START_SECONDS = 8.0, 32.0, 60.0
_COLUMNS = ("server", "rate", "p50 ms", "p99 ms", "unloaded p50 ms", "unloaded p99 ms", "resident MiB")


def _system_folder(name: str, published: Path) -> Path:
    system = next(system for system in SYSTEMS if system.name == name)
    system.require()
    return converted_folder(system, published)


def _bertkit(precision: str) -> Command:
    def command(published: Path, port: int, threads: int) -> list[str]:
        words = ["-m", "bertkit", "serve", "--model", str(published), "--port", str(port), "--precision", precision]
        return [sys.executable, *words, "--device", "cpu"]

    return command


def _server(module: str, precision: str = "float32", system: str | None = None, *more: str) -> Command:
    def command(published: Path, port: int, threads: int) -> list[str]:
        folder = published if system is None else _system_folder(system, published)
        return [sys.executable, "-m", f"servers.{module}", str(folder), str(port), precision, str(threads), *more]

    return command


def _infinity(engine: str) -> Command:
    def command(published: Path, port: int, threads: int) -> list[str]:
        program = os.environ.get("INFINITY")
        if program is None:
            raise RuntimeError("INFINITY is not set: it is the path of infinity_emb")
        words = ["v2", "--model-id", str(published), "--port", str(port), "--engine", engine, "--device", "cpu"]
        return [str(Path(program).absolute()), *words, "--no-bettertransformer"]

    return command


SERVERS: dict[str, Command] = {
    "bertkit fp32": _bertkit("float32"),
    "bertkit bf16": _bertkit("bfloat16"),
    "bertkit int8": _bertkit("int8"),
    "sentence-transformers, FastAPI": _server("sentence_transformers_fastapi"),
    "sentence-transformers, LitServe": _server("sentence_transformers_litserve"),
    "OpenVINO fp32, Starlette": _server("engine_starlette", "float32", "OpenVINO fp32", "openvino"),
    "CTranslate2 fp32, Starlette": _server("engine_starlette", "float32", "CTranslate2 fp32", "ctranslate2"),
    "infinity, torch": _infinity("torch"),
    "infinity, CTranslate2": _infinity("ctranslate2"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--servers", nargs="+", default=list(SERVERS), choices=list(SERVERS))
    parser.add_argument("--most-p99-ms", type=float, default=250.0)
    results, options = report.begin("serve", parser)
    published = published_folder(MINILM)
    passages = texts.shuffled(texts.documentation())[:2_000]
    results |= {"model": MINILM, "texts": texts.description(passages, published), "most_p99_ms": options.most_p99_ms}
    earlier = report.earlier_systems(results, options.out, "texts", "most_p99_ms", name="servers") or []
    results |= {"servers": [row for row in earlier if row["server"] not in options.servers], "skipped": {}}
    for name in options.servers:
        api = ("/embeddings", "input") if name.startswith("infinity") else ("/embed", "inputs")
        try:
            server = Server(SERVERS[name], published, options.threads, passages, *api)
        except (RuntimeError, ImportError) as error:
            results["skipped"][name] = str(error)
            continue
        try:
            if asyncio.run(server.is_ready()):
                results["servers"].append({"server": name} | server.measure(options.most_p99_ms))
                say(f"{name}: {results['servers'][-1]['best']}")
                report.write(results, describe(results), options.out)
            else:
                results["skipped"][name] = "it did not start"
        finally:
            server.close()
    report.finish(results, describe(results), options.out)


class Server:
    """A server in a separate process.

    Args:
        path, field: route, and key of the texts in its JSON body.
    """

    def __init__(
        self,
        command: Command,
        published: Path,
        threads: int,
        texts: list[str],
        path: str = "/embed",
        field: str = "inputs",
    ) -> None:
        self._path, self._bodies = path, [body_of([text], field) for text in texts]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            command(published, self.port, threads), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parent, process_group=0,
        )  # fmt: skip

    def close(self) -> None:
        """Stop the server and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    async def is_ready(self) -> bool:
        """Wait until the server responds; False if it does not within a few minutes."""
        client, deadline = Client(self.port), time.monotonic() + _START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                is_warm = await client.send("GET", "/ready", b"") != 503  # others have no such route
                if is_warm and await client.send("POST", self._path, self._bodies[0]) == 200:
                    return True
            await asyncio.sleep(0.5)
        return False

    @property
    def resident_bytes(self) -> int:
        """Memory of the first process of the server."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def measure(self, most_p99_ms: float) -> dict:
        """The loads at rising rates, the best of them, and the memory of the first process afterwards."""
        loads = asyncio.run(self._loads(most_p99_ms))
        held = [load for load in loads[1:] if load.holds(most_p99_ms)]
        return {
            "unloaded": asdict(loads[0]),
            "best": asdict(held[-1]) if held else None,
            "loads": [asdict(load) for load in loads],
            "resident_bytes": self.resident_bytes,
        }

    async def _loads(self, most_p99_ms: float) -> list[Load]:
        client = Client(self.port)

        async def at(rate: float) -> Load:
            return await offer(client, self._bodies, rate, _SECONDS, path=self._path)

        await at(20)  # warm
        return [await at(5), *await loads_at_rising_rates(at, _FIRST_RATE, most_p99_ms)]


def describe(results: dict) -> str:
    rows = [
        [
            row["server"],
            *([f"{row['best'][key]:.0f}" for key in ("rate", "p50_ms", "p99_ms")] if row["best"] else "---"),
            *(f"{row['unloaded'][key]:.1f}" for key in ("p50_ms", "p99_ms")),
            f"{row['resident_bytes'] / 2**20:.0f}",
        ]
        for row in results["servers"]
    ]
    lines = [
        f"# Serving {results['model']} over HTTP, {results['date']}",
        "",
        report.machine(results),
        "",
        report.markdown_table(list(_COLUMNS), *rows),
        "",
        f"{EXPLANATION} Limit of the 99th percentile: {results['most_p99_ms']:.0f} ms.",
        "",
        *report.skipped_lines(results),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
