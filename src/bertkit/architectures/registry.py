"""The supported architectures. A new one is a file in this folder and a line here."""

from bertkit.architectures.albert import ALBERT
from bertkit.architectures.architecture import Architecture
from bertkit.architectures.bert import BERT
from bertkit.architectures.deberta import DEBERTA
from bertkit.architectures.distilbert import DISTILBERT
from bertkit.architectures.electra import ELECTRA
from bertkit.architectures.eurobert import EUROBERT
from bertkit.architectures.gpt2 import GPT2
from bertkit.architectures.modernbert import MODERNBERT
from bertkit.architectures.mpnet import MPNET
from bertkit.architectures.neobert import NEOBERT
from bertkit.architectures.nomic_bert import GTE, NOMIC_BERT
from bertkit.architectures.qwen3 import QWEN3
from bertkit.architectures.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from bertkit.transformer import Encoder, EncoderConfig, PreparedEncoder, PreparedTransformer
from bertkit.transformer.modules import ArrayModule

ARCHITECTURES: dict[str, Architecture] = {
    record.model_type: record
    for record in (
        BERT,
        MODERNBERT,
        DISTILBERT,
        ROBERTA,
        XLM_ROBERTA,
        CAMEMBERT,
        MPNET,
        ELECTRA,
        ALBERT,
        DEBERTA,
        NOMIC_BERT,
        GTE,
        EUROBERT,
        NEOBERT,
        QWEN3,
        GPT2,
    )
}
"""Records by their ``model_type`` in config.json."""

OTHER_MODEL_TYPES = {"new": "gte"}
"""``model_type`` used by a model's original code -> ``model_type`` of its record."""

NOT_SUPPORTED = {  # model_type -> what to use instead
    "deberta": "DeBERTa v3 (model_type deberta-v2), such as microsoft/deberta-v3-base",
    "jina_embeddings_v3": "a multilingual encoder of another family, such as intfloat/multilingual-e5-base",
    "mosaic_bert": "ModernBERT, such as answerdotai/ModernBERT-base",
}
"""Popular encoders that are not supported."""

_BY_CONFIG = {record.config: record for record in ARCHITECTURES.values()}


def architecture_of(config: EncoderConfig) -> Architecture:
    """The architecture that a config belongs to."""
    return _BY_CONFIG[type(config)]


def prepare(encoder: Encoder, precision: str = "float32") -> PreparedEncoder:
    """Prepare an encoder for inference at a precision.

    Raises:
        UsageError: a precision that the device of the encoder does not support.
    """
    prepared = PreparedTransformer(encoder, precision)
    if isinstance(encoder, ArrayModule):
        return prepared
    from bertkit.transformer.cuda_graphs import GraphedEncoder, can_be_recorded

    return GraphedEncoder(prepared) if can_be_recorded(encoder, precision) else prepared
