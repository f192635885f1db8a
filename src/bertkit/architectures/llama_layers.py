"""Tensor names and settings that encoders with the layer of Llama share."""

from bertkit.architectures.architecture import Content

_LAYER = r"encoder\.layers\.(\d+)\."

ENCODER_PARTS = ("embed_tokens.", "layers.", "norm.")

ENCODER_RULES = [
    (r"encoder\.embeddings\.word\.", "model.embed_tokens."),
    (r"encoder\.final_norm\.", "model.norm."),
    (rf"{_LAYER}attention_norm\.", r"model.layers.\1.input_layernorm."),
    (rf"{_LAYER}attention\.query\.", r"model.layers.\1.self_attn.q_proj."),
    (rf"{_LAYER}attention\.key\.", r"model.layers.\1.self_attn.k_proj."),
    (rf"{_LAYER}attention\.value\.", r"model.layers.\1.self_attn.v_proj."),
    (rf"{_LAYER}attention\.output\.", r"model.layers.\1.self_attn.o_proj."),
    (rf"{_LAYER}attention\.query_norm\.", r"model.layers.\1.self_attn.q_norm."),
    (rf"{_LAYER}attention\.key_norm\.", r"model.layers.\1.self_attn.k_norm."),
    (rf"{_LAYER}feed_forward_norm\.", r"model.layers.\1.post_attention_layernorm."),
    (rf"{_LAYER}feed_forward\.gate\.", r"model.layers.\1.mlp.gate_proj."),
    (rf"{_LAYER}feed_forward\.expand\.", r"model.layers.\1.mlp.up_proj."),
    (rf"{_LAYER}feed_forward\.project\.", r"model.layers.\1.mlp.down_proj."),
]

KEY_NAMES = {"layer_norm_eps": "rms_norm_eps", "attention_probs_dropout_prob": "attention_dropout"}


def without_default_heads(content: Content) -> Content:
    """The content without a number of key/value heads that is that of query heads."""
    has_as_many = content.get("num_key_value_heads") == content.get("num_attention_heads")
    return {key: value for key, value in content.items() if key != "num_key_value_heads" or not has_as_many}
