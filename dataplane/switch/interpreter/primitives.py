"""Binds primitives and actions: each becomes a closure (fields, arguments) that changes the packet's state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dataplane.program.model import Action
from dataplane.program.operations import (
    AddHeader,
    Assign,
    AssignHeader,
    AssignStack,
    AssignUnion,
    AssignVariable,
    Binary,
    BinaryOp,
    Check,
    Clone,
    Constant,
    Count,
    ExecuteMeter,
    Exit,
    Expression,
    FieldRef,
    GenerateDigest,
    Hash,
    Jump,
    JumpIfZero,
    LogMessage,
    LValue,
    MarkToDrop,
    NoOp,
    Pop,
    Primitive,
    Push,
    Random,
    Recirculate,
    RegisterRead,
    RegisterWrite,
    RemoveHeader,
    Resubmit,
    Truncate,
    Unary,
    UnaryOp,
)
from dataplane.switch.interpreter.calculations import bind_calculation
from dataplane.switch.interpreter.expressions import Arguments, Evaluate, bind, bind_header, bind_store
from dataplane.switch.interpreter.headers import (
    add_header,
    copy_header,
    copy_row,
    copy_slots,
    pop,
    push,
    remove_header,
)
from dataplane.switch.interpreter.layout import (
    CLONE_LIST,
    CLONE_SESSION,
    DIGEST,
    EXIT,
    INGRESS_LENGTH,
    RECIRCULATE,
    RESUBMIT,
    SESSION_VALID,
    TRUNCATE,
    Fields,
    Layout,
    Moment,
    PacketFault,
)
from dataplane.switch.interpreter.state import SharedArrays
from dataplane.switch.interpreter.tracer import Tracer
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.v1model import DROP_PORT, MAX_BLOCKS

Step: TypeAlias = Callable[[Fields, Arguments], None]


_UINT64 = (1 << 64) - 1
_SESSION = SESSION_VALID - 1

log = logging.getLogger("millrace.p4")


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds primitives to the state shared with the control plane, and to the moment at which they run."""

    layout: Layout
    state: SharedArrays
    rng: SplitMix
    moment: Moment
    tracer: Tracer | None = None

    def action(self, action: Action) -> Step:
        """Return a closure that runs an action."""
        primitives = action.primitives
        if not any(isinstance(primitive, Jump | JumpIfZero) for primitive in primitives):
            wanted = [index for index, primitive in enumerate(primitives) if not isinstance(primitive, NoOp)]
            return _sequence([self._step_of(action, index) for index in wanted])
        return self._jumping(action)

    def _step_of(self, action: Action, index: int) -> Step:
        step = self.step(action.primitives[index])
        return step if self.tracer is None else self.tracer.primitive(action, index, step)

    def step(self, primitive: Primitive) -> Step:
        """Return a closure that runs one primitive."""
        match primitive:
            case Assign() | AssignVariable() | AssignHeader() | AssignUnion() | AssignStack():
                return self._assignment(primitive)
            case AddHeader() | RemoveHeader() | Push() | Pop():
                return self._header_change(primitive)
            case Count() | RegisterRead() | RegisterWrite() | ExecuteMeter():
                return self._stateful(primitive)
            case Hash():
                return self._hash(primitive)
            case Random():
                return self._random(primitive)
            case MarkToDrop(header):
                return self._mark_to_drop(header)
            case LogMessage():
                return self._log_message(primitive)
            case Check():
                return self._check(primitive)
            case _:
                return self._request(primitive)

    # ---- jumps

    def _jumping(self, action: Action) -> Step:
        """Return a closure over basic blocks: straight-line code, the condition at its end, and the successors."""
        primitives = action.primitives
        starts = {0, len(primitives)}
        for index, primitive in enumerate(primitives):
            if isinstance(primitive, Jump | JumpIfZero):
                starts |= {primitive.target, index + 1}
        order = sorted(starts)
        numbers = {start: number for number, start in enumerate(order)}
        blocks = []
        for start, end in zip(order, [*order[1:], len(primitives)], strict=True):
            body = range(start, end)
            last = primitives[end - 1] if body else NoOp()
            steps = [index for index in body if not isinstance(primitives[index], Jump | JumpIfZero)]
            run = _sequence([self._step_of(action, index) for index in steps])
            following = numbers[last.target] if isinstance(last, Jump) else numbers[end]
            condition = self._jump_condition(action, end - 1) if isinstance(last, JumpIfZero) else None
            other = numbers[last.target] if isinstance(last, JumpIfZero) else following
            blocks.append((run, condition, following, other))
        finish = numbers[len(primitives)]

        def run_blocks(fields: Fields, arguments: Arguments) -> None:
            number = 0
            for _ in range(MAX_BLOCKS):
                if number == finish:
                    return
                run, condition, following, other = blocks[number]
                run(fields, arguments)
                number = following if condition is None or condition(fields, arguments) else other
            raise PacketFault("action_too_long")

        return run_blocks

    def _jump_condition(self, action: Action, index: int) -> Evaluate:
        jump = action.primitives[index]
        assert isinstance(jump, JumpIfZero)
        condition = bind(jump.condition, self.layout)
        return condition if self.tracer is None else self.tracer.jump(action, index, condition)

    # ---- assignment

    def _assignment(self, primitive: Assign | AssignVariable | AssignHeader | AssignUnion | AssignStack) -> Step:
        layout = self.layout
        match primitive:
            case Assign(target, value):
                return _bind_assign(target, value, layout)
            case AssignVariable(target_field, source_field):
                pairs = [
                    (layout.slot(target_field), layout.slot(source_field)),
                    (layout.headers[target_field.header].length, layout.headers[source_field.header].length),
                ]
                return lambda fields, _arguments: copy_slots(fields, pairs)
            case AssignHeader(target_header, source_header):
                locate, origin = bind_header(target_header, layout), bind_header(source_header, layout)
                return lambda fields, arguments: copy_header(
                    fields, locate(fields, arguments), origin(fields, arguments)
                )
            case AssignUnion(target_union, source_union):
                unions = layout.program.unions
                rows = [
                    tuple(layout.headers[name] for name in unions[ref.name].members)
                    for ref in (target_union, source_union)
                ]
                return lambda fields, _arguments: copy_row(fields, rows[0], rows[1])
        targets, sources = layout.rows(primitive.target.name), layout.rows(primitive.source.name)
        moved = (layout.next_index[primitive.target.name], layout.next_index[primitive.source.name])

        def assign_stack(fields: Fields, _arguments: Arguments) -> None:
            fields[moved[0]] = fields[moved[1]]
            for target, source in zip(targets, sources, strict=True):
                copy_row(fields, target, source)

        return assign_stack

    # ---- headers and stacks

    def _header_change(self, primitive: AddHeader | RemoveHeader | Push | Pop) -> Step:
        layout = self.layout
        match primitive:
            case AddHeader(header):
                locate = bind_header(header, layout)
                return lambda fields, arguments: add_header(fields, locate(fields, arguments))
            case RemoveHeader(header):
                locate = bind_header(header, layout)
                return lambda fields, arguments: remove_header(fields, locate(fields, arguments))
            case Push(stack, count):
                rows, following = layout.rows(stack.name), layout.next_index[stack.name]
                return lambda fields, _arguments: push(fields, rows, following, count)
        rows, following = layout.rows(primitive.stack.name), layout.next_index[primitive.stack.name]
        dropped = primitive.count
        return lambda fields, _arguments: pop(fields, rows, following, dropped)

    # ---- counters, meters, registers, hashes, random numbers

    def _stateful(self, primitive: Count | RegisterRead | RegisterWrite | ExecuteMeter) -> Step:
        index = bind(primitive.index, self.layout)
        if isinstance(primitive, Count):
            counter = self.state.counters[primitive.counter]
            return lambda fields, arguments: counter.count(index(fields, arguments), fields[INGRESS_LENGTH])
        if isinstance(primitive, ExecuteMeter):
            return self._execute_meter(primitive, index)
        cells = self.state.registers[primitive.register]
        if isinstance(primitive, RegisterRead):
            store = bind_store(primitive.target, self.layout)

            def read(fields: Fields, arguments: Arguments) -> None:
                position = index(fields, arguments)
                if 0 <= position < len(cells):
                    store(fields, arguments, cells[position])

            return read
        value = bind(primitive.value, self.layout)
        mask = (1 << self.layout.program.registers[primitive.register].width) - 1

        def write(fields: Fields, arguments: Arguments) -> None:
            position = index(fields, arguments)
            if 0 <= position < len(cells):
                cells[position] = value(fields, arguments) & mask

        return write

    def _execute_meter(self, primitive: ExecuteMeter, index: Evaluate) -> Step:
        store, moment = bind_store(primitive.target, self.layout), self.moment
        meter = self.state.meters[primitive.meter]

        def charge(fields: Fields, arguments: Arguments) -> None:
            colour = meter.execute(index(fields, arguments), fields[INGRESS_LENGTH], moment.now_us)
            if colour is not None:
                store(fields, arguments, colour)

        return charge

    def _hash(self, primitive: Hash) -> Step:
        store, compute = bind_store(primitive.target, self.layout), bind_calculation(primitive.calculation, self.layout)
        base, size = bind(primitive.base, self.layout), bind(primitive.size, self.layout)
        moment = self.moment

        def run(fields: Fields, arguments: Arguments) -> None:
            modulus = size(fields, arguments)
            if modulus <= _UINT64:  # no hash reaches a larger one
                modulus = modulus & _UINT64 or 1
            start = base(fields, arguments) & _UINT64
            store(fields, arguments, (compute(fields, moment.payload) % modulus + start) & _UINT64)

        return run

    def _random(self, primitive: Random) -> Step:
        store, rng = bind_store(primitive.target, self.layout), self.rng
        low, high = bind(primitive.low, self.layout), bind(primitive.high, self.layout)

        def run(fields: Fields, arguments: Arguments) -> None:
            first, last = low(fields, arguments) & _UINT64, high(fields, arguments) & _UINT64
            if first <= last:
                store(fields, arguments, rng.between(first, last))

        return run

    # ---- requests to the switch

    def _mark_to_drop(self, header: str) -> Step:
        slots = self.layout.headers[header]
        egress_spec = slots.slot("egress_spec")
        group = slots.slot("mcast_grp") if slots.header.type.field("mcast_grp") else None

        def drop(fields: Fields, _arguments: Arguments) -> None:
            fields[egress_spec] = DROP_PORT
            if group is not None:
                fields[group] = 0

        return drop

    def _request(self, primitive: Primitive) -> Step:
        match primitive:
            case Clone(session, field_list):
                evaluate = bind(session, self.layout)
                return lambda fields, arguments: _set(
                    fields,
                    {CLONE_SESSION: evaluate(fields, arguments) & _SESSION | SESSION_VALID, CLONE_LIST: field_list},
                )
            case Resubmit(field_list):
                return lambda fields, _arguments: _set(fields, {RESUBMIT: field_list})
            case Recirculate(field_list):
                return lambda fields, _arguments: _set(fields, {RECIRCULATE: field_list})
            case Truncate(length):
                evaluate = bind(length, self.layout)
                return lambda fields, arguments: _set(
                    fields, {TRUNCATE: min(fields[TRUNCATE], evaluate(fields, arguments) & _UINT64)}
                )
            case GenerateDigest(name):
                number = 1 + list(self.layout.program.digests).index(name)
                return lambda fields, _arguments: _set(fields, {DIGEST: number})
            case Exit():
                return lambda fields, _arguments: _set(fields, {EXIT: 1})
        return lambda _fields, _arguments: None

    def _log_message(self, primitive: LogMessage) -> Step:
        values = [bind(value, self.layout) for value in primitive.values]
        pieces = primitive.pieces

        def run(fields: Fields, arguments: Arguments) -> None:
            if log.isEnabledFor(logging.INFO):
                texts = [str(value(fields, arguments)) for value in values]
                log.info("".join(piece + text for piece, text in zip(pieces, [*texts, ""], strict=True)))

        return run

    def _check(self, primitive: Check) -> Step:
        condition, name = bind(primitive.condition, self.layout), "assume" if primitive.assume else "assert"

        def run(fields: Fields, arguments: Arguments) -> None:
            if not condition(fields, arguments):
                raise PacketFault(f"{name}_failed")

        return run


