"""Examples of pre-training: literal examples, equality with a slow implementation, statistics, any worker, any rank."""

import itertools
from types import SimpleNamespace

import numpy as np
import pretraining_reference as reference
import pytest
import torch

from bertkit.errors import DataError, UsageError
from bertkit.objectives import Loader, Masking, SentencePairs, Sequences, SpecialIds, TokenBlocks, continues_word
from bertkit.randomness import below, in_random_order, key_of, random_bits, uniform

SPECIAL = SpecialIds(cls=reference.CLS, sep=reference.SEP, mask=reference.MASK)
VOCAB_SIZE = 99
CONTINUES = np.arange(VOCAB_SIZE) % 3 == 1


def shard_of(documents: list[list[list[int]]]) -> SimpleNamespace:
    sentences = [sentence for document in documents for sentence in document]
    return SimpleNamespace(
        tokens=np.array([token for sentence in sentences for token in sentence], np.uint16),
        sentences=np.cumsum([0, *map(len, sentences)]),
        documents=np.cumsum([0, *map(len, documents)]),
    )


def random_documents(number: int, seed: int, longest: int = 30) -> list[list[list[int]]]:
    draw = np.random.default_rng(seed)
    return [
        [draw.integers(5, VOCAB_SIZE, draw.integers(1, longest)).tolist() for _ in range(draw.integers(1, 12))]
        for _ in range(number)
    ]


def rows(sequences: Sequences) -> list[list[int]]:
    return [ids.tolist() for ids in np.split(sequences.input_ids, sequences.cu_seqlens[1:-1])]


def everything(source, epoch: int) -> Sequences:
    return source.take(epoch, np.arange(source.num_examples(epoch)))


# ---- random numbers and order


def test_random_numbers_are_the_published_ones() -> None:
    # SplitMix64 from seed 0, as its reference implementation prints them
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(random_bits(np.uint64(0), i)) for i in range(3)] == published
    for key, counter in [(np.uint64(5), 0), (np.uint64(2**64 - 1), 3), (np.uint64(77), 2**40)]:
        assert int(random_bits(key, counter)) == reference.bits(int(key), counter)
        assert uniform(key, counter) == float(reference.uniform(int(key), counter))
        assert below(key, counter, 7) == reference.below(int(key), counter, 7)
    assert int(key_of(3, 1, 9)) == reference.key_of(3, 1, 9)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 64, 65, 1_000])
def test_random_order_is_a_permutation_by_key(number: int) -> None:
    orders = [in_random_order(np.arange(number), number, seed, 7).tolist() for seed in range(4)]
    backwards = in_random_order(np.arange(number)[::-1].copy(), number, 0, 7)
    assert backwards.tolist() == orders[0][::-1]
    for order in orders:
        assert sorted(order) == list(range(number))
    if number > 6:
        assert len({tuple(order) for order in orders}) == 4


def test_random_order_is_unbiased() -> None:
    number, epochs = 11, 20_000
    counts = np.zeros((number, number))
    for epoch in range(epochs):
        counts[np.arange(number), in_random_order(np.arange(number), number, 1, epoch)] += 1
    expected = epochs / number
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - (number - 1) ** 2) < 5 * np.sqrt(2 * (number - 1) ** 2)


# ---- blocks


def test_blocks_of_a_tiny_corpus() -> None:
    source = TokenBlocks(shard_of([[[10, 11], [12]], [[20]]]), SPECIAL, max_seqlen=5, seed=0)
    assert rows(everything(source, 0)) == [[2, 10, 11, 12, 3], [2, 20, 3]]
    source = TokenBlocks(shard_of([[[10, 11, 12, 13, 14]]]), SPECIAL, max_seqlen=4, seed=0)
    starts = set()
    for epoch in range(20):
        results = rows(everything(source, epoch))
        assert [token for row in results for token in row[1:-1]] == [10, 11, 12, 13, 14]
        assert all(len(row) == 4 for row in results[1:-1])
        starts.add(len(results[0]))
    assert starts == {3, 4}  # an epoch begins its blocks anywhere


