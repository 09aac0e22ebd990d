"""Division of integers wider than 64 bits, for which LLVM would call functions of a missing C library."""

from __future__ import annotations

from llvmlite import ir

from dataplane.switch.compiler.lowering.routine import I32, Emission, Routine, integer, u32


def divide(routine: Routine, dividend: ir.Value, divisor: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return quotient and remainder of unsigned integers of one width; the divisor is not 0."""
    builder, width = routine.builder, dividend.type.width
    if width <= 64:
        return builder.udiv(dividend, divisor), builder.urem(dividend, divisor)
    function = routine.emission.helper(f"division {width}", lambda: _build(routine.emission, width))
    both = builder.call(function, [dividend, divisor])
    return builder.extract_value(both, 0), builder.extract_value(both, 1)


def _build(emission: Emission, width: int) -> ir.Function:
    """Build long division, bit by bit from the highest one."""
    kind = integer(width)
    result = ir.LiteralStructType([kind, kind])
    function = emission.declare(f"p4_divide_{width}", result, [kind, kind], internal=True)
    function.attributes.add("noinline")
    dividend, divisor = function.args
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "loop", "done"))
    ir.IRBuilder(entry).branch(loop)
    builder = ir.IRBuilder(loop)
    one, top = ir.Constant(kind, 1), ir.Constant(kind, width - 1)
    left, quotient, rest, count = builder.phi(kind), builder.phi(kind), builder.phi(kind), builder.phi(I32)
    carried = builder.icmp_signed("<", rest, ir.Constant(kind, 0))
    shifted = builder.or_(builder.shl(rest, one), builder.lshr(left, top))
    fits = builder.or_(carried, builder.icmp_unsigned(">=", shifted, divisor))
    next_rest = builder.select(fits, builder.sub(shifted, divisor), shifted)
    next_quotient = builder.or_(builder.shl(quotient, one), builder.zext(fits, kind))
    next_count = builder.add(count, u32(1))
    steps = (
        (left, dividend, builder.shl(left, one)),
        (quotient, ir.Constant(kind, 0), next_quotient),
        (rest, ir.Constant(kind, 0), next_rest),
        (count, u32(0), next_count),
    )
    for joined, first, following in steps:
        joined.add_incoming(first, entry)
        joined.add_incoming(following, loop)
    builder.cbranch(builder.icmp_unsigned("<", next_count, u32(width)), loop, done)
    builder.position_at_end(done)
    pair = builder.insert_value(ir.Constant(result, ir.Undefined), next_quotient, 0)
    builder.ret(builder.insert_value(pair, next_rest, 1))
    return function
