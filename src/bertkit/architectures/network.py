"""The network: an encoder and any of its heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bertkit.architectures.architecture import Architecture, HeadOptions
from bertkit.architectures.registry import architecture_of
from bertkit.batch import Batch
from bertkit.errors import MissingHeadError, UsageError, check_several
from bertkit.heads import (
    HEADS,
    LateClassificationHead,
    Projection,
    ProjectionLayer,
    SiameseClassificationHead,
    VectorClassificationHead,
    poolings_of,
)
from bertkit.heads.pooling import sequence_vectors
from bertkit.heads.projection import unit_length
from bertkit.later import Tensor
from bertkit.transformer import Encoder, EncoderConfig, EncoderOutput, Recorder
from bertkit.transformer.kernels import in_training_row_counts
from bertkit.transformer.modules import nn


@dataclass(frozen=True, eq=False)
class NetworkOutput:
    """The encoder's output and the logits of every head. B sequences, T total_tokens, P requested positions."""

    encoded: EncoderOutput
    logits: dict[str, Tensor] = field(default_factory=dict)
    # masked_lm (P, vocab_size), next_sentence (B, 2), sequence_classification (B, num_labels),
    # token_classification (T, num_labels), question_answering (T, 2), multiple_choice (B / num_choices, num_choices),
    # vector_classification (B, num_labels), for pairs (B / 2, num_labels)
    vectors: Tensor | None = None  # (B, D) of length 1: the input of the vector classification head; with
    # ``with_vectors``: the sentence vectors