@pytest.mark.parametrize("max_seqlen", [3, 17, 64])
def test_token_blocks_equal_slow_reference(max_seqlen: int) -> None:
    documents = random_documents(41, seed=1)
    source = TokenBlocks(shard_of(documents), SPECIAL, max_seqlen, seed=5)
    for epoch in (0, 1, 7):
        expected = reference.blocks(documents, max_seqlen, 5, epoch)
        assert rows(everything(source, epoch)) == expected
        some = np.array([3, len(expected) - 1, 0, 3])
        assert rows(source.take(epoch, some)) == [expected[i] for i in some]


# ---- pairs


@pytest.mark.full
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("max_seqlen", [5, 24, 128])
def test_sentence_pairs_equal_slow_reference(max_seqlen: int, balanced: bool) -> None:
    documents = random_documents(37, seed=2)
    source = SentencePairs(shard_of(documents), SPECIAL, max_seqlen, seed=9, short_prob=0.3, balanced=balanced)
    for epoch in (0, 3):
        expected = reference.pairs(documents, max_seqlen, 9, epoch, 0.3, balanced)
        results = everything(source, epoch)
        assert rows(results) == [[2, *a, 3, *b, 3] for a, b, _ in expected]
        assert results.next_sentence_label.tolist() == [label for _, _, label in expected]
        types = [type_id for a, b, _ in expected for type_id in [0] * (len(a) + 2) + [1] * (len(b) + 1)]
        assert results.token_type_ids.tolist() == types
        assert source.random_share(epoch) == np.mean([label for _, _, label in expected])
        some = np.array([5, 0, len(expected) - 1])
        assert rows(source.take(epoch, some)) == [rows(results)[i] for i in some]


def test_pairs_of_a_tiny_corpus() -> None:
    documents = [[[tens, tens + 1], [tens + 2, tens + 3]] for tens in (10, 20, 30, 40, 50)]
    source = SentencePairs(shard_of(documents), SPECIAL, 7, seed=0, short_prob=0.0)
    seen = set()
    for epoch in range(100):
        results = everything(source, epoch)
        for row, label in zip(rows(results), results.next_sentence_label.tolist(), strict=True):
            assert row[0] == 2 and row[3] == row[6] == 3
            a, b = row[1:3], row[4:6]
            assert (b == [a[0] + 2, a[1] + 2]) if label == 0 else a[0] // 10 != b[0] // 10
            seen.add((*a, *b, label))
    assert (10, 11, 12, 13, 0) in seen and (10, 11, 20, 21, 1) in seen and (22, 23, 10, 11, 1) in seen


def test_more_than_half_are_random_as_published_and_exactly_half_balanced() -> None:
    shard = shard_of(random_documents(3_000, seed=3))
    published = SentencePairs(shard, SPECIAL, 64, seed=1)
    assert 0.55 < published.random_share(0) < 0.75
    balanced = SentencePairs(shard, SPECIAL, 64, seed=1, balanced=True)
    number = balanced.num_examples(0)
    assert abs(balanced.random_share(0) * number - number / 2) <= 0.5


def test_pairs_that_cannot_be() -> None:
    with pytest.raises(DataError, match="there is 1: give more files"):
        SentencePairs(shard_of([[[5], [6]]]), SPECIAL, 16, seed=0)
    with pytest.raises(DataError, match="every document has one"):
        SentencePairs(shard_of([[[5]], [[6]]]), SPECIAL, 16, seed=0)
    with pytest.raises(UsageError, match="max_seqlen=4"):
        SentencePairs(shard_of([[[5], [7]], [[6]]]), SPECIAL, 4, seed=0)
    with pytest.raises(DataError, match="no tokens"):
        TokenBlocks(shard_of([]), SPECIAL, 16, seed=0)
    with pytest.raises(UsageError, match="max_seqlen=2: expected at least 3"):
        TokenBlocks(shard_of([[[5]]]), SPECIAL, 2, seed=0)


