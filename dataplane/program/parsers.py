"""Reads parsers and deparsers of a bmv2 JSON file."""

from __future__ import annotations

from dataclasses import replace

from dataplane.program.actions import Call, read_primitive, read_primitives
from dataplane.program.expressions import ExpressionReader
from dataplane.program.model import (
    VALID,
    Advance,
    Deparser,
    Extract,
    HeaderType,
    KeyPart,
    Parser,
    ParserOp,
    ParserSet,
    ParserState,
    Transition,
    ValueSetTransition,
    Verify,
)
from dataplane.program.objects import KeyField, MatchKind
from dataplane.program.operations import (
    Constant,
    Expression,
    HeaderRef,
    Jump,
    JumpIfZero,
    Lookahead,
    StackRef,
)
from dataplane.program.raw import RawCall, RawDeparser, RawParser, RawState, RawTransition, RawValue
from dataplane.program.scope import MAX_WIDTH_BITS, Scope


def read_parser(raw: RawParser, scope: Scope, path: str) -> Parser:
    """Return a parser whose transitions all have targets; value sets without keys get theirs here."""
    names = {state.name for state in raw.parse_states}
    states: dict[str, ParserState] = {}
    for index, raw_state in enumerate(raw.parse_states):
        where = f"{path}.parse_states[{index}]"
        scope.insert(states, raw_state.name, _StateReader(scope, names, where).state(raw_state), where)
    if raw.init_state is not None and raw.init_state not in states:
        raise scope.error(f"{path}.init_state", f"no state is called {raw.init_state!r}")
    return Parser(raw.name, raw.init_state, states)


def read_deparser(raw: RawDeparser, scope: Scope, path: str) -> Deparser:
    """Return a deparser."""
    for index, name in enumerate(raw.order):
        if scope.header(name, f"{path}.order[{index}]").metadata:
            raise scope.error(f"{path}.order[{index}]", f"{name} is metadata, which is not on the wire")
    return Deparser(raw.name, tuple(raw.order), read_primitives(raw.primitives, ExpressionReader(scope), path))


