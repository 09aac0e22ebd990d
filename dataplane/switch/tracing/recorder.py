"""Records what a program does with a packet: wrappers of the interpreter's closures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from dataplane.program.model import (
    VALID,
    Action,
    CallNode,
    Checksum,
    ConditionNode,
    Extract,
    ParserOp,
    ParserState,
    Program,
    Source,
    TableNode,
    Verify,
)
from dataplane.program.model import (
    KeyPart as SelectPart,
)
from dataplane.program.objects import ActionCall
from dataplane.program.operations import HeaderRef, JumpIfZero, Lookahead
from dataplane.switch.interpreter.expressions import bind
from dataplane.switch.interpreter.headers import header_bytes
from dataplane.switch.interpreter.layout import Fields, HeaderSlots, Layout, StackFault
from dataplane.switch.interpreter.parser import ParserError
from dataplane.switch.interpreter.state import MatchTable, PipelineState
from dataplane.switch.interpreter.tracer import Compute, Evaluate, Find, Operation, Select, Step
from dataplane.switch.tables import TableEntry
from dataplane.switch.tracing.statements import Watch
from dataplane.switch.tracing.steps import (
    Called,
    Change,
    Decided,
    Extracted,
    HeaderValue,
    KeyPart,
    NotExtracted,
    Selected,
    StateEntered,
    TableApplied,
    Updated,
    Value,
    Verified,
)
from dataplane.switch.tracing.steps import Step as TraceStep
from dataplane.switch.tracing.wording import expression_text, match_text, operation_text

Arguments: TypeAlias = Sequence[int]


class Recorder:
    """A `Tracer` that appends a step to `steps` for whatever runs; `exact` as in `steps.Ran`, for shared state.

    `last_source` is the statement that ran last; `causes` are those that last set the packet's destination, requested a
    clone, or a digest, by these words.
    """

    def __init__(self, program: Program, state: PipelineState, *, exact: bool = True) -> None:
        self.steps: list[TraceStep] = []
        self.last_source: Source | None = None
        self.causes: dict[str, Source | None] = {}
        self.layout = Layout(program)
        self._program, self._state = program, state
        self._declared = {action.preamble.name for action in program.p4info.actions}
        self._states = list(program.parser.states)
        self._watch = Watch(program, self.layout, state, exact=exact)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Record nothing meanwhile."""
        steps, self.steps = self.steps, []
        try:
            yield
        finally:
            self.steps = steps

    def headers(self, fields: Fields, names: Sequence[str]) -> tuple[HeaderValue, ...]:
        """Return the valid ones among the headers, one after another."""
        values: list[HeaderValue] = []
        offset = 0
        for name in names:
            slots = self.layout.headers[name]
            if fields[slots.valid]:
                length = header_bytes(fields, slots)
                values.append(header_value(fields, slots, offset, length))
                offset += length
        return tuple(values)

    # ---- the parser

    def parser_state(
        self, state: ParserState, operations: tuple[Operation, ...], select: Select
    ) -> tuple[tuple[Operation, ...], Select]:
        """Record the state, what it extracts and sets, and its successor."""

        def enter(_fields: Fields, _data: bytes, cursor: int) -> int:
            self.steps.append(StateEntered(state.name))
            return cursor

        traced = [self._operation(item, run) for item, run in zip(state.operations, operations, strict=True)]
        return (enter, *traced), self._select(state, select)

    def _operation(self, operation: ParserOp, run: Operation) -> Operation:
        if isinstance(operation, Extract):
            return self._extract(operation, run)
        if isinstance(operation, Verify):
            return self._verify(operation, run)
        statement = self._watch.statement(operation, None, operation_text(operation))

        def traced(fields: Fields, data: bytes, cursor: int) -> int:
            finish = statement(fields, ())
            cursor = run(fields, data, cursor)
            self.steps.append(finish(fields))
            return cursor

        return traced

    def _extract(self, operation: Extract, run: Operation) -> Operation:
        locate, name = self._extracted_header(operation), expression_text(operation.target)

        def traced(fields: Fields, data: bytes, cursor: int) -> int:
            try:
                end = run(fields, data, cursor)
            except (ParserError, StackFault):
                self.steps.append(NotExtracted(name, len(data) - cursor))
                raise
            self.steps.append(Extracted(header_value(fields, locate(fields), cursor, end - cursor)))
            return end

        return traced

    def _extracted_header(self, operation: Extract) -> Callable[[Fields], HeaderSlots]:
        if isinstance(operation.target, HeaderRef):
            slots = self.layout.headers[operation.target.name]
            return lambda _fields: slots
        rows, following = self.layout.rows(operation.target.name), self.layout.next_index[operation.target.name]
        return lambda fields: rows[fields[following] - 1][operation.member]

    def _verify(self, operation: Verify, run: Operation) -> Operation:
        condition, text = bind(operation.condition, self.layout), operation_text(operation)

        def traced(fields: Fields, data: bytes, cursor: int) -> int:
            self.steps.append(Decided("parser", text, bool(condition(fields, ())), None))
            return run(fields, data, cursor)

        return traced

    def _select(self, state: ParserState, select: Select) -> Select:
        key = [_select_part(part, self.layout) for part in state.key]

        def traced(fields: Fields, data: bytes, cursor: int) -> int:
            number = select(fields, data, cursor)
            values = tuple(part(fields, data, cursor) for part in key)
            self.steps.append(Selected(values, None if number < 0 else self._states[number]))
            return number

        return traced

    # ---- checksums

    def verified(self, checksum: Checksum, compute: Compute) -> Compute:
        """Record the expected value of a received checksum."""
        name, slot, width = self._target(checksum)
        mask = (1 << width) - 1

        def traced(fields: Fields, payload: bytes) -> int:
            computed, value = compute(fields, payload), fields[slot] & mask
            self.steps.append(Verified(name, width, value, computed, computed == value, checksum.source))
            return computed

        return traced

    def updated(self, checksum: Checksum, compute: Compute) -> Compute:
        """Record the new value of a checksum."""
        name, slot, width = self._target(checksum)

        def traced(fields: Fields, payload: bytes) -> int:
            before, computed = fields[slot], compute(fields, payload)
            change = Change(name, width, before, computed & ((1 << width) - 1))
            self.steps.append(Updated(change, checksum.source))
            return computed

        return traced

    def _target(self, checksum: Checksum) -> tuple[str, int, int]:
        ref = checksum.target
        return f"{ref.header}.{ref.field}", self.layout.slot(ref), self.layout.spec(ref).width_bits

    # ---- control flow

    def condition(self, node: ConditionNode, evaluate: Evaluate) -> Evaluate:
        """Record the direction of a branch."""
        text = _text(node.source) or expression_text(node.condition)
        return self._decision("control", text, node.source, evaluate)

    def jump(self, action: Action, index: int, evaluate: Evaluate) -> Evaluate:
        """Record the direction of a branch in an action."""
        jump, source = action.primitives[index], _source_of(action, index)
        assert isinstance(jump, JumpIfZero)
        return self._decision("action", _text(source) or expression_text(jump.condition), source, evaluate)

    def _decision(self, within: str, text: str, source: Source | None, evaluate: Evaluate) -> Evaluate:
        def traced(fields: Fields, arguments: Arguments) -> int:
            self.last_source = source
            result = evaluate(fields, arguments)
            self.steps.append(Decided(within, text, bool(result), source))
            return result

        return traced

    def call(self, node: CallNode, run: Step) -> Step:
        """Record an action that is called outside of tables."""
        name = node.action.name
        is_declared = "." in name or name in self._declared
        called = Called(name if is_declared else None, _arguments(node.action, node.arguments), node.source)

        def traced(fields: Fields, arguments: Arguments) -> None:
            self.steps.append(called)
            run(fields, arguments)

        return traced

    def table(self, node: TableNode, find: Find) -> Find:
        """Record key, entry and action of a lookup."""
        table = self._state.tables[node.name]
        meter = None if node.meter_target is None else self.layout.slot(node.meter_target)

        def traced(fields: Fields, key: tuple[int, ...]) -> tuple[ActionCall | None, TableEntry | None]:
            self.last_source = node.source
            call, entry = find(fields, key)
            colour = None if meter is None or entry is None or call is None else fields[meter]
            self.steps.append(_applied(node, table, key, call or table.default, entry, call is not None, colour))
            return call, entry

        return traced

    def primitive(self, action: Action, index: int, run: Step) -> Step:
        """Record what a statement sets and uses."""
        item, source = action.primitives[index], _source_of(action, index)
        statement = self._watch.statement(item, source, _text(source))
        cause = self._watch.cause(item)

        def traced(fields: Fields, arguments: Arguments) -> None:
            self.last_source = source
            finish = statement(fields, arguments)
            run(fields, arguments)
            if cause is not None:
                self.causes[cause] = source
            self.steps.append(finish(fields))

        return traced


