"""Settings of sparse encoders (SPLADE) in the sentence-transformers layout."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertkit.checkpoint.limits import limits_of, write_limits
from bertkit.checkpoint.sentence import positive, refuse_prompts, write_modules
from bertkit.checkpoint.weights import read_arrays, stored_tensors
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.locate import query_table_folder, sentence_modules

_FILE = "config_sentence_transformers.json"


@dataclass(frozen=True)
class SparseSettings:
    """Settings of a published sparse encoder (SPLADE): masked LM logits to a vector."""

    pooling: Literal["max", "sum"] = "max"  # over the tokens of a text
    log_twice: bool = False  # log(1 + log(1 + relu)) instead of log(1 + relu)
    max_seq_length: int | None = None  # tokens, special tokens included; longer texts are cut there
    max_active_dims: int | None = None  # the largest weights of a vector that are kept; None: all
    # (V,) float32 weights of query tokens, which then need no network; None: queries are encoded as documents
    query_weights: np.ndarray | None = field(default=None, compare=False)

    @property
    def are_usual(self) -> bool:
        """Whether these are the settings of a masked LM without further files."""
        return self == SparseSettings() and self.query_weights is None


def read_sparse_settings(directory: Path) -> SparseSettings:
    """Settings of the SpladePooling module in ``modules.json``, or the defaults.

    Raises:
        CheckpointError: other modules, or unsupported settings.
    """
    modules = sentence_modules(directory)
    kinds = [module["kind"] for module in modules]
    if "SpladePooling" not in kinds:
        return SparseSettings()
    if kinds not in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        raise CheckpointError(
            f"{directory / 'modules.json'} lists the modules {', '.join(kinds)}; supported: MLMTransformer, "
            "SpladePooling"
        )
    file = directory / modules[1]["path"] / "config.json"
    content = read_json(file) or {}
    pooling: Any = member(content, "pooling_strategy", str, file, "max")
    activation = member(content, "activation_function", str, file, "relu")
    if pooling not in ("max", "sum") or activation not in ("relu", "log1p_relu"):
        raise CheckpointError(
            f"{file} has pooling_strategy={pooling!r:.40}, activation_function={activation!r:.40}; supported: max or "
            "sum, relu or log1p_relu"
        )
    refuse_prompts(directory, "query", "document")
    limits, _ = limits_of(directory / modules[0]["path"])
    return SparseSettings(
        pooling,
        activation == "log1p_relu",
        limits.get("max_seq_length"),
        positive(read_json(directory / _FILE) or {}, "max_active_dims", directory),
        _query_weights(directory),
    )


def write_sparse_settings(directory: Path, settings: SparseSettings) -> None:
    """Write the modules of a sparse encoder in the sentence-transformers layout; not of an inference-free one."""
    write_modules(directory, ["MLMTransformer", "SpladePooling"], "sparse_encoder.models")
    activation = "log1p_relu" if settings.log_twice else "relu"
    content = {"pooling_strategy": settings.pooling, "activation_function": activation}
    write_json(directory / "1_SpladePooling" / "config.json", content)
    most = {} if settings.max_active_dims is None else {"max_active_dims": settings.max_active_dims}
    write_json(directory / _FILE, {"model_type": "SparseEncoder"} | most)
    write_limits(directory, settings.max_seq_length)


def _query_weights(directory: Path) -> np.ndarray | None:
    folder = query_table_folder(directory)
    if folder is None:
        return None
    stored = stored_tensors(folder).get("weight")
    if stored is None or len(stored.shape) != 1:
        raise CheckpointError(f"{folder} has no table of weights: expected the tensor weight, a number for each token")
    return read_arrays([stored])[stored.name]
