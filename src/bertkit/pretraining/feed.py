"""Batches of a pre-training recipe for the training loop."""

from dataclasses import dataclass
from pathlib import Path

from bertkit.corpus.shards import TokenShard
from bertkit.errors import DataError, UsageError
from bertkit.objectives import Loader, Objective, PretrainingBatch, Source, SpecialIds, StaticBatch, StaticShape
from bertkit.pretraining.recipe import DataSettings
from bertkit.tokenizer import Tokenizer, Vocabulary

_HELD_OUT_SEED = 12_345
"""Seed (MLPerf's) of the evaluation masks, fixed so that runs of all recipes are comparable."""


@dataclass(frozen=True)
class PretrainingFeed:
    """Batches of ``batch_size`` examples over all ranks."""

    loader: Loader
    data: DataSettings
    objective: Objective
    batch_size: int
    static_tokens: int | None = None  # tokens of the parts of a batch, which then have one shape in each stage

    def batch(self, position: int, progress: float) -> PretrainingBatch:
        """This rank's share of the batch at a position."""
        stage, rate = self.data.stage_at(progress), self.objective.mask_rate_at(progress)
        batch = self.loader.batch(position, self.batch_size, stage=stage, mask_rate=rate)
        return batch if self.static_tokens is None else StaticBatch.of(batch, self.shape(stage, self.static_tokens))

    def shape(self, stage: int, most_tokens: int) -> StaticShape:
        """The shape of the parts of this rank's batches in a stage."""
        share = self.batch_size // self.loader.num_ranks
        rate = max(self.objective.mask_rate_at(0.0), self.objective.mask_rate_at(1.0))
        return StaticShape.of(share, self.data.max_seqlens()[stage], rate, most_tokens)

    def next_position(self, position: int, progress: float) -> int:
        """The position after that batch."""
        return self.loader.next_position(position, self.batch_size, stage=self.data.stage_at(progress))

    def facts(self, position: int, progress: float) -> dict[str, float]:
        """Epochs completed and the mask rate."""
        return {"epoch": self.loader.epoch(position), "mask_rate": self.objective.mask_rate_at(progress)}

    def random_share(self) -> float | None:
        """Share of random sentence pairs in the first epoch; None without such pairs."""
        return self.loader.sources[0].random_share(0)


def make_feed(
    shard: TokenShard,
    tokenizer: Tokenizer,
    data: DataSettings,
    objective: Objective,
    *,
    batch_size: int,
    seed: int,
    rank: int,
    num_ranks: int,
    static_tokens: int | None = None,
) -> PretrainingFeed:
    """The feed of a corpus; ``static_tokens`` as in `PretrainingFeed`.

    Raises:
        UsageError: a batch that the ranks cannot divide evenly, or a vocabulary without [CLS], [SEP] or [MASK].
        DataError: a corpus without such examples.
    """
    check_share(batch_size, num_ranks)
    text = "the corpus without its held-out share (held_out_share)"
    sources = [_source(shard, tokenizer, objective, max_seqlen, seed, text) for max_seqlen in data.max_seqlens()]
    loader = Loader(sources, objective.corruption(tokenizer, seed), seed, rank=rank, num_ranks=num_ranks)
    return PretrainingFeed(loader, data, objective, batch_size, static_tokens)


def held_out_batches(
    shard: TokenShard,
    tokenizer: Tokenizer,
    objective: Objective,
    *,
    max_seqlen: int,
    max_sequences: int,
    tokens_per_batch: int,
) -> list[PretrainingBatch]:
    """Fixed evaluation batches of `Objective.evaluated`: up to ``max_sequences`` sequences.

    Raises:
        DataError: a held-out text without such examples.
    """
    objective = objective.evaluated()
    text = "the held-out text (held_out_share of the corpus, or the files of --held-out)"
    source = _source(shard, tokenizer, objective, max_seqlen, _HELD_OUT_SEED, text)
    loader = Loader([source], objective.corruption(tokenizer, _HELD_OUT_SEED), _HELD_OUT_SEED)
    number = min(source.num_examples(0), max_sequences)
    batch = loader.batch(0, number, stage=0, mask_rate=objective.mask_rate_at(0.0))
    return batch.split(max(1, round(batch.num_tokens / tokens_per_batch)))


def check_share(batch_size: int, num_ranks: int) -> None:
    """Raise a UsageError for a batch that the ranks cannot divide evenly."""
    if batch_size % num_ranks:
        raise UsageError(f"batch_size={batch_size} is not a multiple of the {num_ranks} ranks that share it")


def check_vocabulary(tokenizer: Tokenizer, objective: Objective) -> None:
    """Raise a UsageError for a vocabulary that lacks tokens these examples need, or joins pairs differently."""
    if not tokenizer.engine.template.has_first:
        raise UsageError("this tokenizer puts no [CLS] before a text, as pre-training does: choose another tokenizer")
    if objective.takes_pairs and tokenizer.engine.template.num_separators != 1:
        raise UsageError(
            f"objective {objective.name} requires a tokenizer of pairs [CLS] A [SEP] B [SEP]: choose masked-lm"
        )
    objective.corruption(tokenizer, _HELD_OUT_SEED)


def check_lowercase(vocabulary: Vocabulary, name: Path) -> None:
    """Raise a UsageError for a cased vocabulary: lowercased text has none of its entries with uppercase letters."""
    if cased := vocabulary.uppercase_entries():
        raise UsageError(
            f"{name} has {len(cased):,} entries with uppercase letters, such as {cased[0]!r}, which lowercased text "
            "never has: lowercase = false (--no-lowercase) for a cased vocabulary, or remove them"
        )


def _source(
    shard: TokenShard, tokenizer: Tokenizer, objective: Objective, max_seqlen: int, seed: int, text: str
) -> Source:
    """The examples of a shard; ``text`` is its name in errors."""
    try:
        return objective.source(shard, SpecialIds.of(tokenizer), max_seqlen, seed)
    except DataError as error:
        raise DataError(f"{text}: {error}") from None
