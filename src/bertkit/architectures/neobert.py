"""NeoBERT (Le Breton et al. 2025)."""

from bertkit.architectures.architecture import Architecture, Head, HeadOptions, tokens
from bertkit.architectures.roberta import classifier, first_token
from bertkit.architectures.tensor_names import TensorNames
from bertkit.heads.classification import DenseClassificationHead
from bertkit.heads.masked_lm import VocabularyHead
from bertkit.transformer import Encoder, NeoBertConfig

_LAYER = r"encoder\.layers\.(\d+)\."
_STORED = r"model.transformer_encoder.\1."


def _sequences(config: NeoBertConfig, options: HeadOptions) -> DenseClassificationHead:
    probability = 0.1 if options.dropout_prob is None else options.dropout_prob
    return DenseClassificationHead(config, options.num_labels, probability, "tanh", probability)


NEOBERT = Architecture(
    model_type="neobert",
    class_prefix="NeoBERT",
    class_names={"encoder": "NeoBERT", "masked_lm": "NeoBERTLMHead"},
    config=NeoBertConfig,
    encoder=Encoder,
    heads={
        "masked_lm": Head(lambda config, options: VocabularyHead(config, has_bias=True, has_weight=True), tokens),
        "sequence_classification": Head(_sequences, first_token),
        "token_classification": Head(classifier, tokens),
    },
    names=TensorNames(
        prefix="model.",
        encoder_parts=("encoder.", "transformer_encoder.", "layer_norm."),
        head_parts=("decoder.", "dense.", "classifier."),
        rules=[
            (r"encoder\.embeddings\.word\.", "model.encoder."),
            (r"encoder\.final_norm\.", "model.layer_norm."),
            (rf"{_LAYER}attention_norm\.", rf"{_STORED}attention_norm."),
            (rf"{_LAYER}attention\.query_key_value\.", rf"{_STORED}qkv."),
            (rf"{_LAYER}attention\.output\.", rf"{_STORED}wo."),
            (rf"{_LAYER}feed_forward_norm\.", rf"{_STORED}ffn_norm."),
            (rf"{_LAYER}feed_forward\.expand\.", rf"{_STORED}ffn.w12."),
            (rf"{_LAYER}feed_forward\.project\.", rf"{_STORED}ffn.w3."),
            (r"heads\.masked_lm\.(weight|bias)$", r"decoder.\1"),
            (r"heads\.sequence_classification\.dense\.", "dense."),
            (r"heads\.(sequence_classification|token_classification)\.classifier\.", "classifier."),
        ],
        signature_tensors={"masked_lm": "decoder.weight"},
        classifiers={
            "dense.weight": ("sequence_classification",),
            "classifier.weight": ("token_classification",),
        },
    ),
    key_names={
        "max_position_embeddings": "max_length",
        "initializer_range": "decoder_init_range",
        "layer_norm_eps": "norm_eps",
    },
    required_values={"tie_word_embeddings": (False,)},
    ignored_keys=frozenset(
        """
        dim_head embedding_init_range classifier_init_range kwargs pretrained_model_name_or_path trust_remote_code
        """.split()
    ),
)
