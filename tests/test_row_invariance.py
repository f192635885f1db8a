"""Rows are bit-identical for any number of rows: the plan of products, and every head of every model."""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import random_modern
import torch
from examples_of_tasks import TASKS, examples, model_of, write
from random_models import our_model
from torch import Tensor

from bertkit import Model
from bertkit.architectures import prepare
from bertkit.batch import length_sorted_batches
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.finetuning import FinetuningSettings
from bertkit.finetuning.network import model_to_train
from bertkit.heads import HEADS, KINDS
from bertkit.inference import Runner
from bertkit.tasks import SiameseClassification, TextExample, read_examples
from bertkit.tokenizer import Encodings
from bertkit.transformer.kernels import inference_kernels, linear, row_invariance
from bertkit.transformer.kernels.dispatch import kernels_for
from bertkit.transformer.kernels.llvm_vectors import LARGEST_BYTE
from bertkit.transformer.kernels.rotation import rotated
from bertkit.transformer.kernels.row_invariance import (
    ROW_COUNTS,
    multiply_rows,
    probe_weight,
    row_count,
)
from bertkit.transformer.kernels.rows import Quantized

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]


class Library:
    """Simulates a product whose bits depend on the number of rows, as oneDNN's with AMX.

    Args:
        order: of a number of rows and of threads: any value, equal where the terms are added up in the same order.
        by_position: rows in the second half of a product are summed in another order.
    """

    def __init__(self, order: Callable[[int, int], int], by_position: bool = False) -> None:
        self.order, self.by_position = order, by_position
        self.calls: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        order = torch.full((len(x),), self.order(len(x), torch.get_num_threads()))
        if self.by_position:
            order[len(x) // 2 :] += 10
        return x * (1 + order[:, None] * 2.0**-20)


ORDERS = {
    "one order": lambda rows, threads: 0,
    "AMX, 1536 x 384": lambda rows, threads: int(33 <= rows <= 36 or 70 <= rows <= 300),
    "AMX, 768 x 768": lambda rows, threads: int(rows >= 33),
    "AMX, 3072 x 768": lambda rows, threads: int(rows >= 4) + int(rows >= 300),
    "never the same": lambda rows, threads: rows,
    "many threads share the terms": lambda rows, threads: threads,
    "many threads share the terms of few rows": lambda rows, threads: threads if rows < 100 else 1,
}


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_rows_are_invariant_if_the_library_depends_on_their_number(order: str, by_position: bool) -> None:
    library, rows = Library(ORDERS[order], by_position), torch.randn(1200, 5)
    kind = (order, by_position)
    expected = multiply_rows(kind, library, lambda: library, rows)
    threads_before = torch.get_num_threads()
    for num_threads in (2, 1):
        torch.set_num_threads(num_threads)
        try:
            for start, num_rows in [(0, 1), (7, 2), (3, 33), (50, 64), (9, 100), (11, 301), (0, 1024), (1, 1025)]:
                results = multiply_rows(kind, library, lambda: library, rows[start : start + num_rows])
                assert torch.equal(results, expected[start : start + num_rows])
        finally:
            torch.set_num_threads(threads_before)


def test_products_that_agree_are_not_split() -> None:
    library = Library(ORDERS["one order"])
    for num_rows in ROW_COUNTS:
        multiply_rows("not split", library, lambda: library, torch.randn(num_rows, 3))
        library.calls.clear()
        multiply_rows("not split", library, lambda: library, torch.randn(num_rows, 3))
        assert library.calls == [num_rows]


def test_products_that_disagree_are_split_into_few() -> None:
    library = Library(ORDERS["AMX, 1536 x 384"])
    for num_rows, expected in [(1000, [1024]), (256, [64, 64, 64, 64]), (100, [64, 48]), (35, [48]), (3, [4])]:
        multiply_rows("split", library, lambda: library, torch.randn(num_rows, 3))
        library.calls.clear()
        multiply_rows("split", library, lambda: library, torch.randn(num_rows, 3))
        assert library.calls == expected


def test_test_weights_of_a_vocabulary_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    for store in ("_plans", "_tests", "_agreed", "_references"):
        monkeypatch.setattr(row_invariance, store, {})
    with torch.inference_mode(), inference_kernels():
        for num_outputs, is_kept in ((40, True), (33_000, False)):  # 67 MB
            weight, rows = torch.randn(num_outputs, 256).double(), torch.randn(3, 256).double()
            alone = torch.cat([linear(row[None], weight, None) for row in rows])
            assert torch.equal(linear(rows, weight, None), alone)
            assert bool(row_invariance._references) and bool(row_invariance._tests) == is_kept
            row_invariance._tests.clear()


def test_padding_is_at_most_a_fifth() -> None:
    for num_rows in range(64, 5_000):
        assert num_rows <= row_count(num_rows) <= num_rows * 1.25
        assert row_count(row_count(num_rows)) == row_count(num_rows)


def rows_of(model: Model, precision: str, head: str, encodings: Encodings, tokens_per_batch: int) -> np.ndarray:
    runner = Runner(model.network, model.tokenizer, prepare(model.encoder, precision))

    def forward(batch, indices):
        return model.network.head_logits(head, runner.encoder(batch), batch)

    of_tokens = head in ("masked_lm", "token_classification", "question_answering")
    rows_per_sequence = encodings.seqlens if of_tokens else None
    return runner.run(
        encodings, forward, rows_per_sequence=rows_per_sequence, tokens_per_batch=tokens_per_batch
    ).numpy()


WITHOUT_OWN_LOGITS = {"encoder", "pretraining", "multiple_choice", "replaced_tokens"}  # or of ELECTRA alone


@pytest.mark.full(sample=1)
@pytest.mark.every_processor
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - WITHOUT_OWN_LOGITS))
@pytest.mark.parametrize("maker", [our_model, random_modern.our_model])
def test_logits_have_the_same_bits_alone_and_in_any_batch(maker: Callable, kind: str, precision: str) -> None:
    if maker is random_modern.our_model and kind not in random_modern.PUBLISHED_CLASSES:
        pytest.skip("ModernBERT lacks it")
    for number in (1, 2, 4) if maker is random_modern.our_model else (0, 5, 8):  # three activations
        changes = {"max_position_embeddings": 43}
        model = (
            maker(kind, number, num_labels=3, **changes) if kind.endswith("_classification") else maker(kind, number)
        )
        (head,) = KINDS[kind]
        assert head in HEADS
        encodings = model.tokenizer.encode_batch([*TEXTS, *TEXTS[:3]] * 5, max_length=23, on_long="truncate")
        expected = rows_of(model, precision, head, encodings, tokens_per_batch=100_000)
        for tokens_per_batch in (1, 40, 300):
            results = rows_of(model, precision, head, encodings, tokens_per_batch)
            np.testing.assert_array_equal(results, expected)
        backwards = encodings.take(np.arange(len(encodings))[::-1])
        results = rows_of(model, precision, head, backwards, tokens_per_batch=77)
        if len(results) == len(encodings):
            np.testing.assert_array_equal(results[::-1], expected)


