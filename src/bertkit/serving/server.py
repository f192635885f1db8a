"""A server: warmed up, listening, reloaded on SIGHUP, drained on SIGTERM and Ctrl-C."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop
from starlette.middleware.cors import CORSMiddleware

from bertkit.errors import UsageError
from bertkit.model import Model
from bertkit.model.shared_weights import share_equal_weights
from bertkit.serving.app import Application
from bertkit.serving.connections import limited_protocol
from bertkit.serving.engine import Engine
from bertkit.serving.generation import warm_up_generator
from bertkit.serving.guard import Guard
from bertkit.serving.memory import (
    exempt_from_collection,
    return_free_memory,
    return_memory_when_idle,
    unmap_pages_of_unused_files,
    use_one_heap,
)
from bertkit.serving.metrics import Metrics
from bertkit.serving.reload import Reload, has_threads, in_thread
from bertkit.serving.served_models import Served, ServedGenerator, ServedModel, ServedModels
from bertkit.serving.service import Service
from bertkit.serving.settings import ServerSettings
from bertkit.serving.shared_model import SharedModel, warm_up

if TYPE_CHECKING:
    from bertkit.generation import Generator
    from bertkit.search.index import Index

_LOCAL = {"127.0.0.1", "::1", "localhost"}
_LOG = logging.getLogger("bertkit.serving")
_KEEP_ALIVE_SECONDS = 75
"""Seconds to keep idle connections: longer than clients keep theirs, so that these do not use closed ones."""

_SWITCH_SECONDS = 0.0002
"""Seconds between thread switches of Python, short for a responsive event loop."""

_STOPPING = signal.SIGTERM, signal.SIGINT


@dataclass(frozen=True)
class Address:
    """The address that a server listens on."""

    host: str = "127.0.0.1"
    port: int = 8080  # 0: any free port
    unix_socket: Path | None = None  # instead of host and port

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.unix_socket is not None or self.host in _LOCAL


@dataclass(frozen=True)
class Loaded:
    """What is served."""

    models: Mapping[str, Model | Generator]  # by name
    index: Index | None = None  # what /search searches
    precision: str = "float32"  # of generators
    aliases: Mapping[str, str] = field(default_factory=dict)  # further names of models, with the name of each


def serve(
    load: Callable[[], Loaded],
    settings: ServerSettings,
    address: Address,
    *,
    on_ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Serve models until SIGTERM or Ctrl-C; requests in progress are finished first. Call it from the main thread.

    While the models are loaded and warmed up, and at the second signal, nothing is waited for: threads that still
    compute cannot be interrupted, so the process is ended, with exit code 0.

    Args:
        load: loads the models and the index; called again on SIGHUP.
        on_ready: called with the URL when everything is warm.

    Raises:
        UsageError: the address is in use, or not one of this machine.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    use_one_heap()
    handlers = {number: signal.getsignal(number) for number in (*_STOPPING, signal.SIGHUP)}
    try:
        with _listening(address) as listener:
            is_idle = uvloop.run(_serve(load, settings, address, listener, on_ready))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if not is_idle:
        atexit._run_exitfuncs()  # temporary folders are removed
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # its reader has gone
                stream.flush()
        os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: `_serve` has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    load: Callable[[], Loaded],
    settings: ServerSettings,
    address: Address,
    listener: socket.socket,
    on_ready: Callable[[str], object],
) -> bool:
    """Serve until a signal; returns whether no thread computes any more."""
    loop = asyncio.get_running_loop()
    metrics = Metrics()
    engine = Engine(settings, lambda size, tokens: metrics.observe(batch_next_size=size, batch_next_tokens=tokens))
    metrics.gauges["te_queue_size"] = "Texts that wait for a core.", lambda: engine.num_waiting

    def opened_and_warm() -> ServedModels:
        models = _open(load, engine)
        _warm_up(models, engine)
        return models

    reload = Reload(opened_and_warm)
    loop.add_signal_handler(signal.SIGHUP, reload.ask)
    loading = in_thread(lambda: _open(load, engine))
    stopped = loop.create_future()
    for number in _STOPPING:
        loop.add_signal_handler(number, stopped.cancel)
    await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if stopped.cancelled():  # also if both: a signal must not be lost
        return False
    service = Service(loading.result(), engine, metrics)
    del loading  # it keeps the models
    is_local_only = address.is_local and not settings.api_keys
    guarded = Guard(Application(service), service, local_only=is_local_only)
    app: Any = guarded
    if settings.cors_origins:  # pages of other origins cannot read a response without these headers
        exposed = ["retry-after", "x-request-id", "x-inputs-cut", "x-tokens-cut", "x-tokens-unknown", "x-inputs-empty"]
        app = CORSMiddleware(
            app, settings.cors_origins, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=exposed
        )
    config = uvicorn.Config(
        app, http=limited_protocol(settings, guarded.refuse), ws="none", lifespan="off", log_config=None,
        access_log=False, log_level="error", server_header=False, timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.drain_timeout_seconds),
    )  # fmt: skip
    server = _Server(config)
    logging.getLogger("uvicorn.error").addFilter(_is_fault)

    def stop() -> None:
        server.force_exit = service.is_draining  # the second signal forces the exit
        service.is_draining = server.should_exit = True

    async def become_ready() -> None:
        try:
            await in_thread(lambda: _warm_up(service.models, engine))
        except BaseException:
            server.should_exit = True
            raise
        if not server.should_exit:
            service.is_ready = True
            on_ready(_url(address, listener))

    for number in _STOPPING:
        loop.add_signal_handler(number, stop)
    warming = asyncio.ensure_future(become_ready())
    others = [
        asyncio.ensure_future(reload.run(service, warming)),
        asyncio.ensure_future(return_memory_when_idle(lambda: engine.num_batches)),
    ]
    await server.serve(sockets=[listener])
    guarded.write_log()
    for task in others:
        task.cancel()
    if warming.done():
        await warming  # raises its error
    return not (service.is_busy or engine.is_busy or has_threads())


def _is_fault(record: logging.LogRecord) -> bool:
    """Whether uvicorn logs more than that it cancelled a request, such as one whose answer its client does not read."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _open(load: Callable[[], Loaded], engine: Engine) -> ServedModels:
    loaded = load()
    index = loaded.index
    share_equal_weights([model for model in loaded.models.values() if isinstance(model, Model)])
    models: list[Served] = [
        ServedModel(name, model.precision, SharedModel(model))
        if isinstance(model, Model)
        else ServedGenerator(name, loaded.precision, model)
        for name, model in loaded.models.items()
    ]
    if index is not None and isinstance(model := index.encoder.model, Model):
        index = index.with_encoder(SharedModel(model))
    return ServedModels(models, index, loaded.aliases)


