"""Texts to vectors: equal to sentence-transformers, to plain numpy, and to themselves regardless of batch."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import our_model, published_model, save_published, vocabulary_tokens

import bertkit
from bertkit import Batch, InferenceReport, Model, StaticEncoder, TextSet, Tokenizer, collate, find_clusters
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import (
    CheckpointError,
    MissingHeadError,
    OverLengthError,
    TruncationWarning,
    UnknownWordsWarning,
    UsageError,
)
from bertkit.heads import NAMED_LAYERS, POOLINGS
from bertkit.heads.pooling import sequence_vectors
from bertkit.inspection import inspect_contexts, inspect_heads, inspect_map
from bertkit.locate import locate
from bertkit.mining import MiningOptions, mine_negatives
from bertkit.tokenizer.byte_level import train_byte_level
from bertkit.tokenizer.statistics import text_statistics
from bertkit.transformer import EncoderOutput
from bertkit.words.training import read_corpus

TEXTS = [
    "the cat sat on the mat",
    "",
    "walked",
    "a dog and a cat ran off the mat unable to talk",
    "un",
    "one two three four five six",
    "green letters, in blue & red!",
]
LONG = "the unable cat walked and talked, " * 9 + "one two"
QUIET = {"report": InferenceReport()}


@pytest.fixture
def tiny(one_thread) -> Model:
    """Five layers, 41 positions, every parameter random."""
    return our_model("encoder", 3, max_position_embeddings=41, num_hidden_layers=5)


@pytest.fixture(scope="module")
def minilm() -> Model:
    """The published all-MiniLM-L6-v2."""
    try:
        return bertkit.load("all-MiniLM-L6-v2", device="cpu")
    except CheckpointError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def reference_minilm(minilm: Model):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(locate("all-MiniLM-L6-v2")), device="cpu")


@pytest.fixture(scope="module")
def passages(documentation: list) -> list[str]:
    return [passage.text for passage in documentation]


def assert_same_vectors(vectors: np.ndarray, expected: np.ndarray, tolerance: float = 3e-6) -> None:
    """To a tolerance relative to the largest component where that is above 1.

    Random weights amplify rounding; trained ones hold 1e-6.
    """
    assert vectors.dtype == np.float32
    assert np.std(expected) > 0.04
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


# --- equal to sentence-transformers ----------------------------------------------------------------------------------


def check_against_sentence_transformers(model: Model, reference, texts: list[str]) -> None:
    report = InferenceReport()
    results = model.embed(texts, report=report)
    expected = reference.encode(texts, batch_size=16)
    assert results.shape == expected.shape == (len(texts), 384)
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-5)
    assert report.num_texts == len(texts)
    assert report.num_texts_cut == sum(len(model.tokenizer.encode(text)) > 256 for text in texts) > 0


def sample(passages: list[str], num_passages: int) -> list[str]:
    """Passages from all over, the two longest run together among them."""
    longest = sorted(passages, key=len)[-2:]
    return [" ".join(longest), *longest, *passages[:: len(passages) // (num_passages - 3)]][:num_passages]


def test_vectors_of_real_texts(minilm: Model, reference_minilm) -> None:
    check_against_sentence_transformers(minilm, reference_minilm, [*TEXTS, LONG * 30, *LONG.split(",")])


@pytest.mark.slow
def test_vectors_of_2000_real_passages(minilm: Model, reference_minilm, passages: list[str]) -> None:
    texts = sample(passages, 2000)
    assert len(texts) == 2000
    check_against_sentence_transformers(minilm, reference_minilm, texts)


def sentence_transformer(model: Model, folder: Path, **sentence):
    """A random model with these settings, and sentence-transformers' of the same folder."""
    from sentence_transformers import SentenceTransformer

    model.checkpoint.sentence = SentenceSettings(**sentence)
    model.save(folder)
    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("pooling", [pooling for pooling in POOLINGS if pooling not in ("pooler", "last")])
