"""Dropout and GELU of compiled training on a GPU, on the CPU."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertkit.transformer.kernels.device_steps import activate, apply_dropout, drop
from bertkit.transformer.kernels.training_rows import Dropout, dropout_rows


@pytest.mark.parametrize("key", [0, 5, 0xDEADBEEF, 2**32 - 1])
@pytest.mark.parametrize("probability", [0.1, 0.75])
@pytest.mark.parametrize("shape", [(37, 48), (1, 7)])
def test_dropout_is_that_of_the_cpu(key: int, probability: float, shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    expected = torch.empty_like(x)
    dropout_rows(x.numpy(), Dropout.of(probability, key), expected.numpy())
    signed = torch.from_numpy(np.array(key, np.uint32).view(np.int32))
    assert torch.equal(drop(x, signed, probability), expected)


@pytest.mark.full
def test_compiled_dropout_drops_other_numbers_each_time_and_the_gradients_of_the_same() -> None:
    module = torch.nn.Dropout(0.3)
    compiled = torch.compile(lambda x: apply_dropout(x, module), backend="aot_eager")
    x = torch.ones(200, 50, requires_grad=True)
    seen = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        out = compiled(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(out, gradient) and set(out.unique().tolist()) == {0.0, out.max().item()}
        assert abs(float((out > 0).double().mean()) - 0.7) < 0.02
        seen.append(out)
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    assert torch.equal(torch.compile(lambda x: apply_dropout(x, module.eval()), backend="aot_eager")(x), x)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_compiled_gelu_rounds_as_torch_does(dtype: torch.dtype) -> None:
    compiled = torch.compile(lambda x: activate(x, "gelu"), backend="aot_eager")
    x = torch.cat([3 * torch.randn(3_000), torch.linspace(-40, 40, 801)]).to(dtype).requires_grad_()
    slopes = torch.randn(len(x)).to(dtype)
    exact = x.detach().double().requires_grad_()
    expected = (F.gelu(exact).detach(), *torch.autograd.grad(F.gelu(exact), exact, slopes.double()))
    largest = []
    for function in (compiled, F.gelu):
        results = (function(x), *torch.autograd.grad(function(x), x, slopes))
        pairs = zip(results, expected, strict=True)
        largest.append([float(((a.detach() - b) / (b.abs() + 1e-3)).abs().max()) for a, b in pairs])
    for ours, theirs in zip(*largest, strict=True):
        assert ours <= 1.01 * theirs


def test_float32_and_other_activations_are_torchs() -> None:
    x = torch.randn(100)
    for name, function, dtype in (("gelu", F.gelu, torch.float32), ("relu", F.relu, torch.bfloat16)):
        compiled = torch.compile(lambda x, name=name: activate(x, name), backend="aot_eager")
        assert torch.equal(compiled(x.to(dtype)), function(x.to(dtype)))
