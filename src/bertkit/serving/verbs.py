"""What models do for requests, as verbs of the engine: vectors, sparse vectors, predictions, filled masks."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.inference import FilledMask, InferenceReport, embed_sparse
from bertkit.later import Tensor
from bertkit.serving.jobs import Results, Verb, likely_tokens
from bertkit.serving.refusals import ComputationFailed, InvalidRequest
from bertkit.serving.served_models import ServedModel
from bertkit.tasks.texts import mean_over_windows
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong

_BYTES_PER_NUMBER = 12
"""About the JSON of a number of a vector."""

TextOrIds = str | tuple[int, ...]
"""A text, or its token ids."""


def embedding(
    served: ServedModel, on_long: OnLong = "truncate", prompt_name: str | None = None, *, normalize: bool = True,
    dimensions: int | None = None,
) -> Verb:  # fmt: skip
    """Vectors of texts, (N, E) float32, as `Model.embed`.

    Its calls raise:
        BertkitError: an option that the model does not support, or a text that is too long under ``on_long="error"``.
        ComputationFailed: a number is not finite.
    """
    options: dict[str, Any] = {
        "on_long": on_long, "prompt_name": prompt_name, "normalize": normalize, "dimensions": dimensions
    }  # fmt: skip

    def vectors(items: Sequence[TextOrIds], report: InferenceReport) -> np.ndarray:
        return finite(served.model.embed(_texts(served, items), report=report, progress=False, **options))

    return _of_texts(vectors, served, on_long, ("vectors", *options.values()))


def token_vectors(served: ServedModel, on_long: OnLong = "truncate", prompt_name: str | None = None) -> Verb:
    """Last hidden states of the tokens of each text, (n, D) float32; those of windows are concatenated. Its calls raise
    as those of `embedding`."""
    model, runner = served.model, served.model._runner
    prompt = served.prompts.get(prompt_name or model.sentence_settings.default_prompt_name or "", "")

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        rows: Any = runner.encoder(batch, with_pooled=False).last_hidden_state
        return rows if batch.is_in_arrays else rows.float().cpu()

    def vectors(items: Sequence[TextOrIds], report: InferenceReport) -> list[np.ndarray]:
        encodings = runner.tokenizer.encode_batch(
            [prompt + text for text in _texts(served, items)], max_length=served.max_length, on_long=on_long,
            first_index=report.num_texts, with_offsets=False,
        )  # fmt: skip
        counted = encodings.after_prompts(runner.tokenizer.num_known(prompt)) if prompt else encodings
        rows = finite(np.asarray(runner.run(counted, forward, rows_per_sequence=encodings.seqlens)))
        ends = encodings.cu_seqlens[1:][np.flatnonzero(np.diff(encodings.text_index, append=len(items)))]
        return np.split(rows, ends[:-1])

    num_bytes = model.config.hidden_size * _BYTES_PER_NUMBER
    return _of_texts(vectors, served, on_long, ("token vectors", on_long, prompt_name), bytes_per_token=num_bytes)


def sparse_embedding(
    served: ServedModel, on_long: OnLong = "truncate", prompt_name: str | None = None, *, as_queries: bool = False
) -> Verb:
    """Entries of the vocabulary and weights of each text, (n,) int32 and (n,) float32. Its calls raise as those of
    `embedding`, and a MissingHeadError without a masked LM."""
    model, prompt = served.model, served.prompts.get(prompt_name or "", "")

    def weights(items: Sequence[TextOrIds], report: InferenceReport) -> list[tuple[np.ndarray, np.ndarray]]:
        model.require_trained("masked_lm")
        vectors = embed_sparse(
            model._runner, model.checkpoint.sparse, _texts(served, items), as_queries=as_queries, report=report,
            on_long=on_long, prompt=prompt,
        )  # fmt: skip
        parts = (np.split(values, vectors.starts[1:-1]) for values in (vectors.token_ids, finite(vectors.weights)))
        return list(zip(*parts, strict=True))

    return _of_texts(weights, served, on_long, ("sparse", on_long, prompt_name, as_queries))


def prediction(served: ServedModel, on_long: OnLong | None = None, *, as_logits: bool = False) -> Verb:
    """Predictions of the model's task, or with ``as_logits`` the logits of each item, (C,) float32; as
    `Model.predict_stream`.

    Args:
        on_long: policy for long texts; None: as in training.

    Its calls raise:
        BertkitError: an item that is invalid for the task, or too long under "error".
        ComputationFailed: a logit is not finite.
    """
    layout = served.model.trained.layout
    decoded = _text_logits if as_logits else served.task.decode

    def decode(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[Any]:
        return decoded(examples, encodings, finite(logits))

    def predictions(items: Sequence[Any], report: InferenceReport) -> list[Any]:
        options = {"report": report, "decode": decode, "on_long": on_long, "progress": False}
        return [row for _, rows in served.model.predict_stream(items, **options) for row in rows]

    most = None if (on_long or layout.on_long) == "window" else layout.max_length or served.max_length
    return Verb(predictions, (served, "predictions", on_long, as_logits), partial(likely_tokens, most=most))


def filling(served: ServedModel, on_long: OnLong = "window", top_k: int = 5) -> Verb:
    """The most likely tokens for each [MASK] of a text, as `Model.fill_mask`.

    Its calls raise:
        BertkitError: a text without [MASK], or too long under ``on_long="error"``.
        ComputationFailed: a probability is not finite.
    """

    def masks(items: Sequence[str], report: InferenceReport) -> list[list[FilledMask]]:
        (text,) = items
        made = served.model.fill_mask(text, top_k=top_k, on_long=on_long)
        finite(np.array([mask.candidates[0].score for mask in made]))
        return [made]

    return _of_texts(masks, served, on_long, object())  # two do not share a call: the library fills one text at a time


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


def _of_texts(
    compute: Callable[[Sequence[Any], InferenceReport], Results], served: ServedModel, on_long: OnLong, key: Hashable,
    bytes_per_token: int = 0,
) -> Verb:  # fmt: skip
    """A verb of texts that are cut to the length of a model, unless they are encoded in windows."""
    most = None if on_long == "window" else served.max_length
    return Verb(compute, (served, key), partial(likely_tokens, most=most), bytes_per_token=bytes_per_token)


def _texts(served: ServedModel, items: Sequence[TextOrIds]) -> list[str]:
    return [item if isinstance(item, str) else text_of_ids(served, item) for item in items]


def _text_logits(examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[np.ndarray]:
    return list(mean_over_windows(encodings, logits))
