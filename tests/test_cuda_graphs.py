"""Recorded encoders: which batches share a recording, and that replays give the numbers of the encoder.

A recording that computes when it is replayed stands for a CUDA graph.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from random_models import our_model

from bertkit import Batch, BertConfig, Model
from bertkit.architectures import prepare
from bertkit.errors import UsageError
from bertkit.transformer import EncoderOutput, cuda_graphs
from bertkit.transformer.cuda_graphs import MOST_ROWS, GraphedEncoder, Recording, can_be_recorded


class Recorder:
    """Records like `record_graph`, and counts recordings and replays."""

    def __init__(self) -> None:
        self.recorded: list[Batch] = []
        self.num_replays = 0

    def __call__(self, encode: Callable[[Batch], EncoderOutput], batch: Batch) -> Recording:
        inputs = replace(batch, **{name: getattr(batch, name).clone() for name in cuda_graphs._INPUTS})
        self.recorded.append(inputs)
        output = encode(inputs)

        def replay() -> None:
            self.num_replays += 1
            again = encode(inputs)  # what a batch keeps of its first run stays, as in a recording
            output.last_hidden_state.copy_(again.last_hidden_state)
            if output.pooled is not None and again.pooled is not None:
                output.pooled.copy_(again.pooled)

        return Recording(inputs, output, replay)


def batch_of(*lengths: int, seed: int = 0) -> Batch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Batch.from_padded(torch.randint(0, 50, mask.shape, generator=torch.Generator().manual_seed(seed)), mask)


@pytest.fixture
def model(one_thread) -> Model:
    return our_model("encoder", 3, max_position_embeddings=41, num_hidden_layers=2)


def test_replays_give_the_results_of_the_encoder(model: Model) -> None:
    prepared, recorder = prepare(model.encoder), Recorder()
    graphed, outputs = GraphedEncoder(prepared, recorder), []
    batches = [batch_of(*lengths, seed=number) for number, lengths in enumerate(
        [(5,), (7,), (8,), (9,), (3, 4), (2, 2), (40, 41, 3), (41, 41, 1), (1, 1, 1, 1), (1, 1, 5)]
    )]  # fmt: skip
    for batch in batches:
        outputs.append(graphed(batch))
    for batch, ours in zip(batches, outputs, strict=True):  # after all: a replay does not change earlier results
        expected = prepared(batch)
        torch.testing.assert_close(ours.last_hidden_state, expected.last_hidden_state, rtol=0, atol=0)
        torch.testing.assert_close(ours.pooled, expected.pooled, rtol=0, atol=0)
    shapes = [(len(one.input_ids), len(one)) for one in recorder.recorded]
    assert shapes == [(8, 1), (12, 1), (8, 2), (96, 4), (8, 4)] and recorder.num_replays == len(batches)
    assert all(one.max_seqlen == min(41, len(one.input_ids)) for one in recorder.recorded)
    assert graphed(batches[0], with_pooled=False).pooled is None and len(recorder.recorded) == 6
    assert graphed.fits(model.encoder)


def test_other_batches_are_not_recorded(model: Model) -> None:
    prepared, recorder = prepare(model.encoder), Recorder()
    graphed, large = GraphedEncoder(prepared, recorder), batch_of(*[41] * (MOST_ROWS // 41 + 1))
    assert torch.equal(graphed(large).last_hidden_state, prepared(large).last_hidden_state)
    states = graphed(batch_of(5, 3), with_hidden_states=True).hidden_states
    assert states is not None and len(states) == 3
    with pytest.raises(UsageError, match="42 positions"):
        graphed(batch_of(42))
    assert not recorder.recorded


def test_threads_take_turns_at_a_recording(model: Model) -> None:
    prepared = prepare(model.encoder)
    graphed, batches = GraphedEncoder(prepared, Recorder()), [batch_of(6, seed=seed) for seed in range(40)]
    with ThreadPoolExecutor(4) as threads:
        outputs = list(threads.map(graphed, batches))
    for batch, ours in zip(batches, outputs, strict=True):
        assert torch.equal(ours.last_hidden_state, prepared(batch).last_hidden_state)


@pytest.mark.parametrize(
    ("device", "precision", "capability", "bias", "expected"),
    [
        ("cuda", "bfloat16", (9, 0), None, True),
        ("cuda", "float16", (9, 0), None, True),
        ("cuda", "bfloat16", (7, 5), None, False),
        ("cuda", "float16", (7, 5), None, False),
        ("cuda", "bfloat16", (9, 0), torch.zeros(3, 1), False),
        ("cuda", "bfloat16", (9, 0), (torch.zeros(1, 1),), False),  # relative positions: lengths on the CPU
        ("cuda", "float32", (9, 0), None, False),
        ("mps", "bfloat16", (0, 0), None, False),
        ("cpu", "bfloat16", (0, 0), None, False),
    ],
)
def test_encoders_that_are_recorded(device, precision, capability, bias, expected, monkeypatch) -> None:
    monkeypatch.setattr(cuda_graphs, "capability_of", lambda given: capability)
    word = SimpleNamespace(weight=SimpleNamespace(device=torch.device(device), dtype=torch.float32))
    config = BertConfig(hidden_size=192, num_attention_heads=3)
    encoder = SimpleNamespace(embeddings=SimpleNamespace(word=word), config=config, distance_bias=lambda longest: bias)
    assert can_be_recorded(encoder, precision) == expected


def test_prepared_encoder_of_the_cpu_is_not_recorded(model: Model, monkeypatch) -> None:
    assert not isinstance(prepare(model.encoder, "bfloat16"), GraphedEncoder)
    monkeypatch.setattr("bertkit.transformer.cuda_graphs.can_be_recorded", lambda encoder, precision: True)
    assert isinstance(prepare(model.encoder), GraphedEncoder)
