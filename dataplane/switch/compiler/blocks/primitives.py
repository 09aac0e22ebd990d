"""Emits primitives: one function per action, its jumps as branches between basic blocks."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dataplane.program.model import Action
from dataplane.program.operations import (
    AddHeader,
    Assign,
    AssignHeader,
    AssignStack,
    AssignUnion,
    AssignVariable,
    Check,
    Clone,
    Count,
    ExecuteMeter,
    Exit,
    FieldRef,
    GenerateDigest,
    Hash,
    Jump,
    JumpIfZero,
    LogMessage,
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
)
from dataplane.switch.abi import SESSION_VALID, Reason
from dataplane.switch.compiler.blocks.events import emit_log_message
from dataplane.switch.compiler.blocks.stateful import (
    count_packet,
    draw_random,
    hash_to_field,
    meter_packet,
    read_register,
    write_register,
)
from dataplane.switch.compiler.lowering.copies import (
    add_header,
    copy_bytes,
    copy_header,
    copy_stack,
    copy_varbit,
    pop,
    push,
    remove_header,
    truncate_packet,
)
from dataplane.switch.compiler.lowering.expressions import Expressions
from dataplane.switch.compiler.lowering.fields import header_of, resize
from dataplane.switch.compiler.lowering.routine import I32, POINTER, Emission, Routine, u32
from dataplane.switch.v1model import DROP_PORT, MAX_BLOCKS


def call_action(routine: Routine, action: Action, arguments: ir.Value) -> None:
    """Run an action; the registers that it touches are locked unless the caller holds their locks."""
    emission = routine.emission
    numbers = {name: number for number, name in enumerate(routine.program.registers)}
    registers = tuple(sorted({numbers[name] for name in action.registers} - set(routine.held)))
    name = f"action {id(action):x} {registers}"
    function = emission.helper(name, lambda: _build_action(emission, action, registers))
    code = routine.builder.call(function, [routine.machine, routine.packet, routine.region, arguments])
    routine.check(code)


def _build_action(emission: Emission, action: Action, registers: tuple[int, ...]) -> ir.Function:
    """Build the function of an action: (machine, packet, region, arguments) -> fault."""
    symbol = f"p4_action_{len(emission.helpers)}"
    function = emission.declare(symbol, I32, [POINTER, POINTER, POINTER, POINTER], internal=True)
    routine = Routine(
        emission,
        function,
        f"action {action.name}",
        parameters=tuple(width for _, width in action.spec.parameters),
        registers=registers,
        region=function.args[2],
        arguments=function.args[3],
    )
    emit_primitives(routine, Expressions(routine), action.primitives)
    routine.finish()
    return function


def emit_primitives(routine: Routine, expressions: Expressions, primitives: Sequence[Primitive]) -> None:
    """Emit primitives in sequence, following their jumps."""
    jumps = [item for item in primitives if isinstance(item, Jump | JumpIfZero)]
    if not jumps:
        for primitive in primitives:
            emit_primitive(routine, expressions, primitive)
        return
    _Jumping(routine, expressions, primitives).emit()


class _Jumping:
    """The basic blocks of an action with jumps; those that can jump back count their entries."""

    def __init__(self, routine: Routine, expressions: Expressions, primitives: Sequence[Primitive]) -> None:
        self.routine, self.expressions, self.primitives = routine, expressions, primitives
        starts = {0, len(primitives)}
        goes_back = False
        for index, primitive in enumerate(primitives):
            if isinstance(primitive, Jump | JumpIfZero):
                starts |= {primitive.target, index + 1}
                goes_back |= primitive.target <= index
        self.starts = sorted(starts)
        self.blocks = {start: routine.block() for start in self.starts}
        self.entered = routine.local(I32) if goes_back or len(starts) >= MAX_BLOCKS else None

    def emit(self) -> None:
        """Emit all blocks; continue after the last one."""
        if self.entered is not None:
            self.routine.builder.store(u32(0), self.entered)
        self.routine.go(self.blocks[0])
        for start, end in zip(self.starts, self.starts[1:], strict=False):
            self._enter(start)
            for primitive in self.primitives[start:end]:
                self._step(primitive, end)
            if not self.routine.builder.block.is_terminated:
                self.routine.builder.branch(self.blocks[end])
        self._enter(self.starts[-1])

    def _enter(self, start: int) -> None:
        builder = self.routine.builder
        builder.position_at_end(self.blocks[start])
        if self.entered is None:
            return
        entered = builder.load(self.entered, typ=I32)
        self.routine.guard(builder.icmp_unsigned("<", entered, u32(MAX_BLOCKS)), Reason.ACTION_TOO_LONG)
        builder.store(builder.add(entered, u32(1)), self.entered)

    def _step(self, primitive: Primitive, end: int) -> None:
        match primitive:
            case Jump(target):
                self.routine.builder.branch(self.blocks[target])
            case JumpIfZero(condition, target):
                holds = self.expressions.truth(condition)
                self.routine.builder.cbranch(holds, self.blocks[end], self.blocks[target])
            case _:
                emit_primitive(self.routine, self.expressions, primitive)


def emit_primitive(routine: Routine, expressions: Expressions, primitive: Primitive) -> None:
    """Emit one primitive that is not a jump."""
    match primitive:
        case Assign() | AssignVariable() | AssignHeader() | AssignUnion() | AssignStack():
            _assignment(routine, expressions, primitive)
        case AddHeader(header):
            add_header(expressions.header(header))
        case RemoveHeader(header):
            remove_header(expressions.header(header))
        case Push(stack, count):
            push(routine, stack.name, count)
        case Pop(stack, count):
            pop(routine, stack.name, count)
        case MarkToDrop(header_name):
            _mark_to_drop(routine, header_name)
        case Check():
            reason = Reason.ASSUME_FAILED if primitive.assume else Reason.ASSERT_FAILED
            routine.guard(expressions.truth(primitive.condition), reason)
        case LogMessage():
            emit_log_message(routine, expressions, primitive)
        case Count() | RegisterRead() | RegisterWrite() | ExecuteMeter() | Hash() | Random():
            _stateful(routine, expressions, primitive)
        case _:
            _request(routine, expressions, primitive)


def _assignment(
    routine: Routine,
    expressions: Expressions,
    primitive: Assign | AssignVariable | AssignHeader | AssignUnion | AssignStack,
) -> None:
    match primitive:
        case Assign(FieldRef() as target, FieldRef() as source) if copy_bytes(
            header_of(routine, target), target.field, header_of(routine, source), source.field
        ):
            pass
        case Assign(lvalue, value):
            expressions.store(lvalue, value)
        case AssignVariable(field, source_field):
            copy_varbit(header_of(routine, field), header_of(routine, source_field))
        case AssignHeader(header, source_header):
            to = expressions.header(header)
            copy_header(to, expressions.header(source_header))
        case AssignUnion(union, source_union):
            unions = routine.program.unions
            for member, other in zip(unions[union.name].members, unions[source_union.name].members, strict=True):
                copy_header(header_of(routine, member), header_of(routine, other))
        case AssignStack(stack, source_stack):
            copy_stack(routine, stack.name, source_stack.name)


def _stateful(
    routine: Routine,
    expressions: Expressions,
    primitive: Count | RegisterRead | RegisterWrite | ExecuteMeter | Hash | Random,
) -> None:
    match primitive:
        case Count():
            count_packet(routine, expressions, primitive)
        case RegisterRead():
            read_register(routine, expressions, primitive)
        case RegisterWrite():
            write_register(routine, expressions, primitive)
        case ExecuteMeter():
            meter_packet(routine, expressions, primitive)
        case Hash():
            hash_to_field(routine, expressions, primitive)
        case Random():
            draw_random(routine, expressions, primitive)


def _request(routine: Routine, expressions: Expressions, primitive: Primitive) -> None:
    """Record a packet's request to the switch."""
    match primitive:
        case Clone(session, field_list):
            number = resize(routine, expressions.modulo(session, 15), 32)
            routine.set_packet_field("clone_session", routine.builder.or_(number, u32(SESSION_VALID)))
            routine.set_packet_field("clone_list", u32(field_list))
        case Resubmit(field_list):
            routine.set_packet_field("resubmit", u32(field_list))
        case Recirculate(field_list):
            routine.set_packet_field("recirculate", u32(field_list))
        case GenerateDigest(digest):
            routine.set_packet_field("digest", u32(list(routine.program.digests).index(digest) + 1))
        case Truncate(length):
            truncate_packet(routine, expressions.word(length))
        case Exit():
            routine.set_packet_field("exit", u32(1))
        case NoOp():
            pass
        case _:
            raise routine.refuse(f"primitive {type(primitive).__name__}")


def _mark_to_drop(routine: Routine, name: str) -> None:
    header = header_of(routine, name)
    for field, value in (("egress_spec", DROP_PORT), ("mcast_grp", 0)):
        if field in header.location.fields:
            width = header.spec(field).width_bits
            kind = header.load(field).type
            header.store(field, ir.Constant(kind, value & ((1 << width) - 1)), clean=True)
