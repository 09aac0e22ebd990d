"""Products of weights and rows of tokens: sums of up to 16 tokens stay in registers while weights stream past them.

Weights are stored as [vectors, steps, 16]: a step is one input, or two in bfloat16, for 16 adjacent outputs. So a
weight is read once for 16 tokens, in the order of memory, and the next ones are prefetched, also across the end of a
matrix into the one stored after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from llvmlite import ir

from controller.learning.agent.inference.kernels import primitives
from controller.learning.agent.inference.kernels.routines import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    PAIRS,
    WORD,
    Routine,
    Value,
)
from dataplane.native import Module

VECTORS: Final = 4
"""Vectors of outputs that weights are padded to."""
_TILES: Final = ((1, 4, 4), (5, 8, 2), (9, 12, 2), (13, 16, 1))
"""Tokens from which on a tile is used, and its numbers of tokens and of vectors of outputs."""
_AHEAD: Final = 4096
"""Bytes by which weights are prefetched."""
_STEP: Final = 4 * LANES

_Multiply = Callable[[Routine, Value, Value, Value], Value]
"""Returns a sum plus a step: a vector of weights times the figure (four bytes) of a token."""
_MultiplyOne = Callable[[Routine, Value, Value, Sequence[Value]], None]
"""Adds a step to two sums: a vector of weights times the row's figures of that step."""


def write_product(module: Module) -> None:
    """Write the product of weights and rows in float32."""

    def multiply(routine: Routine, weights: Value, figure: Value, before: Value) -> Value:
        spread = routine.spread(routine.load(figure, FLOAT))
        return routine.multiply_add(routine.load(weights), spread, before)

    _write_tiles(Routine(module, primitives.product), multiply)


def write_product_of_pairs(module: Module) -> None:
    """Write the product of weights and rows in bfloat16, by the instructions of AVX-512 for it."""

    def multiply(routine: Routine, weights: Value, figure: Value, before: Value) -> Value:
        spread = routine.at.bitcast(routine.spread(routine.load(figure, INT), INTS), PAIRS)
        loaded = routine.load(weights, PAIRS)
        return routine.call("llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, before, loaded, spread)

    _write_tiles(Routine(module, primitives.product_of_pairs), multiply)


def write_product_of_one(module: Module) -> None:
    """Write the product of weights and one row in float32."""

    def multiply(routine: Routine, weights: Value, step: Value, sums: Sequence[Value]) -> None:
        figure = routine.load(routine.place(routine["row"], step), FLOAT)
        total = routine.multiply_add(routine.load(weights), routine.spread(figure), routine.kept(sums[0]))
        routine.keep(sums[0], total)

    _write_one(Routine(module, primitives.product_of_one), multiply)


def write_product_of_one_halved(module: Module) -> None:
    """Write the product of weights in bfloat16 and one row in float32, on any processor: the weights are widened."""

    def multiply(routine: Routine, weights: Value, step: Value, sums: Sequence[Value]) -> None:
        at, pairs = routine.at, routine.load(weights, INTS)
        # A bfloat16 is the upper half of a float32.
        low = at.shl(pairs, ir.Constant(INTS, [16] * LANES))
        high = at.and_(pairs, ir.Constant(INTS, [0xFFFF_0000] * LANES))
        for index, (cell, half) in enumerate(zip(sums, (low, high), strict=True)):
            figure = routine.load(routine.place(routine["row"], routine.sum(step, step, index)), FLOAT)
            wide = at.bitcast(half, FLOATS)
            routine.keep(cell, routine.multiply_add(wide, routine.spread(figure), routine.kept(cell)))

    _write_one(Routine(module, primitives.product_of_one_halved), multiply)


def _write_one(routine: Routine, multiply: _MultiplyOne) -> None:
    """Write a product of one row, four vectors of outputs at a time, each with two sums."""
    with routine.loop(routine.at.lshr(routine["vectors"], WORD(2))) as block:
        first = routine.times(block, VECTORS)
        outputs = [routine.times(routine.sum(first, part), LANES) for part in range(VECTORS)]
        sums = [
            [routine.cell(FLOATS, routine.load(routine.place(routine[name], output))) for name in ("bias", "added")]
            for output in outputs
        ]
        streams = [routine.place(routine["weights"], routine.times(output, routine["steps"])) for output in outputs]
        with routine.loop(routine["steps"]) as step:
            for cells, stream in zip(sums, streams, strict=True):
                multiply(routine, routine.sum(stream, routine.times(step, _STEP)), step, cells)
        for (left, right), output in zip(sums, outputs, strict=True):
            total = routine.at.fadd(routine.kept(left), routine.kept(right))
            routine.store(total, routine.place(routine["out"], output))
    routine.end()


def _write_tiles(routine: Routine, multiply: _Multiply) -> None:
    """Write a product of any number of rows, in groups of 16; the last group may be smaller."""
    at, count = routine.at, routine["count"]
    with routine.loop(routine.groups(count)) as group:
        row = routine.times(group, LANES)
        left = at.sub(count, row)
        turned = routine.place(routine["turned"], routine.times(row, routine["steps"]))
        added = routine.place(routine["added"], routine.times(row, routine["added_stride"]))
        out = routine.place(routine["out"], routine.times(row, routine["stride"]))
        for number, (least, tokens, vectors) in enumerate(_TILES):
            is_it = at.icmp_unsigned(">=", left, WORD(least))
            if number + 1 < len(_TILES):
                is_it = at.and_(is_it, at.icmp_unsigned("<", left, WORD(_TILES[number + 1][0])))
            with routine.case(is_it):
                _write_tile(routine, multiply, (turned, added, out), tokens, vectors)
    routine.end()


def _write_tile(
    routine: Routine, multiply: _Multiply, places: tuple[Value, Value, Value], tokens: int, vectors: int
) -> None:
    """Write the sums of this many tokens, over all outputs."""
    turned, added, out = places
    steps = routine["steps"]
    with routine.loop(routine.at.udiv(routine["vectors"], WORD(vectors))) as block:
        first = routine.times(block, vectors)
        outputs = [routine.times(routine.sum(first, part), LANES) for part in range(vectors)]
        biases = [routine.load(routine.place(routine["bias"], output)) for output in outputs]
        sums = [
            [routine.cell(FLOATS, routine.at.fadd(bias, _figure(routine, added, "added_stride", token, output)))
             for output, bias in zip(outputs, biases, strict=True)]
            for token in range(tokens)
        ]  # fmt: skip
        streams = [routine.place(routine["weights"], routine.times(output, steps)) for output in outputs]
        with routine.loop(steps) as step:
            offset = routine.times(step, _STEP)
            figures = routine.sum(turned, offset)
            for stream in streams:
                routine.prefetch(routine.sum(stream, offset, _AHEAD))
            for token, cells in enumerate(sums):
                for cell, stream in zip(cells, streams, strict=True):
                    total = multiply(
                        routine, routine.sum(stream, offset), routine.place(figures, token), routine.kept(cell)
                    )
                    routine.keep(cell, total)
        for token, cells in enumerate(sums):
            for cell, output in zip(cells, outputs, strict=True):
                row = routine.times(routine["stride"], token)
                routine.store(routine.kept(cell), routine.place(out, routine.sum(row, output)))


def _figure(routine: Routine, rows: Value, stride: str, token: int, output: Value) -> Value:
    return routine.load(routine.place(rows, routine.sum(routine.times(routine[stride], token), output)))
