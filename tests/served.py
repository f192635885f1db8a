"""A server in a separate process, on a free port of this machine."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Server:
    """A running `bertkit serve`."""

    url: str
    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)

    def request(
        self, path: str, body: Any = None, *, method: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body (parsed if it is JSON) and headers of a response; ``body`` is sent as JSON unless bytes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json"} | (headers or {})
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, _parsed(response.read()), dict(response.headers)
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read()), dict(error.headers)

    def post(self, path: str, body: Any) -> Any:
        """The body of an answer with status 200."""
        status, answer, _ = self.request(path, body)
        assert status == 200, (status, answer)
        return answer


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


@contextmanager
def serving(*arguments: str | Path) -> Iterator[Server]:
    """``bertkit serve`` with these arguments, ready; stopped afterwards."""
    command = [sys.executable, "-m", "bertkit", "serve", "--port", "0", *map(str, arguments)]
    # Threads that wait for each other sleep, as the machine may have other work to do.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    server = Server("", process)
    for line in process.stderr:
        server.log.append(line)
        if ready := re.search(r' ready at ([^\s"]+)', line):
            server.url = ready[1]
            break
    assert server.url, "".join(server.log)
    threading.Thread(target=server.log.extend, args=(process.stderr,), daemon=True).start()
    try:
        yield server
    finally:
        process.kill()
        process.wait()
