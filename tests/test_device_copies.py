"""From texts to vectors on a GPU: one copy of each batch, nothing waited for in between.

The meta device stands for a GPU: it has shapes but no numbers, so every read of a number raises an error.
"""

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace

import flash_attention_on_cpu  # noqa: F401
import pytest
import torch
from random_models import our_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bertkit import Batch, InferenceReport, Model, collate, device
from bertkit.batch import length_sorted_batches
from bertkit.inference import runner
from bertkit.objectives import PretrainingBatch
from bertkit.transformer.kernels import device_attention

TEXTS = ["the cat sat on the mat", "walked", "a dog and a cat ran off the mat", "un", "one two three four five"] * 3
LONG = "the unable cat walked and talked, " * 9 + "one two"


EMBED = import_module("bertkit.inference.embed")  # the package has a function of that name


class Copies(TorchDispatchMode):
    """Counts copies between devices, by their two types."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for source in args:
            if isinstance(source, Tensor) and isinstance(out, Tensor) and source.device != out.device:
                self.counts[source.device.type, out.device.type] += 1
        return out


@pytest.fixture(params=["varlen", "blocks"])
def elsewhere(request, monkeypatch) -> Model:
    """A model on the meta device, with the attention of a GPU; vectors arrive as zeros."""
    monkeypatch.setattr(device_attention, "kernel_for", lambda *given, **options: request.param)
    monkeypatch.setattr(EMBED, "receive", lambda tensor: lambda: torch.zeros(tensor.shape))
    model = our_model("encoder", 3, max_position_embeddings=41, num_hidden_layers=2)
    model.network.to("meta")
    return model


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "weighted-mean", "mean-sqrt-len", "last", "cls+pooler"])
def test_embedding_copies_every_batch_once_and_waits_for_nothing(elsewhere: Model, pooling: str) -> None:
    lengths = elsewhere.tokenizer.encode_batch(TEXTS).seqlens
    with Copies() as copies:
        vectors = elsewhere.embed(TEXTS, pooling=pooling, tokens_per_batch=30)
    assert vectors.shape == (len(TEXTS), elsewhere.embed(TEXTS[:2], pooling=pooling).shape[1])
    num_batches = len(length_sorted_batches(lengths, 30))
    # of each batch its tokens and its pooled ranges; once the order of all rows
    assert num_batches > 3 and copies.counts == {("cpu", "meta"): 2 * num_batches + 1}


def test_windows_are_added_up_on_the_device(elsewhere: Model) -> None:
    with Copies() as copies:
        elsewhere.embed([LONG, *TEXTS], on_long="window", tokens_per_batch=10_000, report=InferenceReport())
    assert copies.counts == {("cpu", "meta"): 2 + 1 + 1}  # and the text of each window


def test_pretraining_batch_is_copied_in_two_parts() -> None:
    model = our_model("encoder", 3)
    batch = PretrainingBatch(
        collate(model.tokenizer.encode_batch(TEXTS)), torch.tensor([1, 5]), torch.tensor([7, 8]), torch.zeros(15).long()
    )
    with Copies() as copies:
        moved = batch.to("meta")
    assert copies.counts == {("cpu", "meta"): 2}
    assert moved.batch.seqlens == batch.batch.seqlens and moved.labels.shape == (2,)
    assert moved.next_sentence_label is not None and moved.next_sentence_label.shape == (15,)
    assert moved.batch.cu_seqlens.dtype == torch.int32


def test_batch_has_the_same_numbers_after_a_copy(monkeypatch) -> None:
    monkeypatch.setattr(device, "pinned", lambda tensor: SimpleNamespace(to=lambda target, non_blocking: tensor + 0))
    batch = collate(our_model("encoder", 3).tokenizer.encode_batch(TEXTS, max_length=9, on_long="truncate"))
    moved = batch.to("cuda")
    assert isinstance(moved, Batch) and moved.max_seqlen == batch.max_seqlen and moved.seqlens == batch.seqlens
    for name in ("input_ids", "token_type_ids", "position_ids", "cu_seqlens"):
        ours, expected = getattr(moved, name), getattr(batch, name)
        assert torch.equal(ours, expected) and ours.dtype == expected.dtype, name


def test_only_copies_to_cuda_are_from_pinned_memory(monkeypatch) -> None:
    sent = []
    fake = SimpleNamespace(to=lambda target, non_blocking: sent.append((target, non_blocking)))
    monkeypatch.setattr(device, "pinned", lambda tensor: fake)
    device.send(torch.zeros(2), "cuda:1")
    assert sent == [("cuda:1", True)]
    assert device.send(torch.zeros(2), "meta").device.type == "meta" and len(sent) == 1
    same = torch.zeros(2)
    assert device.send(same, "cpu") is same


@pytest.mark.parametrize("on_gpu", [True, False])
def test_next_texts_are_encoded_while_a_gpu_computes(on_gpu: bool, monkeypatch) -> None:
    model = our_model("encoder", 3, max_position_embeddings=41, num_hidden_layers=1)
    events: list[str] = []

    def receive(tensor: Tensor) -> Callable[[], Tensor]:
        number = sum(event.startswith("computed") for event in events)
        events.append(f"computed {number}")

        def wait() -> Tensor:
            events.append(f"arrived {number}")
            return torch.zeros(tensor.shape)

        return wait

    monkeypatch.setattr(EMBED, "receive", receive)
    monkeypatch.setattr(runner, "_ITEMS_AT_A_TIME", 4)
    if on_gpu:
        model.network.to("meta")
    assert model.embed(TEXTS[:10]).shape[0] == 10
    in_turn = [f"{what} {number}" for number in range(3) for what in ("computed", "arrived")]
    ahead = ["computed 0", "computed 1", "arrived 0", "computed 2", "arrived 1", "arrived 2"]
    assert events == (ahead if on_gpu else in_turn)


def test_next_tensor_is_sent_while_a_gpu_works_on_one(monkeypatch) -> None:
    events: list[str] = []

    def created(number: int) -> Tensor:
        events.append(f"created {number}")
        return torch.tensor(number)

    def record_event() -> SimpleNamespace:
        number = events[-1].split()[1]
        return SimpleNamespace(synchronize=lambda: events.append(f"computed {number}"))

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(record_event=record_event))
    monkeypatch.setattr(device, "send", lambda tensor, target: tensor)
    for tensor in device.send_each(map(created, range(4)), torch.device("cuda")):
        events.append(f"queued {int(tensor)}")
    first, *others = (f"created {number}, queued {number}" for number in range(4))
    assert ", ".join(events) == f"{first}, {others[0]}, computed 0, {others[1]}, computed 1, {others[2]}, computed 2"
