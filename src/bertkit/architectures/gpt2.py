"""GPT-2 (Radford et al. 2019)."""

from pathlib import Path

from bertkit.architectures.architecture import Architecture, Content, Head, tokens
from bertkit.architectures.tensor_names import TensorNames
from bertkit.errors import CheckpointError
from bertkit.heads.masked_lm import VocabularyHead
from bertkit.transformer import Encoder, Gpt2Config

_LAYER = r"encoder\.layers\.(\d+)\."


def _read_config(content: Content, path: Path) -> Content:
    """The inner width is four times the hidden size unless ``n_inner`` names another."""
    content = {"n_inner": None, "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50_257} | content
    if content["n_inner"] is None and isinstance(content["n_embd"], int):
        content["n_inner"] = 4 * content["n_embd"]
    for key in ("n_ctx", "embd_pdrop"):
        content.pop(key, None)
    if content.get("is_decoder", True) not in (True, False):
        raise CheckpointError(f"{path} has is_decoder={content['is_decoder']!r}: expected true or false")
    content.pop("is_decoder", None)  # transformers' GPT-2 is causal with either
    return content


def _write_config(content: Content) -> Content:
    return content | {"embd_pdrop": content["resid_pdrop"]}


GPT2 = Architecture(
    model_type="gpt2",
    class_prefix="GPT2",
    config=Gpt2Config,
    encoder=Encoder,
    heads={"masked_lm": Head(lambda config, options: VocabularyHead(config, has_bias=False), tokens)},
    names=TensorNames(
        prefix="transformer.",
        encoder_parts=("wte.", "wpe.", "h.", "ln_f."),
        head_parts=(),
        rules=[
            (r"encoder\.embeddings\.word\.", "transformer.wte."),
            (r"encoder\.embeddings\.position\.", "transformer.wpe."),
            (r"encoder\.final_norm\.", "transformer.ln_f."),
            (_LAYER + r"attention_norm\.", r"transformer.h.\1.ln_1."),
            (_LAYER + r"feed_forward_norm\.", r"transformer.h.\1.ln_2."),
            (_LAYER + r"attention\.query_key_value\.", r"transformer.h.\1.attn.c_attn."),
            (_LAYER + r"attention\.output\.", r"transformer.h.\1.attn.c_proj."),
            (_LAYER + r"feed_forward\.expand\.", r"transformer.h.\1.mlp.c_fc."),
            (_LAYER + r"feed_forward\.project\.", r"transformer.h.\1.mlp.c_proj."),
        ],
        signature_tensors={"masked_lm": "transformer.wte.weight"},
        classifiers={},
        tied={"lm_head.weight": "transformer.wte.weight"},
        buffers_like=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)$",
        transposed=r"transformer\.h\.\d+\.(attn|mlp)\.c_\w+\.weight$",
    ),
    key_names={
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "hidden_act": "activation_function",
        "hidden_dropout_prob": "resid_pdrop",
        "attention_probs_dropout_prob": "attn_pdrop",
        "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    required_values={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": (False,),
    },
    ignored_keys=frozenset(
        {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"}
    ),
    read_config=_read_config,
    write_config=_write_config,
    token_id_keys={"bos_token_id": "cls", "eos_token_id": "sep"},
    causal_class="GPT2LMHeadModel",
)
