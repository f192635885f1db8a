"""Embed texts as vectors."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self, get_args

import numpy as np

from bertkit.batch import Batch
from bertkit.checkpoint import SentenceSettings
from bertkit.device import receive, send, send_together
from bertkit.errors import UsageError, check_type, checked_count
from bertkit.heads import LayerSelection, Projection, poolings_of
from bertkit.heads.pooling import finish, pool_windows
from bertkit.heads.projection import unit_length
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner, encoded_chunks, text_length
from bertkit.later import torch
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.arrays import Rows, library_of
from bertkit.transformer.kernels.inference import without_gradients
from bertkit.transformer.modules import ArrayModule


@dataclass(frozen=True)
class EmbedOptions:
    """Options of embedding. None means the checkpoint's setting."""

    pooling: str | None = None  # names from POOLINGS, as in "cls+mean"; "mean" if the checkpoint has none
    layers: str = "last"  # hidden states to pool: a name from NAMED_LAYERS, or "mean:1,-1"
    normalize: bool | None = None  # scale vectors to length 1; False if the checkpoint has no setting
    dimensions: int | None = None  # keep the first N components, before normalizing (Kusupati et al. 2022)
    prompt: str | None = None  # prefix of every text
    prompt_name: str | None = None  # one of the checkpoint's prompts, by name
    max_length: int | None = None  # maximum sequence length in tokens, special tokens included
    on_long: OnLong = (
        "truncate"  # as publishers of sentence encoders do; "window" pools every token of a long text once
    )
    stride: int | None = None  # tokens from the start of one window to the next; None: half a window
    tokens_per_batch: int | None = None  # None: chosen by device
    progress: bool | None = None  # show a bar after two seconds; None: on a terminal

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Options by name.

        Raises:
            UsageError: an unknown option, or an invalid value.
        """
        known = [one.name for one in fields(cls)]
        if unknown := options.keys() - set(known):
            raise UsageError(f"embed got an unknown option {min(unknown)!r}: expected {', '.join(known)}")
        return cls(**options)

    def __post_init__(self) -> None:
        poolings = () if self.pooling is None else poolings_of(self.pooling)
        if not LayerSelection.parse(self.layers).is_last and "pooler" in poolings:
            raise UsageError("pooling='pooler' uses only the last layer: omit layers")
        for name in ("dimensions", "max_length", "tokens_per_batch"):
            number = getattr(self, name)
            if number is not None:
                checked_count(name, number)
        if self.normalize not in (None, True, False):
            raise UsageError(f"normalize={self.normalize!r}: expected True, False or None")
        if self.on_long not in get_args(OnLong):
            raise UsageError(f"on_long={self.on_long!r}: expected {', '.join(map(repr, get_args(OnLong)))}")
        if not isinstance(self.prompt, str | None):
            raise UsageError(f"prompt={self.prompt!r:.40}: expected a str or None")
        if self.prompt is not None and self.prompt_name is not None:
            raise UsageError("pass prompt or prompt_name, not both")


def embed(
    runner: Runner,
    settings: SentenceSettings,
    texts: str | Iterable[str],
    options: EmbedOptions,
    report: InferenceReport | None = None,
) -> np.ndarray:
    """(num_texts, embedding_dim) float32, or (embedding_dim,) for one str; as `embed_stream`.

    Without a report, texts that were cut issue a TruncationWarning, and [UNK] tokens an UnknownWordsWarning.
    """
    counts = InferenceReport() if report is None else report
    check_type("report", counts, InferenceReport)
    if isinstance(texts, str):
        vectors = embed_one(runner, settings, texts, options, counts)
    elif isinstance(texts, Sequence) and len(texts) == 1:
        vectors = embed_one(runner, settings, texts[0], options, counts)[None]
    else:
        parts = [vectors for _, vectors in embed_stream(runner, settings, texts, options, counts)]
        vectors = (
            np.concatenate(parts) if parts else np.empty((0, embedding_dim(runner, settings, options)), np.float32)
        )
    if report is None:
        counts.warn("choose on_long='window' to encode them in full")
    return vectors


def embed_stream(
    runner: Runner,
    settings: SentenceSettings,
    texts: Iterable[str],
    options: EmbedOptions,
    report: InferenceReport,
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Embed texts in bounded memory.

    Yields:
        Up to some thousand texts and their (n, embedding_dim) float32 vectors, in order; ``report`` is kept up to date.

    Raises:
        OverLengthError: a text is too long under ``on_long="error"``.
        UsageError: an option that this model does not support, or a str or a table instead of texts.
    """
    refuse_one_text(texts)
    plan = _Plan.of(runner, settings, options)
    ready: deque[tuple[list[str], Callable[[], Any]]] = deque()
    coming = encoded_chunks(
        texts, partial(plan.encode, runner), report, num_characters=text_length, doing="embedding", unit="texts",
        progress=options.progress,
    )  # fmt: skip
    for chunk, encodings, bar in coming:
        vectors = plan.finish(*_embed_chunk(runner, encodings, len(chunk), plan, bar.update))
        ready.append((chunk, receive(vectors)))
        if len(ready) > (runner.device.type != "cpu"):  # a GPU computes while the next texts are encoded
            yield _arrived(*ready.popleft())
    for each in ready:
        yield _arrived(*each)


