"""The best that can be built of a peer engine: length-sorted batches of whatever waits, one model thread, Starlette and
orjson, no validation. ``python -m servers.engine_starlette FOLDER PORT PRECISION THREADS MODULE`` of `peers`."""

import asyncio
import importlib
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

folder, port, precision, threads, module = sys.argv[1:]
_MOST_TEXTS = 64
engine = importlib.import_module(f"peers.{module}").load(Path(folder), precision, int(threads))
thread = ThreadPoolExecutor(1)
waiting: deque[tuple[list[str], asyncio.Future]] = deque()
arrived = asyncio.Event()


def answers(requests: list[list[str]]) -> list[bytes]:
    """The JSON of each request."""
    vectors = engine([text for texts in requests for text in texts], tokens_per_batch=512)
    bodies, start = [], 0
    for texts in requests:
        bodies.append(orjson.dumps(vectors[start : start + len(texts)], option=orjson.OPT_SERIALIZE_NUMPY))
        start += len(texts)
    return bodies


async def compute() -> None:
    """Take what waits, as soon as the engine is free."""
    while True:
        await arrived.wait()
        arrived.clear()
        while waiting:
            taken, count = [], 0
            while waiting and count < _MOST_TEXTS:
                taken.append(waiting.popleft())
                count += len(taken[-1][0])
            bodies = await asyncio.get_running_loop().run_in_executor(thread, answers, [texts for texts, _ in taken])
            for (_, future), body in zip(taken, bodies, strict=True):
                future.set_result(body)


async def embed(request: Request) -> Response:
    """One vector for each text."""
    future = asyncio.get_running_loop().create_future()
    waiting.append((orjson.loads(await request.body())["inputs"], future))
    arrived.set()
    return Response(await future, media_type="application/json")


async def main() -> None:
    """Serve."""
    task = asyncio.ensure_future(compute())
    app = Starlette(routes=[Route("/embed", embed, methods=["POST"])])
    await uvicorn.Server(uvicorn.Config(app, port=int(port), http="h11", loop="asyncio", log_level="warning")).serve()
    task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
