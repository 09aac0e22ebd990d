"""Binds the parser: bytes to the packet's fields; an error ends parsing, never the packet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dataplane.program.model import (
    Advance,
    Extract,
    FieldSpec,
    KeyPart,
    ParserOp,
    ParserSet,
    ParserState,
    Program,
    Transition,
    ValueSetTransition,
    Verify,
)
from dataplane.program.operations import HeaderRef, Lookahead
from dataplane.switch.interpreter.expressions import Evaluate, bind, bind_store, sign_bit
from dataplane.switch.interpreter.layout import Fields, HeaderSlots, Layout, StackFault
from dataplane.switch.interpreter.primitives import Binder
from dataplane.switch.interpreter.state import Members
from dataplane.switch.interpreter.tracer import Operation, Select

Parse: TypeAlias = Callable[[Fields, bytes], tuple[int, int]]
"""(fields, frame) -> (bytes parsed, error code)."""

MAX_STATES = 4096
"""A packet that passes this many states ends parsing with ParserTimeout."""

_END = -1


class ParserError(Exception):
    """Parsing of this packet ends with an error code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


def bind_parser(program: Program, layout: Layout, binder: Binder, value_sets: Mapping[str, Members]) -> Parse:
    """Return a closure that parses a frame."""
    numbers = {name: number for number, name in enumerate(program.parser.states)}
    builder = _StateBinder(program, layout, binder, value_sets, numbers)
    states = [builder.state(state) for state in program.parser.states.values()]
    initial = _END if program.parser.initial is None else numbers[program.parser.initial]
    no_error, timeout = program.errors["NoError"], program.errors["ParserTimeout"]
    out_of_bounds = program.errors["StackOutOfBounds"]

    def parse(fields: Fields, data: bytes) -> tuple[int, int]:
        cursor, number = 0, initial
        try:
            for _ in range(MAX_STATES):
                if number == _END:
                    return cursor, no_error
                operations, select = states[number]
                for operation in operations:
                    cursor = operation(fields, data, cursor)
                number = select(fields, data, cursor)
        except ParserError as error:
            return cursor, error.code
        except StackFault:
            return cursor, out_of_bounds
        return cursor, timeout

    return parse


