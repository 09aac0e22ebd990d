"""Checks a P4Info on its own: ids are unique, and references resolve (P4Runtime, section 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from finsy.proto import p4i

from dataplane.errors import ProgramError


def check_p4info(info: p4i.P4Info, file: str) -> None:
    """Raise ProgramError naming the first object whose id, references or sizes make no sense."""
    for construct, problem in _problems(info):
        raise ProgramError(problem, file=file, construct=construct)


def _problems(info: p4i.P4Info) -> Iterator[tuple[str, str]]:
    """Yield each problem, with the object that it concerns."""
    yield from _identities(info)
    for table in info.tables:
        yield from _table(table, info)
    for action in info.actions:
        yield from _members(f"action {action.preamble.name}", "parameter", [item.id for item in action.params])
    for header in info.controller_packet_metadata:
        yield from _members(header.preamble.name, "metadata", [item.id for item in header.metadata])
    for value_set in info.value_sets:
        yield from _members(
            f"value set {value_set.preamble.name}", "match field", [item.id for item in value_set.match]
        )
    for profile in info.action_profiles:
        yield from _profile(profile, info)
    tables = {table.preamble.id: table for table in info.tables}
    for resource in _direct(info):
        if resource.preamble.id not in _resources_of(tables.get(resource.direct_table_id)):
            yield resource.preamble.name, f"no table {resource.direct_table_id:#010x} has it"
    for name, size in _sizes(info):
        if size < 0:
            yield name, f"its size is {size}"


def _direct(info: p4i.P4Info) -> Iterator[p4i.DirectCounter | p4i.DirectMeter]:
    yield from info.direct_counters
    yield from info.direct_meters


def _resources_of(table: p4i.Table | None) -> set[int]:
    return set() if table is None else set(table.direct_resource_ids)


def _sizes(info: p4i.P4Info) -> Iterator[tuple[str, int]]:
    yield from ((item.preamble.name, item.size) for item in info.tables)
    yield from ((item.preamble.name, item.size) for item in info.action_profiles)
    yield from ((item.preamble.name, item.size) for item in info.counters)
    yield from ((item.preamble.name, item.size) for item in info.meters)
    yield from ((item.preamble.name, item.size) for item in info.registers)
    yield from ((item.preamble.name, item.size) for item in info.value_sets)


def _identities(info: p4i.P4Info) -> Iterator[tuple[str, str]]:
    """Yield objects without an id, and those that share an id with another, or a name with one of their kind."""
    owners: dict[int, str] = {}
    for objects in _kinds(info):
        names: set[str] = set()
        for preamble in objects:
            if not preamble.id:
                yield preamble.name, "its id is 0"
            if preamble.id in owners:
                yield preamble.name, f"its id {preamble.id:#010x} is also that of {owners[preamble.id]}"
            if preamble.name in names:
                yield preamble.name, "is declared twice"
            owners[preamble.id] = preamble.name
            names.add(preamble.name)


def _kinds(info: p4i.P4Info) -> Iterator[list[p4i.Preamble]]:
    for objects in (
        info.tables,
        info.actions,
        info.action_profiles,
        info.counters,
        info.direct_counters,
        info.meters,
        info.direct_meters,
        info.controller_packet_metadata,
        info.value_sets,
        info.registers,
        info.digests,
    ):
        yield [item.preamble for item in objects]


def _members(construct: str, what: str, ids: Iterable[int]) -> Iterator[tuple[str, str]]:
    seen: set[int] = set()
    for identifier in ids:
        if not identifier or identifier in seen:
            yield construct, f"has a {what} with id {identifier}" + (" twice" if identifier else "")
        seen.add(identifier)


def _table(table: p4i.Table, info: p4i.P4Info) -> Iterator[tuple[str, str]]:
    construct, table_id = f"table {table.preamble.name}", table.preamble.id
    yield from _members(construct, "match field", [field.id for field in table.match_fields])
    yield from _members(construct, "action", [ref.id for ref in table.action_refs])
    profiles = {profile.preamble.id: profile for profile in info.action_profiles}
    if table.implementation_id and table_id not in _tables_of(profiles.get(table.implementation_id)):
        yield construct, f"no action profile {table.implementation_id:#010x} is its implementation"
    direct = {item.preamble.id for item in _direct(info)}
    for identifier in table.direct_resource_ids:
        if identifier not in direct:
            yield construct, f"no direct counter or meter has the id {identifier:#010x}"
    if table.const_default_action_id and table.const_default_action_id not in {ref.id for ref in table.action_refs}:
        yield construct, f"its const default action {table.const_default_action_id:#010x} is not one of its actions"


def _tables_of(profile: p4i.ActionProfile | None) -> set[int]:
    return set() if profile is None else set(profile.table_ids)


def _profile(profile: p4i.ActionProfile, info: p4i.P4Info) -> Iterator[tuple[str, str]]:
    construct = f"action profile {profile.preamble.name}"
    implemented = {table.preamble.id: table.implementation_id for table in info.tables}
    for table_id in profile.table_ids:
        if implemented.get(table_id) != profile.preamble.id:
            yield construct, f"no table {table_id:#010x} has it as its implementation"
    if profile.max_group_size < 0 or profile.max_group_size > profile.size > 0:
        yield construct, f"max_group_size {profile.max_group_size} is not in 0..{profile.size}, its size"
