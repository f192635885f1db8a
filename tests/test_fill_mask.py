"""Filled masks and next sentence probabilities: equal to transformers on the same random weights."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from random_models import our_model

import bertkit
from bertkit import Model
from bertkit.errors import MissingHeadError, OverLengthError, TruncationWarning, UsageError

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = "the unable cat walked and talked, " * 9


@pytest.fixture(scope="module")
def model() -> Model:
    """Pre-training heads, three layers, 41 positions."""
    return our_model("pretraining", 6, max_position_embeddings=41)


@pytest.fixture(scope="module")
def reference(model: Model, tmp_path_factory: pytest.TempPathFactory):
    """Transformers' model and tokenizer of the same folder."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save(folder)
    return transformers.BertForPreTraining.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "text",
    [
        "the [MASK] sat on the mat",
        "[MASK] and [MASK][MASK], the unable [MASK]",
        "  Ünable [MASK] \x00 CAT [SEP] walked [MASK]!",
        "[MASK]",
    ],
)
@torch.inference_mode()
def test_filled_masks_equal_those_of_transformers(model: Model, reference, text: str) -> None:
    network, tokenizer = reference
    inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = inputs.pop("offset_mapping")[0].tolist()
    masked = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    best = network(**inputs).prediction_logits[0, masked].softmax(-1).topk(7)

    results = model.fill_mask(text, top_k=7)
    assert [filled.offsets for filled in results] == [tuple(offsets[index]) for index in masked]
    assert all(text[slice(*filled.offsets)] == "[MASK]" for filled in results)
    for filled, scores, ids in zip(results, best.values.tolist(), best.indices.tolist(), strict=True):
        assert [candidate.token_id for candidate in filled.candidates] == ids
        assert [candidate.token for candidate in filled.candidates] == tokenizer.convert_ids_to_tokens(ids)
        np.testing.assert_allclose([candidate.score for candidate in filled.candidates], scores, rtol=1e-4, atol=1e-7)
    assert max(filled.candidates[0].score for filled in results) > 0.1  # not all alike


def test_many_masks_are_filled_in_parts_with_the_same_bits(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the [MASK] sat [MASK] the [MASK] [MASK] a [MASK]"
    whole = model.fill_mask(text, top_k=9)
    monkeypatch.setattr(sys.modules["bertkit.inference.fill_mask"], "_MASKS_AT_A_TIME", 2)
    assert model.fill_mask(text, top_k=9) == whole and len(whole) == 5


def test_whole_vocabulary_sums_to_one(model: Model) -> None:
    (filled,) = model.fill_mask("the [MASK]", top_k=10_000)
    scores = [candidate.score for candidate in filled.candidates]
    assert (
        len(scores) == len(model.tokenizer.vocabulary) == len({candidate.token_id for candidate in filled.candidates})
    )
    assert sum(scores) == pytest.approx(1, abs=1e-5)
    assert scores == sorted(scores, reverse=True)


@torch.inference_mode()
def test_masks_of_a_long_text_are_predicted_where_they_have_the_most_context(model: Model) -> None:
    text = LONG.replace("talked", "[MASK]")
    results = model.fill_mask(text, top_k=3, on_long="window")
    assert [filled.offsets[0] for filled in results] == [at for at in range(len(text)) if text.startswith("[MASK]", at)]
    assert len(results) == 9
    windows = model.tokenizer.encode_batch([text], max_length=41, on_long="window", special_tokens_in_text=True)
    assert len(windows) > 3
    for filled in results:
        contexts = {}
        for window in windows:
            for index in (window.offsets == filled.offsets).all(1).nonzero()[0]:
                contexts[min(index, len(window) - 1 - index)] = window, index
        window, index = contexts[max(contexts)]
        logits = model.network(bertkit.collate([window])).logits["masked_lm"][index]
        best = logits.softmax(-1).topk(3)
        assert [candidate.token_id for candidate in filled.candidates] == best.indices.tolist()
        scores = [candidate.score for candidate in filled.candidates]
        np.testing.assert_allclose(scores, best.values, rtol=1e-4, atol=1e-7)


def test_long_text_runs_each_window_once(model: Model) -> None:
    text = LONG.replace("talked", "[MASK]")
    windows = model.tokenizer.encode_batch([text], max_length=41, on_long="window", special_tokens_in_text=True)
    tokens_run = []
    hook = model.encoder.register_forward_pre_hook(lambda _, inputs: tokens_run.append(len(inputs[0].input_ids)))
    model.fill_mask(text, on_long="window")
    hook.remove()
    assert sum(tokens_run) <= sum(map(len, windows))


def test_truncated_mask_is_not_filled(model: Model) -> None:
    with pytest.warns(TruncationWarning, match=r"lost [0-9]+ tokens; a \[MASK\] in the removed part is not filled"):
        (filled,) = model.fill_mask(f"the [MASK] {LONG} [MASK]", on_long="truncate")
    assert filled.offsets == (4, 10)
    with pytest.raises(UsageError, match=r"no \[MASK\]"), pytest.warns(TruncationWarning):
        model.fill_mask(f"{LONG} [MASK]", on_long="truncate")


def test_texts_that_cannot_be_filled(model: Model) -> None:
    for text in ("the cat", "", "[mask]", "MASK"):
        with pytest.raises(UsageError, match=r"the text has no \[MASK\] to fill"):
            model.fill_mask(text)
    for top_k in (0, "5", 2.5, True):
        with pytest.raises(UsageError, match=f"top_k={top_k!r}: expected an int of at least 1"):
            model.fill_mask("the [MASK]", top_k=top_k)  # pyrefly: ignore
    assert len(model.fill_mask("the [MASK]", top_k=np.int64(2))[0].candidates) == 2  # pyrefly: ignore
    with pytest.raises(OverLengthError, match="max_length 41"):
        model.fill_mask(f"{LONG} [MASK]")
    with pytest.raises(MissingHeadError, match="no masked_lm head"):
        our_model("encoder", 6).fill_mask("the [MASK]")


PAIRS = [
    ("the cat sat", "walked off!"),
    ("unable", ""),
    ("", "dogs talk"),
    ("one", "red dog " * 4),
    ("a [SEP] b", "[CLS]"),
]


@torch.inference_mode()
def test_next_sentence_probabilities_equal_those_of_transformers(model: Model, reference) -> None:
    network, tokenizer = reference
    texts, following = map(list, zip(*PAIRS[:4], strict=True))
    inputs = tokenizer(texts, following, padding=True, return_tensors="pt")
    expected = network(**inputs).seq_relationship_logits.softmax(-1)[:, 0]
    results = model.next_sentence_probability(texts, following)
    assert results.dtype == np.float32 and results.shape == (4,)
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-5)
    assert results.std() > 0.05