@pytest.mark.full
def test_vectors_are_row_invariant_with_any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole model with such a library: with the plan the vectors are equal, without it they differ."""
    linear = importlib.import_module("bertkit.transformer.kernels.linear")  # the package has a function of that name
    multiply = linear.OneDNNLinear.multiply

    def by_rows(self, activation, x, residual=None):
        return multiply(self, activation, x, residual) * (1 + (len(x) in range(33, 90)) * 2.0**-10)

    monkeypatch.setattr(linear.OneDNNLinear, "multiply", by_rows)
    monkeypatch.setattr("bertkit.transformer.kernels.dispatch.multiplies_panels_fast", lambda precision: False)
    for store in ("_plans", "_tests", "_agreed", "_references"):
        monkeypatch.setattr(row_invariance, store, {})
    model = our_model("encoder", 5)
    texts = TEXTS * 9
    expected = model.embed(texts, tokens_per_batch=10_000)
    np.testing.assert_array_equal(np.stack([model.embed(text) for text in texts]), expected)
    monkeypatch.setattr(row_invariance, "multiply_rows", lambda kind, multiply, probe, *inputs: multiply(*inputs))
    different = np.stack([model.embed(text) for text in texts])
    assert (different != expected).any()


def fails(self: torch.nn.Linear, x: Tensor) -> Tensor:
    raise AssertionError(f"{self} is not checked for {len(x)} rows")


@pytest.mark.parametrize("name", TASKS)
def test_predictions_take_only_checked_products(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own linear layer chooses the order of summation by the number of rows."""
    model, file = model_of(TASKS[name]), tmp_path / "rows.jsonl"
    write(file, examples(name))
    rows = list(read_examples(name, file))
    monkeypatch.setattr(torch.nn.Linear, "forward", fails)
    assert len(model.predict(rows)) == len(rows)


