"""Derives from a filter a few comparisons of a frame's raw bytes, which machine code can make before parsing.

A program's parser is walked from its start: while headers have fixed lengths, each field lies at a known position, and
each case of a select is a comparison of bytes, too. So a filter becomes alternatives, each a port or any, and bytes
with masks and values. Frames that fit none of them cannot satisfy the filter; those that fit one may: the caller then
parses them and checks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dataplane.program.model import (
    Advance,
    Extract,
    HeaderType,
    ParserSet,
    ParserState,
    Program,
    Transition,
    Verify,
)
from dataplane.program.operations import Constant, FieldRef, HeaderRef, LastFieldRef, Lookahead, StackRef
from dataplane.switch.tracing.filters import All, Any, Comparison, Condition, Named, Not, find_ref, header_name

MOST_PATHS, MOST_ALTERNATIVES, MOST_STATES = 2_048, 64, 64
"""Limits on paths through the parser, alternatives in total, and states per path; beyond them less is known."""

ByteCheck: TypeAlias = tuple[int, int, int, bool]
"""Offset, mask and value of a byte of the frame, and whether it must match or must not; bytes past the end do not."""
_INGRESS_PORT = FieldRef("standard_metadata", "ingress_port")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to satisfy a filter: the port (None: any), and bytes."""

    port: int | None = None
    checks: frozenset[ByteCheck] = frozenset()

    def joined(self, other: Alternative) -> Alternative | None:
        """Return the conjunction; None if the ports contradict each other."""
        if None not in {self.port, other.port} and self.port != other.port:
            return None
        return Alternative(other.port if self.port is None else self.port, self.checks | other.checks)

    def covers(self, other: Alternative) -> bool:
        """Return whether everything that fits the other fits this one."""
        return self.port in {None, other.port} and self.checks <= other.checks


ANYTHING = (Alternative(),)


@dataclass(frozen=True, slots=True)
class _Path:
    """The parser on its way: its position, the headers extracted so far (in bits), and the conditions of selects.

    `cursor` is None once a length depends on the packet: then nothing is known about what follows.
    """

    state: str | None
    cursor: int | None = 0
    places: Mapping[str, int] = field(default_factory=dict)
    elements: Mapping[str, int] = field(default_factory=dict)
    needed: Alternative = Alternative()
    states: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """Return everything relevant to the rest of the path, and the conditions for getting here."""
        return self.state, self.cursor, frozenset(self.places.items()), frozenset(self.elements.items()), self.needed

    @property
    def is_open(self) -> bool:
        """Return whether unknown headers may follow."""
        return self.state is not None or self.cursor is None


def prefilter(condition: Condition, program: Program) -> tuple[Alternative, ...]:
    """Return alternatives of which every frame that satisfies the condition fits one; none: nothing ever does."""
    if not _only_reads(program):
        return ANYTHING
    wanted = frozenset(name for name in _headers(condition, program) if not program.headers[name].metadata)
    alternatives: list[Alternative] = []
    for path in _paths(program, wanted):
        for alternative in _alternatives(condition, program, path):
            joined = alternative.joined(path.needed)
            if joined is not None and not any(other.covers(joined) for other in alternatives):
                alternatives = [other for other in alternatives if not joined.covers(other)] + [joined]
        if len(alternatives) > MOST_ALTERNATIVES:
            return ANYTHING
    return tuple(alternatives)


def _only_reads(program: Program) -> bool:
    """Return whether the parser leaves headers as they were in the frame: it sets only metadata."""
    operations = [operation for state in program.parser.states.values() for operation in state.operations]
    for operation in operations:
        match operation:
            case ParserSet(target=FieldRef(header)) if program.headers[header].metadata:
                continue
            case Extract() | Verify() | Advance():
                continue
        return False
    return True


def _headers(condition: Condition, program: Program) -> Iterator[str]:
    match condition:
        case Comparison(name):
            yield find_ref(name, program, "filter").header
        case Named(name):
            is_header = header_name(name) in program.headers
            yield header_name(name) if is_header else find_ref(name, program, "filter").header
        case Not(inner):
            yield from _headers(inner, program)
        case All(parts) | Any(parts):
            for part in parts:
                yield from _headers(part, program)


