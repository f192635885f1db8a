"""Encoder-decoder models: the original Transformer, as published by Marian, and pairs of BERTs.

Shape letters: T target tokens, S source tokens, D hidden_size, V vocab_size.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from bertkit.architectures.tensor_names import bert_rules
from bertkit.batch import Batch
from bertkit.errors import UsageError, checked_count
from bertkit.heads.masked_lm import MaskedLMHead, VocabularyHead
from bertkit.transformer import BertConfig, Decoder, Encoder, Recorder, TransformerConfig
from bertkit.transformer.kernels import apply_linear

EncoderDecoderType = Literal["marian", "encoder-decoder"]
"""Published ``model_type`` of the original Transformer, and of two BERTs with cross-attention."""


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Both stacks and the special ids of targets.

    Raises:
        UsageError: incompatible stacks.
    """

    encoder: BertConfig
    decoder: BertConfig  # with ``is_decoder``
    start_id: int  # the first token of every target
    end_id: int  # the last token of every target
    pad_id: int
    shares_embeddings: bool = False  # one word embedding for sources and targets

    def __post_init__(self) -> None:
        if self.encoder.is_decoder or not self.decoder.is_decoder:
            raise UsageError("expected is_decoder=False in the encoder's config, and True in the decoder's")
        if type(self.encoder) is not type(self.decoder) or type(self.encoder) not in ENCODER_DECODERS:
            raise UsageError("encoder and decoder must both be BERTs, or both original Transformers")
        sizes = [(config.vocab_size, config.hidden_size) for config in (self.encoder, self.decoder)]
        if self.shares_embeddings and sizes[0] != sizes[1]:
            raise UsageError(f"a shared embedding requires equal vocabularies and widths: the stacks have {sizes}")
        if not self.kind.may_project and sizes[0][1] != sizes[1][1]:
            raise UsageError(f"hidden_size={sizes[0][1]} of the encoder and {sizes[1][1]} of the decoder: expected one")
        for name in ("start_id", "end_id", "pad_id"):
            if not 0 <= getattr(self, name) < self.decoder.vocab_size:
                raise UsageError(f"{name}={getattr(self, name)}: expected an id below {self.decoder.vocab_size}")

    @property
    def kind(self) -> "EncoderDecoderKind":
        """What is specific to these stacks."""
        return ENCODER_DECODERS[type(self.encoder)]


class Sources(NamedTuple):
    """Hidden states of packed sources."""

    states: Tensor  # (S, D)
    seqlens: Sequence[int]