def header_value(fields: Fields, slots: HeaderSlots, offset: int, length: int) -> HeaderValue:
    """Return a header's current value; a varbit has its width in this packet."""
    values = []
    for spec in slots.header.type.fields:
        width = fields[slots.length] if spec.variable else spec.width_bits
        values.append(Value(spec.name, width, fields[slots.by_name[spec.name]]))
    return HeaderValue(slots.header.name, offset, length, tuple(values))


def _select_part(part: SelectPart, layout: Layout) -> Callable[[Fields, bytes, int], Value]:
    name, width, source = expression_text(part.source), part.width_bits, part.source
    mask = (1 << width) - 1
    if isinstance(source, Lookahead):
        last = (source.offset_bits + source.width_bits + 7) // 8
        shift = 8 * last - source.offset_bits - source.width_bits
        return lambda _fields, data, cursor: Value(
            name, width, int.from_bytes(data[cursor : cursor + last], "big") >> shift & mask
        )
    evaluate = bind(source, layout)
    return lambda fields, _data, _cursor: Value(name, width, evaluate(fields, ()) & mask)


def _applied(  # noqa: PLR0917 - a step's parts
    node: TableNode,
    table: MatchTable,
    key: tuple[int, ...],
    call: ActionCall | None,
    entry: TableEntry | None,
    hit: bool,
    colour: int | None,
) -> TableApplied:
    fields = table.spec.keys
    matches = (None,) * len(fields) if entry is None else map(match_text, fields, entry.match)
    parts = tuple(
        KeyPart(field.name.replace(f".{VALID}", ".isValid()"), field.kind.value, field.width, value, match)
        for field, value, match in zip(fields, key, matches, strict=True)
    )
    return TableApplied(
        node.name,
        parts,
        hit,
        len(table),
        entry.priority if entry is not None and table.needs_priority else None,
        None if entry is None else entry.member,
        None if entry is None else entry.group,
        entry is not None and entry.is_const,
        colour,
        None if call is None else call.action,
        _arguments(node.actions[call.action], call.arguments)
        if call is not None and call.action in node.actions
        else (),
        node.source,
    )


def _arguments(action: Action, arguments: Sequence[int]) -> tuple[Value, ...]:
    named = zip(action.spec.parameters, arguments, strict=True)
    return tuple(Value(name, width, value) for (name, width), value in named)


def _source_of(action: Action, index: int) -> Source | None:
    return action.sources[index] if action.sources else None


def _text(source: Source | None) -> str:
    return "" if source is None else source.text