# ---- conditions along a path


def _alternatives(condition: Condition, program: Program, path: _Path) -> tuple[Alternative, ...]:
    match condition:
        case Comparison():
            return _compared(condition, program, path)
        case Named(name) if header_name(name) in program.headers:
            is_metadata = program.headers[header_name(name)].metadata
            return ANYTHING if is_metadata or header_name(name) in path.places or path.is_open else ()
        case Named(name):
            return _compared(Comparison(name, "!=", 0), program, path)
        case Not():
            return ANYTHING
        case Any(parts):
            return tuple(alternative for part in parts for alternative in _alternatives(part, program, path))[
                : MOST_ALTERNATIVES + 1
            ]
        case All(parts):
            every: tuple[Alternative, ...] = ANYTHING
            for part in parts:
                pairs = [(first, other) for first in every for other in _alternatives(part, program, path)]
                joined = [first.joined(other) for first, other in pairs[: MOST_ALTERNATIVES + 1]]
                every = tuple(alternative for alternative in joined if alternative is not None)
            return every


def _compared(comparison: Comparison, program: Program, path: _Path) -> tuple[Alternative, ...]:
    ref = find_ref(comparison.field, program, "filter")
    header = program.headers[ref.header]
    if header.metadata:
        is_port = ref == _INGRESS_PORT and comparison.sign == "==" and comparison.length is None
        return (Alternative(port=comparison.number),) if is_port else ANYTHING
    if ref.header not in path.places:
        return ANYTHING if path.is_open else ()
    offset, width = _offset(header.type, ref.field)
    if comparison.sign != "==" or offset is None or width is None:
        return ANYTHING
    length = width if comparison.length is None else comparison.length
    checks = _bytes(path.places[ref.header] + offset, length, comparison.number >> (width - length))
    return (Alternative(checks=frozenset(checks)),)


def _offset(header: HeaderType, name: str) -> tuple[int | None, int | None]:
    """Return a field's position in its header and its width in bits; None if that depends on the packet."""
    offset = 0
    for spec in header.fields:
        if spec.variable:
            break
        if spec.name == name:
            return offset, spec.width_bits
        offset += spec.width_bits
    return None, None