def _arrived(texts: list[str], vectors: Callable[[], Any]) -> tuple[list[str], np.ndarray]:
    return texts, np.asarray(vectors())


def embed_one(
    runner: Runner, settings: SentenceSettings, text: str, options: EmbedOptions, report: InferenceReport
) -> np.ndarray:
    """The (embedding_dim,) vector of one text, bit-identical to a batch's, without the overhead of batching."""
    text_length(text)
    plan = _Plan.of(runner, settings, options)
    encodings = plan.encode(runner, [text], report.num_texts)
    report.add(encodings, 1)
    vectors = plan.finish(*_embed_chunk(runner, encodings, 1, plan))
    return np.asarray(receive(vectors)())[0]


@dataclass(frozen=True)
class _Plan:
    """The options resolved for one model."""

    options: EmbedOptions
    settings: SentenceSettings
    layers: LayerSelection
    poolings: tuple[str, ...]
    projection: Projection | None  # None: the requested pooling or layers do not fit the checkpoint's projection
    normalize: bool
    prompt: str
    prompt_length: int  # tokens at the start that are not pooled
    num_of_prompt: int  # known tokens of the prompt
    max_length: int
    kept: tuple[int | None, int | None]  # `kept_components`

    @classmethod
    def of(cls, runner: Runner, settings: SentenceSettings, options: EmbedOptions) -> "_Plan":
        """The plan of an earlier call with the same options, or a new one.

        Raises:
            UsageError: an option that this model does not support.
        """
        plan = runner.plans.get(options)
        if plan is None or plan.settings != settings:
            plan = runner.plans[options] = cls._new(runner, settings, options)
        return plan

    @classmethod
    def _new(cls, runner: Runner, settings: SentenceSettings, options: EmbedOptions) -> "_Plan":
        embedding_dim(runner, settings, options)  # checks the options
        prompt = prompt_of(options, settings)
        return cls(
            options,
            settings,
            LayerSelection.parse(options.layers),
            poolings_of(options.pooling or settings.pooling),
            runner.network.projection if _takes_projection(settings, options) else None,
            settings.normalize if options.normalize is None else options.normalize,
            prompt,
            # An unpooled prompt is skipped together with the [CLS] before it, as its publishers do.
            0 if settings.include_prompt or not prompt else len(runner.tokenizer.encode(prompt)) - 1,
            runner.tokenizer.num_known(prompt) if prompt else 0,
            max_sequence_length(runner, settings, options.max_length),
            kept_components(options, settings),
        )

    def encode(self, runner: Runner, texts: list[str], first_index: int) -> Encodings:
        encodings = runner.tokenizer.encode_batch(
            [self.prompt + text for text in texts] if self.prompt else texts,
            max_length=self.max_length,
            on_long=self.options.on_long,
            stride=self.options.stride,
            first_index=first_index,
            with_offsets=False,
        )
        return encodings.after_prompts(self.num_of_prompt) if self.prompt else encodings

    def pool(
        self, runner: Runner, batch: Batch, owned: np.ndarray, num_before: np.ndarray, skipped: np.ndarray
    ) -> Rows:
        """Contribution of each window to its text, from the tokens it owns, as `pool_windows`, with P poolings
        concatenated: (W, P D + P) values and weights."""
        encoded = runner.encoder(
            batch, with_hidden_states=not self.layers.is_last, with_pooled="pooler" in self.poolings,
            first_only={"cls", "pooler"} >= set(self.poolings) and not skipped.any(),
        )  # fmt: skip
        tokens: Any = owned, num_before, skipped
        if runner.device.type == "cpu":
            encoded, batch = encoded.as_arrays(), batch.as_arrays()
        else:
            tokens = send_together([torch.from_numpy(numbers) for numbers in tokens], runner.device)
        pooled = [pool_windows(pooling, self.layers, encoded, batch, *tokens) for pooling in self.poolings]
        values, weights = zip(*pooled, strict=True)
        return library_of(values[0]).concatenate([*values, *(each[:, None] for each in weights)], 1)

    def finish(self, values: Rows, weights: Rows) -> Rows:
        """(num_texts, embedding_dim) float32 on the device, from the combined contributions of each text's windows."""
        library = library_of(values)
        parts = zip(self.poolings, _by_pooling(values, len(self.poolings)), weights.T, strict=True)
        vectors = library.concatenate([finish(*part) for part in parts], 1)
        if self.projection:
            with without_gradients(), inference_kernels():
                vectors = self._projected(vectors)
        vectors = vectors[:, : self.kept[0]]
        vectors = (unit_length(vectors) if self.normalize else vectors)[:, : self.kept[1]]
        return vectors.astype(np.float32, copy=False) if library is np else vectors.float()

    def _projected(self, vectors: Rows) -> Rows:
        projection: Any = self.projection
        if isinstance(vectors, np.ndarray) and not isinstance(projection, ArrayModule):
            return np.asarray(projection(torch.from_numpy(vectors)))
        return projection(vectors)