def test_prompt_that_is_not_pooled(tiny: Model, tmp_path: Path, pooling: str) -> None:
    prompt = "a red dog: "
    reference = sentence_transformer(tiny, tmp_path / "model", pooling=pooling, include_prompt=False)
    texts = [text for text in TEXTS if text]
    with_prompt, expected = tiny.embed(texts, prompt=prompt), reference.encode(texts, prompt=prompt)
    assert_same_vectors(with_prompt, expected)
    assert np.abs(expected - reference.encode(texts)).max() > 0.01
    assert np.abs(expected - reference.encode([prompt + text for text in texts])).max() > 0.01


def test_truncated_dimensions(tiny: Model, tmp_path: Path) -> None:
    reference = sentence_transformer(tiny, tmp_path / "model")
    assert_same_vectors(tiny.embed(TEXTS, dimensions=7), reference.encode(TEXTS, truncate_dim=7))
    normalized = tiny.embed(TEXTS, dimensions=7, normalize=True)
    assert_same_vectors(normalized, reference.encode(TEXTS, truncate_dim=7, normalize_embeddings=True))
    np.testing.assert_allclose(np.linalg.norm(normalized, axis=1), 1, rtol=0, atol=1e-6)


# --- poolings and layers, against plain numpy ------------------------------------------------------------------------

POOLING_AND_LAYERS = [
    (pooling, layers)
    for pooling, layers in product(POOLINGS, [*NAMED_LAYERS, "mean:1,-2,0", "concat:4,2,3,1"])
    if pooling != "pooler" or layers == "last"
]


def pooled_by_numpy(tokens: np.ndarray, pooling: str) -> np.ndarray:
    """(n, D) hidden states of one text to its vector."""
    index = np.arange(1, len(tokens) + 1)[:, None]
    match pooling:
        case "mean":
            return tokens.mean(0)
        case "cls":
            return tokens[0]
        case "last":
            return tokens[-1]
        case "max":
            return tokens.max(0)
        case "mean-sqrt-len":
            return tokens.sum(0) / np.sqrt(len(tokens))
        case "weighted-mean":
            return (tokens * index).sum(0) / index.sum()
    raise ValueError(pooling)


def layers_by_numpy(states: list[np.ndarray], layers: str) -> np.ndarray:
    """Hidden states of the embeddings and every layer, each (n, D), to (n, D) or (n, 4 D)."""
    match layers:
        case "last":
            return states[5]
        case "second-to-last":
            return states[4]
        case "embedding":
            return states[0]
        case "sum-last-4":
            return states[2] + states[3] + states[4] + states[5]
        case "concat-last-4":
            return np.concatenate([states[2], states[3], states[4], states[5]], axis=1)
        case "sum-all":
            return states[1] + states[2] + states[3] + states[4] + states[5]
        case "mean:1,-2,0":
            return (states[1] + states[4] + states[0]) / 3
        case "concat:4,2,3,1":
            return np.concatenate([states[4], states[2], states[3], states[1]], axis=1)
    raise ValueError(layers)


@torch.inference_mode()
def hidden_states(model: Model, encoding: bertkit.Encoding) -> tuple[list[np.ndarray], np.ndarray]:
    """Of one sequence alone: (n, D) for the embeddings and every layer, and the pooler's vector."""
    encoded = model.encoder(collate([encoding]), with_hidden_states=True)
    assert len(encoded.hidden_states) == 6
    return [states.double().numpy() for states in encoded.hidden_states], encoded.pooled[0].double().numpy()


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(("pooling", "layers"), POOLING_AND_LAYERS)
def test_pooling_and_layers_by_numpy(tiny: Model, pooling: str, layers: str) -> None:
    expected = []
    for text in TEXTS:
        states, pooler = hidden_states(tiny, tiny.tokenizer.encode(text))
        expected.append(pooler if pooling == "pooler" else pooled_by_numpy(layers_by_numpy(states, layers), pooling))
    results = tiny.embed(TEXTS, pooling=pooling, layers=layers)
    assert_same_vectors(results, np.array(expected))
    normalized = tiny.embed(TEXTS, pooling=pooling, layers=layers, normalize=True)
    assert_same_vectors(normalized, expected / np.linalg.norm(expected, axis=1, keepdims=True))