def test_predictions_of_pairs_take_only_checked_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    our_model("encoder", 5).save(tmp_path / "encoder")
    task, pairs = SiameseClassification(("far", "near")), [("a cat", text) for text in TEXTS]
    settings = FinetuningSettings.of(head="drawn")
    model = model_to_train(str(tmp_path / "encoder"), task, settings, print, TextExample("a cat", "a dog", "near"))
    model.checkpoint.provenance = {part: Provenance("trained") for part in model.checkpoint.provenance}
    monkeypatch.setattr(torch.nn.Linear, "forward", fails)
    assert len(model.predict(pairs)) == len(pairs)


def test_other_results_take_only_checked_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model = our_model("pretraining", 5)
    monkeypatch.setattr(torch.nn.Linear, "forward", fails)
    assert model.fill_mask("the [MASK] sat")
    assert 0 < model.next_sentence_probability("the cat sat", "on the mat") < 1
    assert len(model.pseudo_log_likelihood(TEXTS[:3])) == 3
    assert len(model.embed(TEXTS, pooling="pooler")) == len(TEXTS)


def test_batches_are_full() -> None:
    lengths = np.random.default_rng(3).integers(3, 90, 2_000)
    tokens = [int(lengths[batch].sum()) for batch in length_sorted_batches(lengths, 1024)]
    assert sum(tokens[:-1]) >= 0.995 * 1024 * (len(tokens) - 1)


@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 0.9), (torch.bfloat16, 0.9), (torch.float64, 0.9)])
def test_probe_detects_different_summation_order(dtype: torch.dtype, share: float) -> None:
    rows, weight = row_invariance._probe_rows(torch.empty(1, 384, dtype=dtype)), probe_weight(77, 384, dtype)
    sums = torch.float32 if dtype == torch.bfloat16 else dtype

    def product(order: Tensor) -> Tensor:
        total = torch.zeros(len(rows), len(weight), dtype=sums)
        for column in order:
            total += rows[:, column, None].to(sums) * weight[None, :, column].to(sums)
        return total.to(dtype)

    ascending, descending = product(torch.arange(384)), product(torch.arange(384).flip(0))
    assert (ascending != descending).double().mean() > share
    assert ascending.abs().max() < 1e-3


def test_int8_products_of_extreme_values_are_exact() -> None:
    """oneDNN adds pairs of products in 16 bits, and overflows, on processors without 8-bit dot products."""
    weight = torch.from_numpy(rotated(np.full((16, 64), 2.0, np.float32)))  # the layer rotates it back: all 2
    linear = kernels_for("int8", torch.device("cpu")).linear(weight, torch.zeros(16))
    rows = Quantized(np.full((8, 64), LARGEST_BYTE, np.uint8), np.ones(8, np.float32), np.zeros(8, np.float32))
    scales = np.asarray(linear.scales)
    expected = (LARGEST_BYTE - 128) * 64 * np.rint(2 / scales) * scales
    np.testing.assert_array_equal(linear(rows).values, np.broadcast_to(expected, (8, 16)))
