"""Folders of others made ready to open: pickled weights as safetensors, without a prefix, tensors or config keys.

A pickle can run any code when it is read as Python does. Here ``torch.load(weights_only=True)`` reads it, which makes
tensors and containers of them and refuses everything else.
"""

import pickle
import re
import shutil
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bertkit.checkpoint.weights import ignored, pickled_files, read_tensors, shard_names, stored_tensors
from bertkit.errors import CheckpointError, UsageError
from bertkit.files.formats import refuse_pointer
from bertkit.files.json_files import read_json, write_json
from bertkit.files.whole_files import check_not_input, whole_file, whole_folder
from bertkit.locate import sentence_modules, transformer_folder

_WEIGHTS = "model.safetensors"
_ALL_WEIGHTS = shutil.ignore_patterns(
    *("*.bin", "*.pt", "*.pth", "*.ckpt", "*.safetensors", "*.h5", "*.msgpack", "*.onnx", "*.bin.index.json"),
    *("*.safetensors.index.json", ".git"),
)


def convert_folder(
    directory: Path,
    out: Path | None = None,
    *,
    prefix: str = "",
    ignore_tensors: Collection[str] = (),
    ignore_config_keys: Collection[str] = (),
) -> dict[Path, int]:
    """Write ``model.safetensors`` for the weights of a model folder, and of the layers of a sentence encoder.

    Args:
        out: a new folder with all other files, too; None: ``directory``, which keeps its pickled weights.
        prefix: to take off the names of tensors that begin with it, such as "module.".
        ignore_tensors: tensors to leave out: names without ``prefix``, or patterns such as ``cls.extra.*``.
        ignore_config_keys: keys of config.json to leave out.

    Returns:
        The number of tensors in each written file.

    Raises:
        CheckpointError: no weights, or weights that cannot be read without running code.
        UsageError: nothing to convert, an option without effect, or an ``out`` that is not empty.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a folder: expected the folder of a model")
    main = transformer_folder(directory)
    folders = dict.fromkeys([main, *(directory / module["path"] for module in sentence_modules(directory))])
    folders = [folder for folder in folders if folder == main or pickled_files(folder) or _is_converted(folder)]
    if out is None:
        folders = [folder for folder in folders if not _is_converted(folder)]
        if main not in folders and (prefix or ignore_tensors or ignore_config_keys or not folders):
            raise UsageError(f"{directory} already has its weights as safetensors: choose a new folder with --out")
        return _convert(directory, directory, main, folders, prefix, ignore_tensors, ignore_config_keys)
    check_not_input(out, directory)
    with whole_folder(out) as temporary:
        shutil.copytree(directory, temporary, ignore=_ALL_WEIGHTS, dirs_exist_ok=True)
        written = _convert(directory, temporary, main, folders, prefix, ignore_tensors, ignore_config_keys)
    return {out / file.relative_to(temporary): number for file, number in written.items()}


def _convert(
    source: Path,
    target: Path,
    main: Path,
    folders: list[Path],
    prefix: str,
    ignore_tensors: Collection[str],
    ignore_config_keys: Collection[str],
) -> dict[Path, int]:
    """Read all weights, then write them to the same subfolders of ``target``."""
    values = {folder: _stored_values(folder) for folder in folders}
    if main in values:
        values[main] = _selected(values[main], prefix, ignore_tensors, main)
    if ignore_config_keys:
        config = read_json(main / "config.json") or {}
        if unknown := set(ignore_config_keys) - config.keys():
            raise UsageError(f"{main / 'config.json'} has no keys {', '.join(sorted(unknown))} to leave out")
        remaining_config = {key: value for key, value in config.items() if key not in ignore_config_keys}
        write_json(target / main.relative_to(source) / "config.json", remaining_config)
    written = {}
    for folder, tensors in values.items():
        file = target / folder.relative_to(source) / _WEIGHTS
        with whole_file(file) as temporary:
            save_file(tensors, temporary, metadata={"format": "pt"})
        written[file] = len(tensors)
    return written


def _selected(
    values: dict[str, Tensor], prefix: str, ignore_tensors: Collection[str], folder: Path
) -> dict[str, Tensor]:
    """The values without a prefix of their names, and without ignored ones."""
    renamed = {name.removeprefix(prefix): value for name, value in values.items()}
    if prefix and renamed.keys() == values.keys():
        raise UsageError(f"no tensor of {folder} has the prefix {prefix!r}: they begin with {min(values)}")
    if len(renamed) < len(values):
        raise CheckpointError(f"{folder} holds names of tensors both with and without the prefix {prefix!r}")
    for pattern in ignore_tensors:
        if not any(ignored(name, [pattern]) for name in renamed):
            raise UsageError(f"no tensor of {folder} matches {pattern!r}: they begin with {min(renamed)}")
    return {name: value for name, value in renamed.items() if not ignored(name, ignore_tensors)}


def _is_converted(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (_WEIGHTS, f"{_WEIGHTS}.index.json"))


def _stored_values(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by name, each with memory that no other shares."""
    if _is_converted(folder):
        return read_tensors(list(stored_tensors(folder).values()))
    files = pickled_files(folder)
    index, usual = folder / "pytorch_model.bin.index.json", folder / "pytorch_model.bin"
    if index.is_file():
        files = [folder / name for name in shard_names(index, ".bin")]
    elif usual in files:
        files = [usual]
    if len(files) != 1 and not index.is_file():
        content = f"several pickles ({', '.join(file.name for file in files)})" if files else "no weights"
        raise CheckpointError(f"{folder} holds {content}: expected pytorch_model.bin, its shards, or one file")
    values: dict[str, Tensor] = {}
    for file in files:
        values |= _pickled_values(file)
    return values


def _pickled_values(file: Path) -> dict[str, Tensor]:
    refuse_pointer(file)
    size = file.stat().st_size
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > size:
                raise CheckpointError(f"{file} is compressed, as torch never writes it: it is not read")
    try:
        with warnings.catch_warnings(action="ignore"):  # of protocols that it may not know, which it then refuses
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL (\S+)", str(error))
        what = f"it names {name[1]}, which is not a tensor" if name else "it is not a pickle of tensors, or damaged"
        raise CheckpointError(
            f"{file} is not read, as {what}: reading it may run any code; save the tensors alone where it was made "
            "(torch.save(model.state_dict(), ...))"
        ) from None
    except Exception as error:  # the library raises many kinds for damaged files
        raise CheckpointError(f"{file} cannot be read ({error!s:.200}): fetch it again") from None
    values = {name: value.detach() for name, value in _state_dict(content, file).items()}
    strided = all(value.layout == torch.strided and not value.is_quantized for value in values.values())
    if not strided or sum(value.numel() * value.element_size() for value in values.values()) > 2 * size:
        raise CheckpointError(f"{file} holds tensors that are sparse, quantized or repeated: expected plain weights")
    return {name: value.clone(memory_format=torch.contiguous_format) for name, value in values.items()}


def _state_dict(content: Any, file: Path) -> dict[str, Tensor]:
    """The tensors by name: the content, or the one member with them of a checkpoint of a training run."""
    members = content.values() if isinstance(content, dict) else ()
    state_dicts = [one for one in (content, *members) if _is_state_dict(one)]
    if len(state_dicts) != 1:
        keys = ", ".join(map(str, content))[:200] if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(f"{file} holds {keys}: expected tensors by name, or one dict of them")
    return state_dicts[0]


def _is_state_dict(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items())
    )
