"""Reads parsers and deparsers of a bmv2 JSON file."""

from __future__ import annotations

from dataplane.program.actions import Call, read_primitive, read_primitives
from dataplane.program.expressions import ExpressionReader
from dataplane.program.model import (
    Advance,
    Deparser,
    Extract,
    KeyPart,
    Parser,
    ParserOp,
    ParserSet,
    ParserState,
    Transition,
    Verify,
)
from dataplane.program.operations import (
    Constant,
    Expression,
    FieldRef,
    HeaderRef,
    Jump,
    JumpIfZero,
    LastFieldRef,
    Lookahead,
    StackRef,
)
from dataplane.program.raw import RawCall, RawDeparser, RawParser, RawState, RawTransition, RawValue
from dataplane.program.scope import MAX_WIDTH_BITS, Scope


def read_parser(raw: RawParser, scope: Scope, place: str) -> Parser:
    """Return a parser whose transitions all lead somewhere."""
    names = {state.name for state in raw.parse_states}
    states: dict[str, ParserState] = {}
    for index, raw_state in enumerate(raw.parse_states):
        where = f"{place}.parse_states[{index}]"
        scope.insert(states, raw_state.name, _StateReader(scope, names, where).state(raw_state), where)
    if raw.init_state is not None and raw.init_state not in states:
        raise scope.error(f"{place}.init_state", f"no state is called {raw.init_state!r}")
    return Parser(raw.name, raw.init_state, states)


def read_deparser(raw: RawDeparser, scope: Scope, place: str) -> Deparser:
    """Return a deparser."""
    for index, name in enumerate(raw.order):
        if scope.header(name, f"{place}.order[{index}]").metadata:
            raise scope.error(f"{place}.order[{index}]", f"{name} is metadata, which is not on the wire")
    return Deparser(raw.name, tuple(raw.order), read_primitives(raw.primitives, ExpressionReader(scope), place))


