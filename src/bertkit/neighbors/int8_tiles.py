"""Products of int8 queries and blocks of sixteen int8 rows, with bounds of the true products, generated as LLVM code.

A block holds sixteen rows interleaved: for every four dimensions sixteen times four bytes, so that one instruction
(vpdpbusd of AVX-512 VNNI) multiplies four bytes of sixteen rows with four bytes of a query and adds the products to
sixteen sums. Rows are stored as value + 128, since one operand of the instruction is unsigned; the resulting
constant is subtracted from the sums of a query at the end. Other processors compute the same sums from 16-bit products.
"""

from itertools import product
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core.registry import cpu_target

from bertkit.neighbors.block_sizes import LANES

intrinsic: Any = extending.intrinsic
INT, LONG, FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
INTS, FLOATS = ir.VectorType(INT, LANES), ir.VectorType(FLOAT, LANES)
SHORTS, PRODUCTS = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(INT, 2 * LANES)
BYTES = ir.VectorType(ir.IntType(8), 4 * LANES)


def _has_byte_products() -> bool:
    context: Any = cpu_target.target_context
    return "+avx512vnni" in context.codegen().magic_tuple()[2].split(",")


BYTE_PRODUCTS = _has_byte_products()
"""The processor has an instruction that adds four byte products at once."""

WORDS = 1 if BYTE_PRODUCTS else 2
"""32-bit words of a query for every four dimensions: four bytes, or twice two 16-bit numbers."""

TILE_QUERIES = 4
"""Number of queries processed together per read of a block."""

TILE_BLOCKS = 2 if BYTE_PRODUCTS else 1
"""Number of blocks processed together with a tile of queries. Two share the loads of the queries: a processor that adds
two products and loads two operands per cycle is otherwise limited by loads."""


def _in_all_lanes(builder: Any, value: Any) -> Any:
    vector = ir.VectorType(value.type, LANES)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(INTS, None))


def _prefetch(builder: Any, pointer: Any) -> None:
    """Ask for the cache line at an address, which need not be valid."""
    name = "llvm.prefetch.p0i8"
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), INT, INT, INT])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [pointer, INT(0), INT(3), INT(1)])  # to read, into all caches, data


def _add_products(builder: Any, sums: Any, rows: Any, words: list[Any]) -> Any:
    """sums + the products of four bytes of sixteen rows (16 x 32 bits) and of a query, its words in all lanes."""
    if BYTE_PRODUCTS:
        name = "llvm.x86.avx512.vpdpbusd.512"
        kind = ir.FunctionType(INTS, [INTS, BYTES, BYTES])
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, [sums, builder.bitcast(rows, BYTES), builder.bitcast(words[0], BYTES)])
    pairs = builder.bitcast(rows, SHORTS)
    even = builder.and_(pairs, ir.Constant(SHORTS, [255] * 2 * LANES))
    odd = builder.lshr(pairs, ir.Constant(SHORTS, [8] * 2 * LANES))
    for part, word in ((even, words[0]), (odd, words[1])):
        products = builder.mul(builder.sext(part, PRODUCTS), builder.sext(builder.bitcast(word, SHORTS), PRODUCTS))
        first, second = (
            builder.shuffle_vector(products, products, ir.Constant(INTS, list(range(start, 2 * LANES, 2))))
            for start in (0, 1)
        )
        sums = builder.add(sums, builder.add(first, second))
    return sums


