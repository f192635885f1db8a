"""ModernBERT (Warner et al. 2024, arXiv 2412.13663)."""

from typing import Any

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, tokens
from bertkit.architectures.modernbert_config import IGNORED_KEYS, REQUIRED_VALUES, with_original_keys
from bertkit.architectures.tensor_names import TensorNames
from bertkit.heads.modernbert import ModernBertClassificationHead, ModernBertMaskedLMHead
from bertkit.transformer import Encoder, ModernBertConfig


def _classifier(config: Any, options: HeadOptions) -> ModernBertClassificationHead:
    return ModernBertClassificationHead(config, options.num_labels, options.dropout_prob or 0.0)


MODERNBERT = Architecture(
    model_type="modernbert",
    class_prefix="ModernBert",
    config=ModernBertConfig,
    encoder=Encoder,
    alternates_layers=True,
    heads={
        "masked_lm": Head(lambda config, options: ModernBertMaskedLMHead(config), tokens),
        "sequence_classification": Head(_classifier, lambda config: config.classifier_pooling),
        "token_classification": Head(_classifier, tokens),
    },
    names=TensorNames(
        prefix="model.",
        encoder_parts=("embeddings.", "layers.", "final_norm."),
        head_parts=("head.", "decoder.", "classifier."),
        rules=[
            (r"encoder\.embeddings\.word\.", "model.embeddings.tok_embeddings."),
            (r"encoder\.embeddings\.norm\.", "model.embeddings.norm."),
            (r"encoder\.layers\.(\d+)\.attention_norm\.", r"model.layers.\1.attn_norm."),
            (r"encoder\.layers\.(\d+)\.attention\.query_key_value\.", r"model.layers.\1.attn.Wqkv."),
            (r"encoder\.layers\.(\d+)\.attention\.output\.", r"model.layers.\1.attn.Wo."),
            (r"encoder\.layers\.(\d+)\.feed_forward_norm\.", r"model.layers.\1.mlp_norm."),
            (r"encoder\.layers\.(\d+)\.feed_forward\.expand\.", r"model.layers.\1.mlp.Wi."),
            (r"encoder\.layers\.(\d+)\.feed_forward\.project\.", r"model.layers.\1.mlp.Wo."),
            (r"encoder\.final_norm\.", "model.final_norm."),
            (r"heads\.\w+\.(dense|norm)\.", r"head.\1."),
            (r"heads\.masked_lm\.bias$", "decoder.bias"),
            (r"heads\.\w+\.classifier\.", "classifier."),
        ],
        signature_tensors={"masked_lm": "decoder.bias"},
        classifiers={"classifier.weight": ("sequence_classification", "token_classification")},
        tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
        shared_parts=("head.",),
    ),
    required_values=REQUIRED_VALUES,
    ignored_keys=IGNORED_KEYS,
    read_config=with_original_keys,
    token_id_keys={"cls_token_id": "cls", "sep_token_id": "sep", "bos_token_id": "cls", "eos_token_id": "sep"},
    initial_cutoff=lambda config: config.initializer_cutoff_factor,
    scaled_layers=("output", "project", "dense"),
)
