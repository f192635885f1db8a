"""A Model whose methods share batches across requests."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from bertkit.batch import Batch
from bertkit.inference import Runner
from bertkit.inference.runner import inferred
from bertkit.later import Tensor
from bertkit.model import Model
from bertkit.serving.calls import current_call
from bertkit.serving.engine import LONE_TOKENS, Engine
from bertkit.serving.served_models import EXTRACTION, TAGGING, ServedModel, some_word
from bertkit.serving.shared_run import SharedEncoder
from bertkit.tokenizer import Encodings
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.interface import EncoderOutput
from bertkit.transformer.kernels.row_invariance import ROW_COUNTS
from bertkit.transformer.modules import ArrayModule


class SharedRunner(Runner):
    """A Runner whose runs inside a call are those of the call."""

    def run(
        self,
        encodings: Encodings,
        forward: Callable[[Batch, np.ndarray], Tensor],
        *,
        rows_per_sequence: np.ndarray | None = None,
        **options: Any,
    ) -> Tensor:
        """As `Runner.run`; inside a call, the queue decides on the batches."""
        call, options = current_call(), {"rows_per_sequence": rows_per_sequence, **options}
        at_once = partial(super().run, encodings, forward, **options)
        return at_once() if call is None else call.run(self, encodings, forward, rows_per_sequence, at_once)


class SharedModel(Model):
    """A Model whose methods share batches across requests, inside calls of the engine."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.checkpoint, model.precision, model.precision_reason, model._opened_extractor)
        self._shared = self._shared_runner(model._runner)

    def _shared_runner(self, runner: Runner) -> SharedRunner:
        encoder = SharedEncoder(cast(PreparedEncoder, runner.encoder))
        return SharedRunner(runner.network, runner.tokenizer, encoder)

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
        counts = ROW_COUNTS[0], 4 * LONE_TOKENS  # of one text, and of several
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
