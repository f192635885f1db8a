"""The simulated GPU itself: it computes what the CPU computes, and refuses what a GPU refuses.

Run by test_simulated_gpu.py.
"""

import threading

import pytest
import torch
from torch import Tensor

GPU = torch.device("cuda", 0)


def test_results_and_gradients_are_those_of_the_cpu() -> None:
    def work(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        layer = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.LayerNorm(4), torch.nn.GELU()).to(device)
        rows = torch.arange(30.0).view(5, 6).to(device).requires_grad_()
        out = layer(rows)[1:, ::2].t()  # views of views
        out.square().sum().backward()
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        optimizer.step()
        sums = torch.zeros(2, device=device).index_add_(0, torch.tensor([0, 1, 0, 1], device=device), out[0])
        sizes = torch.empty(0, device=device)
        torch.cumsum(rows.detach()[0], 0, out=sizes)  # gets another size
        assert rows.grad is not None
        return [out, rows.grad, *layer.parameters(), sums, sizes, torch.arange(7, device=device)[torch.tensor([3, 1])]]

    for ours, expected in zip(work("cuda"), work("cpu"), strict=True):
        assert ours.device == GPU and expected.device.type == "cpu"
        torch.testing.assert_close(ours.cpu(), expected)


def test_every_thread_has_the_device() -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(torch.ones(3, device="cuda").sum().item()))
    thread.start()
    thread.join()
    assert results == [3.0]


@pytest.mark.parametrize(
    "mixed",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: gpu @ cpu,
        lambda gpu, cpu: torch.cat([gpu, cpu]),
        lambda gpu, cpu: gpu.index_select(0, cpu[0].long()),
        lambda gpu, cpu: torch.where(cpu > 0, gpu, gpu),
        lambda gpu, cpu: gpu.long() @ gpu.long(),  # integers have no products there
        lambda gpu, cpu: torch.nn.functional.embedding(cpu.long(), gpu),
        lambda gpu, cpu: gpu.normal_(generator=torch.Generator()),
    ],
)
def test_what_a_gpu_refuses_is_refused(mixed) -> None:
    with pytest.raises(RuntimeError, match=r"same device|not implemented|'cuda' device type"):
        mixed(torch.ones(2, 2, device="cuda"), torch.ones(2, 2))
    assert (torch.ones(2, device="cuda") * torch.tensor(3.0)).tolist() == [3, 3]  # single numbers may be of the CPU


def test_new_memory_has_no_numbers() -> None:
    assert torch.empty(9, device="cuda").isnan().all()


def test_copies_of_pinned_memory_happen_late() -> None:
    numbers = torch.ones(4).pin_memory()
    assert numbers.is_pinned() and not torch.ones(4).is_pinned()
    on_gpu = numbers.to("cuda", non_blocking=True)
    numbers.zero_()  # too early
    assert on_gpu.tolist() == [0, 0, 0, 0]
    host = torch.zeros(4, pin_memory=True)
    host.copy_(on_gpu + 5, non_blocking=True)
    event = torch.cuda.current_stream().record_event()
    later = torch.zeros(4, pin_memory=True)
    later.copy_(on_gpu + 6, non_blocking=True)
    assert host.isnan().all()
    event.synchronize()
    assert host.tolist() == [5, 5, 5, 5] and later.isnan().all()
    torch.cuda.synchronize()
    assert later.tolist() == [6, 6, 6, 6]


def test_waits_are_reported() -> None:
    numbers, index = torch.ones(4, device="cuda"), torch.tensor([1])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for wait in (
            numbers.tolist, numbers.cpu, numbers.nonzero, lambda: numbers[index], lambda: numbers[numbers > 0],
            lambda: numbers.copy_(torch.ones(4)), lambda: bool(numbers[0]),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match="synchronizing"):
                wait()
        numbers.copy_(torch.full((4,), 2.0).pin_memory(), non_blocking=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert numbers.tolist() == [2, 2, 2, 2]


def recorded(numbers: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        between = torch.empty_like(numbers)
        between.copy_(numbers * 2)
        result = (between + 1).view(2, 2)
        del between
    return graph, result


def test_graphs_compute_when_replayed() -> None:
    numbers = torch.zeros(4, device="cuda")
    graph, result = recorded(numbers)
    assert result.isnan().all()
    for value in (1, 2):
        numbers.fill_(value)
        junk = torch.empty(1_000, device="cuda")  # takes memory that was released
        graph.replay()
        assert result.tolist() == [[2 * value + 1] * 2] * 2 and junk.isnan().all()


def test_graphs_neither_wait_nor_own_their_inputs() -> None:
    graph, _ = recorded(torch.zeros(4, device="cuda"))
    with pytest.raises(RuntimeError, match="released"):
        graph.replay()
    numbers = torch.ones(4, device="cuda")
    for wait in (numbers.cpu, numbers.nonzero, lambda: numbers.copy_(torch.ones(4).pin_memory(), non_blocking=True)):
        with pytest.raises(RuntimeError, match=r"captur|graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            wait()
