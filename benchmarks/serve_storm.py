"""Response times of single texts during storms of large requests whose clients leave.

    python benchmarks/serve_storm.py [--seconds 20] [--threads 2] [--out benchmarks/results]

One client sends a passage of Python's documentation five times per second. Meanwhile twelve others send 400 equal texts
each to `bertkit serve`, and close their connections after 0.2 seconds; every two seconds again. The memory of the
server is read before, at most, and a minute after the last storm.
"""

import argparse
import asyncio
import contextlib
from dataclasses import asdict

import report
import texts
from models import MINILM, published_folder
from serve import SERVERS, Server
from servers import body_of

from bertkit.sizing.load import Client, Load, offer

_RATE, _NUM_CLIENTS, _NUM_TEXTS, _STAY_SECONDS, _EVERY_SECONDS = 5.0, 12, 400, 0.2, 2.0
_MOST_RATIO, _MOST_GROWTH = 2.0, 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    results, options = report.begin("serve-storm", parser)
    passages = texts.shuffled(texts.documentation())[:400]
    server = Server(SERVERS["bertkit fp32"], published_folder(MINILM), options.threads, passages)
    try:
        if not asyncio.run(server.is_ready()):
            raise RuntimeError("it did not start")
        results |= asyncio.run(measure(server, passages, options.seconds))
    finally:
        server.close()
    report.finish(results, describe(results), options.out)
    assert results["ratio"] < _MOST_RATIO and results["growth"] < _MOST_GROWTH, (results["ratio"], results["growth"])


async def measure(server: Server, passages: list[str], seconds: float) -> dict:
    """Times of single texts alone and during storms, and the memory of the server."""
    single, client, most = [body_of([text]) for text in passages], Client(server.port), 0
    equal = [body_of([f"{text} {number}"] * _NUM_TEXTS) for number, text in enumerate(passages[:_NUM_CLIENTS])]

    async def leave_soon(body: bytes) -> None:
        sending = Client(server.port).send("POST", "/embed", body)
        with contextlib.suppress(TimeoutError):  # it was canceled, and its connection is closed when it is collected
            await asyncio.wait_for(sending, _STAY_SECONDS)

    async def storms() -> None:
        nonlocal most
        while True:
            await asyncio.gather(*map(leave_soon, equal))
            most = max(most, server.resident_bytes)
            await asyncio.sleep(_EVERY_SECONDS)

    async def small() -> Load:
        return await offer(client, single, _RATE, seconds)

    await offer(client, single, 20, 3)  # warm
    alone, before = await small(), server.resident_bytes
    storm = asyncio.ensure_future(storms())
    during = await small()
    storm.cancel()
    await asyncio.sleep(60)
    after = server.resident_bytes
    return {
        "alone": asdict(alone), "during": asdict(during), "ratio": during.p99_ms / alone.p99_ms,
        "resident_bytes": [before, most, after], "growth": after / before,
    }  # fmt: skip


def describe(results: dict) -> str:
    rows = [[name, *(f"{results[name][key]:.1f}" for key in ("p50_ms", "p99_ms"))] for name in ("alone", "during")]
    before, most, after = (size / 2**20 for size in results["resident_bytes"])
    lines = [
        f"# Single texts during storms of requests whose clients leave, {results['date']}",
        "",
        report.machine(results),
        "",
        report.markdown_table(["", "one text: p50 ms", "p99 ms"], *rows),
        "",
        f"all-MiniLM-L6-v2 in float32; {_NUM_CLIENTS} requests of {_NUM_TEXTS} equal texts each, left after "
        f"{_STAY_SECONDS:g} s. Ratio of the p99 {results['ratio']:.2f}. Resident memory {before:.0f} MiB before, at "
        f"most {most:.0f}, {after:.0f} a minute later.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
