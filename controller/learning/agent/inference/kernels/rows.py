"""Row operations between products: transpose, convert to half precision, rectify, normalise, weight."""

from __future__ import annotations

from llvmlite import ir

from controller.learning.agent.inference.base import EPSILON
from controller.learning.agent.inference.kernels import primitives
from controller.learning.agent.inference.kernels.routines import (
    FLOAT,
    FLOATS,
    HALVES,
    INTS,
    LANES,
    WORD,
    Routine,
    Value,
)
from dataplane.native import Module


def write_turned(module: Module) -> None:
    """Write the transposition of rows."""
    _write_turning(Routine(module, primitives.turned), 1)


def write_pairs_turned(module: Module) -> None:
    """Write the transposition of rows as pairs in bfloat16, by the processor's conversion."""
    _write_turning(Routine(module, primitives.pairs_turned), 2)


def _write_turning(routine: Routine, wide: int) -> None:
    """Write the transposition of squares of 16 rows and 16 figures, each of so many columns."""
    at, stride, columns = routine.at, routine["stride"], routine["columns"]
    is_rectified = at.icmp_unsigned("!=", routine["rectified"], WORD(0))
    squares = at.udiv(columns, WORD(wide * LANES))
    with routine.loop(routine.groups(routine["count"])) as group:
        rows = routine.place(routine["rows"], routine.times(group, LANES, stride))
        turned = routine.place(routine["turned"], routine.times(group, squares, LANES * LANES))
        with routine.loop(squares) as square:
            begin = routine.place(rows, routine.times(square, wide * LANES))
            gathered = []
            for row in range(LANES):
                address = routine.place(begin, routine.times(stride, row))
                parts = [routine.load(routine.place(address, part * LANES)) for part in range(wide)]
                parts = [at.select(is_rectified, routine.at_least_zero(part), part) for part in parts]
                gathered.append(parts[0] if wide == 1 else _paired(routine, *parts))
            target = routine.place(turned, routine.times(square, LANES * LANES))
            for number, column in enumerate(routine.turned(gathered)):
                routine.store(column, routine.place(target, number * LANES))
    routine.end()


def _paired(routine: Routine, first: Value, second: Value) -> Value:
    """Return 32 columns as 16 pairs in bfloat16."""
    at = routine.at
    both = ir.VectorType(ir.IntType(32), 2 * LANES)
    joined = at.shuffle_vector(
        at.fptrunc(first, HALVES), at.fptrunc(second, HALVES), ir.Constant(both, list(range(2 * LANES)))
    )
    return at.bitcast(joined, INTS)


def write_rectified(module: Module) -> None:
    """Write the rectification of a row in place."""
    routine = Routine(module, primitives.rectified)
    with routine.loop(routine["vectors"]) as vector:
        address = routine.place(routine["row"], routine.times(vector, LANES))
        routine.store(routine.at_least_zero(routine.load(address)), address)
    routine.end()


def write_normalised(module: Module) -> None:
    """Write the normalisation of rows: the mean first, then the variance about it."""
    routine = Routine(module, primitives.normalised)
    at, vectors = routine.at, routine["vectors"]
    hidden = at.uitofp(routine["hidden"], FLOAT)
    with routine.loop(routine["count"]) as number:
        offset = routine.times(number, routine["stride"])
        row, out = (routine.place(routine[name], offset) for name in ("rows", "out"))
        sums = _four(routine)
        with routine.loop(at.lshr(vectors, WORD(2))) as block:
            for part, cell in enumerate(sums):
                figures = routine.load(routine.place(row, _figure(routine, block, part)))
                routine.keep(cell, at.fadd(routine.kept(cell), figures))
        mean = routine.spread(at.fdiv(_total(routine, sums), hidden))
        squares = _four(routine)
        with routine.loop(at.lshr(vectors, WORD(2))) as block:
            for part, cell in enumerate(squares):
                figure = _figure(routine, block, part)
                centred = at.fsub(routine.load(routine.place(row, figure)), mean)
                # Centring turns padding into minus the mean, which must not count in the variance.
                centred = at.fmul(centred, routine.load(routine.place(routine["mask"], figure)))
                routine.store(centred, routine.place(out, figure))
                routine.keep(cell, routine.multiply_add(centred, centred, routine.kept(cell)))
        variance = at.fadd(at.fdiv(_total(routine, squares), hidden), FLOAT(float(EPSILON)))
        scale = routine.spread(at.fdiv(FLOAT(1.0), routine.call("llvm.sqrt.f32", FLOAT, variance)))
        with routine.loop(vectors) as vector:
            figure = routine.times(vector, LANES)
            gain, bias = (routine.load(routine.place(routine[name], figure)) for name in ("gain", "bias"))
            address = routine.place(out, figure)
            routine.store(routine.multiply_add(at.fmul(routine.load(address), scale), gain, bias), address)
    routine.end()


def write_weighed(module: Module) -> None:
    """Write the products of every row with a few rows of weights."""
    routine = Routine(module, primitives.weighed)
    at, vectors, outputs = routine.at, routine["vectors"], routine["outputs"]
    with routine.loop(routine["count"]) as number:
        row = routine.place(routine["rows"], routine.times(number, routine["stride"]))
        with routine.loop(outputs) as output:
            weights = routine.place(routine["weights"], routine.times(output, vectors, LANES))
            sums = _four(routine)
            with routine.loop(at.lshr(vectors, WORD(2))) as block:
                for part, cell in enumerate(sums):
                    figure = _figure(routine, block, part)
                    left, other = (routine.load(routine.place(matrix, figure)) for matrix in (row, weights))
                    routine.keep(cell, routine.multiply_add(left, other, routine.kept(cell)))
            bias = routine.load(routine.place(routine["bias"], output), FLOAT)
            address = routine.place(routine["out"], routine.sum(routine.times(number, outputs), output))
            routine.store(at.fadd(_total(routine, sums), bias), address)
    routine.end()


def _four(routine: Routine) -> list[Value]:
    """Return cells of four sums, so that each addition does not wait for the one before it."""
    return [routine.cell(FLOATS, routine.all(0.0)) for _ in range(4)]


def _total(routine: Routine, cells: list[Value]) -> Value:
    first, *others = (routine.kept(cell) for cell in cells)
    for other in others:
        first = routine.at.fadd(first, other)
    return routine.total(first)


def _figure(routine: Routine, block: Value, part: int) -> Value:
    """Return the start of a vector in a block of four."""
    return routine.times(routine.sum(routine.times(block, 4), part), LANES)
