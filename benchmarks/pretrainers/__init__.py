"""Complete pre-training loops: one file for each library, both with the same interface.

Each module here has a class ``Pretrainer(threads)``; an object called with the name of a method calls that method. The
folder is one of `pretrain_texts.prepare`.

    start   (folder, precision): create a loop from the initial weights
    steps   (number, sequences) -> tokens without padding of ``number`` more optimizer steps over "blocks" or
            "paragraphs"
    train   (folder, settings, minutes, out) -> Facts: train for this time; weights at MOMENTS are written to ``out``
"""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

BATCH_SIZE = 32  # sequences of an optimizer step
MOMENTS = (0.05, *(tenth / 10 for tenth in range(1, 11)))
"""Shares of the time of a run at which its weights are kept."""

Facts = dict[str, Any]

PUBLISHED: dict[str, Any] = {  # Devlin et al. 2018, appendix A.2, for a short run: batches as small, warm-up as long
    "batch_size": BATCH_SIZE,
    "learning_rate": 1e-4,
    "betas": [0.9, 0.999],
    "eps": 1e-6,
    "weight_decay": 0.01,
    "warmup": 0.05,
    "clip_norm": 1.0,
    "mask_rate": 0.15,
    "dropout": 0.1,
    "precision": "bfloat16",
    "seed": 0,
}


class Curve:
    """The weights of a network at MOMENTS of its run: copied in milliseconds, written when the run is over."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._kept: list[tuple[Facts, dict[str, Tensor]]] = []
        self._num_passed = 0

    def look(self, done: float, **facts: float) -> None:
        """Keep the weights and facts about them if the next of MOMENTS is reached; ``done`` is the progress, 0 to 1."""
        num_passed = bisect_right(MOMENTS, done)
        if num_passed > self._num_passed:
            self._num_passed = num_passed
            weights = {name: tensor.detach().clone() for name, tensor in self._network.state_dict().items()}
            self._kept.append((facts, weights))

    def write(self, out: Path, save: Callable[[Path], None]) -> list[Facts]:
        """Write the kept weights as model folders; returns the facts of each, with the name of its folder."""
        points = []
        for number, (facts, weights) in enumerate(self._kept):
            self._network.load_state_dict(weights)
            points.append({"folder": f"{number:02d}", **facts})
            save(out / points[-1]["folder"])
        return points