@pytest.mark.parametrize("pooling", ["mean", "mean-sqrt-len", "weighted-mean"])
def test_sums_over_tokens_in_16_bits_are_added_up_in_32(pooling: str) -> None:
    """Hidden states of training on a GPU: numbers of tokens above 256 are not among those of bfloat16."""
    states, lengths = torch.randn(900, 8, generator=torch.Generator().manual_seed(0)).bfloat16(), [301, 599]
    mask = torch.arange(599) < torch.tensor(lengths)[:, None]
    vectors = sequence_vectors(pooling, EncoderOutput(states, None), Batch.from_padded(mask.long(), mask.long()))
    expected = [pooled_by_numpy(part.double().numpy(), pooling) for part in states.split(lengths)]
    np.testing.assert_allclose(vectors.double().numpy(), expected, rtol=0, atol=1e-5)


def test_vectors_of_several_poolings_are_side_by_side() -> None:
    states, mask = (
        torch.randn(7, 4, generator=torch.Generator().manual_seed(0)),
        torch.arange(4) < torch.tensor([[3], [4]]),
    )
    batch = Batch.from_padded(mask.long(), mask.long())
    parts = [sequence_vectors(pooling, EncoderOutput(states, None), batch) for pooling in ("max", "cls", "mean")]
    together = sequence_vectors("max+cls+mean", EncoderOutput(states, None), batch)
    torch.testing.assert_close(together, torch.cat(parts, dim=1), rtol=0, atol=0)


def test_pooling_that_is_no_str(tiny: Model) -> None:
    with pytest.raises(UsageError, match=r"pooling=\['cls'\]: expected one of mean"):
        tiny.embed("the cat", pooling=["cls"])  # pyrefly: ignore


def test_every_pooling_and_layer_selection_differs(tiny: Model) -> None:
    vectors = [tiny.embed(TEXTS[0], pooling=pooling, layers=layers) for pooling, layers in POOLING_AND_LAYERS]
    assert sorted({len(vector) for vector in vectors}) == [18, 72]
    for one, other in combinations(vectors, 2):
        assert len(one) != len(other) or np.abs(one - other).max() > 0.01


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(("pooling", "layers"), POOLING_AND_LAYERS)
@pytest.mark.parametrize("stride", [None, 1, 5])
def test_windows_pool_every_token_once(tiny: Model, pooling: str, layers: str, stride: int | None) -> None:
    texts = [LONG, "the cat", LONG[:60]]
    options = {"max_length": 11, "stride": stride, "on_long": "window"}
    expected = []
    for text in texts:
        owned_tokens, firsts, lasts, poolers = [], [], [], []
        for window in tiny.tokenizer.encode_batch([text], **options):
            states, pooler = hidden_states(tiny, window)
            chosen = layers_by_numpy(states, layers)
            owned_tokens.append(chosen[slice(*window.owned)])
            firsts.append(chosen[0])
            lasts.append(chosen[-1])
            poolers.append(pooler)
        if pooling in ("cls", "last", "pooler"):
            expected.append(np.mean({"cls": firsts, "last": lasts, "pooler": poolers}[pooling], axis=0))
        else:
            expected.append(pooled_by_numpy(np.concatenate(owned_tokens), pooling))
            assert sum(map(len, owned_tokens)) == len(tiny.tokenizer.encode(text))
    assert_same_vectors(tiny.embed(texts, pooling=pooling, layers=layers, **options), np.array(expected))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_short_texts_are_the_same_windowed_or_truncated(tiny: Model, pooling: str) -> None:
    windowed = tiny.embed(TEXTS, pooling=pooling, on_long="window")
    assert np.array_equal(windowed, tiny.embed(TEXTS, pooling=pooling, on_long="truncate"))
    assert np.array_equal(windowed, tiny.embed(TEXTS, pooling=pooling, on_long="error"))


