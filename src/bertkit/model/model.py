"""The Model class: encoder, heads and tokenizer of one directory, with methods for inference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from bertkit import inference
from bertkit.checkpoint import Checkpoint, SentenceSettings, new_checkpoint, save_checkpoint
from bertkit.errors import CheckpointError, MissingHeadError, UsageError
from bertkit.heads import poolings_of
from bertkit.inference import EmbedOptions, FilledMask, InferenceReport, RankedText
from bertkit.inference.pseudo_likelihood import Method
from bertkit.inference.score_pairs import texts_of
from bertkit.later import has_torch, torch
from bertkit.model.finding import ModelFinding
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.layout import OnLong
from bertkit.transformer import Encoder, EncoderConfig


class Model(ModelFinding):
    """A BERT with its tokenizer.

    The methods accept any iterable of str or of examples, and use bounded memory; a stream yields inputs with outputs,
    up to some thousand at a time. A head that was never trained raises a MissingHeadError.
    """

    def __init__(
        self, checkpoint: Checkpoint, precision: str = "float32", precision_reason: str = "", extractor: Any = None
    ) -> None:
        super().__init__(checkpoint, precision, extractor)
        self.precision_reason = precision_reason  # one line, if it was chosen by measurement

    @classmethod
    def create(
        cls,
        config: EncoderConfig,
        tokenizer: Tokenizer,
        heads: Sequence[str] = (),
        *,
        label_names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> Model:
        """Create a model with initial weights, for training.

        Raises:
            UsageError: the vocabulary is larger than the word embedding, or an unknown head.
        """
        return cls(new_checkpoint(config, tokenizer, heads, label_names, seed))

    def __repr__(self) -> str:
        config = self.config
        shape = f"{config.num_hidden_layers} layers, hidden_size={config.hidden_size}, vocab_size={config.vocab_size}"
        return f"Model({shape}, heads: {', '.join(self.checkpoint.parts.heads) or 'none'}, {self.precision})"

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Save a directory that transformers and sentence-transformers can open, atomically.

        Raises:
            UsageError: the directory exists and is not empty, unless ``overwrite``.
            CheckpointError: an extraction or a late interaction model, which can only be opened.
        """
        if self.is_extractor:
            raise CheckpointError("extraction models cannot be saved: copy the folder")
        save_checkpoint(self.checkpoint, directory, overwrite=overwrite)

    @property
    def encoder(self) -> Encoder:
        """The encoder: call it with a Batch to get hidden states."""
        return self.network.encoder

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Each parameter with its published name, such as ``embeddings.word_embeddings.weight``."""
        return self.network.published_parameters()

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return torch.device(str(self.weights_device)) if has_torch() else self.weights_device

    @property
    def config(self) -> EncoderConfig:
        return self.checkpoint.parts.config

    @property
    def sentence_settings(self) -> SentenceSettings:
        """Pooling and normalization as published; unnormalized mean pooling if the model is not a sentence encoder."""
        if self.checkpoint.late is not None:
            raise UsageError("a late interaction model has token vectors and no text vectors: use rank")
        return self.checkpoint.sentence or SentenceSettings()

    def mark_trained(self) -> None:
        """See `Checkpoint.mark_trained`."""
        self.checkpoint.mark_trained()

    def require_trained(self, part: str) -> None:
        """See `Checkpoint.require_trained`."""
        self.checkpoint.require_trained(part)

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """Add words of a domain to the vocabulary, each initialized to the mean of its current pieces.

        Texts without a word that begins with a new one, or with an added token of the publisher, are encoded as before.
        Train on texts of the domain afterwards; `find_domain_words` finds words worth adding.

        Raises:
            UsageError: the tokenizer is not WordPiece, or a word is not a single word for it, or already an entry.
        """
        from bertkit.vocabulary_extension import extend_embeddings, extend_vocabulary

        extended = extend_vocabulary(self.tokenizer, words)
        extend_embeddings(self.network, self.tokenizer, extended)
        self.checkpoint.tokenizer = extended

    def embed(self, texts: str | Iterable[str], *, report: InferenceReport | None = None, **options: Any) -> np.ndarray:
        """Embed texts as vectors.

        Args:
            texts: any iterable of str, or one str.
            report: receives counts. Without it, cut texts issue a TruncationWarning.
            options: the fields of `EmbedOptions`: pooling, layers, normalize, dimensions, prompt, on_long, ...

        Returns:
            (num_texts, embedding_dim) float32; (embedding_dim,) for one str. The vector of a text does not depend on
            the other texts.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            UsageError: an option that is unknown or not supported by this model.
        """
        return inference.embed(self._runner, self.sentence_settings, texts, self._embed_options(options), report)

    def embed_stream(
        self, texts: Iterable[str], *, report: InferenceReport, **options: Any
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """`embed` in bounded memory: yields chunks of texts and their (n, embedding_dim) vectors, in order."""
        chosen, runner = self._embed_options(options), self._runner
        return inference.embed_stream(runner, self.sentence_settings, texts, chosen, report)

    def embed_sparse(
        self,
        texts: Iterable[str],
        *,
        as_queries: bool = False,
        on_long: OnLong = "truncate",
        report: InferenceReport | None = None,
    ) -> inference.SparseVectors:
        """Learned sparse vectors (SPLADE): a weight of at least 0 for each vocabulary entry, from the masked LM head,
        or with ``as_queries`` from the query table of an inference-free model. Without a report, texts that were cut
        raise a TruncationWarning.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            MissingHeadError: no trained masked LM head.
        """
        self.require_trained("masked_lm")
        return inference.embed_sparse(
            self._runner, self.checkpoint.sparse, texts, as_queries=as_queries, on_long=on_long, report=report
        )

    def fill_mask(self, text: str, *, top_k: int = 5, on_long: OnLong = "error") -> list[FilledMask]:
        """The ``top_k`` most likely tokens for every [MASK] in a text.

        Raises:
            UsageError: no [MASK] in the text, or a left-to-right model.
            OverLengthError: too long under ``on_long="error"``.
        """
        self.require_trained("masked_lm")
        return inference.fill_mask(self._runner, text, top_k=top_k, on_long=on_long)

    @overload
    def next_sentence_probability(self, text: str, following: str, *, on_long: OnLong = "error") -> float: ...
    @overload
    def next_sentence_probability(
        self, text: Sequence[str], following: Sequence[str], *, on_long: OnLong = "error"
    ) -> np.ndarray: ...
    def next_sentence_probability(self, text: Any, following: Any, *, on_long: OnLong = "error") -> float | np.ndarray:
        """The probability, 0 to 1, that ``following`` comes after ``text``; (N,) float32 for lists.

        Raises:
            OverLengthError: too long under ``on_long="error"``.
        """
        self.checkpoint.require_trained_head("next_sentence")
        return inference.next_sentence_probability(self._runner, text, following, on_long=on_long)

    def score_pairs(
        self, queries: str | Sequence[str], texts: str | Sequence[str], *, on_long: OnLong = "truncate"
    ) -> np.ndarray:
        """Relevance scores of query-text pairs: by a cross-encoder, with a sigmoid for one label unless its folder
        names another activation; or by late interaction.

        Args:
            queries, texts: equal numbers of both, or one query for all texts.

        Returns:
            (N,) float32; (N, num_labels) for a model with several labels.

        Raises:
            OverLengthError: a pair is too long under ``on_long="error"``.
            UsageError: different numbers of queries and texts, or ``on_long="window"``.
        """
        if self.checkpoint.late is not None:
            return inference.score_tokens(self._runner, self.checkpoint.late, queries, texts, on_long=on_long)
        if not self.scores_pairs:
            raise MissingHeadError("scores of pairs need a cross-encoder, such as cross-encoder/ms-marco-MiniLM-L6-v2")
        self.checkpoint.require_trained_head("sequence_classification")
        return inference.score_pairs(
            self._runner,
            self.checkpoint.score_activation,
            queries,
            texts,
            on_long=on_long,
        )

    @property
    def scores_pairs(self) -> bool:
        """Whether `score_pairs` and `rank` are for this model: a cross-encoder, a classifier or late interaction."""
        return self.checkpoint.late is not None or "sequence_classification" in self.checkpoint.parts.heads

    def rank(
        self, query: str, texts: str | Iterable[str], *, top_k: int | None = None, on_long: OnLong = "truncate"
    ) -> list[RankedText]:
        """Rank texts by `score_pairs` with a query, best first; ties in the given order.

        Args:
            top_k: number of texts to return; None: all.

        Raises:
            OverLengthError: a pair is too long under ``on_long="error"``.
            UsageError: a model with several labels.
        """
        texts = texts_of(texts)
        return inference.rank(self.score_pairs(query, texts, on_long=on_long), texts, top_k=top_k)

    @overload
    def pseudo_log_likelihood(self, texts: str, *, method: Method = "plain", progress: bool | None = None) -> float: ...
    @overload
    def pseudo_log_likelihood(
        self, texts: Sequence[str], *, method: Method = "plain", progress: bool | None = None
    ) -> np.ndarray: ...
    def pseudo_log_likelihood(
        self, texts: Any, *, method: Method = "plain", progress: bool | None = None
    ) -> float | np.ndarray:
        """Pseudo-log-likelihood of a text, in nats: the sum of `token_log_probs`; (N,) float64 for a list.

        For comparing texts with the same meaning; longer texts are less likely, and an empty text has 0.
        """
        self.require_trained("masked_lm")
        return inference.pseudo_log_likelihood(self._torch_runner, texts, method=method, progress=progress)

    def token_log_probs(
        self, texts: Sequence[str], *, method: Method = "plain", progress: bool | None = None
    ) -> list[np.ndarray]:
        """Natural log of the probability of each token, given the other tokens (Salazar et al. 2020).

        Args:
            method: "plain" hides only the token; "l2r" also the later pieces of its word, which would reveal it
                (Kauf & Ivanova 2023).
            progress: show a bar after two seconds; None: only on a terminal.

        Returns:
            For each text (n,) float64, for the tokens ``tokenizer.encode(text).input_ids[1:-1]``.

        Raises:
            OverLengthError: a text is longer than the model accepts.
            UsageError: a left-to-right model.
        """
        self.require_trained("masked_lm")
        return inference.token_log_probs(self._torch_runner, texts, method=method, progress=progress)

    def trace(self, text: str, pair: str | None = None, *, layers: Iterable[int] | None = None) -> inference.Trace:
        """Hidden states, attention and logits of one text: `inference.trace`, with the trained heads."""
        return inference.trace(self._torch_runner, text, pair, layers=layers, heads=self.checkpoint.trained_heads())

    def _embed_options(self, options: dict[str, Any]) -> EmbedOptions:
        chosen = EmbedOptions.of(**options)
        has_pooler = self.checkpoint.parts.encoder.pooler is not None
        if has_pooler and chosen.pooling and "pooler" in poolings_of(chosen.pooling):
            self.require_trained("pooler")
        return chosen


def check_model(model: object, name: str = "the model") -> None:
    """Check an argument that takes a model.

    Args:
        name: what the model is for.

    Raises:
        UsageError: something else, such as its name.
    """
    if not isinstance(model, Model):
        raise UsageError(f"{name} is {type(model).__name__} ({model!r:.60}): expected a Model, as of bertkit.load")