@pytest.mark.parametrize("kind", [SentencePairs, TokenBlocks])
def test_threads_may_read_different_epochs(kind: type[SentencePairs | TokenBlocks]) -> None:
    source = kind(shard_of(random_documents(60, seed=4)), SPECIAL, 20, seed=2)

    class Interrupted(int):
        """An epoch; while it is compared, another thread asks for the next one."""

        def __ne__(self, other: object) -> bool:
            differs = int(self) != other
            source.num_examples(1)
            return differs

    numbers = [source.num_examples(epoch) for epoch in (1, 0)]
    assert numbers[0] != numbers[1] == source.num_examples(Interrupted(0))


# ---- masks


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_masks_equal_slow_reference(unit: str) -> None:
    source = SentencePairs(shard_of(random_documents(60, seed=4)), SPECIAL, 48, seed=2)
    masking = Masking(SPECIAL, CONTINUES, unit, seed=6)
    for epoch, rate in ((0, 0.15), (2, 0.4)):
        indices = np.arange(source.num_examples(epoch))[::-1].copy()
        sequences = source.take(epoch, indices)
        results = masking(sequences, rate, epoch, indices)
        input_ids, positions = [], []
        for index, row in zip(indices.tolist(), rows(sequences), strict=True):
            out, chosen = reference.masked(row, rate, CONTINUES, unit, 6, epoch, index)
            positions += [len(input_ids) + position for position in chosen]
            input_ids += out
        assert results.input_ids.tolist() == input_ids
        assert results.positions.tolist() == positions
        assert results.labels.tolist() == sequences.input_ids[positions].tolist()


def one(tokens: list[int]) -> Sequences:
    ids = np.array(tokens, np.int32)
    return Sequences(ids, np.zeros_like(ids), np.array([0, len(ids)]), None)


def test_words_are_masked_whole_or_not_at_all() -> None:
    # 40 begins a word, 10 continues one (10 % 3 == 1), as do 13 and 16
    tokens = [2, 41, 10, 13, 42, 44, 16, 3, 10, 45, 3]
    words = [{1, 2, 3}, {4}, {5, 6}, {8}, {9}]  # what follows [SEP] starts a new word
    for index in range(200):
        indices = set(Masking(SPECIAL, CONTINUES, "word")(one(tokens), 0.35, 0, np.array([index])).positions.tolist())
        assert len(indices) <= 4
        assert all(word <= indices or not word & indices for word in words)


def test_word_with_too_many_pieces_is_not_masked() -> None:
    results = Masking(SPECIAL, CONTINUES, "word")(one([2, 41, 10, 13, 3]), 0.15, 0, np.array([0]))
    assert not len(results.positions)


def test_span_is_contiguous_and_replaced_alike() -> None:
    tokens = [2, *([41, 42, 44, 45, 47] * 20), 3]
    runs = []
    for index in range(300):
        results = Masking(SPECIAL, CONTINUES, "span")(one(tokens), 0.15, 0, np.array([index]))
        assert len(results.positions) == 15
        run_starts = [0, *(np.flatnonzero(np.diff(results.positions) > 1) + 1).tolist(), len(results.positions)]
        for start, end in itertools.pairwise(run_starts):
            read, labels = results.input_ids[results.positions[start:end]], results.labels[start:end]
            runs.append(end - start)
            assert (read == 4).all() or (read != 4).sum() >= (end - start) - 1 or (read == labels).all()
    assert 2.5 < np.mean(runs) < 5.0  # SpanBERT: 3.8 words, here cut where 15 are reached


def test_span_lengths_are_those_of_spanbert() -> None:
    # The geometric distribution restricted to 10 words, not cut at 10: one span of ten words in 33, not in 7.
    tokens = [2, *[50] * 300, 3]
    masking, number = Masking(SPECIAL, CONTINUES, "span"), 4_000
    many = Sequences(np.array(tokens * number, np.int32), np.zeros(0), np.arange(number + 1) * len(tokens), None)
    positions = masking(many, 10 / 302, 0, np.arange(number)).positions.reshape(number, 10)
    long_ones = int((positions[:, -1] - positions[:, 0] == 9).sum())
    expected = 0.2 * 0.8**9 / (1 - 0.8**10) * 291 / 300  # the first span reaches ten words, and does not end too early
    assert abs(long_ones / number - expected) < 4 * np.sqrt(expected / number)