class Network(nn.Module):
    """An encoder of the config's architecture, with any of the architecture's heads.

    Args:
        heads: names from HEADS.
        with_pooler: include the pooler; None: include it if a head uses it or there are no heads, as in published
            models. Architectures without a pooler never include one.
        num_labels: number of outputs of a head in HEADS_WITH_LABELS.
        classifier_dropout: dropout before a classifier, in training; None: the architecture's default.
        pooling: how hidden states become sentence vectors, also for the vector_classification head.
        projection: the layers from pooled hidden states to sentence vectors.
        normalize: scale sentence vectors to length 1.
        num_vectors: number of sentence vectors in the input of that head: 1 for texts, 2 for pairs.
        siamese: the input of that head is (u, v, |u - v|), from the sentence vectors of a pair.

    Raises:
        UsageError: a head that is unknown, that the architecture lacks, or that needs a pooler that is absent; a
            projection that does not fit the pooled hidden states.
    """

    def __init__(
        self,
        config: EncoderConfig,
        heads: Iterable[str] = (),
        *,
        with_pooler: bool | None = None,
        num_labels: int = 2,
        classifier_dropout: float | None = None,
        pooling: str = "mean",
        projection: Sequence[ProjectionLayer] = (),
        normalize: bool = False,
        num_vectors: int = 1,
        siamese: bool = False,
    ) -> None:
        super().__init__()
        check_several("heads", heads)
        heads, record = tuple(heads), architecture_of(config)
        for head in heads:
            if head not in HEADS:
                raise UsageError(f"unknown head {head!r}: expected one of {', '.join(HEADS)}")
            if head not in record.heads:
                raise UsageError(f"{record.model_type} has no {head} head: expected one of {', '.join(record.heads)}")
        self.config = config
        self.classifier_dropout = classifier_dropout
        self.encoder: Encoder = record.encoder(config, with_pooler=_has_pooler(record, config, heads, with_pooler))
        self.pooling, self.normalize = pooling, normalize
        self.projection = Projection(projection, config.hidden_size * len(poolings_of(pooling)))
        siamese_width = self.projection.width if siamese else None
        options = HeadOptions(num_labels, classifier_dropout, pooling, num_vectors, siamese_width)
        self.heads = nn.ModuleDict({head: record.heads[head].build(config, options) for head in heads})
        if projection and "vector_classification" in heads and not siamese:
            raise UsageError(
                "few-shot classification requires pooled hidden states, and this model has layers after pooling: "
                "choose a sentence encoder of Transformer, Pooling and Normalize"
            )

    @property
    def architecture(self) -> Architecture:
        """The record of this model's ``model_type``."""
        return architecture_of(self.config)

    def forward(
        self,
        batch: Batch,
        *,
        num_choices: int = 1,
        masked_positions: Tensor | None = None,
        with_hidden_states: bool = False,
        with_vectors: bool = False,
        recorder: Recorder | None = None,
    ) -> NetworkOutput:
        """Encode a Batch and apply every head.

        Args:
            num_choices: choices of each question, for the multiple choice head; those of a question are adjacent.
            masked_positions: (P,) positions in the packed row that the masked LM head predicts; None: all.
            with_vectors: compute the sentence vectors.
            recorder: receives the attention and the contribution of every layer.

        Raises:
            UsageError: the number of sequences is not a multiple of ``num_choices``.
        """
        encoded = self._encoded(batch, with_hidden_states, recorder)
        options = {"num_choices": num_choices, "masked_positions": masked_positions}
        logits = {name: self.head_logits(name, encoded, batch, **options) for name in self.heads}
        vectors = [
            head.vectors(encoded, batch) for head in self.heads.values() if isinstance(head, VectorClassificationHead)
        ]
        if with_vectors:
            vectors = [self.sentence_vectors(encoded, batch)]
        return NetworkOutput(encoded, logits, vectors[0] if vectors else None)

    def _encoded(self, batch: Batch, with_hidden_states: bool, recorder: Recorder | None) -> EncoderOutput:
        filled = batch if recorder else in_training_row_counts(batch)
        encoded = self.encoder(filled, with_hidden_states=with_hidden_states, recorder=recorder)
        if filled is batch:
            return encoded
        num_tokens, states = len(batch.input_ids), encoded.hidden_states
        return EncoderOutput(
            encoded.last_hidden_state[:num_tokens],
            encoded.pooled,
            None if states is None else [state[:num_tokens] for state in states],
        )

    def sentence_vectors(self, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """(B, ``projection.width``): the sentence vector of each sequence, from the last layer, by the checkpoint's
        settings."""
        vectors = self.projection(sequence_vectors(self.pooling, encoded, batch))
        return unit_length(vectors) if self.normalize else vectors

    def head_logits(
        self,
        name: str,
        encoded: EncoderOutput,
        batch: Batch,
        *,
        num_choices: int = 1,
        masked_positions: Tensor | None = None,
    ) -> Tensor:
        """Logits of one head, from the encoder's output for a Batch. Arguments as for `forward`."""
        head, states = self.heads[name], self.head_input(name, encoded, batch)
        if name == "masked_lm":
            chosen = states if masked_positions is None else states[masked_positions]
            return head(chosen, self.encoder.embeddings.word.weight)
        if name == "multiple_choice":
            if num_choices < 1 or len(states) % num_choices:
                raise UsageError(f"{len(states)} sequences are not a multiple of num_choices={num_choices}")
            return head(states).reshape(-1, num_choices)
        return head(states)

    def head_input(self, name: str, encoded: EncoderOutput, batch: Batch) -> Tensor:
        """The input of a head, from the encoder's output for a Batch: a row for each token or each sequence."""
        head, taken = self.heads[name], self.architecture.heads[name].input(self.config)
        if isinstance(head, SiameseClassificationHead):
            return self.sentence_vectors(encoded, batch)
        if isinstance(head, VectorClassificationHead | LateClassificationHead):
            return head.vectors(encoded, batch)
        return encoded.last_hidden_state if taken == "tokens" else sequence_vectors(taken, encoded, batch)

    def reads_first_tokens(self, name: str) -> bool:
        """Whether the input of a head is made of the first token of each sequence alone."""
        head = self.require_head(name)
        own = isinstance(head, SiameseClassificationHead | VectorClassificationHead)
        return not own and self.architecture.heads[name].input(self.config) in ("pooler", "cls")

    def published_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Each parameter with its name in published files; without heads, encoder names have no prefix."""
        names = self.architecture.names
        prefix = "" if self.heads else names.prefix
        for name, parameter in self.named_parameters():
            yield names.published(name).removeprefix(prefix), parameter

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


def _has_pooler(record: Architecture, config: EncoderConfig, heads: tuple[str, ...], asked: bool | None) -> bool:
    if asked and not record.has_pooler:
        raise UsageError(f"{record.model_type} has no pooler: leave with_pooler at None")
    needed = any(record.reads_pooler(head, config) for head in heads)
    if needed and asked is False:
        raise UsageError(f"the heads {', '.join(heads)} use the pooled [CLS]: the encoder needs its pooler")
    return (needed or not heads) and record.has_pooler if asked is None else asked
