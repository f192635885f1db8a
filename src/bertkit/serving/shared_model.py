"""A Model whose methods share batches across requests."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import numpy as np

from bertkit.batch import Batch
from bertkit.inference import InferenceReport, Runner
from bertkit.inference.runner import inferred
from bertkit.later import Tensor
from bertkit.model import Model
from bertkit.serving.engine import LONE_TOKENS, Engine, end_tokenization
from bertkit.serving.jobs import Job, current_call
from bertkit.serving.refusals import Canceled
from bertkit.serving.served_models import EXTRACTION, TAGGING, ServedModel, some_word
from bertkit.serving.shared_run import SharedEncoder
from bertkit.serving.ticket import Ticket, Waiter, current_ticket
from bertkit.tokenizer import Encodings
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.arrays import library_of, split
from bertkit.transformer.kernels.row_invariance import ROW_COUNTS
from bertkit.transformer.modules import ArrayModule

Result = TypeVar("Result")


@dataclass(frozen=True)
class SharedRunner(Runner):
    """A Runner whose runs are those of the engine: as a part of the job in progress, or as a job that the calling
    thread waits for."""

    engine: Engine

    def run(
        self,
        encodings: Encodings,
        forward: Callable[[Batch, np.ndarray], Tensor],
        *,
        rows_per_sequence: np.ndarray | None = None,
        tokens_per_batch: int | None = None,
        on_batch: Callable[[np.ndarray], object] = lambda indices: None,
    ) -> Tensor:
        """As `Runner.run`; the queue decides on the batches."""
        if (call := current_call()) is not None:
            at_once = partial(super().run, encodings, forward, rows_per_sequence=rows_per_sequence)
            return call.run(encodings, forward, rows_per_sequence, at_once)
        ticket = current_ticket()
        end_tokenization(ticket)
        waiter = Waiter(Ticket(ticket.client, ticket.deadline))
        ticket.on_cancel = lambda: waiter.fail(Canceled("the client closed the connection"))
        if ticket.is_canceled:  # meanwhile
            ticket.on_cancel()
        verb, indices = _Rows(self, encodings, forward, rows_per_sequence), range(len(encodings))
        rows = self.engine.run(Job(verb, indices, lambda rows, _: rows, waiter, is_encoded=True), waiter)
        ticket.num_tokens += waiter.ticket.num_tokens
        ticket.queue_seconds += waiter.ticket.queue_seconds
        ticket.inference_seconds += waiter.ticket.inference_seconds
        on_batch(np.array(indices))
        return library_of(rows[0]).concatenate(rows)

    def one(self, work: Callable[[], Result]) -> Result:
        """As `Runner.one`, on one core."""
        if current_call() is not None:
            return super().one(work)
        if current_ticket().is_canceled:
            raise Canceled("the client closed the connection")
        return self.engine.cores.submit(inferred, work).result()


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of each sequence of a run; see `jobs.Verb`."""

    runner: SharedRunner
    encodings: Encodings
    forward: Callable[[Batch, np.ndarray], Tensor]
    rows_per_sequence: np.ndarray | None
    bytes_per_token: int = 0

    def likely_tokens(self, item: int) -> int:
        """See `Verb.likely_tokens`."""
        return int(self.encodings.seqlens[item])

    def compute(self, items: Sequence[int], report: InferenceReport) -> Sequence[Tensor]:
        """See `Verb.compute`."""
        chosen = np.array(items)
        counts = np.ones_like(chosen) if self.rows_per_sequence is None else self.rows_per_sequence[chosen]

        def forward(batch: Batch, indices: np.ndarray) -> Tensor:
            return self.forward(batch, chosen[indices])

        rows = self.runner.run(self.encodings.take(chosen), forward, rows_per_sequence=counts)
        return split(rows, counts.tolist())


class SharedModel(Model):
    """A Model whose methods share batches across threads."""

    def __init__(self, model: Model, engine: Engine) -> None:
        super().__init__(model.checkpoint, model.precision, model.precision_reason, model._opened_extractor)
        self._engine = engine
        self._shared = self._shared_runner(model._runner)

    def _shared_runner(self, runner: Runner) -> SharedRunner:
        encoder = SharedEncoder(cast(PreparedEncoder, runner.encoder))
        return SharedRunner(runner.network, runner.tokenizer, encoder, engine=self._engine)

    @property
    def _runner(self) -> Runner:
        return self._shared

    @cached_property
    def _torch_runner(self) -> Runner:
        network = self.network
        return self._shared if self._shared.network is network else self._shared_runner(self._runner_of(network))


def warm_up(served: ServedModel, engine: Engine) -> None:
    """Run batches of every shape, so that kernels are compiled and products checked before the first request."""
    runner = served.model._runner
    word = some_word(runner.tokenizer.vocabulary)
    most = min(64, runner.max_positions)

    def run(num_tokens: int, on: Callable[..., Future[Any]] = engine.cores.submit) -> Future[EncoderOutput]:
        num_full, rest = divmod(num_tokens, most)
        lengths = [most] * num_full + [rest] * (rest > 2)
        texts = [" ".join([word] * (length - 2)) for length in lengths]
        batch = runner.collate(runner.tokenizer.encode_batch(texts, max_length=most, on_long="truncate"))
        return on(inferred, partial(runner.encoder, batch))

    counts = ROW_COUNTS if runner.device.type == "cpu" else ROW_COUNTS[-1:]
    if isinstance(runner.network, ArrayModule):  # whose products do not depend on the number of rows
        counts = ROW_COUNTS[0], ROW_COUNTS[-1]
    run(counts[0]).result()  # loads and compiles what all of them need
    for future in [run(count) for count in reversed(counts)]:
        future.result()
    for count in counts:
        if count <= LONE_TOKENS:
            run(count, engine.all_cores.submit).result()
    if served.kind == EXTRACTION:
        served.model.extract(word, ["a"])
    elif served.kind == TAGGING:  # its rules of words are tables of all characters
        served.model.predict([word])
