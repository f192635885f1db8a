"""Next sentence prediction, with masked language modeling: BERT's objective (Devlin et al. 2018, section 3.1)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from bertkit.corpus.shards import TokenShard
from bertkit.objectives.masked_lm import MaskedLM
from bertkit.objectives.sentence_pairs import SHORT_PROB, SentencePairs
from bertkit.objectives.sequences import Source, SpecialIds
from bertkit.tasks.field_types import Share


@dataclass(frozen=True)
class NextSentence(MaskedLM):
    """Predict masked tokens, and whether text B follows text A or is from another document.

    Parameters
    ----------
    balanced
        Exactly half of the pairs are random; otherwise more are, as published.
    short_prob
        Share of documents whose pairs get a random shorter target length.
    """

    balanced: bool = False
    short_prob: Share = SHORT_PROB

    name: ClassVar[str] = "next-sentence"
    heads: ClassVar[tuple[str, ...]] = ("masked_lm", "next_sentence")
    takes_pairs: ClassVar[bool] = True
    least_documents: ClassVar[int] = 2  # random texts are from another document

    def source(self, shard: TokenShard, special: SpecialIds, max_seqlen: int, seed: int) -> Source:
        return SentencePairs(shard, special, max_seqlen, seed, short_prob=self.short_prob, balanced=self.balanced)

    def evaluated(self) -> Self:
        return replace(super().evaluated(), short_prob=SHORT_PROB)
