"""The runtime files of p4lang/tutorials: a JSON object with the entries that a controller writes at the start.

A match is a value or [value] (exact), [value, length] (lpm), [value, mask] (ternary) or [low, high] (range); values are
numbers or strings: numbers, IPv4, IPv6 and MAC addresses. Format: p4lang/tutorials,
utils/p4runtime_lib/simple_controller.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import msgspec

from dataplane.errors import ConfigError, EntryError, EntryFault
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall, KeyField, MatchKind, TableSpec
from dataplane.stf.names import find_name
from dataplane.switch.tables import ActionSet, CloneSession, ForwardingState, Replica, TableEntry, WeightedAction
from dataplane.switch.tables.match import FieldMatch, any_value, prefix_mask
from dataplane.switch.tracing.literals import read_number

Written: TypeAlias = int | str


class RuntimeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a table, or its default action."""

    table: str
    action_name: str
    match: dict[str, Written | list[Written]] = {}
    action_params: dict[str, Written] = {}
    default_action: bool = False
    priority: int = 0


class RuntimeReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A copy to a port."""

    egress_port: int
    instance: int = 0


class RuntimeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A multicast group."""

    multicast_group_id: int
    replicas: list[RuntimeReplica]


class RuntimeSession(msgspec.Struct, frozen=True, kw_only=True):
    """A clone session."""

    clone_session_id: int
    replicas: list[RuntimeReplica]
    packet_length_bytes: int = 0


class RuntimeFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file; its target and program fields are ignored."""

    table_entries: list[RuntimeEntry] = []
    multicast_group_entries: list[RuntimeGroup] = []
    clone_session_entries: list[RuntimeSession] = []


def fill_from_runtime(content: RuntimeFile, program: Program, state: ForwardingState, file: str) -> None:
    """Write a file's entries into a state; raise ConfigError naming file and entry."""
    for number, entry in enumerate(content.table_entries):
        with _named(file, f"table_entries[{number}]"):
            _put(entry, program, state)
    for number, group in enumerate(content.multicast_group_entries):
        with _named(file, f"multicast_group_entries[{number}]"):
            state.multicast_groups[group.multicast_group_id] = _replicas(group.replicas)
    for number, session in enumerate(content.clone_session_entries):
        with _named(file, f"clone_session_entries[{number}]"):
            copies = CloneSession(_replicas(session.replicas), packet_length_bytes=session.packet_length_bytes)
            state.clone_sessions[session.clone_session_id] = copies


@contextmanager
def _named(file: str, key: str) -> Iterator[None]:
    try:
        yield
    except EntryError as error:
        raise ConfigError(str(error), file=file, key=key) from error


def _replicas(written: list[RuntimeReplica]) -> tuple[Replica, ...]:
    return tuple(Replica(replica.egress_port, replica.instance) for replica in written)


def _put(entry: RuntimeEntry, program: Program, state: ForwardingState) -> None:
    table = state.tables[find_name(state.tables, entry.table, "table")]
    spec = table.spec
    call = _call(entry, spec, program)
    if entry.default_action:
        table.set_default(call)
        return
    given = {
        find_name([key.name for key in spec.keys], name, f"{spec.name}: key field"): match
        for name, match in entry.match.items()
    }
    match = tuple(_match(key, given[key.name], spec.name) if key.name in given else any_value(key) for key in spec.keys)
    priority = max(1, entry.priority) if table.needs_priority else 0
    if table.profile is None:
        table.insert(TableEntry(match, priority, call=call))
    else:
        table.insert(TableEntry(match, priority, action_set=ActionSet((WeightedAction(call),))))


def _call(entry: RuntimeEntry, spec: TableSpec, program: Program) -> ActionCall:
    name = find_name(spec.actions, entry.action_name, f"{spec.name}: action")
    parameters = program.actions[name].parameters if name in program.actions else ()
    return ActionCall(name, _arguments(entry.action_params, parameters, f"{spec.name}: {name}"))


def _arguments(given: Mapping[str, Written], parameters: tuple[tuple[str, int], ...], where: str) -> tuple[int, ...]:
    names = [name for name, _ in parameters]
    for name in (*names, *given):
        if name not in given or name not in names:
            problem = f"argument {name} is missing" if name in names else f"has no parameter {name}"
            raise EntryError(EntryFault.INVALID, problem, where=where)
    return tuple(_number(given[name], f"{where}: {name}") for name in names)


def _number(written: Written, where: str) -> int:
    number = written if isinstance(written, int) else read_number(written)
    if number is None:
        raise EntryError(EntryFault.INVALID, f"{written!r} is neither a number nor an address", where=where)
    return number


def _match(key: KeyField, written: Written | list[Written], table: str) -> FieldMatch:
    where = f"{table}: {key.name}"
    parts = written if isinstance(written, list) else [written]
    if len(parts) == 1:
        value = _number(parts[0], where)
        match key.kind:
            case MatchKind.LPM:
                return value, key.width
            case MatchKind.TERNARY:
                return value, (1 << key.width) - 1
            case MatchKind.RANGE:
                return value, value
        return value
    if len(parts) != 2:
        raise EntryError(EntryFault.INVALID, f"{parts} is neither one value nor two", where=where)
    first, second = (_number(part, where) for part in parts)
    match key.kind:
        case MatchKind.LPM:
            if not 0 <= second <= key.width:
                raise EntryError(EntryFault.INVALID, f"{second} is no prefix length of {key.width} bits", where=where)
            return first & prefix_mask(key.width, second), second
        case MatchKind.TERNARY:
            return first & second, second
        case MatchKind.RANGE:
            return first, second
    raise EntryError(EntryFault.INVALID, f"{parts} is not one value, as an {key.kind} field requires", where=where)