WORDS = ["cat", "unable", "walked", "zebra", "a", "x1y2", "!", "dogs"]
TOKENIZER = Tokenizer.from_vocab(vocabulary_tokens(99))


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=25),
    first=st.none() | st.lists(st.sampled_from(WORDS), max_size=3),
    max_length=st.integers(3, 30),
    stride=st.none() | st.integers(1, 20),
)
def test_windows_own_each_token_exactly_once(
    words: list[str], first: list[str] | None, max_length: int, stride: int | None
) -> None:
    """What the windows of a text (or of a pair's second text) own, joined, is the whole encoding."""
    text, context = " ".join(words), None if first is None else " ".join(first)
    texts, pairs = ([text], None) if context is None else ([context], [text])
    whole = TOKENIZER.encode(texts[0], None if pairs is None else pairs[0])
    size = max_length - 2 if context is None else max_length - 3 - len(TOKENIZER.encode(context)) + 2
    try:
        windows = TOKENIZER.encode_batch(texts, pairs, max_length=max_length, on_long="window", stride=stride)
    except OverLengthError:
        assert size < 1
        return
    except UsageError:
        assert stride is not None and stride > size
        return
    assert all(len(window) <= max_length for window in windows)
    assert len(windows) == 1 or len(whole) > max_length
    for name in ("input_ids", "token_type_ids", "special_tokens_mask", "offsets", "word_ids"):
        parts = [getattr(window, name)[slice(*window.owned)] for window in windows]
        np.testing.assert_array_equal(np.concatenate(parts), getattr(whole, name), name)
    assert windows[0].owned[0] == 0 and windows[-1].owned[1] == len(windows[-1])


# --- a vector does not depend on its neighbors ----------------------------------------------------------------------


def assert_equal_alone_and_in_a_batch(model: Model, texts: list[str], tolerance: float, **options) -> None:
    together = model.embed(texts, **options)
    assert_same_vectors(together, np.array([model.embed(text, **options) for text in texts]), tolerance)
    order = np.random.default_rng(0).permutation(len(texts))
    assert_same_vectors(model.embed([texts[index] for index in order], **options), together[order], tolerance)
    for tokens_per_batch in (1, 37, 100_000):
        results = model.embed(texts, tokens_per_batch=tokens_per_batch, **options)
        assert_same_vectors(results, together, tolerance)


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_vector_does_not_depend_on_its_neighbors(tiny: Model, pooling: str) -> None:
    texts = [*TEXTS, LONG, "the cat", LONG[:50]]
    assert_equal_alone_and_in_a_batch(tiny, texts, 3e-6, pooling=pooling, on_long="window")


def test_real_vectors_are_independent_of_the_batch(minilm: Model, passages: list[str]) -> None:
    assert_equal_alone_and_in_a_batch(minilm, passages[100:2100:100], 1e-6)


@pytest.mark.parametrize("left", [False, True])
@torch.inference_mode()
def test_vector_is_equal_with_padding(minilm: Model, passages: list[str], left: bool) -> None:
    texts = passages[50:1050:100]
    batch = collate(minilm.tokenizer.encode_batch(texts))
    mask = batch.attention_mask()
    rows = [
        torch.cat([ids[~real], ids[real]] if left else [ids])
        for ids, real in zip(batch.pad(batch.input_ids, 7), mask, strict=True)
    ]
    mask = mask.flip(1) if left else mask
    padded = Batch.from_padded(torch.stack(rows), mask, restart_positions=True)
    hidden = padded.pad(minilm.encoder(padded).last_hidden_state)
    mean = hidden.sum(1) / mask.sum(1, keepdim=True)
    assert_same_vectors(torch.nn.functional.normalize(mean).numpy(), minilm.embed(texts), 1e-6)


