"""The encoder with its heads: every kind of BERT model."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.errors import MissingHeadError, UsageError
from bertkit.heads.classification import ClassificationHead, MultipleChoiceHead
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.heads.next_sentence import NextSentenceHead
from bertkit.heads.question_answering import QuestionAnsweringHead
from bertkit.transformer import Encoder, EncoderOutput, TransformerConfig

HEADS = {  # head -> whether it reads the pooled [CLS] (else the hidden state of every token)
    "masked_lm": False,
    "next_sentence": True,
    "sequence_classification": True,
    "token_classification": False,
    "question_answering": False,
    "multiple_choice": True,
}

KINDS = {  # model kind -> its heads
    "encoder": (),
    "pretraining": ("masked_lm", "next_sentence"),
    **{head: (head,) for head in HEADS},
}


@dataclass(frozen=True, eq=False)
class BertOutput:
    """The encoder's output and the logits of every head; B sequences, T total_tokens, P positions asked for."""

    encoded: EncoderOutput
    logits: dict[str, Tensor] = field(default_factory=dict)
    # masked_lm (P, vocab_size), next_sentence (B, 2), sequence_classification (B, num_labels),
    # token_classification (T, num_labels), question_answering (T, 2), multiple_choice (B / num_choices, num_choices)


class Bert(nn.Module):
    """An encoder and any of the heads in HEADS.

    Args:
        heads: names from HEADS.
        with_pooler: hold the pooler; None: exactly if a head reads it, as published models do.
        num_labels: outputs of the sequence or token classification head.
        classifier_dropout: dropout before a classification head in training; None: ``hidden_dropout_prob``.

    Raises:
        UsageError: an unknown head, or a head that needs the pooler without one.
    """

    def __init__(
        self,
        config: TransformerConfig,
        heads: Iterable[str] = (),
        *,
        with_pooler: bool | None = None,
        num_labels: int = 2,
        classifier_dropout: float | None = None,
    ) -> None:
        super().__init__()
        heads = tuple(heads)
        for head in heads:
            if head not in HEADS:
                raise UsageError(f"unknown head {head!r}: expected one of {', '.join(HEADS)}")
        needs_pooler = any(HEADS[head] for head in heads)
        if with_pooler is None:
            with_pooler = needs_pooler or not heads
        if needs_pooler and not with_pooler:
            raise UsageError(f"the heads {', '.join(heads)} read the pooled [CLS]: the encoder needs its pooler")
        self.config = config
        self.classifier_dropout = classifier_dropout
        self.encoder = Encoder(config, with_pooler=with_pooler)
        dropout_prob = config.hidden_dropout_prob if classifier_dropout is None else classifier_dropout
        makers = {
            "masked_lm": lambda: MaskedLMHead(config),
            "next_sentence": lambda: NextSentenceHead(config),
            "sequence_classification": lambda: ClassificationHead(config, num_labels, dropout_prob),
            "token_classification": lambda: ClassificationHead(config, num_labels, dropout_prob),
            "question_answering": lambda: QuestionAnsweringHead(config),
            "multiple_choice": lambda: MultipleChoiceHead(config, dropout_prob),
        }
        self.heads = nn.ModuleDict({head: makers[head]() for head in heads})

    def forward(
        self,
        batch: Batch,
        *,
        num_choices: int = 1,
        masked_positions: Tensor | None = None,
        with_hidden_states: bool = False,
        with_attention_probs: bool = False,
    ) -> BertOutput:
        """Encode a Batch and apply every head.

        Args:
            num_choices: choices of each question, for the multiple choice head.
            masked_positions: (P,) positions in the packed row that the masked LM head predicts; None: all.
        """
        encoded = self.encoder(batch, with_hidden_states=with_hidden_states, with_attention_probs=with_attention_probs)
        logits = {}
        for name, head in self.heads.items():
            states = encoded.pooled if HEADS[name] else encoded.last_hidden_state
            if name == "masked_lm":
                chosen = states if masked_positions is None else states[masked_positions]
                logits[name] = head(chosen, self.encoder.embeddings.word.weight)
            elif name == "multiple_choice":
                logits[name] = head(states, num_choices)
            else:
                logits[name] = head(states)
        return BertOutput(encoded, logits)

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