class _StateBinder:
    """Binds parse states."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        binder: Binder,
        value_sets: Mapping[str, Members],
        numbers: dict[str, int],
    ) -> None:
        self.layout, self.binder, self.value_sets, self.numbers = layout, binder, value_sets, numbers
        self.too_short = program.errors["PacketTooShort"]
        self.header_too_short = program.errors["HeaderTooShort"]
        self.invalid_argument = program.errors["ParserInvalidArgument"]

    def state(self, state: ParserState) -> tuple[tuple[Operation, ...], Select]:
        """Return a state's operations and its select."""
        operations, select = tuple(map(self._operation, state.operations)), self._select(state)
        tracer = self.binder.tracer
        return (operations, select) if tracer is None else tracer.parser_state(state, operations, select)

    def _operation(self, operation: ParserOp) -> Operation:
        match operation:
            case Extract():
                return self._extract(operation)
            case ParserSet():
                return self._set(operation)
            case Verify():
                return self._verify(operation)
            case Advance():
                return self._advance(operation)
        step = self.binder.step(operation)

        def run(fields: Fields, _data: bytes, cursor: int) -> int:
            step(fields, ())
            return cursor

        return run

    # ---- extraction

    def _extract(self, operation: Extract) -> Operation:
        varbit = None if operation.varbit_bits is None else bind(operation.varbit_bits, self.layout)
        if isinstance(operation.target, HeaderRef):
            return self._extract_header(self.layout.headers[operation.target.name], varbit)
        name = operation.target.name
        elements = [self._extract_header(row[operation.member], varbit) for row in self.layout.rows(name)]
        following, size = self.layout.next_index[name], len(elements)

        def extract_next(fields: Fields, data: bytes, cursor: int) -> int:
            position = fields[following]
            if position >= size:
                raise StackFault
            cursor = elements[position](fields, data, cursor)
            fields[following] = position + 1
            return cursor

        return extract_next

    def _extract_header(self, slots: HeaderSlots, varbit: Evaluate | None) -> Operation:
        if varbit is not None:
            return self._extract_variable(slots, varbit)
        size, make_valid, too_short = slots.fixed_bytes, slots.make_valid, self.too_short
        parts = _shifts(slots)
        signed = [(slots.slot(spec.name), _sign(spec)) for spec in slots.header.type.fields if spec.signed]

        def extract(fields: Fields, data: bytes, cursor: int) -> int:
            end = cursor + size
            if end > len(data):
                raise ParserError(too_short)
            value = int.from_bytes(data[cursor:end], "big")
            for slot, shift, mask in parts:
                fields[slot] = value >> shift & mask
            for slot, sign in signed:
                fields[slot] = (fields[slot] ^ sign) - sign
            make_valid(fields)
            return end

        return extract

    def _extract_variable(self, slots: HeaderSlots, varbit: Evaluate) -> Operation:
        header_type = slots.header.type
        layout_specs = [(slots.slot(spec.name), spec) for spec in header_type.fields]
        fixed_bytes = slots.fixed_bytes
        longest = sum(spec.width_bits for spec in header_type.fields) // 8

        def extract(fields: Fields, data: bytes, cursor: int) -> int:
            bits = varbit(fields, ())
            if bits % 8:
                raise ParserError(self.invalid_argument)
            size = fixed_bytes + bits // 8
            if bits < 0 or cursor + size > len(data):
                raise ParserError(self.too_short)
            if size > longest:
                raise ParserError(self.header_too_short)
            value, shift = int.from_bytes(data[cursor : cursor + size], "big"), 8 * size
            for slot, spec in layout_specs:
                width = bits if spec.variable else spec.width_bits
                shift -= width
                part = value >> shift & ((1 << width) - 1)
                fields[slot] = (part ^ _sign(spec)) - _sign(spec) if spec.signed else part
            fields[slots.length] = bits
            slots.make_valid(fields)
            return cursor + size

        return extract

    # ---- the other operations

    def _set(self, operation: ParserSet) -> Operation:
        store = bind_store(operation.target, self.layout)
        if isinstance(operation.value, Lookahead):
            peek = self._peek(operation.value)

            def look(fields: Fields, data: bytes, cursor: int) -> int:
                store(fields, (), peek(fields, data, cursor))
                return cursor

            return look
        evaluate = bind(operation.value, self.layout)

        def assign(fields: Fields, _data: bytes, cursor: int) -> int:
            store(fields, (), evaluate(fields, ()))
            return cursor

        return assign

    def _peek(self, ahead: Lookahead) -> Operation:
        first, last = ahead.offset_bits // 8, (ahead.offset_bits + ahead.width_bits + 7) // 8
        shift = 8 * last - ahead.offset_bits - ahead.width_bits
        mask, too_short = (1 << ahead.width_bits) - 1, self.too_short

        def peek(_fields: Fields, data: bytes, cursor: int) -> int:
            if cursor + last > len(data):
                raise ParserError(too_short)
            return int.from_bytes(data[cursor + first : cursor + last], "big") >> shift & mask

        return peek

    def _verify(self, operation: Verify) -> Operation:
        condition, error = bind(operation.condition, self.layout), bind(operation.error, self.layout)

        def verify(fields: Fields, _data: bytes, cursor: int) -> int:
            if not condition(fields, ()):
                raise ParserError(error(fields, ()))
            return cursor

        return verify

    def _advance(self, operation: Advance) -> Operation:
        bits = bind(operation.bits, self.layout)

        def advance(fields: Fields, data: bytes, cursor: int) -> int:
            amount = bits(fields, ())
            if amount % 8:
                raise ParserError(self.invalid_argument)
            if amount < 0 or cursor + amount // 8 > len(data):
                raise ParserError(self.too_short)
            return cursor + amount // 8

        return advance

    # ---- select

    def _select(self, state: ParserState) -> Select:
        default = self._number(state.default)
        if not state.transitions:
            return lambda _fields, _data, _cursor: default
        plain = [case for case in state.transitions if isinstance(case, Transition)]
        if len(plain) < len(state.transitions):
            return self._select_with_sets(state)
        cases = [(case.value, case.mask, self._number(case.next_state)) for case in plain]
        exact = {value: number for value, mask, number in reversed(cases) if mask is None}
        key = self._key(state.key)
        if len(exact) == len(cases):
            return lambda fields, data, cursor: exact.get(key(fields, data, cursor), default)

        def select(fields: Fields, data: bytes, cursor: int) -> int:
            value = key(fields, data, cursor)
            for wanted, mask, number in cases:
                if (value if mask is None else value & mask) == wanted:
                    return number
            return default

        return select

    def _select_with_sets(self, state: ParserState) -> Select:
        """Return the select of a state with value sets among its cases: checks the cases in order, one by one."""
        default, key = self._number(state.default), self._key(state.key)
        widths = [part.width_bits for part in state.key]
        cases = [(self._case(case), self._number(case.next_state)) for case in state.transitions]

        def select(fields: Fields, data: bytes, cursor: int) -> int:
            value = key(fields, data, cursor)
            parts = _split(value, widths)
            for matches, number in cases:
                if matches(value, parts):
                    return number
            return default

        return select

    def _case(self, case: Transition | ValueSetTransition) -> Callable[[int, tuple[int, ...]], bool]:
        if isinstance(case, ValueSetTransition):
            members = self.value_sets[case.value_set]
            return lambda _value, parts: members.contains(parts)
        wanted, mask = case.value, case.mask
        return lambda value, _parts: (value if mask is None else value & mask) == wanted

    def _number(self, name: str | None) -> int:
        return _END if name is None else self.numbers[name]

    def _key(self, parts: tuple[KeyPart, ...]) -> Operation:
        bound = [(self._key_part(part), (part.width_bits + 7) // 8 * 8, (1 << part.width_bits) - 1) for part in parts]
        if len(bound) == 1 and not isinstance(parts[0].source, Lookahead):
            evaluate, mask = bind(parts[0].source, self.layout), bound[0][2]
            return lambda fields, _data, _cursor: evaluate(fields, ()) & mask

        def key(fields: Fields, data: bytes, cursor: int) -> int:
            total = 0
            for part, bits, mask in bound:
                total = total << bits | part(fields, data, cursor) & mask
            return total

        return key

    def _key_part(self, part: KeyPart) -> Operation:
        if isinstance(part.source, Lookahead):
            return self._peek(part.source)
        evaluate = bind(part.source, self.layout)
        return lambda fields, _data, _cursor: evaluate(fields, ())


def _split(value: int, widths: list[int]) -> tuple[int, ...]:
    """Return the parts of a key, each of which is padded."""
    parts: list[int] = []
    for width in reversed(widths):
        parts.append(value & ((1 << width) - 1))
        value >>= (width + 7) // 8 * 8
    return tuple(reversed(parts))


def _shifts(slots: HeaderSlots) -> list[tuple[int, int, int]]:
    """Return slot, shift and mask of each field of a header without varbit."""
    parts: list[tuple[int, int, int]] = []
    shift = slots.header.type.fixed_bits
    for spec in slots.header.type.fields:
        shift -= spec.width_bits
        parts.append((slots.slot(spec.name), shift, (1 << spec.width_bits) - 1))
    return parts


def _sign(spec: FieldSpec) -> int:
    return sign_bit(spec.width_bits)