def _takes_projection(settings: SentenceSettings, options: EmbedOptions) -> bool:
    return options.pooling in (None, settings.pooling) and LayerSelection.parse(options.layers).is_last


def embedding_dim(runner: Runner, settings: SentenceSettings, options: EmbedOptions) -> int:
    """Number of components of a vector.

    Raises:
        UsageError: more dimensions than the model has, or layers that it lacks.
    """
    config = runner.network.config
    num_poolings = len(poolings_of(options.pooling or settings.pooling))
    full = config.hidden_size * LayerSelection.parse(options.layers).num_vectors(config.num_hidden_layers)
    projection = runner.network.projection
    full = projection.width if projection and _takes_projection(settings, options) else full * num_poolings
    if options.dimensions is not None and options.dimensions > full:
        raise UsageError(f"dimensions={options.dimensions}: this model's vectors have {full}")
    return min(full, *(width or full for width in kept_components(options, settings)))


def kept_components(options: EmbedOptions, settings: SentenceSettings) -> tuple[int | None, int | None]:
    """How many components of a vector are kept before and after it is normalized; None: all.

    By default as published: sentence-transformers truncates the vector that the last module gives.
    """
    if options.dimensions is not None or not _takes_projection(settings, options):
        return options.dimensions, None
    return (None, settings.truncate_dim) if options.normalize is None else (settings.truncate_dim, None)


def max_sequence_length(runner: Runner, settings: SentenceSettings, asked: int | None) -> int:
    """Maximum sequence length: as requested, else from the checkpoint, and at most the model's number of positions.

    Raises:
        UsageError: the request exceeds the model's number of positions.
    """
    if asked is not None:
        if asked > runner.max_positions:
            raise UsageError(f"max_length={asked}: expected at most {runner.max_positions}, this model's positions")
        return asked
    named = settings.max_seq_length or runner.tokenizer.model_max_length or runner.max_positions
    return min(named, runner.max_positions)


