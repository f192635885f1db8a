"""The packed batch, its border to padded tensors, token budgets, and attention within each sequence of a packed row."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from attention_reference import attention_with_probs
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import our_model, vocabulary_tokens

from bertkit import Batch, Tokenizer, collate
from bertkit.batch import length_sorted_batches, pad, unpad
from bertkit.errors import UsageError
from bertkit.transformer.kernels.attention import packed_attention

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = st.lists(st.integers(1, 13), min_size=1, max_size=9)
QUICK = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocab(vocabulary_tokens(99))


def padded_mask(lengths: list[int], extra: int, *, left: bool) -> torch.Tensor:
    columns = torch.arange(max(lengths) + extra)
    seqlens = torch.tensor(lengths)[:, None]
    return columns >= len(columns) - seqlens if left else columns < seqlens


@pytest.mark.full
def test_collate_lays_encodings_end_to_end(tokenizer: Tokenizer) -> None:
    encodings = [tokenizer.encode("the cat"), tokenizer.encode("dog", "a sat"), tokenizer.encode("")]
    batch = collate(encodings)
    assert batch.input_ids.tolist() == [token for encoding in encodings for token in encoding.input_ids.tolist()]
    assert batch.token_type_ids.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 4, 10, 12] and batch.cu_seqlens.dtype == torch.int32
    assert (len(batch), batch.max_seqlen, batch.num_positions, batch.seqlens) == (3, 6, 6, [4, 6, 2])
    assert batch.first_tokens.tolist() == [0, 4, 10]
    assert {batch.input_ids.dtype, batch.token_type_ids.dtype, batch.position_ids.dtype} == {torch.int64}


def test_collate_refuses_no_encodings() -> None:
    with pytest.raises(UsageError, match="a batch without encodings"):
        collate([])


def test_collate_names_what_is_no_encoding(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match=r"got one Encoding: expected a list of them"):
        collate(tokenizer.encode("the cat"))  # pyrefly: ignore
    with pytest.raises(UsageError, match=r"got str \('t'\) in the list"):
        collate("the cat")  # pyrefly: ignore


@QUICK
@given(LENGTHS, st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 99))
def test_from_padded_keeps_the_real_tokens_in_order(
    lengths: list[int], extra: int, left: bool, restart: bool, seed: int
) -> None:
    mask = padded_mask(lengths, extra, left=left)
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(0, 99, mask.shape, generator=generator)
    types = torch.randint(0, 3, mask.shape, generator=generator)
    batch = Batch.from_padded(input_ids, mask.int(), types, restart_positions=restart)
    rows = list(zip(input_ids, types, mask, strict=True))
    assert batch.input_ids.tolist() == [int(token) for ids, _, real in rows for token in ids[real]]
    assert batch.token_type_ids.tolist() == [int(kind) for _, kinds, real in rows for kind in kinds[real]]
    starts = [mask.shape[1] - length if left and not restart else 0 for length in lengths]
    positions = [start + index for start, length in zip(starts, lengths, strict=True) for index in range(length)]
    assert batch.position_ids.tolist() == positions
    assert batch.num_positions == max(positions) + 1
    assert batch.seqlens == lengths and batch.cu_seqlens.tolist() == [0, *np.cumsum(lengths).tolist()]
    assert batch.max_seqlen == max(lengths) and len(batch) == len(lengths)
    assert torch.equal(batch.attention_mask(), mask)
    assert torch.equal(batch.pad(batch.input_ids, fill=-1), input_ids.masked_fill(~mask, -1))


@QUICK
@given(LENGTHS, st.integers(0, 3), st.booleans(), st.integers(1, 4))
def test_pad_and_unpad_undo_each_other(lengths: list[int], extra: int, left: bool, width: int) -> None:
    mask = padded_mask(lengths, extra, left=left)
    packed = torch.arange(1.0, sum(lengths) * width + 1).view(-1, width)
    padded = pad(packed, mask, fill=-7)
    assert padded.shape == (*mask.shape, width)
    assert (padded[~mask] == -7).all() and (padded[mask] > 0).all()
    assert torch.equal(unpad(padded, mask.long()), packed)
    assert torch.equal(pad(unpad(padded, mask), mask, fill=-7), padded)


def test_collated_batch_pads_on_the_right(tokenizer: Tokenizer) -> None:
    batch = collate([tokenizer.encode("the"), tokenizer.encode("the cat sat")])
    assert batch.attention_mask().tolist() == [[True, True, True, False, False], [True] * 5]
    assert batch.pad(batch.position_ids, fill=9).tolist() == [[0, 1, 2, 9, 9], [0, 1, 2, 3, 4]]


def test_pad_refuses_a_mask_of_another_number_of_tokens() -> None:
    with pytest.raises(UsageError, match="5 packed values for an attention_mask with 4"):
        pad(torch.zeros(5, 3), torch.tensor([[1, 1, 0], [1, 1, 0]]))


def test_from_padded_takes_a_missing_mask_as_all_real_and_missing_types_as_zero() -> None:
    batch = Batch.from_padded(torch.arange(6, dtype=torch.int32).view(2, 3))
    assert batch.input_ids.tolist() == [0, 1, 2, 3, 4, 5] and batch.input_ids.dtype == torch.int64
    assert batch.token_type_ids.tolist() == [0] * 6
    assert batch.seqlens == [3, 3]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.zeros(5, dtype=torch.long)}, r"shape \(5,\).*batch_size, seq_len"),
        ({"input_ids": torch.zeros(0, 4, dtype=torch.long)}, r"shape \(0, 4\).*batch_size, seq_len"),
        ({"input_ids": torch.zeros(2, 0, dtype=torch.long)}, "row 0 .* no real"),
        (
            {"input_ids": torch.zeros(2, 3).long(), "attention_mask": torch.ones(3, 2)},
            r"attention_mask has shape \(3, 2\)",
        ),
        (
            {"input_ids": torch.zeros(2, 3).long(), "token_type_ids": torch.ones(2, 4).long()},
            "token_type_ids has shape",
        ),
        (
            {"input_ids": torch.zeros(2, 3).long(), "attention_mask": torch.tensor([[1, 1, 0], [0, 0, 0]])},
            "row 1 .* no real",
        ),
    ],
)
def test_from_padded_rejects_invalid_masks(inputs: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Batch.from_padded(**inputs)


def test_moving_a_batch_keeps_everything(tokenizer: Tokenizer) -> None:
    batch = collate([tokenizer.encode("the"), tokenizer.encode("the cat sat")])
    moved = batch.to("meta")
    assert moved.input_ids.device.type == moved.cu_seqlens.device.type == "meta"
    assert (moved.max_seqlen, moved.num_positions) == (5, 5)
    padded = Batch.from_padded(torch.ones(2, 3).long(), torch.tensor([[0, 1, 1], [1, 1, 1]]))
    assert padded.to("cpu").attention_mask().tolist() == [[False, True, True], [True] * 3]
    assert padded.to("cpu") is padded and padded.to("meta").attention_mask().device.type == "meta"
    assert padded.to("meta").seqlens == [2, 3]


@QUICK
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 60))
def test_length_sorted_batches(lengths: list[int], budget: int) -> None:
    batches = [batch.tolist() for batch in length_sorted_batches(lengths, budget)]
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches)
    tokens = [[lengths[index] for index in batch] for batch in batches]
    assert all(sum(batch) <= budget or len(batch) == 1 for batch in tokens)
    assert all(batch == sorted(batch, reverse=True) for batch in tokens)
    assert all(batch[0] >= following[0] for batch, following in pairwise(tokens))
    for number, batch in enumerate(tokens[:-1]):
        shortest_left = min(length for later in tokens[number + 1 :] for length in later)
        assert sum(batch) + shortest_left > budget  # none ends while a sequence would fit


def test_sequences_of_one_length_keep_their_order() -> None:
    batches = length_sorted_batches([3, 7] * 100, 70)
    assert np.concatenate(batches).tolist() == [*range(1, 200, 2), *range(0, 200, 2)]


def test_length_sorted_batches_rejects_zero_budget() -> None:
    with pytest.raises(UsageError, match="tokens_per_batch=0"):
        length_sorted_batches([3], 0)


def heads_of(lengths: list[int], seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [1.3 * torch.randn(sum(lengths), 4, 5, generator=generator, dtype=dtype) for _ in range(3)]  # (T, H, K)


@QUICK
@given(LENGTHS, st.integers(0, 999))
def test_packed_attention_is_attention_under_a_block_mask(lengths: list[int], seed: int) -> None:
    query, key, value = heads_of(lengths, seed, torch.float64)
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    same = owner[:, None] == owner[None, :]  # (T, T), True within a sequence
    by_head = [tensor.transpose(0, 1) for tensor in (query, key, value)]  # (H, T, K)
    reference = F.scaled_dot_product_attention(*by_head, attn_mask=same).transpose(0, 1)
    packed = packed_attention(query, key, value, lengths)
    written_out, all_probs = attention_with_probs(query, key, value, lengths)
    assert packed.shape == written_out.shape == (sum(lengths), 4, 5)
    torch.testing.assert_close(packed, reference, rtol=0, atol=1e-12)
    torch.testing.assert_close(written_out, reference, rtol=0, atol=1e-12)
    scores = by_head[0] @ by_head[1].transpose(1, 2) / 5**0.5
    probs = scores.masked_fill(~same, float("-inf")).softmax(-1)  # (H, T, T)
    end = 0
    for length, results in zip(lengths, all_probs, strict=True):
        start, end = end, end + length
        torch.testing.assert_close(results, probs[:, start:end, start:end], rtol=0, atol=1e-12)


@pytest.mark.parametrize("lengths", [[5, 5, 3, 3, 3, 1], [3, 5, 3, 1, 5, 3], [1, 3, 3, 3, 5, 5], [20], [1] * 7])
def test_packed_attention_in_any_order_of_lengths(lengths: list[int]) -> None:
    tensors = heads_of(lengths, 3, torch.float32)
    together = packed_attention(*tensors, lengths).split(lengths)
    for results, *alone in zip(together, *(tensor.split(lengths) for tensor in tensors), strict=True):
        torch.testing.assert_close(results, packed_attention(*alone, [len(results)]), rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.cat(together), attention_with_probs(*tensors, lengths)[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("with_probs", [False, True])
def test_attention_dropout_keeps_the_mean_and_drops_its_share(with_probs: bool) -> None:
    lengths = [2] * 4000
    query, key = torch.zeros(2, 8000, 4, 5)  # every probability is one half
    value = torch.ones(8000, 4, 5)
    torch.manual_seed(0)
    context = (
        attention_with_probs(query, key, value, lengths, 0.25)[0]
        if with_probs
        else packed_attention(query, key, value, lengths, 0.25)
    )
    assert abs(float(context.mean()) - 1) < 0.02
    nothing_left = float((context == 0).float().mean())
    assert abs(nothing_left - 0.25**2) < 0.01


def test_encoder_gives_the_same_packed_from_texts_and_from_padding() -> None:
    model = our_model("encoder", 6, max_position_embeddings=23)
    encodings = [model.tokenizer.encode(text) for text in ("the cat sat", "", "a dog and a cat ran off")]
    batch = collate(encodings)
    mask = batch.attention_mask()
    padded = Batch.from_padded(batch.pad(batch.input_ids, fill=7), mask, batch.pad(batch.token_type_ids, fill=1))
    with torch.inference_mode():
        expected, results = model.encoder(batch), model.encoder(padded)
    torch.testing.assert_close(results.last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-6)
    torch.testing.assert_close(results.pooled, expected.pooled, rtol=0, atol=1e-6)


def test_encoder_refuses_more_positions_than_it_has() -> None:
    model = our_model("encoder", 1, max_position_embeddings=23)
    model.encoder(Batch.from_padded(torch.ones(1, 23).long()))
    with pytest.raises(UsageError, match="24 positions, the model has 23"):
        model.encoder(Batch.from_padded(torch.ones(1, 24).long()))
    left = torch.tensor([[0] * 20 + [1] * 5])
    with pytest.raises(UsageError, match="25 positions"):
        model.encoder(Batch.from_padded(torch.ones(1, 25).long(), left))
    model.encoder(Batch.from_padded(torch.ones(1, 25).long(), left, restart_positions=True))