def _bytes(offset: int, width: int, value: int, mask: int | None = None) -> Iterator[ByteCheck]:
    """Yield the comparisons of bytes for a value of `width` bits at a bit position; `mask` excludes bits."""
    end = offset + width
    mask = (1 << width) - 1 if mask is None else mask
    padding = -end % 8
    value, mask = (value & mask) << padding, mask << padding
    last = (end + 7) // 8
    for index in range(last - 1, offset // 8 - 1, -1):
        if mask & 0xFF:
            yield index, mask & 0xFF, value & 0xFF, True
        value, mask = value >> 8, mask >> 8


# ---- the parser's paths


def _paths(program: Program, wanted: frozenset[str]) -> Iterator[_Path]:
    """Yield the paths through the parser, as far as they can lead to headers that a filter needs and has not found yet.

    Paths that are alike in everything relevant from there on are followed once; beyond a limit, they are left open.
    """
    reachable = _reachable(program)
    waiting, seen = deque([_Path(program.parser.initial)]), set()
    for _ in range(MOST_PATHS):
        if not waiting:
            return
        path = waiting.popleft()
        missing = wanted - path.places.keys()
        if path.state is None or path.cursor is None or not missing or path.states == MOST_STATES:
            yield path
            continue
        if not missing & reachable[path.state]:
            yield replace(path, state=None)
            continue
        state = program.parser.states[path.state]
        after = _extracted(path, state, program)
        if after is None:  # a stack is full: parsing ends with an error, and extracted headers stay
            yield replace(path, state=None)
            continue
        for following in _following(after, state, program):
            if following.key not in seen:
                seen.add(following.key)
                waiting.append(following)
    yield from waiting


def _reachable(program: Program) -> dict[str, frozenset[str]]:
    """Return, by state, the headers that it and its successors extract."""
    states = program.parser.states
    headers = {name: frozenset(_headers_of(state, program)) for name, state in states.items()}
    changed = True
    while changed:
        changed = False
        for name, state in states.items():
            following = (*(case.next_state for case in state.transitions), state.default)
            more = headers[name].union(*(headers[other] for other in following if other is not None))
            changed = changed or more != headers[name]
            headers[name] = more
    return headers


def _headers_of(state: ParserState, program: Program) -> Iterator[str]:
    for operation in state.operations:
        match operation:
            case Extract(HeaderRef(name)):
                yield name
            case Extract(StackRef(name), _, member):
                yield from (row[member] for row in program.rows(name))


def _extracted(path: _Path, state: ParserState, program: Program) -> _Path | None:
    """Return the path after a state's operations."""
    cursor, places, elements = path.cursor, dict(path.places), dict(path.elements)
    for operation in state.operations:
        if cursor is None:
            break
        match operation:
            case Extract(target, varbit, member):
                if isinstance(target, HeaderRef):
                    name = target.name
                else:
                    rows, number = program.rows(target.name), elements.get(target.name, 0)
                    if number == len(rows):
                        return None
                    name, elements[target.name] = rows[number][member], number + 1
                places[name] = cursor
                cursor = None if varbit is not None else cursor + program.headers[name].type.fixed_bits
            case Advance(Constant(bits)):
                cursor += bits
            case Advance():
                cursor = None
    return replace(path, cursor=cursor, places=places, elements=elements, states=path.states + 1)


def _following(path: _Path, state: ParserState, program: Program) -> Iterator[_Path]:
    """Yield a path for each case of a select, and one for none; those after a case know that it did not match."""
    for case in state.transitions:
        needed: Alternative | None = path.needed
        if isinstance(case, Transition) and path.cursor is not None:
            selected, is_all = _selected(path, state, case, program)
            needed = path.needed.joined(selected)
            if is_all and selected.port is None and len(selected.checks) == 1:
                ((at, mask, value, _),) = selected.checks
                others = Alternative(checks=path.needed.checks | {(at, mask, value, False)}, port=path.needed.port)
                path = replace(path, needed=others)
        if needed is not None:
            yield replace(path, state=case.next_state, needed=needed)
    yield replace(path, state=state.default)


def _selected(path: _Path, state: ParserState, case: Transition, program: Program) -> tuple[Alternative, bool]:
    """Return a select case's conditions on bytes and port, and whether those are all its conditions."""
    checks: set[ByteCheck] = set()
    port: int | None = None
    is_all = True
    value, mask = case.value, case.mask
    for part in reversed(state.key):
        padded, width = (part.width_bits + 7) // 8 * 8, part.width_bits
        part_value = value & ((1 << width) - 1)
        part_mask = (1 << width) - 1 if mask is None else mask & ((1 << width) - 1)
        value, mask = value >> padded, None if mask is None else mask >> padded
        offset = _key_offset(path, part.source, program)
        if offset is not None:
            checks |= set(_bytes(offset, width, part_value, part_mask))
        elif part.source == _INGRESS_PORT and part_mask == (1 << width) - 1:
            port = part_value
        else:
            is_all = is_all and part_mask == 0
    return Alternative(port, frozenset(checks)), is_all


def _key_offset(path: _Path, source: object, program: Program) -> int | None:
    """Return the position in the frame of a part of a select's key, in bits; None if it is not there, or not known."""
    match source:
        case Lookahead(offset) if path.cursor is not None:
            return path.cursor + offset
        case FieldRef(header, name):
            return _place(path, header, name, program)
        case LastFieldRef(stack, name, member) if path.elements.get(stack, 0):
            return _place(path, program.rows(stack)[path.elements[stack] - 1][member], name, program)
    return None


def _place(path: _Path, header: str, name: str, program: Program) -> int | None:
    offset = _offset(program.headers[header].type, name)[0]
    return None if offset is None or header not in path.places else path.places[header] + offset
