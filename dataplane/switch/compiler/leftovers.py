"""What a fresh packet may keep of the one before it in the same memory, because nobody ever sees that.

p4c makes hundreds of metadata fields for the values within one control or action; clearing them for each packet costs
more than a plain packet's tables. So do the headers that a switch only writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from dataplane.program.model import (
    VALID,
    Action,
    CallNode,
    ConditionNode,
    Header,
    KeyPart,
    Node,
    ParserSet,
    ParserState,
    Pipeline,
    Program,
    TableNode,
)
from dataplane.program.operations import (
    Assign,
    Constant,
    ElementFieldRef,
    ElementRef,
    FieldRef,
    Hash,
    HeaderRef,
    Jump,
    JumpIfZero,
    LastFieldRef,
    RegisterRead,
    StackRef,
)
from dataplane.program.pipelines import successors

Place = TypeVar("Place", bound=Hashable)

_SWITCH_STRUCTS = {"standard_metadata", "intrinsic_metadata", "queueing_metadata"}


def unseen_fields(program: Program) -> frozenset[FieldRef]:
    """Return the metadata fields that parser, controls and deparser each write before they read them, if they do.

    What the switch itself reads or writes, or keeps from packet to packet, is not among them.
    """
    candidates = _candidates(program)
    bits = {ref: 1 << place for place, ref in enumerate(candidates)}
    exposed = _Uses(program, bits).exposed()
    return frozenset(ref for ref, bit in bits.items() if not exposed & bit)


def unseen_headers(program: Program) -> frozenset[str]:
    """Return the headers on the wire of which no field is ever read: they are only written, copied, and sent.

    All that happens while they are valid, and then they have been extracted or cleared. Keys of tables do not count as
    reading, since they take the fields of invalid headers for zero. Stacks are among them as a whole or not at all.
    """
    seen = {item.header for item in _read_everywhere(program) if isinstance(item, FieldRef) and item.field != VALID}
    moved = {item.stack for item in _read_everywhere(program) if isinstance(item, ElementRef | LastFieldRef)}
    for stack in (*program.stacks, *program.union_stacks):
        names = {name for row in program.rows(stack) for name in row}
        if stack in moved or names & seen:
            seen |= names
    return frozenset(name for name, header in program.headers.items() if not header.metadata and name not in seen)


def _candidates(program: Program) -> list[FieldRef]:
    kept = {ref for refs in program.field_lists.values() for ref in refs} | set(program.aliases.values())
    kept |= {source for digest in program.digests.values() for source in digest.sources if isinstance(source, FieldRef)}
    whole = {item.name for item in _everything(program) if isinstance(item, HeaderRef)} | _SWITCH_STRUCTS
    return [
        ref
        for name, header in program.headers.items()
        if header.metadata and name not in whole
        for ref in _fields(name, header)
        if ref not in kept
    ]


def _fields(name: str, header: Header) -> Iterator[FieldRef]:
    return (FieldRef(name, spec.name) for spec in header.type.fields if not spec.variable)


# ---- what a program mentions

_Reference = FieldRef | ElementFieldRef | LastFieldRef | ElementRef | HeaderRef | StackRef


def _references(item: object) -> Iterator[_Reference]:
    """Return all references in an expression, a primitive or a tuple of such."""
    if isinstance(item, _Reference):
        yield item
    if isinstance(item, tuple):
        for part in item:
            yield from _references(part)
    else:
        for name in getattr(item, "__dataclass_fields__", ()):
            part = getattr(item, name)
            if not isinstance(part, int | str):
                yield from _references(part)


def _reads(item: object) -> Iterator[_Reference]:
    """Return what a primitive or parser operation reads: all but the field that it sets."""
    for name in getattr(item, "__dataclass_fields__", ()):
        part = getattr(item, name)
        if not (name == "target" and isinstance(part, FieldRef)):
            yield from _references(part)


def _actions(program: Program) -> Iterator[Action]:
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, CallNode):
                yield node.action
            elif isinstance(node, TableNode):
                yield from node.actions.values()


def _operations(program: Program) -> Iterator[object]:
    """Return the operations of all functions."""
    for state in program.parser.states.values():
        yield from state.operations
    for action in {id(action): action for action in _actions(program)}.values():
        yield from action.primitives
    yield from program.deparser.primitives


def _conditions(program: Program) -> Iterator[object]:
    """Return what is read outside of operations, but for the keys of tables."""
    for state in program.parser.states.values():
        yield from (part.source for part in state.key)
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, ConditionNode):
                yield node.condition
            elif isinstance(node, TableNode):
                yield node.selector
    yield from _outside(program)


def _outside(program: Program) -> Iterator[object]:
    """Return what is read behind the parser or before the deparser."""
    for checksum in program.checksums:
        yield from (checksum.condition, checksum.calculation)
        yield from (checksum.target,) if checksum.verify else ()
    yield from (digest.sources for digest in program.digests.values())


def _everything(program: Program) -> Iterator[_Reference]:
    for source in (_operations(program), _conditions(program)):
        for item in source:
            yield from _references(item)


def _read_everywhere(program: Program) -> Iterator[_Reference]:
    for operation in _operations(program):
        yield from _reads(operation)
    for item in _conditions(program):
        yield from _references(item)


# ---- what is read before it is written


@dataclass(frozen=True, slots=True)
class _Use:
    """What code does to fields, as sets of bits.

    `exposed` are read where they may not have been written before, `written` are written on every way through.
    """

    exposed: int = 0
    written: int = 0

    def then(self, following: _Use) -> _Use:
        """Return what this code and the following do, one behind the other."""
        return _Use(self.exposed | following.exposed & ~self.written, self.written | following.written)


class _Uses:
    """Finds what the functions of a program do to the fields that have bits."""

    def __init__(self, program: Program, bits: Mapping[FieldRef, int]) -> None:
        self.program, self.bits = program, bits
        self._actions: dict[int, _Use] = {}

    def exposed(self) -> int:
        """Return all fields that parser, a control, checksums or deparser may read before they write them."""
        program = self.program
        deparser = self._sequence([self._operation(item) for item in program.deparser.primitives])
        uses = (
            self._parser(program.parser.states, program.parser.initial),
            self._pipeline(program.ingress),
            self._pipeline(program.egress),
            self._read(_outside(program)),
            deparser.exposed,
        )
        return reduce(int.__or__, uses)

    def _parser(self, states: Mapping[str, ParserState], initial: str | None) -> int:
        uses = {name: self._state(state) for name, state in states.items()}
        following = {
            name: (state.default, *(case.next_state for case in state.transitions)) for name, state in states.items()
        }
        return _joined(uses, following, initial).exposed

    def _state(self, state: ParserState) -> _Use:
        key = _Use(self._read(part.source for part in state.key if isinstance(part, KeyPart)))
        return self._sequence([*map(self._operation, state.operations), key])

    def _pipeline(self, pipeline: Pipeline) -> int:
        uses = {name: self._node(node) for name, node in pipeline.nodes.items()}
        following = {name: successors(node) for name, node in pipeline.nodes.items()}
        return _joined(uses, following, pipeline.initial).exposed

    def _node(self, node: Node) -> _Use:
        match node:
            case CallNode():
                return self._action(node.action)
            case ConditionNode():
                return _Use(self._read([node.condition]))
            case TableNode():
                keys = _Use(self._read([*(key.source for key in node.keys), node.selector]))
                actions = [self._action(action) for action in node.actions.values()]
                exposed = reduce(int.__or__, (use.exposed for use in actions), 0)
                written = reduce(int.__and__, (use.written for use in actions), -1 if actions else 0)
                return keys.then(_Use(exposed, written))

    def _action(self, action: Action) -> _Use:
        use = self._actions.get(id(action))
        if use is None:
            use = self._actions[id(action)] = self._primitives(action.primitives)
        return use

    def _primitives(self, primitives: Sequence[object]) -> _Use:
        uses = [self._operation(item) for item in primitives]
        if not any(isinstance(item, Jump | JumpIfZero) for item in primitives):
            return self._sequence(uses)
        following: dict[int, tuple[int, ...]] = {}
        for place, item in enumerate(primitives):
            match item:
                case Jump(target):
                    following[place] = (target,)
                case JumpIfZero(_, target):
                    following[place] = (place + 1, target)
                case _:
                    following[place] = (place + 1,)
        return _joined(dict(enumerate(uses)), following, 0)

    def _sequence(self, uses: Iterable[_Use]) -> _Use:
        return reduce(_Use.then, uses, _Use())

    def _operation(self, item: object) -> _Use:
        """Return what an operation does; what it may leave alone it does not write."""
        written = 0
        match item:
            case Assign(FieldRef() as target) | ParserSet(FieldRef() as target) | Hash(FieldRef() as target):
                written = self.bits.get(target, 0)
            case RegisterRead(FieldRef() as target, register, Constant(index)):
                if 0 <= index < self.program.registers[register].size:
                    written = self.bits.get(target, 0)
        return _Use(self._bits(_reads(item)), written)

    def _read(self, items: Iterable[object]) -> int:
        return reduce(int.__or__, (self._bits(_references(item)) for item in items), 0)

    def _bits(self, references: Iterable[_Reference]) -> int:
        found = 0
        for item in references:
            if isinstance(item, FieldRef):
                found |= self.bits.get(item, 0)
        return found


def _joined(uses: Mapping[Place, _Use], following: Mapping[Place, Sequence[Place | None]], first: Place | None) -> _Use:
    """Return what a graph of code does that begins at `first`; what follows and is not among `uses` is its end."""
    if first not in uses:
        return _Use()
    assert first is not None
    before: dict[Place, int] = dict.fromkeys(order := _order(following, first), -1)
    before[first] = 0
    leaving, changed = -1, True
    while changed:
        changed = False
        for place in order:
            behind = before[place] | uses[place].written
            for name in following[place]:
                if name is None or name not in uses:
                    leaving &= behind
                elif before[name] & ~behind:
                    before[name] &= behind
                    changed = True
    exposed = reduce(int.__or__, (uses[place].exposed & ~before[place] for place in order), 0)
    return _Use(exposed, leaving)


def _order(following: Mapping[Place, Sequence[Place | None]], first: Place) -> list[Place]:
    """Return all that can be reached, each in front of what follows it, as far as there are no circles."""
    done: list[Place] = []
    met: set[Place] = {first}
    stack = [(first, iter(following[first]))]
    while stack:
        place, ways = stack[-1]
        for name in ways:
            if name is not None and name in following and name not in met:
                met.add(name)
                stack.append((name, iter(following[name])))
                break
        else:
            done.append(place)
            stack.pop()
    return done[::-1]
