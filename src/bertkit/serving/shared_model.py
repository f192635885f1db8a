"""A Model whose methods share batches across requests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from torch import Tensor

from bertkit.batch import Batch
from bertkit.inference import Runner
from bertkit.inference.runner import inferred, rows_in_order
from bertkit.model import Model
from bertkit.serving.encoded_jobs import Job, SharedEncoder
from bertkit.serving.refusals import Canceled
from bertkit.serving.shared_batches import SharedBatches
from bertkit.serving.text_jobs import noted_run
from bertkit.serving.ticket import current_ticket
from bertkit.tokenizer import Encodings
from bertkit.transformer import PreparedEncoder

Result = TypeVar("Result")


@dataclass(frozen=True)
class SharedRunner(Runner):
    """A Runner that uses the shared batches of the process."""

    batches: SharedBatches

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
        if (run := noted_run()) is not None:  # texts of several requests, on the core that took them
            run.note(encodings)
            return super().run(encodings, forward, rows_per_sequence=rows_per_sequence)
        ticket = current_ticket()
        ticket.num_tokens += len(encodings.input_ids)
        results = self.batches.run(Job(self, encodings, forward, ticket))
        for indices, _ in results:
            on_batch(indices)
        return rows_in_order([rows for _, rows in results], [indices for indices, _ in results], rows_per_sequence)

    def one(self, work: Callable[[], Result]) -> Result:
        """As `Runner.one`, on one core."""
        if noted_run() is not None:
            return super().one(work)
        if current_ticket().is_canceled:
            raise Canceled("the client closed the connection")
        return self.batches.cores.submit(inferred, work).result()


class SharedModel(Model):
    """A Model whose methods share batches across threads."""

    def __init__(self, model: Model, batches: SharedBatches) -> None:
        super().__init__(model.checkpoint, model.precision, model.precision_reason)
        runner = model._runner
        encoder = SharedEncoder(cast(PreparedEncoder, runner.encoder))
        self._shared = SharedRunner(runner.network, runner.tokenizer, encoder, batches=batches)

    @property
    def _runner(self) -> Runner:
        return self._shared

    def last_hidden_states(self, encodings: Encodings) -> np.ndarray:
        """(T, D) float32: the last hidden state of every token."""

        def forward(batch: Batch, indices: np.ndarray) -> Tensor:
            return self._shared.encoder(batch, with_pooled=False).last_hidden_state.float().cpu()

        return self._shared.run(encodings, forward, rows_per_sequence=encodings.seqlens).numpy()
