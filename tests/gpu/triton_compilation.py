"""The kernels in Triton compiled for GPUs that are not there.

Run by test_triton_attention.py.
"""

import pytest
import triton  # pyrefly: ignore
from triton.backends.compiler import GPUTarget  # pyrefly: ignore
from triton.compiler import ASTSource  # pyrefly: ignore

from bertkit.transformer.kernels import triton_attention

TILES = {"_attend": "_FORWARD", "_key_gradients": "_KEY_TILES", "_query_gradients": "_QUERY_TILES"}
BFLOAT16, FLOAT32, INT32 = (
    ("joined", "context", "grad_context", "grad_joined"), ("log_sums", "averages"), ("cu_seqlens", "dropout_key")
)  # fmt: skip
KINDS = {name: kind for names, kind in ((BFLOAT16, "*bf16"), (FLOAT32, "*fp32"), (INT32, "*i32")) for name in names}
KINDS |= {"num_tiles": "i32", "limit": "i32"}


@pytest.mark.parametrize("capability", [80, 86, 90, 100, 120])
@pytest.mark.parametrize("name", TILES)
def test_kernels_compile(name: str, capability: int) -> None:
    function, (num_queries, num_keys, num_warps, num_stages) = (
        getattr(triton_attention, one) for one in (name, TILES[name])
    )
    constants = {"num_heads": 12, "head_dim": 64, "num_queries": num_queries, "num_keys": num_keys, "drops": True}
    names = function.arg_names
    signature = {one: "constexpr" if one in constants else KINDS.get(one, "fp32") for one in names}
    source = ASTSource(function, signature, {(names.index(one),): value for one, value in constants.items()})
    options = {"num_warps": num_warps, "num_stages": num_stages}
    compiled = triton.compile(source, GPUTarget("cuda", capability, 32), options=options)
    assert compiled.metadata.shared <= 99 << 10  # the least that one of these GPUs has
