"""Safetensors files, validated before memory is allocated.

A file is 8 bytes of header length, a JSON header (name -> dtype, shape, byte range), and the bytes: data, no code. A
hostile file can still state wrong lengths, so the header size is bounded, and the byte ranges must tile the file
exactly.
"""

import json
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.checkpoint.ignored_parts import is_ignored_tensor
from bertkit.errors import CheckpointError
from bertkit.files.formats import refuse_pointer
from bertkit.files.json_files import read_json

if TYPE_CHECKING:
    from torch import Tensor

_MAX_HEADER_BYTES = 10_000_000
_MAX_TENSORS = 100_000
_OTHER_STATE = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
_OTHER_WEIGHTS = (".safetensors", ".gguf", ".onnx", ".h5", ".msgpack", ".xml")
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor described by a header."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int = 0  # in the file, in bytes


def stored_tensors(directory: Path) -> dict[str, StoredTensor]:
    """All tensors in the safetensors files of a model folder, by name, without `ignoring`; only headers are read.

    Raises:
        CheckpointError: no safetensors weights, or a file that is truncated, malformed or outside the folder.
    """
    return {name: tensor for name, tensor in _all_tensors(directory).items() if not is_ignored_tensor(name)}


def _all_tensors(directory: Path) -> dict[str, StoredTensor]:
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.is_file():
        return {tensor.name: tensor for tensor in _read_header(single)}
    if not index.is_file():
        raise _no_safetensors(directory)
    weight_map = _weight_map(index)
    tensors: dict[str, StoredTensor] = {}
    for shard in shard_names(index, ".safetensors"):
        for tensor in _read_header(directory / shard):
            if weight_map.get(tensor.name) != shard:
                raise CheckpointError(
                    f"{directory / shard} holds {tensor.name!r}, which the index assigns to another file"
                )
            tensors[tensor.name] = tensor
    if missing := weight_map.keys() - tensors.keys():
        raise CheckpointError(f"{index} names tensors that no shard holds: {', '.join(sorted(missing)[:5])}")
    return tensors


def shard_names(index: Path, suffix: str) -> list[str]:
    """Names of the files, next to an index, that hold the tensors.

    Raises:
        CheckpointError: no index, or a file that is missing, elsewhere or of another suffix.
    """
    shards = sorted(set(map(str, _weight_map(index).values())))
    for shard in shards:
        if Path(shard).name != shard or "\\" in shard or not shard.endswith(suffix) or len(shard) > 200:
            raise CheckpointError(f"{index} names the file {shard!r:.200}: only {suffix} files next to it are read")
    for shard in shards:
        if not (index.parent / shard).is_file():
            raise CheckpointError(f"{index.parent} lacks {shard}, which its index names: fetch the model again")
    return shards


def _weight_map(index: Path) -> dict[str, Any]:
    weight_map = (read_json(index) or {}).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map: fetch or save the model again")
    return weight_map


