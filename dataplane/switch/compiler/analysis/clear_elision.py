"""Memory that a fresh packet may inherit uncleared from its predecessor, because the old contents are never seen.

p4c makes hundreds of metadata fields for the values within one control or action; clearing them for each packet costs
more than a plain packet's tables. The same goes for headers that a packet does not have.

A header's content is complete once it has been extracted, or made valid, which clears it: that is, wherever it is known
to be valid. It stays so when the header is made invalid again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dataplane.program.model import (
    VALID,
    Action,
    CallNode,
    ConditionNode,
    Extract,
    Header,
    Node,
    ParserSet,
    ParserState,
    Pipeline,
    Program,
    TableNode,
)
from dataplane.program.operations import (
    AddHeader,
    Assign,
    Binary,
    BinaryOp,
    Calculation,
    Choice,
    Constant,
    ElementRef,
    Expression,
    FieldRef,
    Hash,
    HeaderRef,
    Jump,
    JumpIfZero,
    LastFieldRef,
    RegisterRead,
)
from dataplane.program.pipelines import successors
from dataplane.switch.compiler.analysis.dataflow import Edge, Effects, Vertex, in_graph, in_sequence
from dataplane.switch.compiler.analysis.references import Reference, conditions, operations, parts, reads, references
from dataplane.switch.compiler.analysis.validity import valid_where

_SWITCH_STRUCTS = {"standard_metadata", "intrinsic_metadata", "queueing_metadata"}


@dataclass(frozen=True, slots=True)
class Uncleared:
    """Metadata fields and headers on the wire whose memory a fresh packet may find uncleared."""

    fields: frozenset[FieldRef]
    headers: frozenset[str]


def uncleared(program: Program) -> Uncleared:
    """Return what parser, controls and deparser each write before they read it, if they do, whichever path is taken.

    Keys of tables and calculations take nothing from invalid headers. Stacks are included as a whole or not at all.
    """
    fields = own_fields(program)
    field_bits = {ref: 1 << position for position, ref in enumerate(fields)}
    header_bits = {name: 1 << position for position, name in enumerate(_lone_headers(program), len(fields))}
    exposed = _Dataflow(program, field_bits, header_bits).exposed()
    return Uncleared(
        frozenset(ref for ref, bit in field_bits.items() if not exposed & bit),
        frozenset(name for name, bit in header_bits.items() if not exposed & bit) | _unread_stacks(program),
    )


def own_fields(program: Program) -> list[FieldRef]:
    """Return the metadata fields that only the program reads or writes and that no copy keeps."""
    kept = {ref for refs in program.field_lists.values() for ref in refs} | set(program.aliases.values())
    kept |= {source for digest in program.digests.values() for source in digest.sources if isinstance(source, FieldRef)}
    whole = {item.name for item in _referenced(program) if isinstance(item, HeaderRef)} | _SWITCH_STRUCTS
    return [
        ref
        for name, header in program.headers.items()
        if header.metadata and name not in whole
        for ref in _fields(name, header)
        if ref not in kept
    ]


def _fields(name: str, header: Header) -> Iterator[FieldRef]:
    return (FieldRef(name, spec.name) for spec in header.type.fields if not spec.variable)


def _referenced(program: Program) -> Iterator[Reference]:
    for source in (operations(program), conditions(program)):
        for item in source:
            yield from references(item)


# ---- headers on the wire


def _stacks(program: Program) -> dict[str, set[str]]:
    """Return the headers of each stack."""
    names = (*program.stacks, *program.union_stacks)
    return {stack: {name for row in program.rows(stack) for name in row} for stack in names}


def _lone_headers(program: Program) -> list[str]:
    """Return the headers that are in no stack and become valid only together with their content."""
    stacked = set[str]().union(*_stacks(program).values())
    targets = [getattr(item, "target", None) for item in operations(program)]
    set_by_hand = {ref.header for ref in targets if isinstance(ref, FieldRef) and ref.field == VALID}
    names = (name for name, header in program.headers.items() if not header.metadata)
    return [name for name in names if name not in stacked | set_by_hand]


def _unread_stacks(program: Program) -> frozenset[str]:
    """Return the headers of stacks whose elements are never read: only written, copied, and sent."""
    read = list(_read_anywhere(program))
    seen = {item.header for item in read if isinstance(item, FieldRef) and item.field != VALID}
    moved = {item.stack for item in read if isinstance(item, ElementRef | LastFieldRef)}
    stacks = _stacks(program).items()
    shown = set[str]().union(*(names for stack, names in stacks if stack in moved or names & seen))
    return frozenset(set[str]().union(*(names for _, names in stacks)) - shown)


def _read_anywhere(program: Program) -> Iterator[Reference]:
    for operation in operations(program):
        yield from references(tuple(reads(operation)))
    for item in conditions(program):
        yield from references(item)
    yield from references(tuple(program.field_lists.values()))


# ---- reads before writes


class _Dataflow:
    """Computes the effects of a program's functions on the fields and headers that have bits."""

    def __init__(self, program: Program, field_bits: Mapping[FieldRef, int], header_bits: Mapping[str, int]) -> None:
        self.program, self.field_bits, self.header_bits = program, field_bits, header_bits
        self._actions: dict[int, Effects] = {}

    def exposed(self) -> int:
        """Return all that parser, a control, checksums, deparser or copies may read before it is written."""
        program = self.program
        deparser = in_sequence(self._operation(item) for item in program.deparser.primitives)
        effects = (
            self._parser(program.parser.states, program.parser.initial),
            self._pipeline(program.ingress),
            self._pipeline(program.egress),
            self._checksums(),
            self._read(tuple(digest.sources for digest in program.digests.values())),
            self._read(tuple(program.field_lists.values())),
            deparser.exposed,
        )
        return reduce(int.__or__, effects)

    def _parser(self, states: Mapping[str, ParserState], initial: str | None) -> int:
        effects = {name: self._state(state) for name, state in states.items()}
        edges = {
            name: [Edge(state.default), *(Edge(case.next_state) for case in state.transitions)]
            for name, state in states.items()
        }
        return in_graph(effects, edges, initial).exposed

    def _state(self, state: ParserState) -> Effects:
        key = Effects(self._read(tuple(part.source for part in state.key)))
        return in_sequence([*map(self._operation, state.operations), key])

    def _pipeline(self, pipeline: Pipeline) -> int:
        effects = {name: self._node(node) for name, node in pipeline.nodes.items()}
        edges = {name: self._edges(node) for name, node in pipeline.nodes.items()}
        return in_graph(effects, edges, pipeline.initial).exposed

    def _edges(self, node: Node) -> list[Edge[str]]:
        if isinstance(node, ConditionNode):
            return self._branches(node.condition, node.true_next, node.false_next)
        return [Edge(name) for name in successors(node)]

    def _branches(self, condition: Expression, if_true: Vertex | None, if_false: Vertex | None) -> list[Edge[Vertex]]:
        yes, no = (valid_where(condition, holds, self.header_bits) for holds in (True, False))
        return [Edge(if_true, yes), Edge(if_false, no)]

    def _node(self, node: Node) -> Effects:
        match node:
            case CallNode():
                return self._action(node.action)
            case ConditionNode():
                return Effects(self._read(node.condition))
            case TableNode():
                keys = self._metadata(key.source for key in node.keys) | self._read(node.selector)
                actions = [self._action(action) for action in node.actions.values()]
                exposed = reduce(int.__or__, (effect.exposed for effect in actions), keys)
                runs_action = actions and None not in node.miss_next
                written = reduce(int.__and__, (effect.written for effect in actions), -1) if runs_action else 0
                return Effects(exposed, written)

    def _action(self, action: Action) -> Effects:
        effect = self._actions.get(id(action))
        if effect is None:
            effect = self._actions[id(action)] = self._primitives(action.primitives)
        return effect

    def _primitives(self, primitives: Sequence[object]) -> Effects:
        effects = [self._operation(item) for item in primitives]
        if not any(isinstance(item, Jump | JumpIfZero) for item in primitives):
            return in_sequence(effects)
        edges: dict[int, list[Edge[int]]] = {}
        for position, item in enumerate(primitives):
            match item:
                case Jump(target):
                    edges[position] = [Edge(target)]
                case JumpIfZero(condition, target):
                    edges[position] = self._branches(condition, position + 1, target)
                case _:
                    edges[position] = [Edge(position + 1)]
        return in_graph(dict(enumerate(effects)), edges, 0)

    def _operation(self, item: object) -> Effects:
        """Return an operation's effects; what it may leave unchanged does not count as written."""
        written = 0
        match item:
            case Assign(FieldRef() as target) | ParserSet(FieldRef() as target) | Hash(FieldRef() as target):
                written = self.field_bits.get(target, 0)
            case RegisterRead(FieldRef() as target, register, Constant(index)):
                if 0 <= index < self.program.registers[register].size:
                    written = self.field_bits.get(target, 0)
            case AddHeader(HeaderRef(name)) | Extract(HeaderRef(name)):
                written = self.header_bits.get(name, 0)
        return Effects(self._read(tuple(reads(item))), written)

    def _checksums(self) -> int:
        reads = 0
        for checksum in self.program.checksums:
            reads |= self._read(checksum.condition) | self._read(checksum.calculation)
            if checksum.verify:  # where the header is valid
                reads |= self._metadata([checksum.target])
        return reads

    def _read(self, item: object) -> int:
        """Return what expressions, calculations or tuples of them read, except for headers known to be valid there."""
        match item:
            case FieldRef(header, field):
                return self.field_bits.get(item, 0) | (0 if field == VALID else self.header_bits.get(header, 0))
            case Calculation():
                return self._metadata(item.inputs)
            case Binary(BinaryOp.LOGICAL_AND | BinaryOp.LOGICAL_OR as op, left, right):
                valid = valid_where(left, op is BinaryOp.LOGICAL_AND, self.header_bits)
                return self._read(left) | self._read(right) & ~valid
            case Choice(condition, left, right):
                yes, no = (valid_where(condition, holds, self.header_bits) for holds in (True, False))
                return self._read(condition) | self._read(left) & ~yes | self._read(right) & ~no
        return reduce(int.__or__, map(self._read, parts(item)), 0)

    def _metadata(self, items: Iterable[object]) -> int:
        """Return what is read if invalid headers count as zero or are skipped."""
        return reduce(int.__or__, (self.field_bits.get(item, 0) for item in items if isinstance(item, FieldRef)), 0)