# --- texts of every kind ---------------------------------------------------------------------------------------------


def test_cut_texts_are_counted_and_announced(tiny: Model) -> None:
    num_tokens = len(tiny.tokenizer.encode(LONG))
    with pytest.warns(TruncationWarning, match=f"1 of 2 texts .* lost {num_tokens - 41} tokens"):
        cut = tiny.embed([LONG, "the cat"])
    report = InferenceReport()
    with warnings.catch_warnings(action="error"):
        same = tiny.embed([LONG, "the cat"], report=report)
    assert np.array_equal(cut, same)
    kept = tiny.tokenizer.encode(LONG, max_length=41, on_long="truncate")
    assert report == InferenceReport(
        num_texts=2, num_tokens=41 + 4, num_texts_cut=1, num_tokens_cut=num_tokens - 41, num_unknown=kept.num_unknown
    )
    assert kept.num_unknown == 3
    states, _ = hidden_states(tiny, kept)
    assert_same_vectors(cut[0], states[-1].mean(0))


def test_warning_points_at_the_caller(tiny: Model) -> None:
    for texts in (LONG, [LONG]):
        with pytest.warns(TruncationWarning) as caught:
            tiny.embed(texts)
        assert {warning.category for warning in caught} == {TruncationWarning, UnknownWordsWarning}
        assert [warning.filename for warning in caught] == [__file__] * 2


def test_windowed_texts_are_counted(tiny: Model) -> None:
    report = InferenceReport()
    tiny.embed([LONG, "the cat", LONG], on_long="window", max_length=20, report=report)
    windows = tiny.tokenizer.encode_batch([LONG, "the cat", LONG], on_long="window", max_length=20)
    unknown = sum(window.num_unknown for window in windows)
    assert report == InferenceReport(
        num_texts=3, num_tokens=sum(map(len, windows)), num_texts_windowed=2, num_unknown=unknown
    )
    assert unknown == 18


def test_default_limit_is_the_checkpoints(tiny: Model) -> None:
    tiny.checkpoint.sentence = SentenceSettings(max_seq_length=9)
    by_checkpoint, asked = InferenceReport(), InferenceReport()
    tiny.embed(LONG, report=by_checkpoint)
    tiny.embed(LONG, report=asked, max_length=30)
    assert (by_checkpoint.num_tokens, asked.num_tokens) == (9, 30)
    tiny.checkpoint.sentence = SentenceSettings(max_seq_length=1000)
    beyond = InferenceReport()
    tiny.embed(LONG, report=beyond)
    assert beyond.num_tokens == 41  # never more than there are positions


@pytest.mark.parametrize("text", ["", " \t\n", "\x00\x07\x1b", "\u200b\ufeff"])
def test_text_without_tokens_is_cls_and_sep_and_counted(tiny: Model, text: str) -> None:
    report = InferenceReport()
    results = tiny.embed([text, "the cat"], report=report)
    assert (report.num_empty, report.num_texts, report.num_tokens) == (1, 2, 6)
    cls_sep = Batch.from_padded(torch.tensor([[tiny.tokenizer.cls_id, tiny.tokenizer.sep_id]]))
    with torch.inference_mode():
        expected = tiny.encoder(cls_sep).last_hidden_state.mean(0).numpy()
    assert_same_vectors(results[0], expected)


