"""Attention between tokens, four of them at a time, for each head."""

from __future__ import annotations

import math
from typing import Final

from llvmlite import ir

from controller.learning.agent.inference.kernels import primitives
from controller.learning.agent.inference.kernels.routines import (
    FLOAT,
    FLOATS,
    INTS,
    LANES,
    WORD,
    Routine,
    Value,
)
from dataplane.native import Module

_TOGETHER: Final = 4
"""Tokens whose attention is computed together, so that sums do not wait for one another."""
_LEAST: Final = -87.0
"""Lower bound on the argument of exponentials: anything smaller is negligible next to 1."""


def write_attended(module: Module) -> None:
    """Write the means of values under the attention."""
    routine = Routine(module, primitives.attended)
    groups = routine.groups(routine["tokens"])
    fours = routine.at.udiv(routine.sum(routine["tokens"], _TOGETHER - 1), WORD(_TOGETHER))
    looked = [routine.place(routine["looked"], routine.times(groups, LANES * number)) for number in range(_TOGETHER)]
    with routine.loop(routine["heads"]) as head, routine.loop(fours) as four:
        first = routine.times(four, _TOGETHER)
        highest = _write_scores(routine, groups, looked, (head, first))
        shares = _write_weights(routine, groups, looked, highest)
        _write_means(routine, looked, shares, (head, first))
    routine.end()


def _write_scores(routine: Routine, groups: Value, looked: list[Value], origin: tuple[Value, Value]) -> list[Value]:
    """Write queries times keys, with minus infinity for absent tokens; return each query's highest score."""
    at = routine.at
    head, first = origin
    columns = routine.times(routine["vectors"], LANES)
    queries = [
        routine.place(
            routine["queries"],
            routine.sum(routine.times(routine.sum(first, number), routine["stride"]), routine.times(head, columns)),
        )
        for number in range(_TOGETHER)
    ]
    highest = [routine.cell(FLOATS, routine.all(-math.inf)) for _ in looked]
    lanes = ir.Constant(INTS, list(range(LANES)))
    with routine.loop(groups) as group:
        keys = routine.place(
            routine["keys"],
            routine.sum(routine.times(group, routine["keys_step"]), routine.times(head, routine["keys_head"])),
        )
        sums = [routine.cell(FLOATS, routine.all(0.0)) for _ in looked]
        with routine.loop(columns) as column:
            key = routine.load(routine.place(keys, routine.times(column, LANES)))
            for cell, query in zip(sums, queries, strict=True):
                spread = routine.spread(routine.load(routine.place(query, column), FLOAT))
                routine.keep(cell, routine.multiply_add(spread, key, routine.kept(cell)))
        left = at.trunc(at.sub(routine["tokens"], routine.times(group, LANES)), INTS.element)
        is_token = at.icmp_signed("<", lanes, routine.spread(left, INTS))
        for cell, most, row in zip(sums, highest, looked, strict=True):
            score = at.select(is_token, routine.kept(cell), routine.all(-math.inf))
            routine.store(score, routine.place(row, routine.times(group, LANES)))
            routine.keep(most, at.select(at.fcmp_unordered(">", score, routine.kept(most)), score, routine.kept(most)))
    most_of = f"llvm.vector.reduce.fmax.v{LANES}f32"
    return [routine.spread(routine.call(most_of, FLOAT, routine.kept(cell))) for cell in highest]


def _write_weights(routine: Routine, groups: Value, looked: list[Value], highest: list[Value]) -> list[Value]:
    """Write the exponentials of scores; return one over each row's sum."""
    at = routine.at
    sums = [routine.cell(FLOATS, routine.all(0.0)) for _ in looked]
    with routine.loop(groups) as group:
        for cell, row, most in zip(sums, looked, highest, strict=True):
            address = routine.place(row, routine.times(group, LANES))
            score = routine.load(address)
            weight = exponential(routine, at.fsub(score, most))
            weight = at.select(at.fcmp_ordered("==", score, routine.all(-math.inf)), routine.all(0.0), weight)
            routine.store(weight, address)
            routine.keep(cell, at.fadd(routine.kept(cell), weight))
    return [routine.spread(at.fdiv(FLOAT(1.0), routine.total(routine.kept(cell)))) for cell in sums]


def _write_means(routine: Routine, looked: list[Value], shares: list[Value], origin: tuple[Value, Value]) -> None:
    """Write values times weights, scaled so that these sum to 1."""
    at = routine.at
    head, first = origin
    columns = routine.times(routine["vectors"], LANES)
    with routine.loop(routine["vectors"]) as vector:
        values = routine.place(
            routine["values"], routine.sum(routine.times(head, routine["values_head"]), routine.times(vector, LANES))
        )
        sums = [routine.cell(FLOATS, routine.all(0.0)) for _ in looked]
        with routine.loop(routine["tokens"]) as token:
            value = routine.load(routine.place(values, routine.times(token, routine["values_stride"])))
            for cell, row in zip(sums, looked, strict=True):
                spread = routine.spread(routine.load(routine.place(row, token), FLOAT))
                routine.keep(cell, routine.multiply_add(spread, value, routine.kept(cell)))
        for number, (cell, share) in enumerate(zip(sums, shares, strict=True)):
            row = routine.times(routine.sum(first, number), routine["out_stride"])
            out = routine.sum(row, routine.times(head, columns), routine.times(vector, LANES))
            routine.store(at.fmul(routine.kept(cell), share), routine.place(routine["out"], out))


def exponential(routine: Routine, figures: Value) -> Value:
    """Return exp of figures that are at most 0: 2 to their whole part, times a polynomial of the rest.

    With r = x - k log 2, |r| <= log(2) / 2, Taylor's terms up to the seventh are exact to a float32.
    """
    at = routine.at
    least = routine.all(_LEAST)
    figures = at.select(at.fcmp_ordered("<", figures, least), least, figures)
    whole = routine.call(f"llvm.rint.v{LANES}f32", FLOATS, at.fmul(figures, routine.all(math.log2(math.e))))
    # log 2 in two parts: the first has so few bits that its products are exact.
    high = 355 / 512
    rest = routine.multiply_add(whole, routine.all(-high), figures)
    rest = routine.multiply_add(whole, routine.all(high - math.log(2)), rest)
    value = routine.all(1 / math.factorial(7))
    for power in range(6, -1, -1):
        value = routine.multiply_add(value, rest, routine.all(1 / math.factorial(power)))
    # The exponent of a float32 begins at bit 23.
    exponent = at.shl(at.fptosi(whole, INTS), ir.Constant(INTS, [23] * LANES))
    return at.bitcast(at.add(at.bitcast(value, INTS), exponent), FLOATS)
