"""bertkit serve"""

import logging
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model
from bertkit.cli.output import note
from bertkit.errors import DependencyError, UsageError
from bertkit.locate import is_adapter, lasting_name

if TYPE_CHECKING:
    from bertkit.generation import Generator
    from bertkit.model import Model
    from bertkit.search.index import Index


def command(
    *,
    model: list[str] | None = None,
    served_model_name: list[str] | None = None,
    store: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    unix_socket: Path | None = None,
    api_key_file: Path | None = None,
    accept_token_ids: bool = False,
    cors_origin: list[str] | None = None,
    root_path: str = "",
    client_limits: bool = True,
    words: str | None = None,
    log_format: Literal["text", "json"] = "text",
    compute: Compute = EXACT,
) -> None:
    """Serve one or several models over HTTP: OpenAI's embeddings, text-embeddings-inference, and more.

    Stops on Ctrl-C or SIGTERM after answering the requests in progress; reloads models and store on SIGHUP.

    Parameters
    ----------
    model
        A folder, a hub name, or the import name of an installed model package; may be repeated. Also the folder of an
        adapter (LoRA): what it has in common with other models is in memory once. The name of a model in
        requests is the last part of this, or all of it if two models have the same last part; requests may also use all
        of it, and the hub name. By default the model of the store, or all-MiniLM-L6-v2 without a store.
    served_model_name
        The name of the model in requests and answers; may be repeated. With several models, one name for each; with
        one model, further ones are other names that requests may use.
    store
        The folder of an index that bertkit index created, for /search.
    host
        The address to listen on; by default only programs on this machine can connect. 0.0.0.0 is all addresses.
    port
        The port to listen on; 0 chooses a free one.
    unix_socket
        Listen on this socket file instead of host and port.
    api_key_file
        A file with a key on each line. Requests must send one of the keys as bearer token, except for the playground,
        /health, /ready and /metrics.
    accept_token_ids
        Accept token ids of the served model's tokenizer instead of texts on /v1/embeddings.
    cors_origin
        An origin of pages in browsers, such as https://example.com, that may send requests and read the answers; may be
        repeated. * is all. By default none.
    root_path
        The prefix of all paths, such as /bert, if a proxy serves this server below it.
    client_limits
        End connections of clients that send or read too slowly; --no-client-limits if a proxy in front does that.
    words
        For taggers, the rule for splitting texts into words, punctuation or spaces; by default the model's.
    log_format
        The form of messages on stderr: text, or json, each as a JSON object. Requests are JSON lines in both.
    """
    try:
        from bertkit.serving.log_lines import JsonLines
        from bertkit.serving.server import Address, Loaded, serve
    except ModuleNotFoundError as error:
        raise DependencyError(f"bertkit serve needs {error.name}: pip install 'bertkit[serve]'") from None
    from bertkit.serving.settings import ServerSettings

    names, aliases = _names(model or [_model_of(store)], served_model_name or [])
    if not 0 <= port < 2**16:
        raise UsageError(f"--port {port}: expected 0 to 65535")
    settings = ServerSettings(
        api_keys=_keys(api_key_file),
        accept_token_ids=accept_token_ids,
        cors_origins=tuple(map(_origin, cors_origin or ())),
        root_path=_root_path(root_path),
    )
    if not client_limits:
        settings = replace(settings, receive_timeout_seconds=math.inf, send_timeout_seconds=math.inf)

    def load() -> Loaded:
        index = None if store is None else _index(store, compute.device)
        models = {name: _opened(each, index, compute, log) for name, each in names.items()}
        if words is not None:
            _split_words(list(models.values()), words)
        return Loaded(models, index, "float32" if compute.precision == "auto" else compute.precision, aliases)

    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonLines())
        logging.captureWarnings(True)
    logging.basicConfig(handlers=[handler], level=logging.INFO, format="%(message)s")
    log = logging.getLogger("bertkit.serving").info if log_format == "json" else note
    served, address = ", ".join(names), Address(host, port, unix_socket)
    if not (address.is_local or settings.api_keys):
        log(f"bertkit: --host {host} without --api-key-file: whoever reaches this machine can use the server")
    serve(load, settings, address, on_ready=lambda url: log(f"bertkit: {served} ready at {url}"))