def test_shapes_of_outputs(tiny: Model) -> None:
    assert tiny.embed("the cat").shape == (18,)
    assert tiny.embed(["the cat"]).shape == (1, 18)
    assert tiny.embed([]).shape == (0, 18)
    assert tiny.embed([], layers="concat-last-4").shape == (0, 72)
    assert tiny.embed(["the cat"], layers="concat:all").shape == (1, 5 * 18)
    assert tiny.embed([], layers="concat:-1,0").shape == (0, 2 * 18)
    assert np.array_equal(tiny.embed(TEXTS, layers="sum:5"), tiny.embed(TEXTS))
    assert tiny.embed([], dimensions=5).shape == (0, 5)
    assert tiny.embed(iter([])).dtype == np.float32
    expected = tiny.embed(TEXTS)
    assert np.array_equal(tiny.embed(text for text in TEXTS), expected)
    assert np.array_equal(tiny.embed(tuple(TEXTS)), expected)
    assert np.array_equal(tiny.embed(np.array(TEXTS)), expected)
    ((texts, vectors),) = tiny.embed_stream(iter(TEXTS), report=InferenceReport())
    assert texts == TEXTS and np.array_equal(vectors, expected)


def test_float64_vectors_are_returned_as_float32(tiny: Model) -> None:
    single = tiny.embed(TEXTS)
    tiny.network.double()
    assert_same_vectors(tiny.embed(TEXTS), single)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_model_that_was_used(tiny: Model, copied: Callable[[Model], Model]) -> None:
    vectors = tiny.embed(["the cat"])
    assert np.array_equal(copied(tiny).embed(["the cat"]), vectors)


def test_literal_special_token_is_text(tiny: Model) -> None:
    encoding = tiny.tokenizer.encode("the [SEP] cat [MASK]")
    assert (encoding.input_ids == tiny.tokenizer.sep_id).sum() == 1
    assert tiny.tokenizer.mask_id not in encoding.input_ids
    assert np.array_equal(tiny.embed("the [SEP] cat"), tiny.embed("the [sep] cat"))


def test_prompt_is_put_before_every_text(tiny: Model) -> None:
    tiny.checkpoint.sentence = SentenceSettings(
        prompts={"query": "red ", "passage": "blue "}, default_prompt_name="query"
    )
    expected = tiny.embed([f"red {text}" for text in TEXTS], prompt="")
    assert np.array_equal(tiny.embed(TEXTS), expected)
    assert np.array_equal(tiny.embed(TEXTS, prompt_name="query"), expected)
    assert np.array_equal(tiny.embed(TEXTS, prompt="red "), expected)
    assert np.abs(tiny.embed(TEXTS, prompt_name="passage") - expected).max() > 0.1


def test_prompt_longer_than_the_sequence_keeps_tokens_to_pool(tiny: Model) -> None:
    tiny.checkpoint.sentence = SentenceSettings(include_prompt=False)
    vector = tiny.embed("the cat", prompt=LONG + " ", max_length=9, on_long="truncate", **QUIET)
    assert np.isfinite(vector).all()


def test_only_texts_without_tokens_count_as_empty_behind_a_prompt(tiny: Model) -> None:
    prompt = {"prompt": "red cat ", "max_length": 4, "report": InferenceReport()}  # an empty text has 4 tokens with it
    tiny.embed(["", "the dog"], **prompt)
    assert (prompt["report"].num_empty, prompt["report"].num_texts_cut) == (1, 1)
    windows = {"prompt": "red cat ", "max_length": 8, "on_long": "window", "stride": 6, "report": InferenceReport()}
    tiny.embed(["the dog " * 3, "the dog"], **windows)  # the last window of the first text has 4 tokens
    assert (windows["report"].num_empty, windows["report"].num_texts_windowed) == (0, 1)


