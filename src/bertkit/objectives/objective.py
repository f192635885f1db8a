"""Base class of pre-training objectives: examples of a corpus, the tokens to predict, the networks and the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from bertkit.objectives.loader import Corruption
from bertkit.objectives.sequences import Source, SpecialIds
from bertkit.tasks.loss import Task
from bertkit.tasks.settings import Choice

if TYPE_CHECKING:
    from torch import nn

    from bertkit.architectures import Network
    from bertkit.corpus.shards import TokenShard
    from bertkit.tokenizer import Tokenizer
    from bertkit.transformer import EncoderConfig


class Companion(NamedTuple):
    """A second model that is trained together with the model of a run, and saved in a folder inside its folder."""

    config: EncoderConfig
    heads: tuple[str, ...]


@dataclass(frozen=True)
class Objective(Choice, ABC):
    """A pre-training objective. Its fields are its settings, the section [objective] of a recipe.

    A subclass in a file and a line in `OBJECTIVES` add an objective.

    Raises:
        UsageError: a setting of another type or out of its range.
    """

    name: ClassVar[str]  # its key in OBJECTIVES
    heads: ClassVar[tuple[str, ...]]  # the heads of the model that it trains
    takes_pairs: ClassVar[bool] = False  # its examples are pairs, [CLS] A [SEP] B [SEP], not single texts
    least_documents: ClassVar[int] = 1  # of which it can make examples
    best_by: ClassVar[str] = "masked_lm_loss"  # the metric that selects the best checkpoint, lower is better
    compiles: ClassVar[bool] = True  # torch can compile its network, for batches of one shape

    @classmethod
    def kinds(cls) -> Mapping[str, type[Objective]]:
        from bertkit.objectives import OBJECTIVES

        return OBJECTIVES

    @property
    @abstractmethod
    def task(self) -> Task:
        """The loss and its metrics, of `PretrainingBatch`."""

    @abstractmethod
    def source(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> Source:
        """The examples of a corpus; raises a DataError if it has none."""

    @abstractmethod
    def corruption(self, tokenizer: Tokenizer, seed: int) -> Corruption:
        """The inputs and prediction targets of examples; raises a UsageError for a vocabulary that does not fit."""

    @abstractmethod
    def mask_rate_at(self, progress: float) -> float:
        """Share of the tokens that are predicted at a progress of the run from 0 to 1."""

    def at(self, progress: float) -> Self:
        """The objective with the mask rate of a progress, constant."""
        return self

    def evaluated(self) -> Self:
        """The objective with the settings of evaluations, equal for all runs so that they can be compared."""
        return self

    def companions(self, config: EncoderConfig) -> dict[str, Companion]:
        """Models that are trained together with the model of this config, by the names of their folders: none."""
        return {}

    def network(self, network: Network, companions: Mapping[str, Network]) -> nn.Module:
        """The network that is trained: the model's, or a module that contains it and its companions'."""
        return network
