"""Masked language modeling on single texts (Devlin et al. 2018, section 3.1, without its second task)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from bertkit.corpus.shards import TokenShard
from bertkit.errors import UsageError
from bertkit.objectives.loader import Corruption
from bertkit.objectives.masking import Masking, MaskUnit, continues_word
from bertkit.objectives.objective import Objective
from bertkit.objectives.pretraining_loss import PretrainingTask
from bertkit.objectives.sequences import Source, SpecialIds
from bertkit.objectives.token_blocks import TokenBlocks
from bertkit.tasks.field_types import ShareAboveZero
from bertkit.tasks.loss import Task
from bertkit.tokenizer import Tokenizer

_EVALUATED_RATE = 0.15
"""BERT's mask rate, of all evaluations."""


@dataclass(frozen=True)
class MaskedLM(Objective):
    """Predict masked tokens from both sides.

    Parameters
    ----------
    mask_unit
        Unit that is masked together: a token, the pieces of a word, or 1 to 10 words.
    mask_rate
        Share of the tokens to predict, at the start of the run.
    final_mask_rate
        That at its end, interpolated linearly; by default the same.
    """

    mask_unit: MaskUnit = "token"
    mask_rate: ShareAboveZero = 0.15
    final_mask_rate: ShareAboveZero | None = None

    name: ClassVar[str] = "masked-lm"
    heads: ClassVar[tuple[str, ...]] = ("masked_lm",)
    replacement: ClassVar[tuple[float, float]] = (0.8, 0.9)  # as in `Masking`

    @property
    def task(self) -> Task:
        return PretrainingTask()

    def source(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> Source:
        return TokenBlocks(shard, special, max_seqlen, seed)

    def corruption(self, tokenizer: Tokenizer, seed: int) -> Corruption:
        continues = continues_word(tokenizer.vocabulary.tokens)
        if self.mask_unit != "token" and not continues.any():
            raise UsageError(
                f"mask_unit={self.mask_unit!r}: this vocabulary has no entries such as ##ing, which mark the "
                "continuation of a word; choose mask_unit='token'"
            )
        special = SpecialIds.of(tokenizer)
        return Masking(special, continues, self.mask_unit, seed=seed, replacement=self.replacement)

    def mask_rate_at(self, progress: float) -> float:
        end = self.mask_rate if self.final_mask_rate is None else self.final_mask_rate
        return self.mask_rate + (end - self.mask_rate) * progress

    def at(self, progress: float) -> Self:
        return replace(self, mask_rate=self.mask_rate_at(progress), final_mask_rate=None)

    def evaluated(self) -> Self:
        return replace(self, mask_unit="token", mask_rate=_EVALUATED_RATE, final_mask_rate=None)
