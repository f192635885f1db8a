"""The ``config.json`` of ModernBERT: two sets of key names, and keys that only ModernBERT has."""

from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member

REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {  # keys that affect the outputs, with the supported values
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "norm_bias": (False,),
    "classifier_bias": (False,),
    "decoder_bias": (True,),
}

IGNORED_KEYS = frozenset(  # keys that do not affect the outputs, or that the published code ignores
    """
    deterministic_flash_attn reference_compile repad_logits_with_grad sparse_prediction sparse_pred_ignore_index
    layer_norm_eps position_embedding_type rope_scaling
    """.split()
)

_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}


def with_original_keys(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Translate the keys of transformers 5 to those ModernBERT was first published with.

    ``layer_types``, the kind of attention of each layer, becomes ``global_attn_every_n_layers``; ``rope_parameters``,
    the rotary base of each kind, becomes ``global_rope_theta`` and ``local_rope_theta``.

    Raises:
        CheckpointError: values that the first keys cannot express, or keys that disagree.
    """
    if content.get("rope_scaling") is not None:
        raise CheckpointError(f"{path} has rope_scaling={content['rope_scaling']!r}; supported: none")
    kept = {key: value for key, value in content.items() if key not in ("layer_types", "rope_parameters")}
    spelled = _thetas(member(content, "rope_parameters", dict, path, {}), path)
    if layer_types := member(content, "layer_types", list, path, []):
        spelled["global_attn_every_n_layers"] = _global_every(layer_types, content, path)
    for key, value in spelled.items():
        if kept.get(key, value) != value:
            raise CheckpointError(
                f"{path} has {key}={kept[key]!r} and {value!r} under the key of transformers 5: expected equal values"
            )
    return kept | spelled


def _thetas(rope_parameters: dict[str, Any], path: Path) -> dict[str, Any]:
    if unknown := rope_parameters.keys() - _THETAS.keys():
        raise CheckpointError(
            f"{path}: rope_parameters has {', '.join(sorted(unknown))}: expected {', '.join(_THETAS)}"
        )
    thetas = {}
    for kind, key in _THETAS.items():
        parameters = member(rope_parameters, kind, dict, path, {})
        unknown = parameters.keys() - {"rope_type", "rope_theta"}
        if unknown or parameters.get("rope_type", "default") != "default":
            raise CheckpointError(f"{path}: rope_parameters.{kind} is {parameters!r}; supported: rope_type 'default'")
        if (theta := member(parameters, "rope_theta", float, path)) is not None:
            thetas[key] = theta
    return thetas


def _global_every(layer_types: list[Any], content: dict[str, Any], path: Path) -> int:
    """The n for which layers 0, n, 2 n, ... are global and the others are not."""
    is_global = [kind == "full_attention" for kind in layer_types]
    every = is_global.index(True, 1) if True in is_global[1:] else len(is_global)
    expected = ["full_attention" if layer % every == 0 else "sliding_attention" for layer in range(len(layer_types))]
    if layer_types != expected or len(layer_types) != content.get("num_hidden_layers"):
        raise CheckpointError(
            f"{path}: layer_types is {layer_types!r:.200}: expected num_hidden_layers entries, full_attention for "
            "the first and every n-th after it, sliding_attention for the others"
        )
    stated = content.get("global_attn_every_n_layers")  # any number beyond the last layer means the same
    return stated if isinstance(stated, int) and every == len(is_global) <= stated else every
