"""Steps that several threads share inside compiled code, without a lock and without Python.

A step has numbered units. A thread claims the next unit, computes it and finishes it; when none is left it waits for
those that others have claimed. So a thread that comes late, or never, costs time and changes no result, as long as

- a unit reads and writes memory between `claim` and `finish` only, and no other unit of its step writes there;
- what is read outside of units is written once, in an earlier step.

Counters are an int64 array of zeros, two numbers for each step.
"""

import platform
from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import extending, types

from bertkit.compiled import compiled
from bertkit.executor import executor, num_threads
from bertkit.transformer.kernels.llvm_vectors import INT, llvm_function

intrinsic: Any = extending.intrinsic

Result = TypeVar("Result")

_MAX_THREADS = 4
"""Threads that share a step, whose units take some microseconds."""


def on_shared_threads(function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function whose steps several threads share, on this thread and others that are free."""
    num_helpers = min(num_threads(), _MAX_THREADS) - 1
    helpers = [executor().submit(function, *arguments) for _ in range(num_helpers)]
    result = function(*arguments)
    for helper in helpers:
        helper.cancel()
    return result


@compiled
def claim(counters, step):
    """The index of the next unit of a step; at least the number of its units if none is left."""
    return _add(counters, 2 * step, 1)


@compiled
def finish(counters, step):
    """Report a claimed unit as computed."""
    _add(counters, 2 * step + 1, 1)


@compiled
def wait(counters, step, num_units):
    """Wait until all units of a step are computed."""
    while _read(counters, 2 * step + 1) < num_units:
        pass


def _pointer(context: Any, builder: Any, signature: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, array).data, [index])


@intrinsic
def _add(typing_context, counters, index, number):
    """counters[index] += number as one operation; returns the number before."""

    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, *arguments[:2])
        return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")

    return types.int64(counters, types.intp, types.int64), generate


@intrinsic
def _read(typing_context, counters, index):
    """counters[index], and everything that was written before it."""

    def generate(context, builder, signature, arguments):
        if platform.machine() in ("x86_64", "AMD64"):
            builder.call(llvm_function(builder, "x86.sse2.pause", ir.VoidType(), []), [])
        else:
            builder.call(llvm_function(builder, "aarch64.hint", ir.VoidType(), [INT]), [INT(1)])  # yield
        return builder.load_atomic(_pointer(context, builder, signature, *arguments), "acquire", 8)

    return types.int64(counters, types.intp), generate