def _embed_chunk(
    runner: Runner,
    encodings: Encodings,
    num_texts: int,
    plan: _Plan,
    on_texts: Callable[[int], object] = lambda number: None,
) -> tuple[Rows, Rows]:
    """(num_texts, D) values and (num_texts,) weights: the contributions of windows summed for each text."""
    owned, num_before, skipped = _owned_tokens(encodings, plan.prompt_length)

    def forward(batch: Batch, indices: np.ndarray) -> Rows:
        rows = plan.pool(runner, batch, *(numbers[indices] for numbers in (owned, num_before, skipped)))
        return rows if batch.is_in_arrays or not isinstance(rows, np.ndarray) else torch.from_numpy(rows)

    def on_batch(indices: np.ndarray) -> None:
        on_texts(int((encodings.owned[indices, 0] == 0).sum()))

    tokens_per_batch = plan.options.tokens_per_batch
    windows: Any = runner.run(encodings, forward, tokens_per_batch=tokens_per_batch, on_batch=on_batch)
    windows = np.asarray(windows) if runner.device.type == "cpu" else windows
    num_poolings = len(plan.poolings)
    values, weights = windows[:, :-num_poolings], windows[:, -num_poolings:]
    if num_texts == len(encodings):  # one window for each text
        return values, weights
    rows: Any = encodings.text_index
    rows = rows if isinstance(windows, np.ndarray) else send(torch.from_numpy(rows), runner.device)
    parts = zip(plan.poolings, _by_pooling(values, num_poolings), strict=True)
    sums = [_added_up(pooling, part, rows, num_texts) for pooling, part in parts]
    return library_of(values).concatenate(sums, 1), _added_up("sum", weights, rows, num_texts)


def _by_pooling(values: Rows, number: int) -> list[Rows]:
    """The columns (N, D) of each of some poolings."""
    width = values.shape[1] // number
    return [values[:, start : start + width] for start in range(0, values.shape[1], width)]


def _added_up(pooling: str, values: Rows, rows: Rows, num_texts: int) -> Rows:
    """(num_texts, D): sums of the (W, D) window values over each text, given by (W,) ``rows``; maxima for "max"."""
    if isinstance(values, np.ndarray):
        start, combine = (-np.inf, np.maximum) if pooling == "max" else (0, np.add)
        total = np.full((num_texts, values.shape[1]), start, values.dtype)
        combine.at(total, rows, values)
        return total
    if pooling != "max":
        return values.new_zeros(num_texts, values.shape[1]).index_add_(0, rows, values)
    lowest = values.new_full((num_texts, values.shape[1]), float("-inf"))
    return lowest.scatter_reduce_(0, rows[:, None].expand_as(values), values, "amax")


def _owned_tokens(encodings: Encodings, prompt_length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(W, 2) the tokens that each window pools, (W,) the number of tokens of its text before them, and (W,) the number
    of tokens skipped at its start, as an unpooled prompt.

    Raises:
        UsageError: the prompt fills the first window of a text, so that the next would pool a part of it.
    """
    starts, ends = encodings.owned[:, 0], encodings.owned[:, 1]
    skipped = np.where(starts == 0, np.minimum(prompt_length, ends - 1), 0)  # in the first window of each text
    num_before = skipped.copy()
    first = np.flatnonzero(starts == 0)
    if len(first) < len(starts):
        several = np.diff([*first, len(starts)]) > 1
        if (room := int(ends[first][several].min())) <= prompt_length:
            raise UsageError(
                f"the prompt takes {prompt_length} tokens, and the first of several windows {room}: choose a larger "
                "max_length, a shorter prompt or on_long='truncate'"
            )
        before = np.cumsum(ends - starts) - (ends - starts)
        num_before += before - np.repeat(before[first], np.diff([*first, len(starts)]))
    owned = np.stack([starts + skipped, ends], axis=1)
    return owned, num_before, skipped


def prompt_of(options: EmbedOptions, settings: SentenceSettings) -> str:
    """The prefix of every text.

    Raises:
        UsageError: the model has no prompt of that name.
    """
    if options.prompt is not None:
        return options.prompt
    name = options.prompt_name or settings.default_prompt_name
    if name is None:
        return ""
    if name not in settings.prompts:
        raise UsageError(f"prompt_name={name!r}: this model's prompts are {', '.join(settings.prompts) or 'none'}")
    return settings.prompts[name]