@pytest.mark.parametrize("unit", ["token", "word"])
def test_shares_over_a_million_positions(unit: str) -> None:
    draw = np.random.default_rng(0)
    number, seqlen = 8_000, 130
    ids = draw.integers(5, VOCAB_SIZE, (number, seqlen)).astype(np.int32)
    ids[:, 0], ids[:, -1], ids[:, 60] = 2, 3, 3
    sequences = Sequences(ids.ravel(), np.zeros(ids.size, np.int32), np.arange(number + 1) * seqlen, None)
    results = Masking(SPECIAL, CONTINUES, unit, seed=3)(sequences, 0.15, 0, np.arange(number))
    total = len(results.positions)
    if unit == "token":
        assert total == number * round(seqlen * 0.15)
    assert not np.isin(results.labels, [2, 3]).any()
    read = results.input_ids[results.positions]
    untouched = np.ones(ids.size, bool)
    untouched[results.positions] = False
    assert (results.input_ids[untouched] == ids.ravel()[untouched]).all()

    def within(share: float, expected: float, trials: int) -> bool:
        return abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / trials)

    replaced_by_chance = 1 / VOCAB_SIZE  # a random token is [MASK], or the token itself, so often
    assert within((read == 4).mean(), 0.8 + 0.1 * replaced_by_chance, total)
    assert within((read == results.labels).mean(), 0.1 + 0.1 * replaced_by_chance, total)
    columns = np.bincount(results.positions % seqlen, minlength=seqlen) / number
    assert columns[0] == columns[60] == columns[-1] == 0
    inner = np.delete(columns, [0, 60, seqlen - 1])
    if unit == "token":
        expected = round(seqlen * 0.15) / (seqlen - 3)
        assert np.abs(inner - expected).max() < 5 * np.sqrt(expected * (1 - expected) / number)
    others = read[(read != 4) & (read != results.labels)]
    counts = np.bincount(others, minlength=VOCAB_SIZE)
    assert counts[[0, 1, 2, 3]].min() > 0  # any entry, as published


def test_halves_round_to_even_as_published() -> None:
    masking = Masking(SPECIAL, CONTINUES)
    for seqlen, wanted in ((10, 2), (30, 4), (50, 8), (4, 1)):  # 1.5, 4.5, 7.5, 0.6
        tokens = [2, *[50] * (seqlen - 2), 3]
        assert len(masking(one(tokens), 0.15, 0, np.array([0])).positions) == wanted


def test_masking_rejects_invalid_settings() -> None:
    with pytest.raises(UsageError, match="mask_unit='letter'"):
        Masking(SPECIAL, CONTINUES, "letter")
    for rate in (0, 1, 1.5, float("nan")):
        with pytest.raises(UsageError, match=rf"mask_rate={rate}: expected a share above 0 and below 1"):
            Masking(SPECIAL, CONTINUES)(one([2, 9, 3]), rate, 0, np.array([0]))


def test_continuation_pieces() -> None:
    assert continues_word(("##ing", "##", "a", "#", "[MASK]")).tolist() == [True, False, False, False, False]


# ---- loader


def loader(rank: int = 0, num_ranks: int = 1) -> Loader:
    shard = shard_of(random_documents(30, seed=8))
    sources = [SentencePairs(shard, SPECIAL, 24, seed=4), SentencePairs(shard, SPECIAL, 60, seed=4)]
    return Loader(sources, Masking(SPECIAL, CONTINUES, seed=4), seed=4, rank=rank, num_ranks=num_ranks)


