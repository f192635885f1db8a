"""EuroBERT (Boizard et al. 2025): an encoder for European languages."""

from pathlib import Path

from bertkit.architectures.architecture import Architecture, Content, Head, HeadOptions, tokens
from bertkit.architectures.gated_config import with_rotary, write_rotary
from bertkit.architectures.roberta import classifier
from bertkit.architectures.tensor_names import TensorNames
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member
from bertkit.heads.classification import DenseClassificationHead, LateClassificationHead
from bertkit.heads.masked_lm import VocabularyHead
from bertkit.transformer import Encoder, EuroBertConfig

_LAYER = r"encoder\.layers\.(\d+)\."


def _read_config(content: Content, path: Path) -> Content:
    heads, width = (member(content, key, int, path, 0) for key in ("num_attention_heads", "hidden_size"))
    head_dim = content.get("head_dim")
    if head_dim is not None and head_dim * (heads or 0) != width:
        raise CheckpointError(f"{path} has head_dim={head_dim!r}: expected hidden_size / num_attention_heads")
    content = {key: value for key, value in content.items() if key != "head_dim"}
    if content.get("num_key_value_heads") == heads:
        del content["num_key_value_heads"]
    if "clf_pooling" in content:  # the key of the original code
        content.setdefault("classifier_pooling", content.pop("clf_pooling"))
    return with_rotary(content, path, ("default", "linear"), 10_000.0)


def _sequences(config: EuroBertConfig, options: HeadOptions) -> DenseClassificationHead:
    kind = LateClassificationHead if config.classifier_pooling == "late" else DenseClassificationHead
    return kind(config, options.num_labels, options.dropout_prob or 0.0, "gelu")


EUROBERT = Architecture(
    model_type="eurobert",
    class_prefix="EuroBert",
    config=EuroBertConfig,
    encoder=Encoder,
    heads={
        "masked_lm": Head(lambda config, options: VocabularyHead(config, has_bias=False, has_weight=True), tokens),
        "sequence_classification": Head(
            _sequences, lambda config: "cls" if config.classifier_pooling == "bos" else "mean"
        ),
        "token_classification": Head(classifier, tokens),
    },
    names=TensorNames(
        prefix="model.",
        encoder_parts=("embed_tokens.", "layers.", "norm."),
        head_parts=("lm_head.", "dense.", "classifier."),
        rules=[
            (r"encoder\.embeddings\.word\.", "model.embed_tokens."),
            (r"encoder\.final_norm\.", "model.norm."),
            (rf"{_LAYER}attention_norm\.", r"model.layers.\1.input_layernorm."),
            (rf"{_LAYER}attention\.query\.", r"model.layers.\1.self_attn.q_proj."),
            (rf"{_LAYER}attention\.key\.", r"model.layers.\1.self_attn.k_proj."),
            (rf"{_LAYER}attention\.value\.", r"model.layers.\1.self_attn.v_proj."),
            (rf"{_LAYER}attention\.output\.", r"model.layers.\1.self_attn.o_proj."),
            (rf"{_LAYER}feed_forward_norm\.", r"model.layers.\1.post_attention_layernorm."),
            (rf"{_LAYER}feed_forward\.gate\.", r"model.layers.\1.mlp.gate_proj."),
            (rf"{_LAYER}feed_forward\.expand\.", r"model.layers.\1.mlp.up_proj."),
            (rf"{_LAYER}feed_forward\.project\.", r"model.layers.\1.mlp.down_proj."),
            (r"heads\.masked_lm\.weight$", "lm_head.weight"),
            (r"heads\.sequence_classification\.dense\.", "dense."),
            (r"heads\.(sequence_classification|token_classification)\.classifier\.", "classifier."),
        ],
        signature_tensors={"masked_lm": "lm_head.weight"},
        classifiers={"classifier.weight": ("sequence_classification", "token_classification")},
    ),
    key_names={"layer_norm_eps": "rms_norm_eps", "attention_probs_dropout_prob": "attention_dropout"},
    required_values={"attention_bias": (False,), "mlp_bias": (False,), "tie_word_embeddings": (False,)},
    ignored_keys=frozenset("pretraining_tp use_cache mask_token_id".split()),
    read_config=_read_config,
    write_config=write_rotary,
    token_id_keys={"bos_token_id": "cls", "eos_token_id": "sep"},
)
