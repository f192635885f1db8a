"""What models do for requests, as verbs of the engine: vectors, sparse vectors, predictions, filled masks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.inference import FilledMask, InferenceReport, Runner, embed_sparse
from bertkit.later import Tensor
from bertkit.serving.jobs import Verb, likely_tokens
from bertkit.serving.refusals import ComputationFailed, InvalidRequest
from bertkit.serving.served_models import ServedModel
from bertkit.tasks.texts import mean_over_windows
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong

_BYTES_PER_NUMBER = 12
"""About the JSON of a number of a vector."""

TextOrIds = str | tuple[int, ...]
"""A text, or its token ids."""


@dataclass(frozen=True)
class ModelVerb(Verb):
    """A method of a model; see `jobs.Verb`."""

    served: ServedModel
    on_long: OnLong | None = None  # policy for long texts; None: as in training

    @property
    def runner(self) -> Runner:
        return self.served.model._runner

    def likely_tokens(self, item: Any) -> int:
        """See `Verb.likely_tokens`."""
        return likely_tokens(item, None if self.on_long == "window" else self.served.max_length)

    def texts(self, items: Sequence[TextOrIds]) -> list[str]:
        """The texts of inputs, which may be token ids."""
        return [item if isinstance(item, str) else text_of_ids(self.served, item) for item in items]


@dataclass(frozen=True)
class Embedding(ModelVerb):
    """Vectors of texts, (N, E) float32."""

    normalize: bool = True
    dimensions: int | None = None
    prompt_name: str | None = None

    def compute(self, items: Sequence[TextOrIds], report: InferenceReport) -> np.ndarray:
        """As `Model.embed`.

        Raises:
            BertkitError: an option that the model does not support, or a text that is too long under
                ``on_long="error"``.
            ComputationFailed: a number is not finite.
        """
        return finite(
            self.served.model.embed(
                self.texts(items),
                report=report,
                normalize=self.normalize,
                dimensions=self.dimensions,
                prompt_name=self.prompt_name,
                on_long=self.on_long or "truncate",
                progress=False,
            )
        )


@dataclass(frozen=True)
class TokenVectors(ModelVerb):
    """Last hidden states of the tokens of each text, (n, D) float32; those of windows are concatenated."""

    prompt_name: str | None = None

    @property
    def bytes_per_token(self) -> int:
        """See `Verb.bytes_per_token`."""
        return self.served.model.config.hidden_size * _BYTES_PER_NUMBER

    def compute(self, items: Sequence[TextOrIds], report: InferenceReport) -> list[np.ndarray]:
        """See `Embedding.compute`."""
        model, runner = self.served.model, self.runner
        prompt = self.served.prompts.get(self.prompt_name or model.sentence_settings.default_prompt_name or "", "")
        encodings = runner.tokenizer.encode_batch(
            [prompt + text for text in self.texts(items)], max_length=self.served.max_length,
            on_long=self.on_long or "truncate", first_index=report.num_texts, with_offsets=False,
        )  # fmt: skip

        def forward(batch: Batch, indices: np.ndarray) -> Tensor:
            rows: Any = runner.encoder(batch, with_pooled=False).last_hidden_state
            return rows if batch.is_in_arrays else rows.float().cpu()

        counted = encodings.after_prompts(runner.tokenizer.num_known(prompt)) if prompt else encodings
        rows = finite(np.asarray(runner.run(counted, forward, rows_per_sequence=encodings.seqlens)))
        ends = encodings.cu_seqlens[1:][np.flatnonzero(np.diff(encodings.text_index, append=len(items)))]
        return np.split(rows, ends[:-1])


@dataclass(frozen=True)
class SparseEmbedding(ModelVerb):
    """Entries of the vocabulary and weights of each text, (n,) int32 and (n,) float32."""

    as_queries: bool = False
    prompt_name: str | None = None

    def compute(self, items: Sequence[TextOrIds], report: InferenceReport) -> list[tuple[np.ndarray, np.ndarray]]:
        """See `Embedding.compute`."""
        model = self.served.model
        model.require_trained("masked_lm")
        vectors = embed_sparse(
            self.runner, model.checkpoint.sparse, self.texts(items), as_queries=self.as_queries, report=report,
            on_long=self.on_long or "truncate", prompt=self.served.prompts.get(self.prompt_name or "", ""),
        )  # fmt: skip
        parts = (np.split(values, vectors.starts[1:-1]) for values in (vectors.token_ids, finite(vectors.weights)))
        return list(zip(*parts, strict=True))


@dataclass(frozen=True)
class Prediction(ModelVerb):
    """Predictions of the model's task, or with ``as_logits`` the logits of each item, (C,) float32."""

    as_logits: bool = False

    def likely_tokens(self, item: Any) -> int:
        """See `Verb.likely_tokens`."""
        layout = self.served.model.trained.layout
        is_windowed = (self.on_long or layout.on_long) == "window"
        return likely_tokens(item, None if is_windowed else layout.max_length or self.served.max_length)

    def compute(self, items: Sequence[Any], report: InferenceReport) -> list[Any]:
        """As `Model.predict`.

        Raises:
            BertkitError: an item that is invalid for the task, or too long under "error".
            ComputationFailed: a logit is not finite.
        """
        decoded = _text_logits if self.as_logits else self.served.task.decode

        def decode(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
            return decoded(examples, encodings, finite(logits))

        options = {"report": report, "decode": decode, "on_long": self.on_long, "progress": False}
        return [row for _, rows in self.served.model.predict_stream(items, **options) for row in rows]


@dataclass(frozen=True, eq=False)  # two are not computed by one call: the library fills one text at a time
class Filling(ModelVerb):
    """The most likely tokens for each [MASK] of a text."""

    top_k: int = 5

    def compute(self, items: Sequence[str], report: InferenceReport) -> list[list[FilledMask]]:
        """As `Model.fill_mask`, of one text.

        Raises:
            BertkitError: a text without [MASK], or too long under ``on_long="error"``.
            ComputationFailed: a probability is not finite.
        """
        (text,) = items
        masks = self.served.model.fill_mask(text, top_k=self.top_k, on_long=self.on_long or "window")
        finite(np.array([mask.candidates[0].score for mask in masks]))
        return [masks]


def finite(numbers: np.ndarray) -> np.ndarray:
    """The numbers.

    Raises:
        ComputationFailed: one of them is not finite.
    """
    if not np.isfinite(numbers).all():
        raise ComputationFailed("Backend error: a number of the result is not finite")
    return numbers


def text_of_ids(served: ServedModel, ids: Sequence[int]) -> str:
    """Decode token ids to their text, with or without special tokens.

    Raises:
        InvalidRequest: the model's tokenizer encodes the text differently: probably the ids are from another tokenizer.
    """
    tokenizer = served.tokenizer
    bare, has_first = list(ids), tokenizer.engine.template.has_first
    if bare[-1] == tokenizer.sep_id and (bare[0] == tokenizer.cls_id or not has_first):
        bare = bare[has_first:-1]
    if all(0 <= token_id < len(tokenizer.vocabulary) for token_id in bare):
        text = tokenizer.decode(bare)
        if tokenizer.plain_ids([text])[0].tolist() == bare:
            return text
    raise InvalidRequest(
        f"these token ids are not those of the tokenizer of {served.name} for any text: send the text itself"
    )


def _text_logits(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[np.ndarray]:
    return list(mean_over_windows(encodings, logits))
