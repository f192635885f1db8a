"""The kernels in Triton compiled for GPUs that are not there.

Run by test_triton.py.
"""

from typing import Any

import pytest
import torch
import triton  # pyrefly: ignore
from triton.backends.compiler import GPUTarget  # pyrefly: ignore
from triton.compiler import ASTSource  # pyrefly: ignore

from bertkit.transformer.kernels import triton_attention, triton_cache, triton_products
from bertkit.transformer.kernels.triton_attention import forward_tiles
from bertkit.transformer.kernels.triton_products import tiles_of

CAPABILITIES = pytest.mark.parametrize("capability", [80, 86, 90, 100, 120])
TYPES = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
OF_DTYPE = (
    "joined", "context", "grad_context", "grad_joined", "x", "weight", "bias", "out", "rows", "keys", "values",
)  # fmt: skip
INTEGERS = (
    "num_tiles", "limit", "longest", "num_rows", "num_outputs", "num_inputs", "row_stride", "capacity",
)  # fmt: skip
OTHERS = dict.fromkeys(("log_sums", "averages", "sums"), "*fp32")
OTHERS |= {"cu_seqlens": "*i32", "dropout_key": "*i32", "cache_rows": "*i64", "num_seen": "*i64"}
SIZES = {"num_heads": 12, "head_dim": 64}
PLAIN = {"num_key_heads": 12, "num_columns": 64, "before": -1, "after": -1, "has_bias": False}
_LEAST_SHARED = 99 << 10  # bytes, the least that one of these GPUs has


def compile_for(
    capability: int, function: Any, constants: dict[str, Any], dtype: torch.dtype, num_warps: int, num_stages: int,
    **kinds: str,
) -> None:  # fmt: skip
    """Compile, and check the memory of a program."""
    names = function.arg_names
    of_names = dict.fromkeys(OF_DTYPE, TYPES[dtype]) | dict.fromkeys(INTEGERS, "i32") | OTHERS | kinds
    signature = {one: "constexpr" if one in constants else of_names.get(one, "fp32") for one in names}
    source = ASTSource(function, signature, {(names.index(one),): value for one, value in constants.items()})
    options = {"num_warps": num_warps, "num_stages": num_stages}
    compiled = triton.compile(source, GPUTarget("cuda", capability, 32), options=options)
    assert compiled.metadata.shared <= _LEAST_SHARED


@CAPABILITIES
@pytest.mark.parametrize(
    ("name", "tiles"), [("_attend", "_FORWARD"), ("_key_gradients", "_KEY_TILES"), ("_query_gradients", "_QUERY_TILES")]
)
def test_attention_of_training(name: str, tiles: str, capability: int) -> None:
    num_queries, num_keys, num_warps, num_stages = getattr(triton_attention, tiles)
    constants = SIZES | {"num_queries": num_queries, "num_keys": num_keys, "drops": True}
    constants |= PLAIN if name == "_attend" else {}
    function = getattr(triton_attention, name)
    compile_for(capability, function, constants, torch.bfloat16, num_warps, num_stages, bias="*fp32")


@CAPABILITIES
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("head_dim", "more"),
    [(32, {}), (64, {"num_key_heads": 4, "before": 64, "after": 64}), (128, {"after": 0}), (200, {"has_bias": True})],
)
def test_attention_of_inference(head_dim: int, more: dict[str, Any], dtype: torch.dtype, capability: int) -> None:
    num_queries, num_keys, num_warps, num_stages = forward_tiles(head_dim, dtype)
    constants = SIZES | PLAIN | {"num_queries": num_queries, "num_keys": num_keys, "drops": False}
    constants |= {"head_dim": head_dim, "num_columns": triton.next_power_of_2(head_dim)} | more
    function = triton_attention._attend
    compile_for(capability, function, constants, dtype, num_warps, num_stages, bias="*fp32")


@CAPABILITIES
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("num_outputs", [384, 2_304])
def test_products(num_outputs: int, dtype: torch.dtype, capability: int) -> None:
    tiles = tiles_of(num_outputs, dtype)
    constants = {"has_bias": True}
    constants |= {"rows_of_tile": tiles.rows, "columns_of_tile": tiles.columns, "inputs_of_tile": tiles.inputs}
    compile_for(capability, triton_products._multiply, constants, dtype, tiles.num_warps, tiles.num_stages)


@CAPABILITIES
@pytest.mark.parametrize("dtype", TYPES)
def test_sums_and_cached_attention(dtype: torch.dtype, capability: int) -> None:
    compile_for(capability, triton_products._add_up, {"width": 384, "columns_of_tile": 512}, dtype, 4, 3)
    constants = SIZES | {"num_columns": 64, "num_keys": triton_cache._NUM_KEYS}
    compile_for(capability, triton_cache._attend, constants, dtype, 4, 3)