class EncoderDecoder(nn.Module):
    """Sources to the logits of their targets (Vaswani et al. 2017, figure 1)."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder, with_pooler=False)
        self.decoder = Decoder(config.decoder)
        if config.shares_embeddings:
            self.decoder.embeddings.word = self.encoder.embeddings.word
        sizes = config.encoder.hidden_size, config.decoder.hidden_size
        self.project = nn.Linear(*sizes) if sizes[0] != sizes[1] else None
        self.head = config.kind.head(config.decoder)

    def forward(self, batch: Batch, *, target: Batch, recorder: Recorder | None = None) -> Tensor:
        """(T, V) logits of the token after each target token.

        Args:
            batch: the sources.
            target: input tokens of the decoder for each source: the start token, then the target.
            recorder: receives intermediate results of the decoder layers.
        """
        sources = self.encode(batch)
        hidden = self.decoder(target, sources.states, sources.seqlens, recorder)
        return self.head(hidden, self.decoder.embeddings.word.weight)

    def encode(self, batch: Batch) -> Sources:
        """Encode sources: hidden states in the width of the decoder."""
        return self.as_sources(batch, self.encoder(batch, with_pooled=False).last_hidden_state)

    def as_sources(self, batch: Batch, states: Tensor) -> Sources:
        """`Sources` from the (S, D) output of the encoder."""
        return Sources(states if self.project is None else apply_linear(states, self.project), batch.seqlens)


_STACK = r"(encoder|decoder)\.layers\.(\d+)\."
_MARIAN_RULES = [
    (r"(encoder|decoder)\.embeddings\.word\.", r"model.\1.embed_tokens."),
    (_STACK + r"attention\.(query|key|value)\.", r"model.\1.layers.\2.self_attn.\3_proj."),
    (_STACK + r"attention\.output\.", r"model.\1.layers.\2.self_attn.out_proj."),
    (_STACK + r"attention_norm\.", r"model.\1.layers.\2.self_attn_layer_norm."),
    (_STACK + r"cross_attention\.(query|key|value)\.", r"model.\1.layers.\2.encoder_attn.\3_proj."),
    (_STACK + r"cross_attention\.output\.", r"model.\1.layers.\2.encoder_attn.out_proj."),
    (_STACK + r"cross_attention_norm\.", r"model.\1.layers.\2.encoder_attn_layer_norm."),
    (_STACK + r"feed_forward\.expand\.", r"model.\1.layers.\2.fc1."),
    (_STACK + r"feed_forward\.project\.", r"model.\1.layers.\2.fc2."),
    (_STACK + r"feed_forward_norm\.", r"model.\1.layers.\2.final_layer_norm."),
    (r"head\.bias$", "final_logits_bias"),
]
_CROSS = r"decoder\.layers\.(\d+)\.cross_attention"
_BERT_RULES = [
    (_CROSS + r"\.(query|key|value)\.", r"decoder.bert.encoder.layer.\1.crossattention.self.\2."),
    (_CROSS + r"\.output\.", r"decoder.bert.encoder.layer.\1.crossattention.output.dense."),
    (_CROSS + r"_norm\.", r"decoder.bert.encoder.layer.\1.crossattention.output.LayerNorm."),
    *bert_rules("encoder."),
    *((pattern.replace("encoder", "decoder", 1), name) for pattern, name in bert_rules("decoder.bert.")),
    (r"head\.dense\.", "decoder.cls.predictions.transform.dense."),
    (r"head\.norm\.", "decoder.cls.predictions.transform.LayerNorm."),
    (r"head\.bias$", "decoder.cls.predictions.bias"),
    (r"project\.", "enc_to_dec_proj."),
]


@dataclass(frozen=True)
class EncoderDecoderKind:
    """Everything specific to one ``model_type``, apart from its layers and its config.json."""

    model_type: EncoderDecoderType
    head: Callable[[BertConfig], nn.Module]  # the decoder's config to its language model head
    may_project: bool  # the stacks may have different widths, with a linear layer between them
    shared_embedding: str  # published name of the word embedding of both stacks
    rules: Sequence[tuple[str, str]]  # patterns of parameter names, and their published names
    embedding_deviation: Callable[[BertConfig], float]  # standard deviation of initial embeddings


ENCODER_DECODERS: dict[type[BertConfig], EncoderDecoderKind] = {
    TransformerConfig: EncoderDecoderKind(
        model_type="marian",
        head=lambda config: VocabularyHead(config, has_bias=True),
        may_project=False,
        shared_embedding="model.shared.weight",
        rules=_MARIAN_RULES,
        embedding_deviation=lambda config: config.hidden_size**-0.5,
    ),
    BertConfig: EncoderDecoderKind(
        model_type="encoder-decoder",
        head=MaskedLMHead,
        may_project=True,
        shared_embedding="encoder.embeddings.word_embeddings.weight",
        rules=_BERT_RULES,
        embedding_deviation=lambda config: 0.02,
    ),
}
"""By the class of the stacks' configs."""


def published_name(name: str, config: EncoderDecoderConfig) -> str:
    """The published name of a parameter of `EncoderDecoder`."""
    if config.shares_embeddings and name.endswith("embeddings.word.weight"):
        return config.kind.shared_embedding
    for pattern, replacement in config.kind.rules:
        if re.match(pattern, name):
            published = re.sub(pattern, replacement, name, count=1)
            return re.sub(r"\.(query|key|value)_proj\.", lambda match: f".{match[1][0]}_proj.", published)
    raise KeyError(name)


@torch.no_grad()
def initialize_encoder_decoder(network: EncoderDecoder, seed: int) -> None:
    """Fill every parameter with initial values, reproducibly from ``seed``.

    Matrices use Glorot initialization (2010), as in torch's Transformer; embeddings have a standard deviation of 0.02,
    or 1 / sqrt(width) in the original Transformer; biases are 0, and layer normalization starts as the identity.
    """
    standard_deviation = network.config.kind.embedding_deviation(network.config.decoder)
    generator = torch.Generator().manual_seed(checked_count("seed", seed, 0))
    for module in network.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=standard_deviation, generator=generator)
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
    for name, parameter in network.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)
