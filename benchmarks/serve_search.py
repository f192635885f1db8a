"""Response times of one search in a million passages, and of sixteen concurrent searches.

    python benchmarks/serve_search.py [--num-rows 1000000] [--rounds 10] [--folder F] [--threads 2]
        [--out benchmarks/results]

`bertkit serve --store` searches by meaning for short passages of Python's documentation, 10 to 14 tokens. The index is
synthetic: vectors of passages with noise, which stay in a folder for the next run, 2.2 GB for a million.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import report
import texts
from models import MINILM, published_folder
from query import short_queries
from serve import Server
from turns import say

from bertkit.search import Record
from bertkit.search.index import Index
from bertkit.sizing.load import Client

_TOGETHER, _NOISE = 16, 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=report.CACHE / "serve-search")
    results, options = report.begin("serve-search", parser)
    published = published_folder(MINILM)
    queries, folder = short_queries(published, 200), options.folder / str(options.num_rows)
    if not folder.exists():
        make_index(folder, texts.shuffled(texts.documentation())[200:], options.num_rows)

    def command(published: Path, port: int, threads: int) -> list[str]:
        words = ["--store", str(folder), "--port", str(port), "--device", "cpu"]
        return [sys.executable, "-m", "bertkit", "serve", *words]

    server = Server(command, published, options.threads, queries[:1])
    try:
        if not asyncio.run(server.is_ready()):
            raise RuntimeError("it did not start")
        results |= {"num_rows": options.num_rows} | asyncio.run(measured(server.port, queries, options.rounds))
    finally:
        server.close()
    report.finish(results, describe(results), options.out)


def make_index(folder: Path, passages: list[str], num_rows: int) -> None:
    """Write an index in which each vector is that of a passage plus noise."""
    with Index.open(folder, published_folder(MINILM), device="cpu") as index:
        centers = index.encoder.embed_document(passages)
        draw = np.random.default_rng(0)

        def records() -> Iterator[Record]:
            for number in range(num_rows):
                if number % 100_000 == 0:
                    say(f"{number:,} rows")
                vector = draw.standard_normal(centers.shape[1], dtype=np.float32)
                vector = centers[number % len(centers)] + _NOISE * vector / np.linalg.norm(vector)
                text = f"passage {number}"
                yield Record(str(number), text, vector / np.linalg.norm(vector), str(number), 0, len(text))

        index.store.add(records())
        index.add([])  # writes the files of the words


async def measured(port: int, queries: list[str], rounds: int) -> dict:
    """Milliseconds until one search is answered, and until the last of several concurrent ones is."""
    client = Client(port)
    bodies = [json.dumps({"query": query, "mode": "dense", "k": 10}).encode() for query in queries]

    async def seconds(sent: list[bytes]) -> float:
        start = time.perf_counter()
        statuses = await asyncio.gather(*(client.send("POST", "/search", body) for body in sent))
        assert set(statuses) == {200}, statuses
        return time.perf_counter() - start

    one, together = [], []
    for number in range(rounds + 2):
        start = number * 7 % (len(bodies) - _TOGETHER)
        several = await seconds(bodies[start : start + _TOGETHER])
        singles = [await seconds([body]) for body in bodies[start : start + 5]]
        if number >= 2:  # those before are a warm-up
            together.append(1e3 * several)
            one += [1e3 * single for single in singles]
    return {"one_ms": float(np.median(one)), "together_ms": float(np.median(together)), "num_together": _TOGETHER}


def describe(results: dict) -> str:
    one, together = results["one_ms"], results["together_ms"]
    lines = [
        *report.heading(f"Searches of {results['num_rows']:,} passages through the server", results),
        f"One search by meaning: {one:.1f} ms; {results['num_together']} that arrive together: {together:.1f} ms until "
        f"the last answer, {together / one:.2f} times one. Medians; int8 scan, all-MiniLM-L6-v2 in float32.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
