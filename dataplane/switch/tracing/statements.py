"""Effects of a statement, and its use of counters, registers and meters: read before and after it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dataplane.program.model import ParserOp, ParserSet, Program, Source
from dataplane.program.operations import (
    Assign,
    Clone,
    Count,
    ExecuteMeter,
    Expression,
    FieldRef,
    GenerateDigest,
    Hash,
    LogMessage,
    MarkToDrop,
    Primitive,
    Random,
    RegisterRead,
    RegisterWrite,
    Truncate,
)
from dataplane.switch.interpreter.expressions import bind
from dataplane.switch.interpreter.layout import Fields, Layout
from dataplane.switch.interpreter.state import PipelineState
from dataplane.switch.tracing.steps import Change, Ran, Value
from dataplane.switch.tracing.wording import expression_text, primitive_name

Arguments: TypeAlias = Sequence[int]
Finish: TypeAlias = Callable[[Fields], Ran]
Begin: TypeAlias = Callable[[Fields, Arguments], Finish]
Uses: TypeAlias = Callable[[Fields, Arguments], Callable[[Fields], tuple[Value, ...]]]

PORT, CLONE, DIGEST = "port", "clone", "digest"
_SHARED = (RegisterRead, RegisterWrite, ExecuteMeter, Random, Count)
_NUMBER_BITS = 64
_COLOUR_BITS = 2


class Watch:
    """Observes statements of one program over one state."""

    def __init__(self, program: Program, layout: Layout, state: PipelineState, *, exact: bool) -> None:
        self._program, self._layout, self._state, self._exact = program, layout, state, exact
        self._names: list[tuple[str, int] | None] = [None] * len(layout.template)
        for name, slots in layout.headers.items():
            for spec in slots.header.type.fields:
                self._names[slots.by_name[spec.name]] = (f"{name}.{spec.name}", spec.width_bits)
            self._names[slots.valid] = (f"{name}.isValid()", 1)
        for name, slot in layout.next_index.items():
            self._names[slot] = (f"{name}.nextIndex", 32)
        self._egress_spec = layout.headers["standard_metadata"].slot("egress_spec")

    def cause(self, item: Primitive) -> str | None:
        """Return a statement's request to the switch: PORT, CLONE or DIGEST; None for all else."""
        match item:
            case Clone():
                return CLONE
            case GenerateDigest():
                return DIGEST
        slots = self._slots(item)
        return PORT if slots is not None and self._egress_spec in slots else None

    def statement(self, item: ParserOp, source: Source | None, text: str) -> Begin:
        """Return a function to call before a statement; it returns the one to call after."""
        slots, uses = self._slots(item), self._uses(item)
        name, exact = primitive_name(item), self._exact or not isinstance(item, _SHARED)

        def begin(fields: Fields, arguments: Arguments) -> Finish:
            before = fields.copy() if slots is None else [fields[slot] for slot in slots]
            read = uses(fields, arguments)

            def finish(after: Fields) -> Ran:
                changes = self._changes(before, after, slots)
                return Ran(name, text, changes, read(after), exact, source)

            return finish

        return begin

    def _changes(self, before: Sequence[int], after: Fields, slots: tuple[int, ...] | None) -> tuple[Change, ...]:
        if slots is None:
            if before == after:
                return ()
            slots = tuple(slot for slot, value in enumerate(after) if value != before[slot])
            before = [before[slot] for slot in slots]
        changes = []
        for slot, value in zip(slots, before, strict=True):
            names = self._names[slot]
            if names is not None:
                changes.append(Change(*names, value, after[slot]))
        return tuple(changes)

    def _slots(self, item: ParserOp) -> tuple[int, ...] | None:
        """Return the slots that a statement sets; None if that depends on the packet."""
        match item:
            case (
                Assign(target=FieldRef() as ref)
                | ParserSet(target=FieldRef() as ref)
                | Hash(target=FieldRef() as ref)
                | Random(target=FieldRef() as ref)
                | RegisterRead(target=FieldRef() as ref)
                | ExecuteMeter(target=FieldRef() as ref)
            ):
                return (self._layout.slot(ref),)
            case Count() | RegisterWrite() | LogMessage() | Clone() | Truncate():
                return ()
            case MarkToDrop(header):
                return (self._layout.headers[header].slot("egress_spec"),)
        return None

    # ---- stateful resources of a statement

    def _uses(self, item: ParserOp) -> Uses:
        """Return a function to call before; it returns a reader of the numbers used, to call after."""
        cell = self._cell(item)
        if cell is not None:
            return cell
        match item:
            case LogMessage(_, expressions):
                return self._operands(expressions)
            case Clone(session):
                return self._operands((session,))
            case Truncate(length):
                return self._operands((length,))
        return lambda _fields, _arguments: lambda _after: ()

    def _operands(self, expressions: Sequence[Expression]) -> Uses:
        operands = [(expression_text(expression), bind(expression, self._layout)) for expression in expressions]

        def use(fields: Fields, arguments: Arguments) -> Callable[[Fields], tuple[Value, ...]]:
            values = tuple(Value(name, _NUMBER_BITS, evaluate(fields, arguments)) for name, evaluate in operands)
            return lambda _after: values

        return use

    def _cell(self, item: ParserOp) -> Uses | None:
        program, state = self._program, self._state
        match item:
            case Count(name, index):
                counter = state.counters[name]
                return self._at(
                    name, index, program.counters[name].size, _NUMBER_BITS, lambda at, _: counter.read(at)[0]
                )
            case RegisterRead(_, name, index) | RegisterWrite(name, index):
                cells, spec = state.registers[name], program.registers[name]
                return self._at(name, index, spec.size, spec.width, lambda at, _: cells[at])
            case ExecuteMeter(name, index, target):
                colour = bind(target, self._layout)
                return self._at(
                    name, index, program.meters[name].size, _COLOUR_BITS, lambda _, after: colour(after, ())
                )
        return None

    def _at(self, name: str, index: Expression, size: int, width: int, read: Callable[[int, Fields], int]) -> Uses:
        position = bind(index, self._layout)

        def use(fields: Fields, arguments: Arguments) -> Callable[[Fields], tuple[Value, ...]]:
            at = position(fields, arguments)
            if not 0 <= at < size:
                return lambda _after: ()
            return lambda after: (Value(f"{name}[{at}]", width, read(at, after)),)

        return use