def _model_of(store: Path | None) -> str:
    """The name of the model that a store was made with."""
    if store is None:
        return EMBEDDING_MODEL
    with _index(store) as index:
        return index.store.identity.model_name


def _index(store: Path, device: str = "auto") -> "Index":
    from bertkit.search.index import Index

    return Index.open(store, device=device)


def _opened(name: str, index: "Index | None", compute: Compute, log: Callable[[str], object]) -> "Model | Generator":
    """A model; the index's own if it is the same."""
    from bertkit.generation import load_generator, writes_text
    from bertkit.model import Model

    if index is not None:
        identity = index.store.identity
        own = index.encoder.model
        if isinstance(own, Model) and (identity.model_name, identity.precision) == (
            lasting_name(name),
            compute.precision,
        ):
            return own
    if not is_adapter(name) and writes_text(name):
        return load_generator(name, device=compute.device)
    return open_model(name, compute, log)


def _split_words(models: "Sequence[Model | Generator]", words: str) -> None:
    """Change the rule of words of all taggers.

    Raises:
        UsageError: no model is a tagger, or no such rule.
    """
    from bertkit.model import Model
    from bertkit.tasks import TokenClassification

    tasks = [(each, each.checkpoint.trained) for each in models if isinstance(each, Model)]
    taggers = [model for model, trained in tasks if trained and isinstance(trained.task, TokenClassification)]
    if not taggers:
        raise UsageError("--words requires a tagger: none of the models is one")
    for tagger in taggers:
        tagger.change_task(words=words)


def _names(models: Sequence[str], given: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The models by the names of requests, and further names with the name of the model.

    Args:
        given: names instead of the models' own.

    Raises:
        UsageError: two equal models or names, or not a name for each of several models.
    """
    from bertkit.locate import hub_name

    if twice := next((each for each in models if models.count(each) > 1), None):
        raise UsageError(f"--model {twice}: given twice; give each model once")
    if given and len(models) not in (1, len(given)):
        raise UsageError(f"--served-model-name: {len(given)} names for {len(models)} models; give one for each model")
    last = [_last_part(each) for each in models]
    own = [part if last.count(part) == 1 else each for part, each in zip(last, models, strict=True)]
    names = list(given[: len(models)]) or own
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise UsageError(f"--served-model-name {twice}: given twice; give each model its own name")
    others = dict(zip(models, names, strict=True))
    others |= {hub: name for each, name in zip(models, names, strict=True) if (hub := hub_name(each))}
    others |= dict.fromkeys(given[len(models) :], names[0])
    return dict(zip(names, models, strict=True)), others


def _last_part(model: str) -> str:
    """The last part of the path or hub name of a model."""
    path = Path(expanduser(model))
    return path.resolve().name if path.is_dir() else model.rstrip("/").rpartition("/")[2]


def _origin(given: str) -> str:
    """An origin as browsers send it.

    Raises:
        UsageError: something else, which would never match.
    """
    if given != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", given):
        raise UsageError(f"--cors-origin {given}: expected * or an origin without a path, such as https://example.com")
    return given


def _root_path(given: str) -> str:
    """The prefix of a proxy without a slash at its end.

    Raises:
        UsageError: it does not begin with a slash.
    """
    if given and not re.fullmatch(r"(/[^/?#\s]+)*/?", given):
        raise UsageError(f"--root-path {given}: expected a path such as /bert")
    return given.rstrip("/")


def _keys(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: save the keys in that encoding") from None
    keys = tuple(filter(None, map(str.strip, lines)))
    if not keys:
        raise UsageError(f"{path} has no keys: expected one on each line")
    if any(key.startswith("#") for key in keys):
        raise UsageError(f"{path}: a line begins with #, and comments would be keys: expected one key on each line")
    return keys