@pytest.mark.full
def test_positions_hold_any_number_of_epochs() -> None:
    one = loader()
    position = ((1 << 20) + 9) * one.next_position(0, one.sources[0].num_examples(0), stage=0)
    assert one.epoch(position) == (1 << 20) + 9 and one.batch(position, 2, stage=0, mask_rate=0.2).num_tokens
    later = one.next_position(position, 1, stage=1)
    assert one.epoch(later) >= one.epoch(position) and one.next_position(later, 1, stage=1) == later + 1


def contents(batch) -> list[tuple]:
    """Each sequence with its labels."""
    results = []
    for part in batch.split(10_000):
        (label,) = part.next_sentence_label.tolist()
        ids, positions = part.batch.input_ids.tolist(), part.masked_positions.tolist()
        results.append((tuple(ids), tuple(positions), tuple(part.labels.tolist()), label))
    return results


def test_epoch_has_every_example_once_and_the_next_another_order() -> None:
    made = loader()
    number = made.sources[0].num_examples(0)
    first = made.batch(0, number, stage=0, mask_rate=0.15)
    assert made.next_position(0, number, stage=0) == 1 << 60
    originals = rows(everything(made.sources[0], 0))
    restored = []
    for ids, positions, labels, _ in contents(first):
        row = list(ids)
        for position, label in zip(positions, labels, strict=True):
            row[position] = label
        restored.append(row)
    assert sorted(restored) == sorted(originals) and restored != originals
    assert made.epoch(made.next_position(0, 7, stage=0)) == 7 / number


def test_any_batch_size_gives_the_same_examples_in_the_same_order() -> None:
    made = loader()
    number = made.sources[0].num_examples(0) + 20  # beyond the end of the epoch
    expected = contents(made.batch(0, number, stage=0, mask_rate=0.2))
    position, results = 0, []
    while len(results) < number:
        size = min(7, number - len(results))
        results += contents(made.batch(position, size, stage=0, mask_rate=0.2))
        position = made.next_position(position, size, stage=0)
    assert results == expected
    assert position == made.next_position(0, number, stage=0)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_share_the_same_batch(num_ranks: int) -> None:
    number = loader().sources[0].num_examples(0)
    for position, size in ((0, 12), (number - 5, 12)):
        whole = contents(loader().batch(position, size, stage=0, mask_rate=0.15))
        shares = [
            contents(loader(rank, num_ranks).batch(position, size, stage=0, mask_rate=0.15))
            for rank in range(num_ranks)
        ]
        assert [len(share) for share in shares] == [size // num_ranks] * num_ranks
        assert [shares[i % num_ranks][i // num_ranks] for i in range(size)] == whole


def test_new_stage_begins_with_a_new_epoch() -> None:
    made = loader()
    position = made.next_position(0, 9, stage=0)
    batch = made.batch(position, 4, stage=1, mask_rate=0.15)
    assert batch.batch.max_seqlen > 24
    after = made.next_position(position, 4, stage=1)
    assert contents(made.batch(after, 4, stage=1, mask_rate=0.15)) != contents(batch)
    assert made.epoch(after) == 1 + 4 / made.sources[1].num_examples(1)


def test_parts_of_a_batch_are_the_batch() -> None:
    batch = loader().batch(0, 23, stage=0, mask_rate=0.15)
    for num_parts in (1, 2, 5, 23, 40):
        parts = batch.split(num_parts)
        assert len(parts) <= num_parts
        assert torch.equal(torch.cat([part.batch.input_ids for part in parts]), batch.batch.input_ids)
        assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
        assert torch.equal(torch.cat([part.next_sentence_label for part in parts]), batch.next_sentence_label)
        for part in parts:
            assert part.batch.cu_seqlens[-1] == len(part.batch.input_ids) == len(part.batch.position_ids)
            assert part.batch.max_seqlen == max(part.batch.seqlens)
    masked = torch.cat([part.batch.input_ids[part.masked_positions] for part in batch.split(5)])
    assert torch.equal(masked, batch.batch.input_ids[batch.masked_positions])
