"""Training by the fast kernels: the gradients of torch's own operations, the same dropout both ways, any cores."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bertkit import Batch
from bertkit.architectures import Network, initialize
from bertkit.tasks import Loss
from bertkit.training import compute_gradients
from bertkit.transformer import BertConfig
from bertkit.transformer.kernels import steps, trained_steps, training_kernels
from bertkit.transformer.kernels.arrays import array
from bertkit.transformer.kernels.linear import multiply_unpacked
from bertkit.transformer.kernels.training_rows import Dropout, dropout_rows

LENGTHS = [17, 9, 3, 33, 1]


def network(dropout_prob: float = 0.0, hidden_act: str = "gelu", **widths: int) -> Network:
    config = BertConfig(
        **{"vocab_size": 99, "hidden_size": 60, "num_attention_heads": 3, "intermediate_size": 84, **widths},
        num_hidden_layers=2, max_position_embeddings=40, hidden_act=hidden_act, hidden_dropout_prob=dropout_prob,
        attention_probs_dropout_prob=dropout_prob, initializer_range=0.2,
    )  # fmt: skip
    made = Network(config, ["masked_lm", "next_sentence"])
    initialize(made, config, seed=0)
    return made.train()


def batch(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return Batch.from_padded(torch.randint(0, 99, mask.shape, generator=generator), mask)


POSITIONS, LABELS = torch.tensor([1, 3, 18, 30, 62]), torch.tensor([3, 4, 5, 6, 98])


def loss(made: Network, given: Batch) -> Loss:
    logits = made(given, masked_positions=POSITIONS).logits
    next_labels = torch.arange(len(given)) % 2
    cross_entropy = nn.functional.cross_entropy
    value = cross_entropy(logits["masked_lm"], LABELS) + cross_entropy(logits["next_sentence"], next_labels)
    return Loss(value, value.detach())


def assert_close(actual: list[torch.Tensor], expected: list[torch.Tensor], names: list[str], tolerance: float) -> None:
    for ours, reference, name in zip(actual, expected, names, strict=True):
        if name.endswith("key.bias"):  # zero but for rounding: all keys moved alike change no probability
            assert ours.abs().max() < 1e-2
        else:
            assert (ours - reference).norm() <= tolerance * reference.norm(), name


@pytest.mark.parametrize("hidden_act", ["gelu", "relu"])
def test_gradients_equal_those_of_torch(hidden_act: str) -> None:
    made = network(hidden_act=hidden_act)
    names, parameters = (list(part) for part in zip(*made.named_parameters(), strict=True))
    value = loss(made, batch()).value
    expected = torch.autograd.grad(value, parameters)
    # In bfloat16 a relu near its corner passes a whole gradient or none.
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1 if hidden_act == "gelu" else 0.3)):
        (results,) = compute_gradients(parameters, [batch()], lambda given: loss(made, given), dtype=dtype)
        assert abs(results.value - value.item()) <= tolerance * value.item()
        assert_close([parameter.grad for parameter in parameters], list(expected), names, tolerance)


def mask_of(dropout: Dropout, shape: tuple[int, int]) -> torch.Tensor:
    out = torch.empty(shape)
    dropout_rows(array(torch.ones(shape)), dropout, array(out))
    return out


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_dropout_keeps_its_share_and_its_mean(probability: float) -> None:
    mask = mask_of(Dropout.of(probability, key=7), (1_000, 333))
    share = (mask == 0).double()
    deviation = (probability * (1 - probability)) ** 0.5
    assert abs(share.mean() - probability) < 5 * deviation / share.numel() ** 0.5
    assert (share.mean(0) - probability).abs().max() < 6 * deviation / 1_000**0.5
    assert (share.mean(1) - probability).abs().max() < 6 * deviation / 333**0.5
    assert set(mask.unique().tolist()) == {0.0, np.float32(1 / (1 - probability))}
    other = (mask_of(Dropout.of(probability, key=8), (1_000, 333)) == 0).double()
    for shift in (0, 1, 16, 333):  # neighbors, columns and other keys know nothing of it
        for later in (share, other) if shift else (other,):
            both = (share.flatten()[: share.numel() - shift] * later.flatten()[shift:]).mean()
            assert abs(both - probability**2) < 6 * probability / share.numel() ** 0.5


def test_add_norm_with_dropout() -> None:
    generator = torch.Generator().manual_seed(0)
    x, residual, grad = (torch.randn(23, 60, generator=generator, requires_grad=True) for _ in range(3))
    norm = nn.LayerNorm(60, eps=1e-12)
    nn.init.normal_(norm.weight)
    leaves = [x, residual, norm.weight, norm.bias]
    with training_kernels(torch.float32, seed=3):
        out = steps.add_norm(x, residual, norm, nn.Dropout(0.3).train())
    results = torch.autograd.grad(out, leaves, grad.detach())
    with training_kernels(torch.float32, seed=3):
        mask = mask_of(steps._active().dropout(0.3), x.shape)
    plain = norm(x * mask + residual)
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-5)
    for ours, reference in zip(results, torch.autograd.grad(plain, leaves, grad.detach()), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-4)


def test_attention_with_dropout() -> None:
    num_heads, total, longest = 3, sum(LENGTHS), max(LENGTHS)
    generator = torch.Generator().manual_seed(0)
    together = torch.randn(total, 3 * 60, generator=generator, requires_grad=True)
    grad = torch.randn(total, 60, generator=generator)
    with training_kernels(torch.float32, seed=3):
        out = steps.self_attention(together, batch(), num_heads, 0.3)
    (results,) = torch.autograd.grad(out, together, grad)
    with training_kernels(torch.float32, seed=3):
        mask = mask_of(steps._active().dropout(0.3), (1, total * num_heads * longest)).view(total, num_heads, longest)
    parts, start = [], 0
    for length in LENGTHS:
        query, key, value = together[start : start + length].view(length, 3, num_heads, 20).permute(1, 2, 0, 3)
        probs = (query @ key.transpose(1, 2) / 20**0.5).softmax(-1)  # (H, L, L)
        kept = mask[start : start + length, :, :length].transpose(0, 1)
        parts.append(((probs * kept) @ value).transpose(0, 1).flatten(1))
        start += length
    plain = torch.cat(parts)
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results, torch.autograd.grad(plain, together, grad)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_number_of_cores_gives_the_same_bits(dtype: torch.dtype) -> None:
    made, batches = network(dropout_prob=0.1), [batch(seed) for seed in range(5)]
    parameters, results, threads_before = list(made.parameters()), [], torch.get_num_threads()
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            losses = compute_gradients(parameters, batches, lambda given: loss(made, given), dtype=dtype, seed=5)
            gradients = [parameter.grad.clone() for parameter in parameters]
            results.append(([float(values.value) for values in losses], gradients))
            assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(threads_before)
    for losses, gradients in results[1:]:
        assert losses == results[0][0]
        assert all(map(torch.equal, gradients, results[0][1]))
    other = compute_gradients(parameters, batches, lambda given: loss(made, given), dtype=dtype, seed=6)
    assert [float(values.value) for values in other] != results[0][0]


def test_evaluation_and_unused_parameters() -> None:
    made = network(dropout_prob=0.5).eval()
    parameters = list(made.parameters())
    with torch.no_grad():
        expected = made(batch()).encoded.last_hidden_state
        with training_kernels(torch.float32, seed=1):
            torch.testing.assert_close(made(batch()).encoded.last_hidden_state, expected, rtol=1e-5, atol=1e-5)

    def total(given: Batch) -> Loss:
        value = made.encoder(given).last_hidden_state.sum()
        return Loss(value, value.detach())

    compute_gradients(parameters, [batch()], total)
    assert made.heads["masked_lm"].bias.grad is None
    assert made.encoder.embeddings.word.weight.grad is not None


def test_gradients_of_tables_equal_those_of_this_step_alone() -> None:
    made = network()
    tables = [part.weight for part in made.modules() if isinstance(part, torch.nn.Embedding)]

    def total(given: Batch) -> Loss:
        value = made.encoder(given).last_hidden_state.pow(3).sum()  # the squares of a norm are always the same
        return Loss(value, value.detach())

    for seeds in ((1, 2, 3), (4, 5)):  # other tokens in the second step, in the memory of the first
        batches = list(map(batch, seeds))
        expected = torch.autograd.grad(sum(total(given).value for given in batches), tables)
        compute_gradients(tables, batches, total)
        assert_close([table.grad for table in tables], list(expected), ["word", "position", "token_type"], 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_recomputed_activations_are_bit_identical(dtype: torch.dtype) -> None:
    made = network(dropout_prob=0.2)
    parameters, results = list(made.parameters()), []
    for again in (False, True):
        made.encoder.gradient_checkpointing = again
        compute_gradients(parameters, [batch(1), batch(2)], lambda given: loss(made, given), dtype=dtype, seed=3)
        results.append([parameter.grad.clone() for parameter in parameters])
    assert all(map(torch.equal, *results))


@pytest.mark.full
def test_products_have_few_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN keeps memory for every one, and batches of mixed lengths nearly always have another."""
    made, rows = network(), set()

    def recorded(a: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        rows.update(a.shape)  # of the gradient of weights, the columns
        return multiply_unpacked(a, *others)

    monkeypatch.setattr(trained_steps, "multiply_unpacked", recorded)
    numbers = np.random.default_rng(0)
    for _ in range(40):
        ids = [torch.from_numpy(numbers.integers(0, 99, (1, length))) for length in numbers.integers(20, 40, 30)]
        given = Batch.from_padded(*_padded(ids))
        positions = torch.arange(int(numbers.integers(60, 90)))
        with training_kernels(torch.float32, seed=1):
            made(given, masked_positions=positions).logits["masked_lm"].sum().backward()
    widths = {60, 84, 99, 180}
    assert len(rows - widths) <= 24, sorted(rows)  # 700 to 1,100 tokens, 60 to 90 predictions


def _padded(ids: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(one.shape[1] for one in ids)
    mask = torch.stack([torch.arange(longest) < one.shape[1] for one in ids])
    return torch.cat([nn.functional.pad(one, (0, longest - one.shape[1])) for one in ids]), mask


MEMORY = """
    import numpy as np, torch
    from bertkit import Batch
    from test_training_kernels import network
    from bertkit.transformer.kernels import training_kernels

    torch.set_num_threads(1)
    made = network(hidden_size=128, intermediate_size=512, num_attention_heads=4)
    draw, megabytes = np.random.default_rng(0), []
    for step in range(301):
        mask = torch.arange(40) < torch.from_numpy(draw.integers(5, 40, 32))[:, None]
        given = Batch.from_padded(torch.randint(0, 99, mask.shape), mask)
        with training_kernels(torch.float32, seed=step):
            made(given, masked_positions=torch.arange(draw.integers(60, 120))).logits["masked_lm"].sum().backward()
        megabytes.append(int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6)
    print(megabytes[300] - megabytes[100])
    """


@pytest.mark.parametrize("rows", [1, 3, 50])
@pytest.mark.parametrize("outputs", [1, 2, 7])
def test_products_have_the_same_bits_wherever_their_inputs_lie(rows: int, outputs: int) -> None:
    """A resumed run has its weights at other places of memory. MKL's own default differs here, on AMD Zen 4."""
    given, found = [torch.randn(rows, 40), torch.randn(outputs, 40), torch.randn(outputs)], set()
    for first in range(16):
        placed = [torch.empty(one.numel() + first)[first:].view(one.shape).copy_(one) for one in given]
        found.add(torch.nn.functional.linear(*placed).numpy().tobytes())
    assert len(found) == 1


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.slow
def test_memory_stays_flat_with_batches_of_mixed_lengths() -> None:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY)], capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )  # fmt: skip
    assert float(result.stdout) < 90, result.stdout + result.stderr  # 190 with any number of rows