class _StateReader:
    """Reads one parse state."""

    def __init__(self, scope: Scope, names: set[str], path: str) -> None:
        self.scope, self.names, self.path = scope, names, path
        self.reader = ExpressionReader(scope)

    def state(self, raw: RawState) -> ParserState:
        calls = [(call, f"{self.path}.parser_ops[{index}]") for index, call in enumerate(raw.parser_ops)]
        operations = tuple(
            self._operation(call, path) for call, path in calls if not self._is_set_of_valid_bit(call, path)
        )
        key = tuple(
            self._key_part(value, f"{self.path}.transition_key[{index}]")
            for index, value in enumerate(raw.transition_key)
        )
        transitions, default = self._transitions(raw.transitions, key)
        return ParserState(raw.name, operations, key, transitions, default)

    def _is_set_of_valid_bit(self, call: RawCall, path: str) -> bool:
        """Note and return whether an operation sets a header's field $valid$.

        In bmv2 that field is a copy of the header's flag, which stays as it is, so nothing happens unless it is read.
        p4c of 2018 set it with the other fields of a lookahead, after making the header valid.
        """
        match call.op, call.parameters:
            case "set", [{"type": "field", "value": [str(name), str(field)]}, _] if field == VALID:
                self.scope.set_valid_bits[self.scope.header(name, path).name] = path
                return True
        return False

    def _operation(self, call: RawCall, path: str) -> ParserOp:
        counts = {"extract": 1, "extract_VL": 2, "set": 2, "verify": 2, "advance": 1, "shift": 1, "primitive": 1}
        if call.op not in counts:
            raise self.scope.unsupported(path, f"parser operation {call.op!r}")
        if len(call.parameters) != counts[call.op]:
            raise self.scope.error(path, f"{call.op} takes {counts[call.op]} parameters")
        first = f"{path}.parameters[0]"
        match call.op:
            case "extract":
                return self._extract(call.parameters[0], first, None)
            case "extract_VL":
                bits = self.reader.data(call.parameters[1], f"{path}.parameters[1]")
                return self._extract(call.parameters[0], first, bits)
            case "set":
                return self._set(call, path)
            case "verify":
                condition = self.reader.truth(call.parameters[0], first)
                return Verify(condition, self.reader.data(call.parameters[1], f"{path}.parameters[1]"))
            case "advance":
                return Advance(self._bits(call.parameters[0], first))
            case "shift":
                return Advance(Constant(8 * self._count(call.parameters[0], first)))
        return self._primitive(call.parameters[0], first)

    def _extract(self, raw: object, path: str, varbit_bits: Expression | None) -> Extract:
        target, member, header_type = self._target(raw, path)
        if (header_type.varbit is None) is not (varbit_bits is None):
            raise self.scope.error(path, f"{header_type.name} and the operation differ about a varbit")
        return Extract(target, varbit_bits, member)

    def _target(self, raw: object, path: str) -> tuple[HeaderRef | StackRef, int, HeaderType]:
        """Return target, position in a union, and type of the header."""
        match raw:
            case {"type": "regular", "value": value}:
                header = self.scope.header(value, path)
                if header.metadata:
                    raise self.scope.error(path, f"{header.name} is metadata and cannot be extracted")
                return HeaderRef(header.name), 0, header.type
            case {"type": "stack", "value": value}:
                stack = self.scope.stack(value, path)
                return StackRef(stack.name), 0, stack.type
            case {"type": "union_stack", "value": [str(name), str(member_name)]}:
                member = self.scope.member(name, member_name, path)
                return StackRef(name), member, self.scope.rows(name)[0][member].type
        kind = raw.get("type") if isinstance(raw, dict) else None
        raise self.scope.unsupported(path, f"extraction to {kind!r}")

    def _set(self, call: RawCall, path: str) -> ParserOp:
        target = self.reader.lvalue(call.parameters[0], f"{path}.parameters[0]")
        raw, where = call.parameters[1], f"{path}.parameters[1]"
        if isinstance(raw, dict) and raw.get("type") == "lookahead":
            return ParserSet(target, self._lookahead(raw.get("value"), where))
        return ParserSet(target, self.reader.data(raw, where))

    def _lookahead(self, value: object, path: str) -> Lookahead:
        match value:
            case [int(offset), int(width)] if 0 <= offset <= MAX_WIDTH_BITS:
                return Lookahead(offset, self.scope.width(width, path))
        raise self.scope.error(path, f"{value!r} is not an offset and a width to look ahead")

    def _bits(self, raw: object, path: str) -> Expression:
        bits = self.reader.data(raw, path)
        if isinstance(bits, Constant) and bits.value < 0:
            raise self.scope.error(path, "a parser cannot go back")
        return bits

    def _count(self, raw: object, path: str) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= MAX_WIDTH_BITS:
            raise self.scope.error(path, f"{raw!r} is not a number of bytes to skip")
        return raw

    def _primitive(self, raw: object, path: str) -> ParserOp:
        match raw:
            case {"op": str(op), "parameters": list(parameters)}:
                primitive = read_primitive(Call(op, parameters, self.reader, path))
                if not isinstance(primitive, Jump | JumpIfZero):
                    return primitive
        raise self.scope.error(path, "is not a primitive that a parser can call")

    def _key_part(self, raw: RawValue, path: str) -> KeyPart:
        if raw.type == "lookahead":
            ahead = self._lookahead(raw.value, path)
            return KeyPart(ahead, ahead.width_bits)
        if raw.type not in {"field", "stack_field", "union_stack_field"}:
            raise self.scope.unsupported(path, f"a key of type {raw.type!r}")
        source = self.reader.key_field(raw.type, raw.value, path)
        return KeyPart(source, self.scope.last_spec(source).width_bits)

    def _transitions(
        self, raw: list[RawTransition], key: tuple[KeyPart, ...]
    ) -> tuple[tuple[Transition | ValueSetTransition, ...], str | None]:
        transitions: list[Transition | ValueSetTransition] = []
        default: str | None = None
        for index, item in enumerate(raw):
            path = f"{self.path}.transitions[{index}]"
            if item.next_state is not None and item.next_state not in self.names:
                raise self.scope.error(path, f"no state is called {item.next_state!r}")
            if item.type == "default" or (item.type, item.value) == ("hexstr", "default"):
                default = item.next_state
            elif item.type == "hexstr":
                transitions.append(self._value_transition(item, key, path))
            elif item.type == "parse_vset":
                transitions.append(self._set_transition(item, key, path))
            else:
                raise self.scope.unsupported(path, f"a transition of type {item.type!r}")
        if transitions and not key:
            raise self.scope.error(f"{self.path}.transitions", "select without a key")
        return tuple(transitions), default

    def _value_transition(self, item: RawTransition, key: tuple[KeyPart, ...], path: str) -> Transition:
        width_bits = sum((part.width_bits + 7) // 8 * 8 for part in key)
        value = self.scope.unsigned(item.value, width_bits, path)
        mask = None if item.mask is None else self.scope.unsigned(item.mask, width_bits, path)
        return Transition(value if mask is None else value & mask, mask, item.next_state)

    def _set_transition(self, item: RawTransition, key: tuple[KeyPart, ...], path: str) -> ValueSetTransition:
        scope = self.scope
        spec = scope.named(scope.value_sets, item.value, "parser value set", path)
        if item.mask is not None:
            raise scope.unsupported(path, f"a mask over parser value set {spec.name}")
        widths = [part.width_bits for part in key]
        if not spec.keys:
            keys = tuple(KeyField(f"key{at}", MatchKind.EXACT, width) for at, width in enumerate(widths))
            scope.value_sets[spec.name] = spec = replace(spec, keys=keys)
        if [field.width for field in spec.keys] != widths:
            raise scope.error(path, f"the fields of parser value set {spec.name} are not as wide as the key's parts")
        return ValueSetTransition(spec.name, item.next_state)