def test_prompt_that_is_not_pooled_fits_the_first_window(tiny: Model) -> None:
    tiny.checkpoint.sentence = SentenceSettings(include_prompt=False)
    options = {"max_length": 12, "on_long": "window", "report": InferenceReport()}
    first = int(tiny.tokenizer.encode_batch([LONG], max_length=12, on_long="window").owned[0, 1])
    for number in (first - 2, first - 1):
        prompt = "red " * number
        if number == first - 2:  # with [CLS], the first window has a token left
            assert np.isfinite(tiny.embed("the cat sat on the mat", prompt=prompt, **options)).all()
            continue
        with pytest.raises(UsageError, match=f"takes {first} tokens, and the first of several windows {first}: choose"):
            tiny.embed("the cat sat on the mat", prompt=prompt, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "median"}, "pooling='median': expected one of mean, cls"),
        ({"layers": "third"}, "layers='third': expected one of last"),
        ({"pooling": "pooler", "layers": "embedding"}, "uses only the last layer"),
        ({"dimensions": 0}, "dimensions=0: expected an int of at least 1"),
        ({"normalize": "no"}, "normalize='no': expected True, False or None"),
        ({"dimensions": 2.0}, "dimensions=2.0: expected an int"),
        ({"max_length": 9.5}, "max_length=9.5: expected an int"),
        ({"dimensions": 19}, "dimensions=19: this model's vectors have 18"),
        ({"prompt": "a", "prompt_name": "b"}, "not both"),
        ({"prompt_name": "query"}, "prompt_name='query': this model's prompts are none"),
        ({"max_length": 42}, "max_length=42: expected at most 41, this model's positions"),
        ({"max_length": 2}, "max_length=2"),
        ({"on_long": "ignore"}, "on_long='ignore'"),
        ({"on_long": "window", "stride": 40, "max_length": 10}, "stride=40 would skip tokens"),
        ({"tokens_per_batch": 0}, "tokens_per_batch=0"),
        ({"poling": "mean"}, "unknown option 'poling': expected pooling, layers, .*progress"),
    ],
)
def test_options_that_cannot_be_honored(tiny: Model, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiny.embed([LONG], **options, **QUIET)


def test_too_few_layers_for_a_selection() -> None:
    with pytest.raises(UsageError, match="needs 4 encoder layers, this model has 3"):
        our_model("encoder", 2).embed("the cat", layers="sum-last-4")
    for layers in ("concat:0,4", "mean:-4", "sum:1,99"):
        with pytest.raises(UsageError, match=f"'{layers}' needs .* encoder layers, this model has 3"):
            our_model("encoder", 2).embed(["the cat"], layers=layers)


def test_no_pooler_to_pool_with() -> None:
    with pytest.raises(MissingHeadError, match="without its pooler"):
        our_model("masked_lm", 3).embed("the cat", pooling="pooler")


@pytest.mark.parametrize("bad", [3, None, b"bytes", ["nested"]])
def test_rejects_input_that_is_not_text(tiny: Model, bad: object) -> None:
    with pytest.raises(UsageError, match="expected str"):
        tiny.embed(["the cat", bad])


def test_long_text_raises_with_on_long_error(tiny: Model) -> None:
    with pytest.raises(OverLengthError, match=r"text 1 has .* more than max_length 41"):
        tiny.embed(["the cat", LONG], on_long="error")


def test_line_of_five_megabytes_follows_the_policy(one_thread) -> None:
    model = our_model("encoder", 4, max_position_embeddings=41)  # one layer
    line = "the cat walked on " * 280_000
    assert len(line) > 5_000_000
    report = InferenceReport()
    cut = model.embed([line, "the cat"], report=report)
    assert np.array_equal(cut[0], model.embed(line[:200], **QUIET))
    assert (report.num_texts_cut, report.num_tokens) == (1, 41 + 4)
    assert report.num_tokens_cut == 6 * 280_000 + 2 - 41


# --- many texts ------------------------------------------------------------------------------------------------------


def test_more_texts_than_are_held_at_a_time_keep_their_order(one_thread) -> None:
    model = our_model("encoder", 4, max_position_embeddings=23)
    texts = [f"the {number % 97} cat {number % 89}" for number in range(9000)]
    report = InferenceReport()
    parts = list(model.embed_stream(iter(texts), report=report))
    assert len(parts) == 2 and report.num_texts == 9000
    assert [text for of_part, _ in parts for text in of_part] == texts
    vectors = np.concatenate([vectors for _, vectors in parts])
    for index in (0, 1, 8190, 8191, 8192, 8193, 8999):
        assert_same_vectors(vectors[index], model.embed(texts[index]))


MEASURE_MEMORY = r"""
import ctypes, re, sys
import bertkit
from bertkit import InferenceReport

# What is free but not yet given back is no growth. (getrusage's peak is no measure: a child starts with its parent's.)
give_back_free_memory = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)

def texts(num_texts):
    for number in range(num_texts):
        yield "the cat " * (number % 3) + f"{number:06}"

def most_megabytes_held(num_texts):
    most = 0
    for _ in model.embed_stream(texts(num_texts), report=InferenceReport(), progress=False):
        give_back_free_memory(0)
        most = max(most, int(re.search(r"VmRSS:\s+(\d+) kB", open("/proc/self/status").read()).group(1)))
    return most / 1024

model = bertkit.load(sys.argv[1], device="cpu")
print(most_megabytes_held(20_000), most_megabytes_held(100_000), model.config.hidden_size)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "all-MiniLM-L6-v2"])
def test_embedding_100000_texts_holds_memory_flat(tmp_path: Path, name: str) -> None:
    if name == "tiny":
        name = str(tmp_path / "model")
        our_model("encoder", 4, max_position_embeddings=64, hidden_size=240).save(name)
    finished = subprocess.run(
        [sys.executable, "-c", MEASURE_MEMORY, name],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=800,
    )
    few, many, width = map(float, finished.stdout.split())
    megabytes_of_vectors = (100_000 - 20_000) * width * 4 / 2**20
    assert few > 100  # the measure measures
    assert many - few < megabytes_of_vectors / 2, f"{many - few:.0f} MB more for 100,000 texts than for 20,000"


def test_what_is_no_collection_of_texts_is_refused(tiny: Model) -> None:
    table = pd.DataFrame({"text": TEXTS})
    for call in (tiny.embed, tiny.tokenizer.encode_batch):
        with pytest.raises(UsageError, match="expected texts, got a DataFrame: pass one of its columns"):
            call(table)  # pyrefly: ignore
        with pytest.raises(UsageError, match="expected texts, got a dict: pass one of its columns"):
            call({"text": TEXTS})  # pyrefly: ignore
        for other in (None, 3, b"a cat"):
            with pytest.raises(UsageError, match=f"expected texts, got {other!r}: pass a str, or several"):
                call(other)  # pyrefly: ignore
    np.testing.assert_array_equal(tiny.embed(table["text"]), tiny.embed(TEXTS))


@pytest.mark.parametrize(
    "call",
    [
        lambda model, text: next(model.embed_stream(text, report=InferenceReport())),
        lambda model, text: train_byte_level(text, 300),
        lambda model, text: text_statistics(model.tokenizer, text),
        lambda model, text: find_clusters(text, np.ones((len(text), 4), np.float32)),
        lambda model, text: read_corpus(text, 1),
        lambda model, text: StaticEncoder.of_words(text, np.eye(len(text), dtype=np.float32)),
        lambda model, text: inspect_heads(model, text),
        lambda model, text: inspect_map(model, text),
        lambda model, text: inspect_contexts(model, "b", text),
        lambda model, text: next(mine_negatives(model, [TextSet("a", ("b",))], MiningOptions(), corpus=text)),
    ],
)
def test_one_text_instead_of_several_is_refused(tiny: Model, call: Callable[[Model, str], object]) -> None:
    """Its characters would be the texts."""
    with pytest.raises(UsageError, match=r"texts is a str \('abc'\): expected several, such as \['abc'\]"):
        call(tiny, "abc")


@pytest.mark.parametrize("pooling", ["pooler", "cls+pooler"])
def test_untrained_pooler_does_not_pool(tmp_path: Path, pooling: str) -> None:
    save_published(published_model("masked_lm", 2), tmp_path / "model")  # without a pooler
    with pytest.raises(MissingHeadError, match="the pooler was never trained"):
        bertkit.load(tmp_path / "model", new=["pooler"]).embed("the cat", pooling=pooling)
