"""Replaced token detection: ELECTRA's objective (Clark et al. 2020, section 2).

A generator, a smaller masked LM, predicts masked tokens. Each is replaced by a token drawn from its prediction, and the
model, the discriminator, learns for every token of the sequence whether it was replaced; a drawn token that is the
original one was not. Both share their embeddings, and their losses are added: the mean over masked tokens, and 50 times
the mean over all tokens. The generator learns from its own loss alone, and is not needed afterwards.

The number that draws a token depends only on the seed, the epoch, the index of the sequence and the position in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from bertkit.compiled import compiled
from bertkit.objectives.loader import Corruption
from bertkit.objectives.masked_lm import MaskedLM
from bertkit.objectives.masking import Masked
from bertkit.objectives.objective import Companion
from bertkit.objectives.sequences import Sequences
from bertkit.randomness import key_of, uniform
from bertkit.tasks.field_types import AboveZero, Range

if TYPE_CHECKING:
    from bertkit.architectures import Network
    from bertkit.objectives.generator import GeneratorAndDiscriminator, ReplacedTokensTask
    from bertkit.tokenizer import Tokenizer

GENERATOR = "generator"
"""Name of the generator among the companions, and of its folder."""
_DRAWS = 2  # the random stream of a sequence; those of `Masking` are 0 and 1


_ShareOfWidth = Annotated[
    float, Range("a share of the discriminator's width, above 0 and at most 1", lambda value: 0 < value <= 1)
]


@dataclass(frozen=True)
class ReplacedTokens(MaskedLM):
    """Tell tokens that a generator replaced from the original ones.

    Parameters
    ----------
    generator_size
        Width of the generator's layers as a share of the model's; their number is equal.
    detection_weight
        Factor of the discriminator's loss (Clark et al. 2020, appendix A).
    """

    generator_size: _ShareOfWidth = 0.25
    detection_weight: AboveZero = 50.0

    name: ClassVar[str] = "replaced-tokens"
    heads: ClassVar[tuple[str, ...]] = ("replaced_tokens",)
    best_by: ClassVar[str] = "loss"
    compiles: ClassVar[bool] = False  # filler would count as tokens
    replacement: ClassVar[tuple[float, float]] = (0.85, 1.0)  # google-research/electra, pretrain_helpers.py, mask

    @property
    def task(self) -> ReplacedTokensTask:
        from bertkit.objectives.generator import ReplacedTokensTask

        return ReplacedTokensTask(self.detection_weight)

    def corruption(self, tokenizer: Tokenizer, seed: int) -> Corruption:
        return WithDraws(super().corruption(tokenizer, seed), seed)

    def companions(self, config: Any) -> dict[str, Companion]:
        num_heads = max(1, round(config.num_attention_heads * self.generator_size))
        width = num_heads * max(1, round(config.hidden_size * self.generator_size / num_heads))
        changes = {  # of the config of an architecture with a replaced_tokens head
            "hidden_size": width,
            "num_attention_heads": num_heads,
            "intermediate_size": max(1, round(config.intermediate_size * self.generator_size)),
            "embedding_size": config.embedding_width,
        }
        return {GENERATOR: Companion(replace(config, **changes), ("masked_lm",))}

    def network(self, network: Network, companions: Mapping[str, Network]) -> GeneratorAndDiscriminator:
        from bertkit.objectives.generator import GeneratorAndDiscriminator

        return GeneratorAndDiscriminator(companions[GENERATOR], network)


@dataclass(frozen=True)
class WithDraws:
    """A corruption, with a random number for each position to predict."""

    corruption: Corruption
    seed: int

    def __call__(self, sequences: Sequences, rate: float, epoch: int, indices: np.ndarray) -> Masked:
        masked = self.corruption(sequences, rate, epoch, indices)
        draws = _draws(masked.positions, sequences.cu_seqlens, self.seed, epoch, indices)
        return masked._replace(draws=draws)


@compiled
def _draws(positions, cu_seqlens, seed, epoch, indices):
    draws, sequence = np.empty(len(positions)), 0
    for i in range(len(positions)):
        while positions[i] >= cu_seqlens[sequence + 1]:
            sequence += 1
        key = key_of(key_of(seed, epoch, indices[sequence]), _DRAWS, 0)
        draws[i] = uniform(key, positions[i] - cu_seqlens[sequence])
    return draws
