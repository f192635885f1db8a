"""Labels stay with their sequences, tokens and groups in any batch and split."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from random_models import vocabulary_tokens

from bertkit import Tokenizer
from bertkit.batch import LabeledBatch, LabeledEncodings, even_parts

TEXTS = ["a", "cat sat", "the dog ran", "b c d e f g h", "mat", "un one two three"]
TOKENIZER = Tokenizer.from_vocab(vocabulary_tokens(99))


def encodings():
    return TOKENIZER.encode_batch(TEXTS)


def together(parts: list[LabeledBatch]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([part.batch.input_ids for part in parts]), torch.cat([part.labels for part in parts])


def test_token_labels_are_aligned() -> None:
    given = encodings()
    labels = given.input_ids * 3 + 1  # each token's label identifies its token
    batch = LabeledEncodings(given, labels.astype(np.int64), of_tokens=True).take(np.array([3, 0, 3, 5]))
    assert batch.batch.seqlens == [9, 3, 9, 6]
    for part in [batch, *batch.split(3)]:
        assert torch.equal(part.labels, part.batch.input_ids * 3 + 1)
        assert part.batch.position_ids[part.batch.first_tokens].eq(0).all()
    assert torch.equal(together(batch.split(3))[1], batch.labels)


@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_groups_are_never_split(group_size: int) -> None:
    given = encodings()
    labels = np.arange(len(given) // group_size) + 10
    data = LabeledEncodings(given, labels, group_size)
    batch = data.take(np.arange(len(data))[::-1].copy())
    assert len(batch) == len(data) == 6 // group_size
    sequences = np.arange(6).reshape(-1, group_size)[::-1].ravel()
    assert batch.batch.input_ids.tolist() == [id for index in sequences for id in given[int(index)].input_ids.tolist()]
    assert batch.arguments == {"num_choices": group_size}
    assert replace(batch, with_vectors=True).arguments == {"num_choices": group_size, "with_vectors": True}
    moved = batch.to("meta")
    assert moved.batch.input_ids.device == moved.labels.device == torch.device("meta")
    for num_parts in range(1, 8):
        parts = batch.split(num_parts)
        assert 1 <= len(parts) <= num_parts
        tokens, results = together(parts)
        assert torch.equal(tokens, batch.batch.input_ids) and torch.equal(results, batch.labels)
        for part in parts:
            assert len(part.batch) == len(part) * group_size == len(part.labels) * group_size
            first = 6 // group_size + 9 - int(part.labels[0])  # the index of its first group in the batch
            assert part.batch.seqlens == batch.batch.seqlens[first * group_size :][: len(part.batch)]


def test_rows_of_labels_must_fit() -> None:
    with pytest.raises(ValueError, match="5 rows of labels for 6 sequences"):
        LabeledEncodings(encodings(), np.zeros(5))
    with pytest.raises(ValueError, match="6 rows of labels"):
        LabeledEncodings(encodings(), np.zeros(6), of_tokens=True)


def test_even_parts_cover_all_once() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        lengths = draw.integers(1, 30, draw.integers(1, 20))
        num_parts = int(draw.integers(1, 9))
        parts = even_parts(np.cumsum([0, *lengths]), num_parts)
        assert [index for start, end in parts for index in range(start, end)] == list(range(len(lengths)))
        assert len(parts) <= num_parts
        assert max(lengths[start:end].sum() for start, end in parts) <= lengths.sum() / num_parts + 2 * lengths.max()


def test_even_parts_end_at_the_nearest_bounds_also_of_many_sequences() -> None:
    draw = np.random.default_rng(5)
    for _ in range(200):
        cu_lengths = np.cumsum([0, *draw.integers(0, 6, draw.integers(1, 12))])
        num_parts = int(draw.integers(1, 9))
        wanted = np.arange(1, num_parts) * (cu_lengths[-1] / num_parts)
        nearest = np.abs(cu_lengths[:, None] - wanted).argmin(axis=0)  # the first of the nearest
        bounds = np.unique([0, *nearest, len(cu_lengths) - 1]).tolist()
        assert even_parts(cu_lengths, num_parts) == list(pairwise(bounds))
    num_sequences = 1_000_000  # a table of sequences and parts would take 800 GB
    assert len(even_parts(np.arange(0, 5 * num_sequences + 1, 5), 100_000)) == 100_000


@pytest.mark.parametrize("most_tokens", [1, 29, 30, 64, 10_000])
def test_no_part_exceeds_the_most_tokens_but_a_single_sequence(most_tokens: int) -> None:
    draw = np.random.default_rng(4)
    num_more = 0
    for _ in range(50):
        lengths = draw.integers(1, 30, draw.integers(1, 40))
        num_parts, cu_lengths = int(draw.integers(1, 9)), np.cumsum([0, *lengths])
        free, parts = even_parts(cu_lengths, num_parts), even_parts(cu_lengths, num_parts, most_tokens)
        assert [index for start, end in parts for index in range(start, end)] == list(range(len(lengths)))
        assert all(end - start == 1 or lengths[start:end].sum() <= most_tokens for start, end in parts)
        if all(end - start == 1 or lengths[start:end].sum() <= most_tokens for start, end in free):
            assert parts == free  # the same bits as without the bound
        num_more += len(parts) > num_parts
    assert (num_more > 10) == (most_tokens < 10_000)


def test_groups_count_as_one_sequence_in_parts_of_limited_tokens() -> None:
    given = encodings()
    batch = LabeledEncodings(given, np.arange(3), group_size=2).take(np.arange(3))
    lengths = [part.num_tokens for part in batch.split(1)[0].split(3)]
    assert [part.num_tokens for part in batch.split(1, max(lengths))] == lengths
    assert len(batch.split(1, 1)) == 3 and len(batch.split(1, 10_000)) == 1
