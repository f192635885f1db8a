"""Runner: the loop that runs a network over encodings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from operator import is_not
from typing import Any, Self, TypeVar

import numpy as np

from bertkit.architectures import Network
from bertkit.batch import Batch, collate, length_sorted_batches
from bertkit.device import device_of
from bertkit.errors import OverLengthError, UsageError, check_collection, check_type
from bertkit.executor import executor, map_on_cores, num_threads
from bertkit.inference.report import InferenceReport
from bertkit.later import Tensor, torch
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.ragged import ranges
from bertkit.transformer import Encoder, PreparedEncoder
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.arrays import empty, library_of, rows_beside
from bertkit.transformer.kernels.inference import without_gradients
from bertkit.transformer.kernels.row_invariance import ROW_COUNTS, row_count
from bertkit.transformer.modules import ArrayModule

Item = TypeVar("Item")
Result = TypeVar("Result")

_TOKENS_PER_BATCH = [count for count in reversed(ROW_COUNTS) if count >= 256]  # fewer are not worth a core
_TOKENS_PER_BATCH_ON_GPU = 65_536
_BATCH_COST = 32  # cost of starting a batch, in rows
_ITEMS_AT_A_TIME = 8_192
_CHARACTERS_AT_A_TIME = 4_000_000


@dataclass(frozen=True)
class Runner:
    """A network and its tokenizer, usable from several threads at once.

    Result rows are bit-identical regardless of the other encodings, and of the number of calling threads.
    """

    network: Network
    tokenizer: Tokenizer
    encoder: Encoder | PreparedEncoder  # the network's own, or the same prepared for this machine
    plans: dict[Any, Any] = field(
        default_factory=dict, compare=False, kw_only=True
    )  # resolved options of earlier calls, by options

    @classmethod
    def of(cls, kept: Self | None, *parts: Any) -> Self:
        """The ``kept`` runner, with its plans, if it has these parts; else a new one."""
        if kept is None or any(map(is_not, (kept.network, kept.tokenizer, kept.encoder), parts)):
            return cls(*parts)
        return kept

    @property
    def device(self) -> torch.device:
        return device_of(self.network.encoder.embeddings.word.weight)

    def collate(self, encodings: Encodings | Sequence[Any]) -> Batch:
        """A batch on the device, as `collate`: of arrays for a network with arrays."""
        in_arrays = isinstance(self.network, ArrayModule)
        batch = collate(encodings, in_arrays=in_arrays)
        return batch if in_arrays else batch.to(self.device)

    @property
    def max_positions(self) -> int:
        """Maximum sequence length of the network, in tokens."""
        return self.network.config.max_position_embeddings

    def require_bidirectional(self) -> None:
        """Check that tokens attend to both sides, as predicting a [MASK] requires.

        Raises:
            UsageError: a left-to-right model.
        """
        if self.network.config.is_decoder:
            raise UsageError(
                "this model reads from left to right, and a [MASK] needs both sides: choose a bidirectional model, or "
                "score texts with log_probs of load_generator"
            )

    def encode_whole(self, texts: Sequence[str], *, with_offsets: bool = True, first_index: int = 0) -> Encodings:
        """Encodings of texts that are neither cut nor split into windows.

        Args:
            first_index: index of the first text in errors.

        Raises:
            OverLengthError: a text has more tokens than the network accepts.
        """
        try:
            return self.tokenizer.encode_batch(texts, max_length=self.max_positions, with_offsets=with_offsets)
        except OverLengthError as error:
            index = first_index + error.index
            raise error.with_advice(f"text {index}", "shorten it", index) from None

    def run(
        self,
        encodings: Encodings,
        forward: Callable[[Batch, np.ndarray], Tensor],
        *,
        rows_per_sequence: np.ndarray | None = None,
        tokens_per_batch: int | None = None,
        on_batch: Callable[[np.ndarray], object] = lambda indices: None,
    ) -> Tensor:
        """Apply ``forward`` to the encodings in packed batches, and return its rows in the order of the encodings.

        On the CPU each core computes its own batches, since cores that share short products mostly wait for each other.
        A single batch is shared by all cores, unless other calls are computing.

        Args:
            encodings: at least one.
            forward: called without gradients with a batch and the indices of its sequences in ``encodings``, on the
                CPU from several threads at once; returns the rows of the first sequence, of the second, and so on.
            rows_per_sequence: (S,) number of rows of each sequence; None: one each.
            tokens_per_batch: None: chosen by device and number of tokens.
            on_batch: called with the indices of every finished batch.
        """
        if len(encodings) == 1:  # without the overhead of batching
            only = np.zeros(1, np.int64)
            rows = self.one(lambda: forward(self.collate(encodings), only))
            on_batch(only)
            return rows
        if tokens_per_batch is None:
            tokens_per_batch = self.tokens_per_batch(len(encodings.input_ids))
        batches = length_sorted_batches(encodings.seqlens, tokens_per_batch)
        ends = np.cumsum([len(batch) for batch in batches]).tolist()
        in_order = encodings.take(np.concatenate(batches))

        def work(number: int) -> Tensor:
            indices = batches[number]
            part = in_order.between(ends[number] - len(indices), ends[number])
            return inferred(lambda: forward(self.collate(part), indices))

        if len(batches) == 1:
            rows = self.one(lambda: work(0))
            on_batch(batches[0])
            return rows_in_order([rows], batches, rows_per_sequence)
        results = []
        with executor().call():
            for indices, rows in zip(batches, map_on_cores(work, range(len(batches)), self.device), strict=True):
                results.append(rows)
                on_batch(indices)
        return rows_in_order(results, batches, rows_per_sequence)

    def submit(
        self, encodings: Encodings, forward: Callable[[Batch, np.ndarray], Tensor], **options: Any
    ) -> Future[Tensor]:
        """`run` on one thread of the executor, as several calls share its cores; options as for `run`."""
        return executor().submit(partial(self.run, **options), encodings, forward)

    def one(self, work: Callable[[], Result]) -> Result:
        """``work()`` without gradients, on every core, or if other calls are computing on one of them."""
        if self.device.type != "cpu" or num_threads() == 1:
            return inferred(work)
        with executor().call() as is_alone:
            return inferred(work) if is_alone else executor().submit(inferred, work).result()

    def tokens_per_batch(self, num_tokens: int) -> int:
        """Token budget of a batch with the shortest expected run time."""
        if self.device.type != "cpu":
            return _TOKENS_PER_BATCH_ON_GPU
        return min(_TOKENS_PER_BATCH, key=lambda budget: _rows_of_busiest_core(num_tokens, budget, num_threads()))


def _rows_of_busiest_core(num_tokens: int, budget: int, num_threads: int) -> int:
    """Rows computed by the busiest core, if cores take turns at full batches and a last partial batch.

    >>> [_rows_of_busiest_core(1_800, budget, num_threads=2) for budget in (1_024, 896, 512)]
    [1056, 968, 1088]
    """
    num_full, rest = divmod(num_tokens, budget)
    rounds, num_extra = divmod(num_full, num_threads)
    last = row_count(rest) + _BATCH_COST if rest else 0
    return rounds * (budget + _BATCH_COST) + (budget + _BATCH_COST if num_extra else last)


def inferred(work: Callable[[], Result]) -> Result:
    """``work()`` without gradients, on the calling thread."""
    with without_gradients(), inference_kernels():
        return work()


def rows_in_order(results: list[Tensor], batches: list[np.ndarray], rows_per_sequence: np.ndarray | None) -> Tensor:
    """The rows of all batches in the order of their sequences."""
    order, rows = np.concatenate(batches), library_of(results[0]).concatenate(results)
    if rows_per_sequence is not None:
        starts = np.cumsum(rows_per_sequence) - rows_per_sequence
        order = ranges(starts[order], rows_per_sequence[order])
    in_order = empty(rows, *rows.shape)
    in_order[rows_beside(order, rows)] = rows
    return in_order


def encoded_chunks(
    items: Iterable[Any],
    encode: Callable[[list[Any], int], Encodings],
    report: InferenceReport,
    *,
    num_characters: Callable[[Any], int],
    doing: str,
    unit: str,
    read: Callable[[Any], Any] | None = None,
    most: int | None = None,
    progress: bool | None = None,
) -> Iterator[tuple[list[Any], Encodings, Bar]]:
    """A pass over items in bounded memory: chunks of them with their encodings, which are counted in the report, and
    a progress bar, which the caller advances.

    Args:
        encode: called with a chunk and the number of its first item.
        num_characters: length of an item.
        doing, unit: words of the bar, as in "embedding" and "texts".
        read: called with each item first.
        most: items in a chunk; None: some thousand.
        progress: show the bar after two seconds; None: on a terminal.

    Raises:
        UsageError: a table instead of items.
    """
    check_collection("texts", items)
    check_type("report", report, InferenceReport)
    with bar_of(items, doing, unit, progress) as bar:
        for chunk in chunks(items, num_characters, most, read):
            encodings = encode(chunk, report.num_texts)
            report.add(encodings, len(chunk))
            yield chunk, encodings, bar


class Bar:
    """A progress bar that is not shown; those that are shown are tqdm's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, number: int) -> None:
        """Advance the bar."""