def _tile(num_queries: int, unrolled: int, num_blocks: int = 1) -> Any:
    """Generate a function of consecutive blocks and some queries, with separate sums for each of ``unrolled`` groups of
    dimensions."""

    @intrinsic
    def bounds(typing_context, blocks, masks, block, queries, query, numbers, offsets, hits, lower, upper):
        """Bounds of the products of the rows of some blocks and some queries.

        Args:
            blocks: (num_all_blocks, block_bytes) uint8: products of bytes, then 3 x 16 float32.
            masks: (num_all_blocks,) uint16, a bit for every row to compare.
            block: index of the first.
            queries: int32, for every tile of queries, group of dimensions and word one number for each query.
            query: the first query, a multiple of the number of queries.
            numbers: (num_all_queries, 4) float32: scale, length of the quantized query, of its error, threshold.
            offsets: (num_all_queries,) int32, constant to subtract from the sums.
            hits: for each block and query the bits of rows whose upper bound reaches the threshold, int32.
            lower, upper: for each block and query sixteen float32.

        Returns:
            All hits, combined by or.
        """

        def generate(context, builder, signature, arguments):
            blocks_array, _, block, _, query, *_ = arguments
            kinds = signature.args

            def data(index: int, element: ir.Type) -> Any:
                pointer = context.make_array(kinds[index])(context, builder, arguments[index]).data
                return builder.bitcast(pointer, element.as_pointer())

            def load(pointer: Any, index: Any, kind: ir.Type, align: int) -> Any:
                return builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()), align=align)

            shape = context.make_array(kinds[0])(context, builder, blocks_array).shape
            block_bytes = builder.extract_value(shape, 1)
            groups = builder.udiv(builder.sub(block_bytes, LONG(3 * 64)), LONG(64))
            base, query_base = data(0, ir.IntType(8)), data(3, INT)
            starts = [builder.mul(builder.add(block, LONG(b)), block_bytes) for b in range(num_blocks)]
            words_start = builder.mul(builder.mul(query, groups), LONG(WORDS))  # query is a multiple of num_queries
            # The next blocks arrive from memory while these are computed: each tile asks for its share of them.
            tile = builder.udiv(query, LONG(num_queries))
            offsets_array = context.make_array(kinds[6])(context, builder, arguments[6])
            num_tiles = builder.udiv(builder.extract_value(offsets_array.shape, 0), LONG(num_queries))
            share = builder.udiv(LONG(64), num_tiles)  # bytes for each group of dimensions
            share = builder.select(builder.icmp_unsigned(">", share, LONG(1)), share, LONG(1))
            ahead = builder.add(
                builder.mul(block_bytes, LONG(num_blocks)), builder.mul(builder.mul(tile, groups), share)
            )

            before, loop = builder.block, builder.append_basic_block("groups")
            after = builder.append_basic_block("sums")
            builder.branch(loop)
            builder.position_at_end(loop)
            group = builder.phi(LONG)
            group.add_incoming(LONG(0), before)
            one_of = list(product(range(unrolled), range(num_blocks), range(num_queries)))
            phis = {one: builder.phi(INTS) for one in one_of}
            sums = dict(phis)
            for step in range(unrolled):
                here = builder.add(group, LONG(step))
                rows = [load(base, builder.add(start, builder.mul(here, LONG(64))), INTS, 4) for start in starts]
                if num_queries > 1:
                    for start in starts:
                        there = builder.add(builder.add(start, ahead), builder.mul(here, share))
                        _prefetch(builder, builder.gep(base, [there]))
                first = builder.add(words_start, builder.mul(here, LONG(WORDS * num_queries)))
                for q in range(num_queries):
                    words = [
                        _in_all_lanes(builder, load(query_base, builder.add(first, LONG(w * num_queries + q)), INT, 4))
                        for w in range(WORDS)
                    ]
                    for b in range(num_blocks):
                        sums[step, b, q] = _add_products(builder, sums[step, b, q], rows[b], words)
            following = builder.add(group, LONG(unrolled))
            group.add_incoming(following, builder.block)
            for one, phi in phis.items():
                phi.add_incoming(ir.Constant(INTS, None), before)
                phi.add_incoming(sums[one], builder.block)
            builder.cbranch(builder.icmp_signed("<", following, groups), loop, after)
            builder.position_at_end(after)

            masks_base, numbers_base, offsets_base = data(1, ir.IntType(16)), data(5, FLOAT), data(6, INT)
            hits_base, lower_base, upper_base = data(7, INT), data(8, FLOAT), data(9, FLOAT)
            any_hit = INT(0)
            for b, start in enumerate(starts):
                bound_start = builder.add(start, builder.mul(groups, LONG(64)))
                factors, errors, norms = (
                    load(base, builder.add(bound_start, LONG(64 * part)), FLOATS, 4) for part in range(3)
                )
                counted = builder.zext(load(masks_base, builder.add(block, LONG(b)), ir.IntType(16), 2), INT)
                for q in range(num_queries):
                    number = builder.add(query, LONG(q))
                    row = builder.mul(number, LONG(4))
                    scale, length, error, threshold = (
                        _in_all_lanes(builder, load(numbers_base, builder.add(row, LONG(part)), FLOAT, 4))
                        for part in range(4)
                    )
                    offset = _in_all_lanes(builder, load(offsets_base, number, INT, 4))
                    total = sums[0, b, q]
                    for step in range(1, unrolled):
                        total = builder.add(total, sums[step, b, q])
                    estimate = builder.fmul(
                        builder.sitofp(builder.sub(total, offset), FLOATS), builder.fmul(factors, scale)
                    )
                    width = builder.fadd(builder.fmul(errors, length), builder.fmul(norms, error))
                    low, high = builder.fsub(estimate, width), builder.fadd(estimate, width)
                    reaching = builder.bitcast(builder.fcmp_ordered(">=", high, threshold), ir.IntType(16))
                    hit = builder.and_(builder.zext(reaching, INT), counted)
                    any_hit = builder.or_(any_hit, hit)
                    one = b * num_queries + q
                    builder.store(hit, builder.gep(hits_base, [LONG(one)]), align=4)
                    for vector, target in ((low, lower_base), (high, upper_base)):
                        pointer = builder.gep(target, [LONG(LANES * one)])
                        builder.store(vector, builder.bitcast(pointer, FLOATS.as_pointer()), align=4)
            return any_hit

        signature = types.int32(blocks, masks, types.intp, queries, types.intp, numbers, offsets, hits, lower, upper)
        return signature, generate

    return bounds


bounds_of_one = _tile(1, 4)
"""One block and query."""

bounds_of_tile = _tile(TILE_QUERIES, 2)
"""One block and TILE_QUERIES queries."""

bounds_of_blocks = _tile(TILE_QUERIES, 2, TILE_BLOCKS)
"""TILE_BLOCKS blocks and TILE_QUERIES queries."""