def _bind_assign(target: LValue, value: Expression, layout: Layout) -> Step:
    """Return a closure for the most common primitive; values known to fit the field are not truncated again."""
    if not isinstance(target, FieldRef) or layout.spec(target).signed:
        evaluate, store_value = bind(value, layout), bind_store(target, layout)
        return lambda fields, arguments: store_value(fields, arguments, evaluate(fields, arguments))
    slot, mask = layout.slot(target), (1 << layout.spec(target).width_bits) - 1
    if isinstance(value, FieldRef) and _fits(value, mask, layout):
        return _bind_copy(slot, layout.slot(value))
    if isinstance(value, Constant):
        return _bind_constant(slot, value.value & mask)
    evaluate = bind(value, layout)

    def store(fields: Fields, arguments: Arguments) -> None:
        fields[slot] = evaluate(fields, arguments)

    def store_cut(fields: Fields, arguments: Arguments) -> None:
        fields[slot] = evaluate(fields, arguments) & mask

    return store if _fits(value, mask, layout) else store_cut


def _bind_constant(target: int, value: int) -> Step:
    def put(fields: Fields, _arguments: Arguments) -> None:
        fields[target] = value

    return put


def _bind_copy(target: int, source: int) -> Step:
    def copy(fields: Fields, _arguments: Arguments) -> None:
        fields[target] = fields[source]

    return copy


def _fits(value: Expression, mask: int, layout: Layout) -> bool:
    """Return whether a value lies between 0 and `mask` whatever the packet holds."""
    match value:
        case Constant(number):
            return 0 <= number <= mask
        case FieldRef():
            spec = layout.spec(value)
            return not spec.signed and (1 << spec.width_bits) - 1 <= mask
        case Binary(BinaryOp.AND, _, Constant(number)):
            return 0 <= number <= mask
        case Unary(UnaryOp.BOOL_TO_DATA, _):
            return True
    return False


def _sequence(steps: list[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]
    fixed = tuple(steps)

    def run(fields: Fields, arguments: Arguments) -> None:
        for step in fixed:
            step(fields, arguments)

    return run


def _set(fields: Fields, values: Mapping[int, int]) -> None:
    for slot, value in values.items():
        fields[slot] = value
