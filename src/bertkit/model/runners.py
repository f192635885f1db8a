"""Runners of a model, created when they are first used: with torch, or with the arrays of its checkpoint."""

from typing import Any

from bertkit.architectures import Network, prepare
from bertkit.checkpoint import Checkpoint
from bertkit.device import device_of
from bertkit.inference import Runner
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.prepared.encoder import runs_in_arrays


class ModelRunners:
    """A checkpoint with the runners of its network."""

    def __init__(self, checkpoint: Checkpoint, precision: str) -> None:
        self.checkpoint = checkpoint
        self.precision = precision  # of the encoder in inference
        self._prepared: PreparedEncoder | None = None
        self._kept_runner: Runner | None = None  # of the last inference

    def __getstate__(self) -> dict[str, Any]:
        """Without the prepared encoder, whose packed weights cannot be copied: a copy prepares its own at first use."""
        return self.__dict__ | {"_prepared": None, "_kept_runner": None}

    @property
    def network(self) -> Network:
        """Encoder and heads: call it with a Batch to get the logits of every head."""
        return self.checkpoint.network

    @property
    def tokenizer(self) -> Tokenizer:
        return self.checkpoint.tokenizer

    @property
    def weights_device(self) -> Any:
        """The device of the weights, for which torch is not needed where they are arrays."""
        return device_of(self.checkpoint.parts.encoder.embeddings.word.weight)

    @property
    def inference_network(self) -> Network:
        """The network with arrays while it has them, if its encoder is prepared without torch; else `network`."""
        parts = self.checkpoint.parts
        return parts if runs_in_arrays(parts.encoder, self.precision) else self.network

    @property
    def _runner(self) -> Runner:
        return self._runner_of(self.inference_network)

    @property
    def _torch_runner(self) -> Runner:
        """For methods whose steps have no arrays."""
        return self._runner_of(self.network)

    def _runner_of(self, network: Network) -> Runner:
        if self._prepared is None or not self._prepared.fits(network.encoder):
            self._prepared = prepare(network.encoder, self.precision)
        self._kept_runner = Runner.of(self._kept_runner, network, self.tokenizer, self._prepared)
        return self._kept_runner
