"""Fill the parameters of a network with stored or initial values, and record where each comes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np

from bertkit.architectures import Network, initialize
from bertkit.architectures.tensor_names import PROJECTION, TensorNames, module_of
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.checkpoint.content_hash import values_sha256
from bertkit.checkpoint.own_record import NAME, read_section
from bertkit.checkpoint.sentence import projection_tensors
from bertkit.checkpoint.weights import StoredTensor, read_arrays
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member
from bertkit.transformer.modules import assign


def initialize_new(network: Network, names: TensorNames, new: Collection[str], seed: int) -> dict[str, Provenance]:
    """Give the parts in ``new`` initial values."""
    provenance = {}
    for part in new:
        prefix = module_of(part)
        module = network.get_submodule(prefix).to_empty(device="cpu")
        initialize(module, network.config, seed)
        for name, _ in module.named_parameters():
            provenance[names.published(f"{prefix}.{name}")] = Provenance("initialized", f"seed {seed}")
    return provenance


def load_stored(
    network: Network,
    stored: dict[str, StoredTensor],
    names: TensorNames,
    new: Collection[str],
    not_stored: Collection[str],
    dtype: str,
    folder: Path,
) -> dict[str, Provenance]:
    """Assign stored values to every parameter except those of new parts, and to the layers that new heads share."""
    of_new, of_not_stored = (tuple(f"{module_of(part)}." for part in parts) for parts in (new, not_stored))
    parameters = {name: parameter for name, parameter in network.named_parameters() if not name.startswith(PROJECTION)}
    published = {name: names.published(name) for name in parameters}
    taken_over = {
        name
        for name, stored_name in published.items()
        if name.startswith(of_not_stored) and stored_name.startswith(names.shared_parts) and stored_name in stored
    }
    wanted = {
        published[name]: (name, parameter)
        for name, parameter in parameters.items()
        if not name.startswith(of_new) or name in taken_over
    }
    if missing := wanted.keys() - stored.keys():
        wrapper = _wrapper(missing, [tensor.name for tensor in stored.values()], names.prefix)
        wrapped = (
            f"; its names have the prefix {wrapper!r}: take it off with bertkit convert {folder} --out NEW_FOLDER "
            f"--prefix {wrapper}"
        )
        raise CheckpointError(
            f"{folder} lacks {len(missing)} of {len(wanted)} tensors: {some_of(missing)}{wrapped if wrapper else ''}"
        )
    for name, (_, parameter) in wanted.items():
        expected = parameter.shape[::-1] if names.is_transposed(name) else parameter.shape
        if stored[name].shape != tuple(expected):
            raise CheckpointError(
                f"{folder}: {name} has shape {list(stored[name].shape)}; the config requires {list(expected)}"
            )
        if stored[name].dtype not in ("F64", "F32", "F16", "BF16"):
            raise CheckpointError(f"{folder}: {name} is stored as {stored[name].dtype}: expected floating point")
    copies = {
        copy
        for copy, original in names.tied.items()
        if copy in stored and original in wanted and "masked_lm" in network.heads
    }
    values = read_arrays([stored[name] for name in {*wanted, *copies}], dtype)
    for copy in copies:
        original = names.tied[copy]
        if not np.array_equal(values[stored[copy].name], values[stored[original].name]):
            raise CheckpointError(f"{folder}: {copy} differs from {original}: an untied decoder is not supported")
    state = {}
    for name, (ours, _) in wanted.items():
        value = values[stored[name].name]
        state[ours] = np.ascontiguousarray(value.T) if names.is_transposed(name) else value
    assign(network, state)
    return {name: Provenance("loaded", stored[name].file.name) for name in wanted}


def _wrapper(missing: Collection[str], stored: Collection[str], prefix: str) -> str:
    """The prefix of stored names, such as "module.", without which most of the missing ones would be there; "" if there
    is none.

    Args:
        prefix: of the encoder, which a stored encoder without heads lacks.
    """
    for expected in (set(missing), {name.removeprefix(prefix) for name in missing}):
        starts = Counter(
            name[:at]
            for name in stored
            for at in (match.end() for match in re.finditer(r"\.", name))
            if name[at:] in expected
        )
        if starts and max(starts.values()) > len(missing) // 2:
            return starts.most_common(1)[0][0]
    return ""


def load_projection(network: Network, directory: Path, dtype: str) -> dict[str, Provenance]:
    """Load the stored weights of the layers after Pooling."""
    expected = dict(network.projection.named_parameters())
    if not expected:
        return {}
    stored = projection_tensors(directory)
    if stored.keys() != expected.keys():
        raise CheckpointError(
            f"{directory}: the layers after Pooling hold the tensors {some_of(stored.keys())}; expected "
            f"{some_of(expected.keys())}"
        )
    for name, parameter in expected.items():
        if stored[name].shape != tuple(parameter.shape):
            raise CheckpointError(
                f"{stored[name].file}: {stored[name].name} has shape {list(stored[name].shape)}; its config requires "
                f"{list(parameter.shape)}"
            )
    values = {name: read_arrays([tensor], dtype)[tensor.name] for name, tensor in stored.items()}
    assign(network.projection, values)
    return {
        f"{PROJECTION}{name}": Provenance("loaded", str(stored[name].file.relative_to(directory))) for name in values
    }


def with_history(provenance: dict[str, Provenance], network: Network, folder: Path) -> dict[str, Provenance]:
    """Keep stored tensors that were never trained "initialized", so that their heads still refuse to predict.

    If any tensor of a layer differs from the values that bertkit stored, another library has trained the layer.
    """
    path, record = folder / NAME, read_section(folder, "provenance") or {}
    history = {name: member(record, name, dict, path, {}) for name in provenance}
    initial = {name for name, past in history.items() if past.get("origin") == "initialized"}
    published = network.architecture.names.published
    values = {published(name): value for name, value in network.named_parameters()}
    trained = set()
    for name in initial:
        if values_sha256(values[name]) not in member(history[name], "sha256", list, path, []):
            trained.add(_layer_of(name))
    return {
        name: Provenance("initialized", str(history[name].get("source", "")))
        if name in initial and _layer_of(name) not in trained
        else origin
        for name, origin in provenance.items()
    }


def _layer_of(name: str) -> str:
    return name.rpartition(".")[0]


def some_of(names: Collection[str]) -> str:
    """The first names, for errors."""
    ordered = sorted(names)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")