class _StateReader:
    """Reads one parse state."""

    def __init__(self, scope: Scope, names: set[str], place: str) -> None:
        self.scope, self.names, self.place = scope, names, place
        self.reader = ExpressionReader(scope)

    def state(self, raw: RawState) -> ParserState:
        """Return the state."""
        operations = tuple(
            self._operation(call, f"{self.place}.parser_ops[{index}]") for index, call in enumerate(raw.parser_ops)
        )
        key = tuple(
            self._key_part(value, f"{self.place}.transition_key[{index}]")
            for index, value in enumerate(raw.transition_key)
        )
        transitions, default = self._transitions(raw.transitions, key)
        return ParserState(raw.name, operations, key, transitions, default)

    def _operation(self, call: RawCall, place: str) -> ParserOp:
        counts = {"extract": 1, "extract_VL": 2, "set": 2, "verify": 2, "advance": 1, "shift": 1, "primitive": 1}
        if call.op not in counts:
            raise self.scope.unsupported(place, f"parser operation {call.op!r}")
        if len(call.parameters) != counts[call.op]:
            raise self.scope.error(place, f"{call.op} takes {counts[call.op]} parameters")
        first = f"{place}.parameters[0]"
        match call.op:
            case "extract":
                return Extract(self._extracted(call.parameters[0], first, variable=False))
            case "extract_VL":
                target = self._extracted(call.parameters[0], first, variable=True)
                return Extract(target, self.reader.data(call.parameters[1], f"{place}.parameters[1]"))
            case "set":
                return self._set(call, place)
            case "verify":
                condition = self.reader.truth(call.parameters[0], first)
                return Verify(condition, self.reader.data(call.parameters[1], f"{place}.parameters[1]"))
            case "advance":
                return Advance(self._bits(call.parameters[0], first))
            case "shift":
                return Advance(Constant(8 * self._count(call.parameters[0], first)))
        return self._primitive(call.parameters[0], first)

    def _extracted(self, raw: object, place: str, *, variable: bool) -> HeaderRef | StackRef:
        kind, value = (raw.get("type"), raw.get("value")) if isinstance(raw, dict) else (None, None)
        target: HeaderRef | StackRef
        if kind == "regular":
            header = self.scope.header(value, place)
            target, header_type = HeaderRef(header.name), header.type
            if header.metadata:
                raise self.scope.error(place, f"{header.name} is metadata and cannot be extracted")
        elif kind == "stack":
            stack = self.scope.stack(value, place)
            target, header_type = StackRef(stack.name), stack.type
        else:
            raise self.scope.unsupported(place, f"extraction to {kind!r}")
        if (header_type.varbit is not None) is not variable:
            raise self.scope.error(place, f"{header_type.name} and the operation differ about a varbit")
        return target

    def _set(self, call: RawCall, place: str) -> ParserOp:
        target = self.reader.lvalue(call.parameters[0], f"{place}.parameters[0]")
        raw, where = call.parameters[1], f"{place}.parameters[1]"
        if isinstance(raw, dict) and raw.get("type") == "lookahead":
            return ParserSet(target, self._lookahead(raw.get("value"), where))
        return ParserSet(target, self.reader.data(raw, where))

    def _lookahead(self, value: object, place: str) -> Lookahead:
        match value:
            case [int(offset), int(width)] if 0 <= offset <= MAX_WIDTH_BITS:
                return Lookahead(offset, self.scope.width(width, place))
        raise self.scope.error(place, f"{value!r} is no offset and width to look ahead")

    def _bits(self, raw: object, place: str) -> Expression:
        bits = self.reader.data(raw, place)
        if isinstance(bits, Constant) and bits.value < 0:
            raise self.scope.error(place, "a parser cannot go back")
        return bits

    def _count(self, raw: object, place: str) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= MAX_WIDTH_BITS:
            raise self.scope.error(place, f"{raw!r} is no number of bytes to skip")
        return raw

    def _primitive(self, raw: object, place: str) -> ParserOp:
        match raw:
            case {"op": str(op), "parameters": list(parameters)}:
                primitive = read_primitive(Call(op, parameters, self.reader, place))
                if not isinstance(primitive, Jump | JumpIfZero):
                    return primitive
        raise self.scope.error(place, "is no primitive that a parser can call")

    def _key_part(self, raw: RawValue, place: str) -> KeyPart:
        if raw.type == "lookahead":
            ahead = self._lookahead(raw.value, place)
            return KeyPart(ahead, ahead.width_bits)
        source = self.reader.lvalue({"type": raw.type, "value": raw.value}, place) if raw.type != "field" else None
        source = source or self.scope.field(raw.value, place)
        if isinstance(source, LastFieldRef):
            source_field = FieldRef(self.scope.stacks[source.stack].elements[0], source.field)
            return KeyPart(source, self.scope.spec(source_field).width_bits)
        if isinstance(source, FieldRef) and not self.scope.spec(source).variable:
            return KeyPart(source, self.scope.spec(source).width_bits)
        raise self.scope.unsupported(place, f"a key of type {raw.type!r}")

    def _transitions(
        self, raw: list[RawTransition], key: tuple[KeyPart, ...]
    ) -> tuple[tuple[Transition, ...], str | None]:
        width_bits = sum((part.width_bits + 7) // 8 * 8 for part in key)
        transitions: list[Transition] = []
        default: str | None = None
        for index, item in enumerate(raw):
            place = f"{self.place}.transitions[{index}]"
            if item.next_state is not None and item.next_state not in self.names:
                raise self.scope.error(place, f"no state is called {item.next_state!r}")
            if item.type == "default" or (item.type, item.value) == ("hexstr", "default"):
                default = item.next_state
            elif item.type == "hexstr":
                value = self.scope.unsigned(item.value, width_bits, place)
                mask = None if item.mask is None else self.scope.unsigned(item.mask, width_bits, place)
                transitions.append(Transition(value if mask is None else value & mask, mask, item.next_state))
            else:
                raise self.scope.unsupported(place, f"a transition of type {item.type!r}")
        if transitions and not key:
            raise self.scope.error(f"{self.place}.transitions", "select without a key")
        return tuple(transitions), default