def bar_of(items: Iterable[Any], doing: str, unit: str, progress: bool | None) -> Any:
    """The progress bar of a pass over items; arguments as for `encoded_chunks`."""
    if progress is not None:
        check_type("progress", progress, bool)
    is_shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress
    if not is_shown:
        return Bar()
    from tqdm import tqdm

    total = len(items) if isinstance(items, Sized) else None
    return tqdm(total=total, desc=doing, unit=f" {unit}", delay=2, leave=False)


def refuse_windows(on_long: str, results: str) -> None:
    """Check a policy for long texts where one input has one result.

    Args:
        results: what windows would give, as in "scores for a pair".

    Raises:
        UsageError: ``on_long="window"``.
    """
    if on_long == "window":
        raise UsageError(f"on_long='window' gives several {results}: choose 'truncate' or shorten the texts")


def checked_text(text: Any) -> str:
    """The text.

    Raises:
        UsageError: it is not a str.
    """
    if not isinstance(text, str):
        raise UsageError(f"a text is {type(text).__name__} ({text!r:.40}): expected str")
    return text


def text_length(text: str) -> int:
    """Number of characters of a text; as `checked_text`."""
    return len(checked_text(text))


def chunks(
    items: Iterable[Item],
    num_characters: Callable[[Item], int],
    most: int | None = None,
    read: Callable[[Any], Item] | None = None,
) -> Iterator[list[Item]]:
    """Lists of items of bounded size, so that memory does not grow with the number of items.

    Args:
        read: called with each item first.

    Raises:
        UsageError: a table instead of items, or an item that is wrong, with its index.
    """
    check_collection("texts", items)
    chunk: list[Item] = []
    characters = 0
    for index, item in enumerate(items):
        try:
            chunk.append(item if read is None else read(item))
            characters += num_characters(chunk[-1])
        except UsageError as error:
            raise UsageError(f"input {index}: {error}") from None
        if len(chunk) >= (most or _ITEMS_AT_A_TIME) or characters >= _CHARACTERS_AT_A_TIME:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
