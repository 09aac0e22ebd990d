"""Emits the parser: its states as basic blocks of one function.

No byte is read before the frame is known to have it. An error ends parsing, never the packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from llvmlite import ir

from dataplane.program.model import (
    Advance,
    Extract,
    KeyPart,
    ParserOp,
    ParserSet,
    ParserState,
    Program,
    Transition,
    ValueSetTransition,
    Verify,
)
from dataplane.program.operations import Assign, HeaderRef, Lookahead, RegisterRead, RegisterWrite
from dataplane.switch.abi import Reason
from dataplane.switch.compiler.analysis.ranges import MAX_BITS, machine_bits
from dataplane.switch.compiler.blocks.primitives import emit_primitive
from dataplane.switch.compiler.lowering.copies import next_pointer
from dataplane.switch.compiler.lowering.expressions import Expressions
from dataplane.switch.compiler.lowering.fields import Header, header_of, load_frame_bits, resize
from dataplane.switch.compiler.lowering.routine import I32, I64, POINTER, Emission, Routine, integer, u32, u64
from dataplane.switch.compiler.lowering.varbits import take_apart
from dataplane.switch.tables.native import lookup_mask

MAX_STATES = 4096
"""A packet that passes this many states ends parsing with ParserTimeout."""


def emit_parser(emission: Emission, function: ir.Function) -> None:
    """Emit the parser of a program."""
    numbers = {name: number for number, name in enumerate(emission.program.registers)}
    operations = [item for state in emission.program.parser.states.values() for item in state.operations]
    touched = {item.register for item in operations if isinstance(item, RegisterRead | RegisterWrite)}
    registers = [numbers[name] for name in touched]
    routine = Routine(emission, function, emission.program.parser.name, registers=registers)
    _Parser(routine).emit()
    routine.finish()


def reachable_states(program: Program) -> dict[str, ParserState]:
    """Return the states that a packet can reach."""
    states: dict[str, ParserState] = {}
    waiting = [program.parser.initial]
    while waiting:
        name = waiting.pop()
        if name is not None and name not in states:
            states[name] = program.parser.states[name]
            waiting += _next_states(states[name])
    return states


def _next_states(state: ParserState) -> list[str | None]:
    return [state.default, *(case.next_state for case in state.transitions)]


def can_time_out(states: dict[str, ParserState]) -> bool:
    """Return whether a packet can pass MAX_STATES states: the graph has a cycle, or is that long."""
    leaving = {name: {following for following in _next_states(state) if following} for name, state in states.items()}
    remaining = set(leaving)
    while True:
        last = {name for name in remaining if not leaving[name] & remaining}
        if not last:
            return bool(remaining) or len(states) >= MAX_STATES
        remaining -= last


class _Parser:
    """The function of a parser; `cursor` is in memory, which LLVM promotes to registers."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.expressions = Expressions(routine)
        self.errors = routine.program.errors
        self.states = reachable_states(routine.program)
        self.data = routine.packet_field("data")
        self.length = routine.builder.zext(routine.packet_field("length"), I64)
        self.cursor, self.error = routine.local(I64), routine.local(I32)
        self.visited = routine.local(I32) if can_time_out(self.states) else None
        self.done = routine.block()
        self.blocks: dict[str | None, ir.Block] = {name: routine.block() for name in self.states}
        self.blocks[None] = routine.block()
        self._error_blocks: dict[str, ir.Block] = {}
        routine.faults[Reason.STACK_OUT_OF_BOUNDS] = self._error_block("StackOutOfBounds")

    def emit(self) -> None:
        builder = self.routine.builder
        builder.store(u64(0), self.cursor)
        builder.store(u32(self.errors["NoError"]), self.error)
        if self.visited is not None:
            builder.store(u32(0), self.visited)
        builder.branch(self.blocks[self.routine.program.parser.initial])
        for name, state in self.states.items():
            self._enter(name)
            self.routine.construct = f"parser state {name}"
            for operation in state.operations:
                self._operation(operation)
            self._select(state)
        self._enter(None)
        builder.branch(self.done)
        builder.position_at_end(self.done)
        self.routine.set_packet_field("parsed", builder.trunc(builder.load(self.cursor, typ=I64), I32))
        self.routine.set_packet_field("parser_error", builder.load(self.error, typ=I32))

    def _enter(self, name: str | None) -> None:
        builder = self.routine.builder
        builder.position_at_end(self.blocks[name])
        if self.visited is not None:
            visited = builder.load(self.visited, typ=I32)
            fresh = builder.icmp_unsigned("<", visited, u32(MAX_STATES))
            self.routine.guard_to(fresh, self._error_block("ParserTimeout"))
            builder.store(builder.add(visited, u32(1)), self.visited)

    def _error_block(self, name: str) -> ir.Block:
        """Return the block that ends parsing with an error."""
        block = self._error_blocks.get(name)
        if block is None:
            self._error_blocks[name] = block = self.routine.block()
            with self.routine.builder.goto_block(block):
                self.routine.builder.store(u32(self.errors[name]), self.error)
                self.routine.builder.branch(self.done)
        return block

    def _require(self, holds: ir.Value, error: str) -> None:
        self.routine.guard_to(holds, self._error_block(error))

    def _load_cursor(self) -> ir.Value:
        return self.routine.builder.load(self.cursor, typ=I64)

    # ---- operations

    def _operation(self, operation: ParserOp) -> None:
        match operation:
            case Extract():
                self._extract(operation)
            case ParserSet(target, Lookahead() as ahead):
                self.expressions.store_value(target, self._peek(ahead), ahead.width_bits)
            case ParserSet(target, value):
                assert not isinstance(value, Lookahead)
                emit_primitive(self.routine, self.expressions, Assign(target, value))
            case Verify():
                self._verify(operation)
            case Advance():
                self._advance(operation)
            case _:
                emit_primitive(self.routine, self.expressions, operation)

    def _extract(self, operation: Extract) -> None:
        routine, builder = self.routine, self.routine.builder
        if isinstance(operation.target, HeaderRef):
            self._extract_header(header_of(routine, operation.target.name), operation)
            return
        stack, member = operation.target.name, operation.member
        row = routine.layout.row(stack, member)
        following = self.expressions.following(stack)
        self._require(builder.icmp_unsigned("<", following, u32(len(row))), "StackOutOfBounds")
        index = builder.zext(following, I64)
        self._extract_header(Header(routine, row[0], index, routine.layout.strides(stack, member)), operation)
        routine.store(builder.add(following, u32(1)), next_pointer(routine, stack), "region", 4)

    def _extract_header(self, header: Header, operation: Extract) -> None:
        routine, builder = self.routine, self.routine.builder
        if operation.varbit_bits is not None:
            self._extract_variable(header, operation)
            return
        cursor = self._load_cursor()
        end = builder.add(cursor, u64(header.location.size))
        self._require(builder.icmp_unsigned("<=", end, self.length), "PacketTooShort")
        routine.copy(header.data(), routine.offset(self.data, cursor), header.location.size, ("region", "frame"))
        header.make_valid()
        builder.store(end, self.cursor)

    def _extract_variable(self, header: Header, operation: Extract) -> None:
        assert operation.varbit_bits is not None
        routine, builder, location = self.routine, self.routine.builder, header.location
        bits, interval = self.expressions.exact(operation.varbit_bits)
        nbytes = self._whole_bytes(bits, interval.signed)
        cursor = self._load_cursor()
        fixed_end = builder.add(cursor, u64(location.size))
        self._require(builder.icmp_unsigned("<=", fixed_end, self.length), "PacketTooShort")
        left = resize(routine, builder.sub(self.length, fixed_end), nbytes.type.width)
        self._require(builder.icmp_unsigned("<=", nbytes, left), "PacketTooShort")
        most = ir.Constant(nbytes.type, location.varbit_bytes)
        self._require(builder.icmp_unsigned("<=", nbytes, most), "HeaderTooShort")
        count = resize(routine, nbytes, 64)
        self._take_apart(header, routine.offset(self.data, cursor), count)
        header.set_varbit_bits(builder.trunc(builder.shl(count, u64(3)), I32))
        header.make_valid()
        builder.store(builder.add(fixed_end, count), self.cursor)

    def _whole_bytes(self, bits: ir.Value, signed: bool) -> ir.Value:
        """Convert bits to bytes, of at least 64 bits; an error if they are not whole bytes or negative."""
        builder = self.routine.builder
        wide = bits
        if bits.type.width < 64:
            wide = (builder.sext if signed else builder.zext)(bits, I64)
        rest = builder.and_(wide, ir.Constant(wide.type, 7))
        self._require(builder.icmp_unsigned("==", rest, ir.Constant(wide.type, 0)), "ParserInvalidArgument")
        if signed:
            self._require(builder.icmp_signed(">=", wide, ir.Constant(wide.type, 0)), "PacketTooShort")
        return builder.lshr(wide, ir.Constant(wide.type, 3))

    def _take_apart(self, header: Header, source: ir.Value, count: ir.Value) -> None:
        """Copy a header with a varbit of `count` bytes from the frame."""
        routine, location = self.routine, header.location
        before = bits_before_varbit(header)
        if before % 8:
            arguments = [header.data(), header.varbit(), source, u64(before), count, u64(location.size)]
            routine.builder.call(routine.module.function(take_apart), arguments)
            return
        kinds = ("region", "frame")
        routine.copy(header.data(), source, before // 8, kinds)
        varbit = routine.offset(source, before // 8)
        routine.copy(header.varbit(), varbit, count, kinds)
        routine.copy(header.data(before // 8), routine.offset(varbit, count), location.size - before // 8, kinds)

    def _peek(self, ahead: Lookahead) -> ir.Value:
        if ahead.width_bits > MAX_BITS:
            raise self.routine.refuse(f"a lookahead of {ahead.width_bits} bits")
        builder, cursor = self.routine.builder, self._load_cursor()
        last = u64((ahead.offset_bits + ahead.width_bits + 7) // 8)
        self._require(builder.icmp_unsigned("<=", builder.add(cursor, last), self.length), "PacketTooShort")
        return load_frame_bits(
            self.routine, self.routine.offset(self.data, cursor), ahead.offset_bits, ahead.width_bits
        )

    def _verify(self, operation: Verify) -> None:
        routine, builder = self.routine, self.routine.builder
        holds = self.expressions.truth(operation.condition)
        following, failed = routine.block(), routine.block()
        builder.cbranch(holds, following, failed).set_weights([1 << 20, 1])
        builder.position_at_end(failed)
        code = self.expressions.low(operation.error, 32)
        builder.store(code, self.error)
        builder.branch(self.done)
        builder.position_at_end(following)

    def _advance(self, operation: Advance) -> None:
        builder = self.routine.builder
        bits, interval = self.expressions.exact(operation.bits)
        nbytes = self._whole_bytes(bits, interval.signed)
        cursor = self._load_cursor()
        left = resize(self.routine, builder.sub(self.length, cursor), nbytes.type.width)
        self._require(builder.icmp_unsigned("<=", nbytes, left), "PacketTooShort")
        builder.store(builder.add(cursor, resize(self.routine, nbytes, 64)), self.cursor)

    # ---- select

    def _select(self, state: ParserState) -> None:
        """Branch to the state of the first case that matches."""
        builder = self.routine.builder
        if not state.transitions:
            builder.branch(self.blocks[state.default])
            return
        parts = [self._key_part(part) for part in state.key]
        key = self._joined(state.key, parts)
        for exact, cases in groupby(state.transitions, _is_exact):
            if exact:
                self._switch(key, [case for case in cases if isinstance(case, Transition)])
                continue
            for case in cases:
                following = self.routine.block()
                builder.cbranch(self._matches(case, key, state.key, parts), self.blocks[case.next_state], following)
                builder.position_at_end(following)
        builder.branch(self.blocks[state.default])

    def _switch(self, key: ir.Value, cases: Sequence[Transition]) -> None:
        following = self.routine.block()
        switch = self.routine.builder.switch(key, following)
        seen: set[int] = set()
        for case in cases:
            if case.value not in seen:
                switch.add_case(ir.Constant(key.type, case.value), self.blocks[case.next_state])
            seen.add(case.value)
        self.routine.builder.position_at_end(following)

    def _matches(
        self, case: Transition | ValueSetTransition, key: ir.Value, parts: Sequence[KeyPart], values: Sequence[ir.Value]
    ) -> ir.Value:
        builder = self.routine.builder
        if isinstance(case, ValueSetTransition):
            return self._is_member(case.value_set, parts, values)
        assert case.mask is not None
        masked = builder.and_(key, ir.Constant(key.type, case.mask))
        return builder.icmp_unsigned("==", masked, ir.Constant(key.type, case.value))

    def _is_member(self, name: str, parts: Sequence[KeyPart], values: Sequence[ir.Value]) -> ir.Value:
        routine, builder = self.routine, self.routine.builder
        counts = [(part.width_bits + 63) // 64 for part in parts]
        words = routine.local(I64, sum(counts))
        index = 0
        for value, count in zip(values, counts, strict=True):
            target = builder.gep(words, [u64(index)], source_etype=I64)
            routine.store(resize(routine, value, 64 * count), target, "state", 8)
            index += count
        table = routine.array_item("value_sets", list(routine.program.value_sets).index(name))
        hit = builder.call(routine.module.function(lookup_mask), [table, words])
        return builder.icmp_unsigned("!=", hit, ir.Constant(POINTER, None))

    def _key_part(self, part: KeyPart) -> ir.Value:
        """Return a part of a key, truncated to its width, as the machine integer of that width."""
        if isinstance(part.source, Lookahead):
            return self._peek(part.source)
        return self.expressions.modulo(part.source, part.width_bits)

    def _joined(self, parts: Sequence[KeyPart], values: Sequence[ir.Value]) -> ir.Value:
        """Return a key as one integer, each part padded to whole bytes."""
        padded = [(part.width_bits + 7) // 8 * 8 for part in parts]
        bits = machine_bits(sum(padded))
        if bits > MAX_BITS:
            raise self.routine.refuse(f"a select over {sum(padded)} bits")
        key: ir.Value = ir.Constant(integer(bits), 0)
        below = sum(padded)
        for value, width in zip(values, padded, strict=True):
            below -= width
            wide = resize(self.routine, value, bits)
            shifted = self.routine.builder.shl(wide, ir.Constant(wide.type, below)) if below else wide
            key = self.routine.builder.or_(key, shifted)
        return key


def _is_exact(case: Transition | ValueSetTransition) -> bool:
    return isinstance(case, Transition) and case.mask is None


def bits_before_varbit(header: Header) -> int:
    """Return how many bits of a header precede its varbit."""
    varbit = header.location.header.type.varbit
    assert varbit is not None
    return header.location.fields[varbit.name].offset_bits
