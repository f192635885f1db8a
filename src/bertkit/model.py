"""A model: encoder, heads and tokenizer of one directory, and what it can do.

Takes: a path, a hub name or an installed model package.
Gives: Model: embed, fill_mask, next_sentence_probability, pseudo_log_likelihood, predict, evaluate, the network itself.
May import: errors, device, locate, tokenizer, batch, transformer, heads, architectures, tasks,
    checkpoint, inference.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from bertkit.architectures import Network, extend_embeddings, initialize, prepare
from bertkit.architectures.tensor_names import module_of
from bertkit.checkpoint import Checkpoint, SentenceSettings, open_checkpoint, save_checkpoint
from bertkit.checkpoint.checkpoint import Provenance, TrainedTask
from bertkit.device import resolve_device, weights_dtype
from bertkit.errors import MissingHeadError, UsageError
from bertkit.inference import (
    EmbedOptions,
    EmbedReport,
    FilledMask,
    PredictReport,
    Runner,
    embed,
    fill_mask,
    next_sentence_probability,
    predict,
    score,
    token_log_probs,
)
from bertkit.inference.auto_precision import choose_precision
from bertkit.inference.embed import embed_one, embedding_dim
from bertkit.inference.predict import Decode
from bertkit.inference.pseudo_likelihood import Method
from bertkit.inference.truncation import warn_of_cut_examples, warn_of_truncation
from bertkit.locate import locate
from bertkit.tokenizer import Tokenizer, extend_vocabulary
from bertkit.tokenizer.layout import OnLong
from bertkit.transformer import Encoder, EncoderConfig, PreparedEncoder


def load(
    name: str | Path,
    *,
    precision: str = "float32",
    device: str = "auto",
    heads: Sequence[str] | None = None,
    new: Collection[str] = (),
    label_names: Sequence[str] | None = None,
    ignore_tensors: Collection[str] = (),
    ignore_config_keys: Collection[str] = (),
    seed: int = 0,
) -> "Model":
    """Open a published BERT.

    Args:
        name: a folder, a hub name, a short name ("all-MiniLM-L6-v2"), or the import name of a model package.
        precision: of the encoder in inference: "float32", exact; "bfloat16" and "int8", faster and a little off;
            "auto", the fastest that stays within cosine 0.9999 of float32 on this machine, which `Model.precision`
            and `Model.precision_reason` tell; or "float64", for reference.
        device: "auto", "cpu", "cuda", "cuda:1", ...
        heads: the heads wanted, names from ``bertkit.HEADS``; None: those whose weights are there. Stored weights of
            heads not named are left out.
        new: heads, or "pooler", to start from initial weights. They refuse to predict until trained.
        label_names: the labels of a new classification head; None: LABEL_0 and LABEL_1.
        ignore_tensors: unexpected stored tensors to leave out.
        ignore_config_keys: unknown keys of config.json to leave out of account.
        seed: of initial weights.

    Raises:
        CheckpointError: no such model, or one that is incomplete, inconsistent or unsafe to open.
    """
    checkpoint = open_checkpoint(
        locate(name),
        heads=heads,
        new=new,
        label_names=label_names,
        ignore_tensors=ignore_tensors,
        ignore_config_keys=ignore_config_keys,
        dtype=weights_dtype("float32" if precision == "auto" else precision),
        seed=seed,
    )
    checkpoint.network.to(resolve_device(device))
    if precision != "auto":
        return Model(checkpoint, precision)
    choice = choose_precision(checkpoint.network.encoder, checkpoint.tokenizer)
    return Model(checkpoint, choice.precision, choice.reason)


class Model:
    """A BERT with its tokenizer."""

    def __init__(self, checkpoint: Checkpoint, precision: str = "float32", precision_reason: str = "") -> None:
        self.checkpoint = checkpoint
        self.precision = precision  # of the encoder in inference
        self.precision_reason = precision_reason  # in one line, where it was found by trying
        self._prepared: PreparedEncoder | None = None  # made when first used

    @classmethod
    def create(
        cls,
        config: EncoderConfig,
        tokenizer: Tokenizer,
        heads: Sequence[str] = (),
        *,
        label_names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> "Model":
        """A model with initial weights, to be trained.

        Raises:
            UsageError: the vocabulary does not fit the word embedding, or an unknown head.
        """
        if len(tokenizer.vocabulary) > config.vocab_size:
            raise UsageError(f"vocab_size={config.vocab_size}: the vocabulary has {len(tokenizer.vocabulary)} entries")
        network = Network(config, heads, num_labels=len(label_names) if label_names else 2).eval()
        initialize(network, config, seed)
        origin = Provenance("initialized", f"seed {seed}")
        provenance = {network.architecture.names.published(name): origin for name, _ in network.named_parameters()}
        labels = tuple(label_names) if label_names else None
        return cls(Checkpoint(network, tokenizer, label_names=labels, provenance=provenance))

    def __repr__(self) -> str:
        config = self.config
        heads = ", ".join(self.network.heads) or "none"
        return (
            f"Model({config.num_hidden_layers} layers, hidden_size={config.hidden_size}, "
            f"vocab_size={config.vocab_size}, heads: {heads}, {self.precision})"
        )

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write a directory that transformers and sentence-transformers open; whole or not at all.

        Raises:
            UsageError: it exists and is not empty, unless ``overwrite``.
        """
        save_checkpoint(self.checkpoint, directory, overwrite=overwrite)

    def extend_vocabulary(self, words: Sequence[str]) -> None:
        """Add words of a domain to the vocabulary, each starting as the mean of its present pieces.

        What has no new word in it is read as before. Train on the domain's texts afterwards; `find_domain_words` of
        `bertkit.tokenizer` tells which words are worth it.

        Raises:
            UsageError: the tokenizer is not WordPiece, or a word is no single word as it reads them, or is an entry.
        """
        extended = extend_vocabulary(self.tokenizer, words)
        extend_embeddings(self.network, self.tokenizer, extended)
        self.checkpoint.tokenizer = extended

    @property
    def network(self) -> Network:
        """Encoder and heads: call it with a Batch for the logits of every head."""
        return self.checkpoint.network

    @property
    def encoder(self) -> Encoder:
        """The encoder: call it with a Batch for hidden states."""
        return self.network.encoder

    @property
    def tokenizer(self) -> Tokenizer:
        return self.checkpoint.tokenizer

    @property
    def config(self) -> EncoderConfig:
        return self.network.config

    @property
    def sentence_settings(self) -> SentenceSettings:
        """How its publisher pools and normalizes; mean and no for one that was not published as a sentence encoder."""
        return self.checkpoint.sentence or SentenceSettings()

    def embed(self, texts: str | Iterable[str], *, report: EmbedReport | None = None, **options: Any) -> np.ndarray:
        """Texts to vectors.

        Args:
            texts: any iterable of str, or one str.
            report: filled with what happened to the texts: how many were empty, cut, windowed. Without it, texts that
                were cut raise a TruncationWarning with the counts.
            options: the fields of `EmbedOptions`: pooling, layers, normalize, dimensions, prompt, on_long, ...

        Returns:
            (num_texts, embedding_dim) float32; (embedding_dim,) for one str. A text's vector does not depend on the
            texts around it.

        Raises:
            OverLengthError: a text is too long under ``on_long="error"``.
            UsageError: an option that is unknown or that this model cannot honor.
        """
        counts = EmbedReport() if report is None else report
        if isinstance(texts, str):
            chosen = self._embed_options(options)
            vectors = embed_one(self._runner, self.sentence_settings, texts, chosen, counts)
        else:
            arrays = list(self.embed_stream(texts, report=counts, **options))
            nothing = (0, embedding_dim(self._runner, self._embed_options(options)))
            vectors = np.concatenate(arrays) if arrays else np.empty(nothing, np.float32)
        if report is None:
            remedy = "choose on_long='window' to read them whole, or pass report= to have the counts"
            warn_of_truncation(counts.num_texts, counts.num_texts_cut, counts.num_tokens_cut, remedy, stacklevel=2)
        return vectors

    def embed_stream(self, texts: Iterable[str], *, report: EmbedReport, **options: Any) -> Iterator[np.ndarray]:
        """The same in bounded memory: yields (n, embedding_dim) arrays for some thousand texts each, in order."""
        return embed(self._runner, self.sentence_settings, texts, self._embed_options(options), report)

    def _embed_options(self, options: dict[str, Any]) -> EmbedOptions:
        try:
            chosen = EmbedOptions(**options)
        except TypeError as error:
            raise UsageError(
                f"embed: {str(error).partition('() ')[2]}; the options are the fields of EmbedOptions"
            ) from None
        if chosen.pooling == "pooler" and self.encoder.pooler is not None:
            self.require_trained("pooler")
        return chosen

    def fill_mask(self, text: str, *, top_k: int = 5, on_long: OnLong = "error") -> list[FilledMask]:
        """The ``top_k`` most likely tokens for every [MASK] in a text.

        Raises:
            MissingHeadError: no masked LM head, or one that was never trained.
            UsageError: no [MASK] in the text.
            OverLengthError: too long under ``on_long="error"``.
        """
        self.require_trained("masked_lm")
        return fill_mask(self._runner, text, top_k=top_k, on_long=on_long)

    @overload
    def next_sentence_probability(self, text: str, following: str, *, on_long: OnLong = "error") -> float: ...
    @overload
    def next_sentence_probability(
        self, text: Sequence[str], following: Sequence[str], *, on_long: OnLong = "error"
    ) -> np.ndarray: ...
    def next_sentence_probability(
        self, text: str | Sequence[str], following: str | Sequence[str], *, on_long: OnLong = "error"
    ) -> float | np.ndarray:
        """The probability, 0 to 1, that ``following`` is what comes after ``text``; (N,) float32 for lists.

        Raises:
            MissingHeadError: no next sentence head, or one that was never trained.
            OverLengthError: too long under ``on_long="error"``.
        """
        self.require_trained("next_sentence")
        self.require_trained("pooler")
        if isinstance(text, str) and isinstance(following, str):
            return float(next_sentence_probability(self._runner, [text], [following], on_long=on_long)[0])
        if isinstance(text, str) or isinstance(following, str):
            raise UsageError("next_sentence_probability takes two texts or two lists of texts, got one of each")
        return next_sentence_probability(self._runner, text, following, on_long=on_long)

    @overload
    def pseudo_log_likelihood(self, texts: str, *, method: Method = "plain", progress: bool | None = None) -> float: ...
    @overload
    def pseudo_log_likelihood(
        self, texts: Sequence[str], *, method: Method = "plain", progress: bool | None = None
    ) -> np.ndarray: ...
    def pseudo_log_likelihood(
        self, texts: str | Sequence[str], *, method: Method = "plain", progress: bool | None = None
    ) -> float | np.ndarray:
        """How likely a text is, in natural logs: the sum of `token_log_probs`; (N,) float64 for a list.

        Good for comparing texts of one meaning; a longer text is less likely, and an empty one has 0.
        """
        if isinstance(texts, str):
            return float(self.token_log_probs([texts], method=method, progress=progress)[0].sum())
        found = self.token_log_probs(texts, method=method, progress=progress)
        return np.array([log_probs.sum() for log_probs in found], np.float64)

    def token_log_probs(
        self, texts: Sequence[str], *, method: Method = "plain", progress: bool | None = None
    ) -> list[np.ndarray]:
        """The natural log of each token's probability, given the text without it (Salazar et al. 2020).

        Args:
            method: "plain" hides the token alone; "l2r" also the later pieces of its word, which would give it away
                (Kauf & Ivanova 2023).
            progress: show a bar after two seconds; None: where a person is watching.

        Returns:
            For each text (n,) float64, for the tokens ``tokenizer.encode(text).input_ids[1:-1]``.

        Raises:
            MissingHeadError: no masked LM head, or one that was never trained.
            OverLengthError: a text is longer than the model reads.
        """
        self.require_trained("masked_lm")
        return token_log_probs(self._runner, texts, method=method, progress=progress)

    @property
    def trained(self) -> TrainedTask:
        """The task that this model was trained for.

        Raises:
            MissingHeadError: none, or none that its directory tells of.
        """
        if self.checkpoint.trained is None:
            has = ", ".join(self.network.heads) or "none"
            raise MissingHeadError(f"this model was not trained for a task (its heads: {has}): fine-tune it first")
        return self.checkpoint.trained

    def change_task(self, **settings: Any) -> None:
        """Set what the model's directory does not tell of its task; ``save`` keeps it.

        A published model of SQuAD 2.0, for one, looks like one of SQuAD 1.1: with ``no_answer=True`` it may say that a
        question has no answer, where its margin is above ``no_answer_threshold``.

        Raises:
            MissingHeadError: no task.
            UsageError: a setting that the task does not have, or a value that it cannot have.
        """
        self.checkpoint.trained = self.trained.with_settings(**settings)

    def predict(self, examples: Iterable[Any], *, report: PredictReport | None = None) -> list[Any]:
        """What the model's task says of each example: typed predictions, in order.

        Args:
            examples: whatever the task reads: texts, pairs of texts, examples. Labels are not looked at.
            report: filled with what happened to them. Without it, examples that were cut raise a TruncationWarning.

        Raises:
            MissingHeadError: no task, or a head that was never trained.
            OverLengthError: an example is too long for a model that does not cut.
        """
        counts = PredictReport() if report is None else report
        found = [prediction for _, part in self.predict_stream(examples, report=counts) for prediction in part]
        if report is None:
            warn_of_cut_examples(counts)
        return found

    def predict_stream(
        self,
        examples: Iterable[Any],
        *,
        report: PredictReport,
        decode: Decode | None = None,
        progress: bool | None = None,
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """The same in bounded memory: yields some thousand examples and their predictions, in order, as ``decode`` or
        else the task makes them of the logits."""
        trained = self.trained
        self._require_trained_task(trained)
        return predict(self._runner, trained.task, examples, trained.layout, report, decode=decode, progress=progress)

    def evaluate(self, examples: Iterable[Any], *, report: PredictReport | None = None) -> dict[str, float]:
        """The metrics of the model's task over labeled examples: pairs (input, label) of what `predict` takes and its
        label, such as ``zip(texts, labels)``, or examples as `bertkit.tasks.reading` reads them; ``report`` as there.

        Raises:
            DataError, UsageError: another form; a label that is missing, or not one of the model's, matched by name.
            MissingHeadError: as `predict`.
        """
        trained = self.trained
        self._require_trained_task(trained)
        counts = PredictReport() if report is None else report
        metrics = score(self._runner, trained.task, examples, trained.layout, counts)
        if report is None:
            warn_of_cut_examples(counts)
        return metrics

    def _require_trained_task(self, trained: TrainedTask) -> None:
        self.require_trained(trained.task.head)
        if self.network.architecture.reads_pooler(trained.task.head, self.config):
            self.require_trained("pooler")

    def mark_trained(self) -> None:
        """Say of every tensor that is not frozen that its values come from training, so that its head may predict."""
        for name, parameter in self.network.named_parameters():
            if parameter.requires_grad:
                self.checkpoint.provenance[self.network.architecture.names.published(name)] = Provenance("trained")

    def require_trained(self, part: str) -> None:
        """Check that a head, or "pooler", is there and that its weights are not the initial ones.

        Raises:
            MissingHeadError: it is not.
        """
        prefix = module_of(part)
        if part != "pooler":
            self.network.require_head(part)
        for name, _ in self.network.get_submodule(prefix).named_parameters():
            published = self.network.architecture.names.published(f"{prefix}.{name}")
            origin = self.checkpoint.provenance.get(published)
            if origin is not None and origin.origin == "initialized":
                what = "pooler" if part == "pooler" else f"{part} head"
                raise MissingHeadError(
                    f"the {what} was never trained ({published} still has its initial values): train it before asking "
                    "it for predictions"
                )

    @property
    def _runner(self) -> Runner:
        if self._prepared is None or not self._prepared.fits(self.encoder):
            self._prepared = prepare(self.encoder, self.precision)
        return Runner(self.network, self.tokenizer, self._prepared)
