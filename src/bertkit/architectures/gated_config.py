"""The ``config.json`` of Nomic BERT and GTE: older key names and rotary positions."""

from pathlib import Path
from typing import Any

from bertkit.architectures.architecture import Content
from bertkit.errors import CheckpointError
from bertkit.files.json_files import check_required_values, member

_NOMIC_KEYS = {  # key of its original code -> BERT's key
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "rotary_emb_base": "rope_theta",
}

_NOMIC_REQUIRED: dict[str, tuple[Any, ...]] = {  # keys of the original code that affect the outputs
    "activation_function": ("swiglu",),
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "qkv_proj_bias": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "prenorm": (False,),
    "parallel_block": (False,),
    "parallel_block_tied_norm": (False,),
    "use_rms_norm": (False, None),
    "causal": (False,),
    "num_experts": (0, None),
    "moe_every_n_layers": (-1, 0, None),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "scale_attn_weights": (True,),
}

_GTE_REQUIRED: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("rope",),
    "layer_norm_type": ("layer_norm",),
    "logn_attention_scale": (False,),
    "logn_attention_clip1": (False,),
}

NOMIC_IGNORED_KEYS = frozenset(
    """
    embd_pdrop n_positions rotary_emb_scale_base rotary_scaling_factor max_trained_positions use_flash_attn use_xentropy
    fused_bias_fc fused_dropout_add_ln pad_vocab_size_multiple dense_seq_output last_layer_subset summary_activation
    summary_first_dropout summary_proj_to_labels summary_type summary_use_proj head_dim moe_impl
    moe_normalize_expert_weights
    moe_resid_pdrop moe_top_k num_shared_experts expert_choice_router ffn_div router_aux_loss_coef
    """.split()
)

GTE_IGNORED_KEYS = frozenset("pack_qkv unpad_inputs use_memory_efficient_attention head_dim".split())

_LONGEST_NOMIC = 2_048
"""In tokens. Beyond it, the published implementations rotate by angles that depend on the longest text of the batch,
and disagree."""


def read_nomic_config(content: Content, path: Path) -> Content:
    """The content with BERT's key names.

    Raises:
        CheckpointError: a setting that this encoder does not support, or two keys for one setting that disagree.
    """
    content = _checked(content, _NOMIC_REQUIRED, path)
    for old, key in _NOMIC_KEYS.items():
        value = content.pop(old, None)
        if value is not None and content.setdefault(key, value) != value:
            raise CheckpointError(f"{path} has {key}={content[key]!r}, and {old}={value!r}: expected equal values")
    longest = member(content, "max_position_embeddings", int, path) or member(content, "n_positions", int, path, 2_048)
    content["max_position_embeddings"] = min(longest, _LONGEST_NOMIC)
    return with_rotary(content, path, ("default", "dynamic"), 1_000.0)


def read_gte_config(content: Content, path: Path) -> Content:
    """The content with BERT's key names. The original code's model_type is "new". Raises as `read_nomic_config`."""
    content = _checked(content, _GTE_REQUIRED, path)
    names = member(content, "architectures", list, path, [])
    content["architectures"] = [str(name).replace("New", "Gte", 1) for name in names]
    content.setdefault("type_vocab_size", 1)
    return with_rotary(content, path, ("default", "linear", "ntk"), 160_000.0)


def write_rotary(content: Content) -> Content:
    """Rotary positions with the key names of transformers."""
    factor = content.pop("rope_factor")
    kind = {"rope_type": "default"} if factor == 1 else {"rope_type": "linear", "factor": factor}
    return content | {"rope_parameters": kind | {"rope_theta": content.pop("rope_theta")}}


def _checked(content: Content, required: dict[str, tuple[Any, ...]], path: Path) -> Content:
    """The content without the keys of ``required``, after checking their values."""
    check_required_values(content, required, path)
    return {key: value for key, value in content.items() if key not in required}


def with_rotary(content: Content, path: Path, kinds: tuple[str, ...], default_theta: float) -> Content:
    """Read ``rope_theta`` and ``rope_factor`` under any of their key names.

    "ntk" uses the frequencies ``(theta * f) ** (-2 i / K) / f ** (2 / K)`` (the model's own code), which equal linear
    scaling with another base and factor.
    """
    parameters: Content = {}
    for key in ("rope_parameters", "rope_scaling"):
        stated = dict(member(content, key, dict, path, {}))
        if "type" in stated:
            stated.setdefault("rope_type", stated.pop("type"))
        parameters |= stated
    kind = parameters.get("rope_type", "default")
    unknown = parameters.keys() - {"rope_type", "rope_theta", "factor", "original_max_position_embeddings"}
    if unknown or kind not in kinds:
        raise CheckpointError(f"{path}: rotary positions are {parameters!r:.200}; supported: {', '.join(kinds)}")
    theta = member(parameters, "rope_theta", float, path) or member(content, "rope_theta", float, path, default_theta)
    if content.get("rope_theta", theta) != theta:
        raise CheckpointError(
            f"{path} has rope_theta={content['rope_theta']!r} and {theta!r} in rope_parameters: expected equal values"
        )
    factor = member(parameters, "factor", float, path, 1.0) if kind in ("linear", "ntk") else 1.0
    if kind == "ntk" and factor > 0:
        heads = member(content, "num_attention_heads", int, path, 1)
        head_dim = member(content, "hidden_size", int, path, 0) // max(heads, 1)
        theta, factor = theta * factor, factor ** (2 / max(head_dim, 1))
    kept = {key: value for key, value in content.items() if key not in ("rope_parameters", "rope_scaling")}
    return kept | {"rope_theta": theta, "rope_factor": factor}
