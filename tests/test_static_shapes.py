"""Pre-training with parts of one shape: the losses of any other batch, and one compilation."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import flash_attention_on_cpu  # noqa: F401
import numpy as np
import pytest
import torch
from test_pretraining import pretraining, write_corpus
from test_training import SETTINGS, PairFeed, events, fresh_model, trainer_of

from bertkit.batch import IGNORED
from bertkit.errors import UsageError
from bertkit.objectives import (
    MaskedLM,
    Masking,
    PretrainingBatch,
    PretrainingTask,
    SpecialIds,
    StaticBatch,
    StaticShape,
)
from bertkit.objectives.loader import Loader
from bertkit.objectives.loader import _together as pretraining_batch
from bertkit.objectives.sequences import Sequences
from bertkit.pretraining import Inputs, Pretraining, read_recipe
from bertkit.pretraining.feed import PretrainingFeed
from bertkit.pretraining.recipe import DataSettings
from bertkit.tasks import Loss
from bertkit.training import compute_gradients, outputs_of
from bertkit.transformer.kernels import device_attention

pytestmark = pytest.mark.usefixtures("one_thread")

WITHOUT_DROPOUT = ("model.config.hidden_dropout_prob=0", "model.config.attention_probs_dropout_prob=0")
TASK = PretrainingTask()
SHAPE = StaticShape.of(12, 24, 0.15, 150)


def batches(number: int, pairs: bool = True) -> Iterator[PretrainingBatch]:
    feed, position = PairFeed(pairs=pairs), 0
    for _ in range(number):
        yield feed.batch(position, 0.0)
        position = feed.next_position(position, 0.0)


class StaticFeed(PairFeed):
    """The same batches, in parts of one shape."""

    def batch(self, position: int, progress: float) -> PretrainingBatch:
        return StaticBatch.of(super().batch(position, progress), SHAPE)


@pytest.mark.parametrize("pairs", [True, False])
def test_parts_have_one_shape_and_every_sequence(pairs: bool) -> None:
    for batch in batches(5, pairs):
        parts = StaticBatch.of(batch, SHAPE).split(7, 1)
        assert len(parts) >= 2 and batch.num_tokens > SHAPE.num_tokens
        tokens, labels, next_labels = [], [], []
        for part in parts:
            assert part.num_tokens == int(part.batch.cu_seqlens[-1]) == len(part.batch.position_ids) == SHAPE.num_tokens
            assert len(part) == SHAPE.num_sequences and len(part.labels) == SHAPE.num_masked
            assert part.batch.cu_seqlens.dtype == torch.int32 and int(part.batch.cu_seqlens.diff().min()) >= 0
            assert max(part.batch.seqlens) <= part.batch.max_seqlen == part.batch.num_positions == 24
            assert int(part.batch.first_tokens.max()) < SHAPE.num_tokens
            is_real = part.labels != IGNORED
            labels.append(part.labels[is_real])
            tokens.append(part.batch.input_ids[part.masked_positions[is_real]])
            if part.next_sentence_label is not None:
                is_pair = part.next_sentence_label != IGNORED
                next_labels.append(part.next_sentence_label[is_pair])
                starts = part.batch.first_tokens[is_pair]
                assert (part.batch.input_ids[starts] == 2).all() and (part.batch.position_ids[starts] == 0).all()
        assert torch.equal(torch.cat(labels), batch.labels)
        assert torch.equal(torch.cat(tokens), batch.batch.input_ids[batch.masked_positions])
        assert not pairs or torch.equal(torch.cat(next_labels), batch.next_sentence_label)


@pytest.mark.parametrize("rate", [0.15, 0.4])
@pytest.mark.parametrize("max_seqlen", [7, 17, 64, 128, 512])
def test_longest_sequences_fill_one_part(max_seqlen: int, rate: float) -> None:
    number = 4_096 // max_seqlen  # each rounds its number of masked positions, at 17 and 512 up
    tokens = np.full(number * max_seqlen, 9, np.int32)
    tokens[::max_seqlen], tokens[max_seqlen - 1 :: max_seqlen] = 2, 3
    sequences = Sequences(tokens, np.zeros_like(tokens), np.arange(0, len(tokens) + 1, max_seqlen), None)
    masked = Masking(SpecialIds(2, 3, 4), np.zeros(99, bool))(sequences, rate, 0, np.arange(number))
    whole = pretraining_batch([(sequences, masked)])
    assert len(StaticBatch.of(whole, StaticShape.of(number, max_seqlen, rate, 4_096)).split(1)) == 1


def test_full_part_has_no_filler() -> None:
    batch = next(batches(1, pairs=False))
    shape = StaticShape(batch.num_tokens, len(batch), len(batch.labels), 24)
    (part,) = StaticBatch.of(batch, shape).split(1)
    assert torch.equal(part.batch.input_ids, batch.batch.input_ids) and torch.equal(part.labels, batch.labels)
    assert torch.equal(part.batch.cu_seqlens, batch.batch.cu_seqlens)


@pytest.mark.parametrize("kernel", ["runs", "blocks"])
def test_losses_and_gradients_are_those_of_the_batch(kernel: str, monkeypatch) -> None:
    monkeypatch.setattr(device_attention, "kernel_for", lambda *given, **options: kernel)
    network = fresh_model(0.0).network.train().double()
    parameters = list(network.parameters())
    for batch in batches(2):
        results = []
        for parts in ([batch], StaticBatch.of(batch, SHAPE).split(1)):
            if kernel == "runs":  # which refuse sequences without tokens
                parts = [_without_empty(part) for part in parts]
            losses = [TASK.loss(outputs_of(network, part), part, TASK.totals(batch)) for part in parts]
            value = torch.stack([loss.value for loss in losses]).sum()
            sums = torch.stack([loss.sums for loss in losses]).sum(dim=0)
            results.append((value.detach(), sums, *torch.autograd.grad(value, parameters)))
        for ours, expected in zip(*results, strict=True):
            torch.testing.assert_close(ours, expected)


def _without_empty(part: PretrainingBatch) -> PretrainingBatch:
    is_there = part.batch.cu_seqlens.diff() > 0
    bounds = torch.cat([part.batch.cu_seqlens[:1], part.batch.cu_seqlens[1:][is_there]])
    label = None if part.next_sentence_label is None else part.next_sentence_label[is_there]
    return replace(part, batch=replace(part.batch, cu_seqlens=bounds), next_sentence_label=label)


@pytest.mark.full
@pytest.mark.parametrize(("kernel", "dropout"), [("varlen", 0.0), ("varlen", 0.2), ("blocks", 0.0), ("blocks", 0.2)])
@pytest.mark.parametrize("again", [False, True])
def test_varying_batches_are_compiled_once(kernel: str, dropout: float, again: bool, monkeypatch) -> None:
    monkeypatch.setattr(device_attention, "kernel_for", lambda *given, **options: kernel)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # dropout by the same steps without compilation
    network = fresh_model(dropout, num_attention_heads=2, hidden_size=32).network.train()
    network.encoder.gradient_checkpointing = again
    parameters = list(network.parameters())
    torch._dynamo.reset()
    compiled = torch.compile(network, dynamic=False, fullgraph=True, backend="aot_eager")
    products = torch.autocast("cpu", torch.bfloat16) if kernel == "varlen" else nullcontext()
    for step, batch in enumerate(batches(3)):
        for part in StaticBatch.of(batch, SHAPE).split(1):
            results = []
            for forward in (compiled, network):  # the compiled one first: nothing of the batch is computed yet
                torch.manual_seed(step)
                with products, torch._dynamo.config.patch(error_on_recompile=True):  # pyrefly: ignore
                    loss: Loss = TASK.loss(outputs_of(forward, part), part, TASK.totals(batch))
                gradients = torch.autograd.grad(loss.value, parameters)
                results.append((loss.value.detach(), torch.cat([gradient.flatten() for gradient in gradients])))
            for ours, expected in zip(*results, strict=True):
                difference = float((ours - expected).norm() / expected.norm())
                assert difference <= 1e-5


@pytest.mark.full
def test_trainer_computes_with_the_compiled_network(tmp_path: Path, monkeypatch) -> None:
    calls = []

    def compiling(loss_of: Callable, dynamic: bool) -> Callable:
        def compiled(part, totals):
            calls.append(part.batch)
            return loss_of(part, totals)

        return compiled

    settings = SETTINGS.changed(num_steps=6, log_every=1, evaluate_every=None)
    trainer_of(fresh_model(0.0), tmp_path / "plain", settings).train()
    monkeypatch.setattr(torch, "compile", compiling)
    feed = StaticFeed(settings.batch_size)
    trainer_of(fresh_model(0.0), tmp_path / "static", settings, feed=feed, compile=True).train()
    plain, static = (events(tmp_path / name, "step") for name in ("plain", "static"))
    assert len(calls) >= 12 and len({given.input_ids.shape for given in calls}) == 1
    for ours, expected in zip(static, plain, strict=True):
        assert ours["tokens"] == expected["tokens"]  # filler does not count
        for name in ("masked_lm_loss", "masked_lm_accuracy", "next_sentence_loss", "gradient_norm"):
            assert ours[name] == pytest.approx(expected[name], rel=1e-3), name


def test_kernels_of_the_cpu_compute_parts_of_one_shape() -> None:
    model, batch = fresh_model(0.0), next(batches(1))
    parameters, totals = list(model.network.parameters()), TASK.totals(batch)
    gradients = []
    for parts in (batch.split(1), StaticBatch.of(batch, SHAPE).split(1)):
        compute_gradients(parameters, parts, lambda part: TASK.loss(outputs_of(model.network, part), part, totals))
        gradients.append([parameter.grad.clone() for parameter in parameters if parameter.grad is not None])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_each_stage_and_rank_has_its_shape() -> None:
    special = SpecialIds(2, 3, 4)
    sources = [PairFeed(pairs=False).loader.sources[0]] * 2
    loader = Loader(sources, Masking(special, np.zeros(99, bool)), 0, rank=1, num_ranks=2)
    data, objective = DataSettings(max_seqlen=24, final_max_seqlen=48), MaskedLM(mask_rate=0.3, final_mask_rate=0.15)
    feed = PretrainingFeed(loader, data, objective, 12, static_tokens=100)
    assert feed.shape(0, 100) == (100, 6 + 5, 40, 24) and feed.shape(1, 100) == (100, 6 + 3, 40, 48)
    batch = feed.batch(0, 0.0)
    assert isinstance(batch, StaticBatch) and len(batch) == 6 and batch.shape == feed.shape(0, 100)
    assert not isinstance(replace(feed, static_tokens=None).batch(0, 0.0), StaticBatch)


def test_compilation_requires_a_cuda_device(tmp_path: Path) -> None:
    recipe = read_recipe("bert-2018")
    with pytest.raises(UsageError, match="compile=True requires device='cuda'"):
        Pretraining(tmp_path / "run", recipe, Inputs(["a.txt"]), device="cpu", compile=True).start(resume=False)
    assert not (tmp_path / "run").exists()


class CompiledOnTheCPU(Pretraining):
    """A compiled run without the check of its device."""

    def check(self) -> None:
        compiles, self.compile = self.compile, False
        try:
            super().check()
        finally:
            self.compile = compiles


@pytest.mark.full
def test_compiled_run_computes_parts_of_one_shape(tmp_path: Path, monkeypatch) -> None:
    shapes, losses = [], []

    def compiling(loss_of: Callable, dynamic: bool) -> Callable:
        def compiled(part, totals):
            shapes.append(tuple(part.batch.input_ids.shape))
            return loss_of(part, totals)

        return compiled

    monkeypatch.setattr(torch, "compile", compiling)
    corpus = write_corpus(tmp_path / "corpus.txt")
    for name, kind in (("plain", Pretraining), ("compiled", CompiledOnTheCPU)):
        made = pretraining(corpus, tmp_path / name, "training.tokens_per_part=100", *WITHOUT_DROPOUT)
        run = kind(made.out, made.recipe, made.inputs, log_line=lambda line: None, compile=kind is CompiledOnTheCPU)
        assert run.start(resume=False).reason == "finished"
        losses.append([line["masked_lm_loss"] for line in events(tmp_path / name, "step")])
    assert set(shapes) == {(100,)} and len(shapes) > 12
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
