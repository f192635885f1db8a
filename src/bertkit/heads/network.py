"""The encoder with its heads: every kind of BERT model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import MissingHeadError, UsageError
from bertkit.heads.classification import ClassificationHead, MultipleChoiceHead, VectorClassificationHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.heads.modernbert import ModernBertClassificationHead, ModernBertMaskedLMHead
from bertkit.heads.next_sentence import NextSentenceHead
from bertkit.heads.pooling import sequence_vectors
from bertkit.heads.question_answering import QuestionAnsweringHead
from bertkit.transformer import AnyConfig, BertConfig, BertEncoder, EncoderOutput, ModernBertConfig, ModernBertEncoder

HEADS = {  # head -> whether it reads the pooled [CLS] of each sequence (else the hidden state of every token)
    "masked_lm": False,
    "next_sentence": True,
    "sequence_classification": True,
    "token_classification": False,
    "question_answering": False,
    "multiple_choice": True,
    "vector_classification": False,
}

HEADS_WITH_LABELS = ("sequence_classification", "token_classification", "vector_classification")

KINDS = {  # model kind -> its heads
    "encoder": (),
    "pretraining": ("masked_lm", "next_sentence"),
    **{head: (head,) for head in HEADS},
}


@dataclass(frozen=True, eq=False)
class NetworkOutput:
    """The encoder's output and the logits of every head; B sequences, T total_tokens, P positions asked for."""

    encoded: EncoderOutput
    logits: dict[str, Tensor] = field(default_factory=dict)
    # masked_lm (P, vocab_size), next_sentence (B, 2), sequence_classification (B, num_labels),
    # token_classification (T, num_labels), question_answering (T, 2), multiple_choice (B / num_choices, num_choices),
    # vector_classification (B, num_labels)
    vectors: Tensor | None = None  # (B, D) of length 1, which the vector classification head reads


class Network(nn.Module):
    """An encoder, that of 2018 or the modern one as the config says, and any of the heads in HEADS.

    Args:
        heads: names from HEADS; the modern encoder has masked_lm and those of classification.
        with_pooler: hold the pooler; None: exactly if a head reads it, as published models do. The modern encoder has
            none: its sequence classifier reads hidden states.
        num_labels: outputs of a head of HEADS_WITH_LABELS.
        classifier_dropout: dropout before a classification head in training; None: ``hidden_dropout_prob``, for the
            modern encoder 0.
        pooling: how the vectors are made that the vector_classification head reads.

    Raises:
        UsageError: an unknown head, one that needs the pooler without one, or one the modern encoder has not.
    """

    def __init__(
        self,
        config: AnyConfig,
        heads: Iterable[str] = (),
        *,
        with_pooler: bool | None = None,
        num_labels: int = 2,
        classifier_dropout: float | None = None,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        heads = tuple(heads)
        for head in heads:
            if head not in HEADS:
                raise UsageError(f"unknown head {head!r}: expected one of {', '.join(HEADS)}")
        self.config = config
        self.classifier_dropout = classifier_dropout
        if isinstance(config, ModernBertConfig):
            if with_pooler:
                raise UsageError("the modern encoder has no pooler: its sequence classifier reads hidden states")
            self.encoder = ModernBertEncoder(config)
            makers = _modernbert_heads(config, num_labels, classifier_dropout or 0.0)
        else:
            self.encoder = BertEncoder(config, with_pooler=_has_pooler(heads, with_pooler))
            dropout_prob = config.hidden_dropout_prob if classifier_dropout is None else classifier_dropout
            makers = _heads(config, num_labels, dropout_prob)
        makers["vector_classification"] = lambda: VectorClassificationHead(config, num_labels, pooling)
        if missing := set(heads) - makers.keys():
            raise UsageError(f"the modern encoder has no {', '.join(sorted(missing))} head: it has {', '.join(makers)}")
        self.heads = nn.ModuleDict({head: makers[head]() for head in heads})

    def forward(
        self,
        batch: Batch,
        *,
        num_choices: int = 1,
        masked_positions: Tensor | None = None,
        with_hidden_states: bool = False,
        with_attention_probs: bool = False,
    ) -> NetworkOutput:
        """Encode a Batch and apply every head.

        Args:
            num_choices: choices of each question, for the multiple choice head.
            masked_positions: (P,) positions in the packed row that the masked LM head predicts; None: all.
        """
        encoded = self.encoder(batch, with_hidden_states=with_hidden_states, with_attention_probs=with_attention_probs)
        options = {"num_choices": num_choices, "masked_positions": masked_positions}
        logits = {name: self.head_logits(name, encoded, batch, **options) for name in self.heads}
        vectors = [
            head.vectors(encoded, batch) for head in self.heads.values() if isinstance(head, VectorClassificationHead)
        ]
        return NetworkOutput(encoded, logits, vectors[0] if vectors else None)

    def head_logits(
        self,
        name: str,
        encoded: EncoderOutput,
        batch: Batch,
        *,
        num_choices: int = 1,
        masked_positions: Tensor | None = None,
    ) -> Tensor:
        """The logits of one head, over what the encoder gave for a Batch; as `forward`."""
        head, states = self.heads[name], self._one_each(encoded, batch) if HEADS[name] else encoded.last_hidden_state
        if isinstance(head, VectorClassificationHead):
            return head(head.vectors(encoded, batch))
        if name == "masked_lm":
            chosen = states if masked_positions is None else states[masked_positions]
            return head(chosen, self.encoder.embeddings.word.weight)
        return head(states, num_choices) if name == "multiple_choice" else head(states)

    def _one_each(self, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """(B, D): the vector of each sequence that heads read."""
        if isinstance(self.config, ModernBertConfig):
            return sequence_vectors(self.config.classifier_pooling, encoded, batch)
        assert encoded.pooled is not None  # with a head that reads it there is a pooler
        return encoded.pooled

    def require_head(self, name: str) -> nn.Module:
        """A head by name.

        Raises:
            MissingHeadError: this model has no such head.
        """
        if name not in self.heads:
            has = ", ".join(self.heads) or "none"
            raise MissingHeadError(
                f"this model has no {name} head (its heads: {has}): choose a model that was trained with one"
            )
        return self.heads[name]


def _has_pooler(heads: tuple[str, ...], asked: bool | None) -> bool:
    needed = any(HEADS[head] for head in heads)
    if needed and asked is False:
        raise UsageError(f"the heads {', '.join(heads)} read the pooled [CLS]: the encoder needs its pooler")
    return needed or not heads if asked is None else asked


def _heads(config: BertConfig, num_labels: int, dropout_prob: float) -> dict[str, Callable[[], nn.Module]]:
    return {
        "masked_lm": lambda: MaskedLMHead(config),
        "next_sentence": lambda: NextSentenceHead(config),
        "sequence_classification": lambda: ClassificationHead(config, num_labels, dropout_prob),
        "token_classification": lambda: ClassificationHead(config, num_labels, dropout_prob),
        "question_answering": lambda: QuestionAnsweringHead(config),
        "multiple_choice": lambda: MultipleChoiceHead(config, dropout_prob),
    }


def _modernbert_heads(
    config: ModernBertConfig, num_labels: int, dropout_prob: float
) -> dict[str, Callable[[], nn.Module]]:
    return {
        "masked_lm": lambda: ModernBertMaskedLMHead(config),
        "sequence_classification": lambda: ModernBertClassificationHead(config, num_labels, dropout_prob),
        "token_classification": lambda: ModernBertClassificationHead(config, num_labels, dropout_prob),
    }