def _warm_up(models: ServedModels, engine: Engine) -> None:
    for served in models.all.values():
        if isinstance(served, ServedModel):
            warm_up(served, engine)
        elif isinstance(served, ServedGenerator):
            warm_up_generator(served, engine)
    if models.index is not None:
        models.index.search("a", 1)  # compiles what passes over vectors and words need
    exempt_from_collection()
    unmap_pages_of_unused_files()
    return_free_memory()


@contextlib.contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    """The socket of a server; a Unix socket has a file, which is removed afterwards."""
    path = address.unix_socket
    try:
        if path is None:
            (family, kind, protocol, _, where), *_ = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM
            )
            listener = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only if the protocol is given
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            listener, where = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), str(path)
            if path.is_socket() and not _is_answered(path):
                path.unlink()  # left by a server that was killed
        listener.bind(where)
        own = None if path is None else os.stat(path)
    except (OSError, UnicodeError) as error:  # the second of a host name that is none
        shown = path or f"{address.host}:{address.port}"
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot listen at {shown}: {reason}; choose another address") from None
    try:
        listener.listen(2_048)
        yield listener
    finally:
        listener.close()
        if path is not None and own is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(path), own):  # not of a server that was started while this one ended
                    os.unlink(path)


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(str(path)) == 0


def _url(address: Address, listener: socket.socket) -> str:
    if address.unix_socket is not None:
        return f"unix:{address.unix_socket}"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"http://{host}:{listener.getsockname()[1]}"