def test_next_sentence_of_one_pair_equals_that_of_many(model: Model) -> None:
    texts, following = map(list, zip(*PAIRS, strict=True))
    many = model.next_sentence_probability(texts, following)
    for pair, expected in zip(PAIRS, many, strict=True):
        one = model.next_sentence_probability(*pair)
        assert isinstance(one, float) and one == pytest.approx(expected, abs=1e-5)
    turned = model.next_sentence_probability(following, texts)
    assert np.abs(turned - many).max() > 0.01  # the order counts
    np.testing.assert_allclose(model.next_sentence_probability(texts[::-1], following[::-1]), many[::-1], atol=1e-5)
    assert model.next_sentence_probability([], []).shape == (0,)


def test_pairs_that_cannot_be_judged(model: Model) -> None:
    with pytest.raises(UsageError, match="2 texts and 1 pairs"):
        model.next_sentence_probability(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="following is None"):
        model.next_sentence_probability(["a"], None)
    for pair in (("a", ["b"]), (["a"], "b")):
        with pytest.raises(UsageError, match="one of each"):
            model.next_sentence_probability(*pair)
    with pytest.raises(OverLengthError, match=r"pair 1 has .* max_length 41: .*truncate.$"):
        model.next_sentence_probability(["a", LONG], ["b", "c"])
    with pytest.raises(MissingHeadError, match="no next_sentence head"):
        our_model("masked_lm", 6).next_sentence_probability("a", "b")


def test_long_pairs_are_truncated_on_request(model: Model) -> None:
    cut = model.tokenizer.encode(LONG, LONG, max_length=41, on_long="truncate")
    assert len(cut) == 41
    with torch.inference_mode():
        expected = model.network(bertkit.collate([cut])).logits["next_sentence"].softmax(-1)[0, 0]
    num_tokens_cut = len(model.tokenizer.encode(LONG, LONG)) - 41
    with pytest.warns(TruncationWarning, match=f"1 of 1 texts .* lost {num_tokens_cut} tokens"):
        results = model.next_sentence_probability(LONG, LONG, on_long="truncate")
    assert results == pytest.approx(float(expected), abs=1e-5)


def test_one_probability_cannot_come_from_several_windows(model: Model) -> None:
    with pytest.raises(UsageError, match="window"):
        model.next_sentence_probability("the cat", LONG, on_long="window")


def test_saved_model_predicts_the_same(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    reopened = bertkit.load(tmp_path / "saved")
    (results,), (expected,) = reopened.fill_mask("the [MASK] cat"), model.fill_mask("the [MASK] cat")
    for one, other in zip(results.candidates, expected.candidates, strict=True):
        assert (one.token, one.token_id) == (other.token, other.token_id)
        assert one.score == pytest.approx(other.score, rel=1e-4)
    probability = model.next_sentence_probability("a", "b")
    assert reopened.next_sentence_probability("a", "b") == pytest.approx(probability, abs=1e-5)