def read_arrays(tensors: Collection[StoredTensor], dtype: str | None = "float32") -> dict[str, np.ndarray]:
    """Stored numbers in a dtype, by their stored names: in the memory of their files if that is theirs, where changes
    are private; otherwise copies.

    Args:
        dtype: None: that of each in its file, float32 for bfloat16.

    Raises:
        CheckpointError: numbers that are NaN or infinite.
    """
    values, paths = {}, {tensor.file for tensor in tensors}
    files = {file: np.memmap(file, np.uint8, mode="c") for file in paths}
    for tensor in tensors:
        numbers = np.asarray(files[tensor.file])[tensor.start :][: math.prod(tensor.shape) * BYTES[tensor.dtype]]
        if tensor.dtype == "BF16":
            numbers = (numbers.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            kind = tensor.dtype[0].lower()  # of floating point, integers, unsigned integers, or truth values
            numbers = numbers.view("?" if kind == "b" else f"<{kind}{BYTES[tensor.dtype]}")
        values[tensor.name] = np.require(numbers.reshape(tensor.shape), dtype, "A")
        _check_finite(tensor, values[tensor.name])
    return values


def read_tensors(tensors: Collection[StoredTensor]) -> "dict[str, Tensor]":
    """As `read_arrays`, with the stored dtypes.

    Raises:
        CheckpointError: numbers that are NaN or infinite.
    """
    from torch import bfloat16, from_numpy

    are_bfloat16 = {tensor.name for tensor in tensors if tensor.dtype == "BF16"}  # numpy has no such dtype
    values = {name: from_numpy(numbers) for name, numbers in read_arrays(tensors, dtype=None).items()}
    return {name: value.to(bfloat16) if name in are_bfloat16 else value for name, value in values.items()}


def _check_finite(tensor: StoredTensor, numbers: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        if np.isfinite(numbers.sum()):
            return
    if num_wrong := int((~np.isfinite(numbers)).sum()):  # not only their sum
        raise CheckpointError(
            f"{tensor.file}: {num_wrong:,} of the {numbers.size:,} numbers of {tensor.name} are NaN or infinite: its "
            "training diverged or the file is damaged; take an earlier checkpoint"
        )


def _read_header(file: Path) -> list[StoredTensor]:
    refuse_pointer(file)
    size = file.stat().st_size
    with open(file, "rb") as handle:
        header_bytes = int.from_bytes(handle.read(8), "little")
        if size < 8 or header_bytes > size - 8:
            raise CheckpointError(f"{file} is truncated or not a safetensors file ({size} bytes): fetch it again")
        if header_bytes > _MAX_HEADER_BYTES:
            raise CheckpointError(
                f"{file} has a header of {header_bytes} bytes, more than any real model: fetch it again"
            )
        try:
            header = json.loads(handle.read(header_bytes))
            entries = [_entry(file, name, entry) for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, AttributeError, RecursionError):
            raise CheckpointError(f"{file} has a malformed header: it is not a safetensors file") from None
    if len(entries) > _MAX_TENSORS:
        raise CheckpointError(f"{file} has {len(entries)} tensors, more than any real model: fetch it again")
    position = 0
    for start, end, tensor in sorted(entries, key=lambda entry: entry[:2]):
        if tensor.dtype not in BYTES or min(tensor.shape, default=0) < 0:
            raise CheckpointError(
                f"{file}: {tensor.name!r} has dtype {tensor.dtype!r} and shape {list(tensor.shape)}: not supported"
            )
        if start != position or end - start != math.prod(tensor.shape) * BYTES[tensor.dtype]:
            raise CheckpointError(f"{file}: the bytes of {tensor.name!r} do not fit its shape {list(tensor.shape)}")
        position = end
    if position != size - 8 - header_bytes:
        raise CheckpointError(
            f"{file} is truncated or padded: its header describes {position} bytes of weights, it holds "
            f"{size - 8 - header_bytes}; fetch it again"
        )
    return [replace(tensor, start=8 + header_bytes + start) for start, _, tensor in entries]


def _entry(file: Path, name: str, entry: Any) -> tuple[int, int, StoredTensor]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            if all(type(size) is int for size in shape):
                return start, end, StoredTensor(file, name, dtype, tuple(shape))
    raise ValueError(name)


def _no_safetensors(directory: Path) -> CheckpointError:
    pickled = pickled_files(directory)
    if not pickled:
        near = (path for pattern in ("*", "*/*") for path in directory.glob(pattern))  # not all below a large folder
        names = sorted(str(path.relative_to(directory)) for path in near if path.suffix in _OTHER_WEIGHTS)
        contrast = f", not {', '.join(names[:3])}" if names else ""
        return CheckpointError(f"{directory} holds no weights: expected model.safetensors or its index{contrast}")
    return CheckpointError(
        f"{directory} has its weights as a pickle ({pickled[0].name}), which can run any code when loaded, so it is "
        f"not read: convert it with bertkit convert {directory}, which reads only tensors and runs nothing"
    )


def pickled_files(directory: Path) -> list[Path]:
    """Files of a model folder that may be pickled weights, without those of a training run's other state."""
    patterns = ("*.bin", "*.pt", "*.pth", "*.ckpt")
    files = sorted(file for pattern in patterns for file in directory.glob(pattern))
    return [file for file in files if not file.name.startswith(_OTHER_STATE)]


def ignored(name: str, patterns: Collection[str]) -> bool:
    """True for the name of a stored tensor that is equal to or matches any of the patterns, such as ``cls.extra.*``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
