"""Names whose content a switch holds, the writers of those that it records, and which are reported as hot (p4/store).

Entries can be converted back into their contents (`held_in`), so that a restarted controller continues from the
existing state. One entry is the controller's own memory: generations are given once, in cells, and the mark records up
to which; it stays in the switch as long as the cells do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Final, TypeAlias

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.network.tables.entities import Entities, Entity, key_of
from dataplane.store.names import HotName, Prefix, Segment

CELLS: Final = 4095
"""Cells of 1,024 bytes each (STORE_CELLS); the last one of the switch holds the mark."""
MAX_INTERVAL: Final = (1 << 15) - 1
MAX_THRESHOLD: Final = (1 << 16) - 1
MAX_ROUTES: Final = 1024
"""Entries of `store_routes`."""
ANY_SWITCH: Final = 0x1FF
"""Port of copies from a producer elsewhere: from any other switch, but no host."""
MAX_WRITERS: Final = 4096
"""Entries of `store_writers`."""

NAMES: Final = "store_names"
WRITERS: Final = "store_writers"
HOT_NAMES: Final = "store_hot_names"
ROUTES: Final = "store_routes"
TABLES: Final = frozenset({NAMES, WRITERS, HOT_NAMES, ROUTES})
"""Tables whose entries belong to the store."""
PACKETS: Final = "store_name_packets"
OUTCOMES: Final = "store_outcomes"
DIGEST: Final = "hot_name_t"

OUTCOME_NAMES: Final = ("answered", "missed", "filled", "raised", "old", "kept", "repeated", "refused", "passed")
"""Outcomes of packets with names that the switch holds, by index of the counter."""

MARK: Final = Segment(0)
"""No value ever has this name."""
_MARK_CELL: Final = CELLS
_ANY_PORT: Final = 0x1FF
_WHOLE: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Copied:
    """A segment that the switch copies from its producer, known by its address and port of the switch."""

    segment: Segment
    cell: int
    generation: int
    producer: int
    port: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A segment that is written into the switch by a group of writers; with `forward` a server gets it, too."""

    segment: Segment
    cell: int
    generation: int
    group: int
    forward: bool


@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """A host that may write: its address, and its port of the switch, 0 if it is elsewhere."""

    address: int
    port: int = 0


Placed: TypeAlias = Copied | Recorded


@dataclass(frozen=True, slots=True)
class StoreTables:
    """Store content of a switch: segments, writers by group, the mark, and the interval's number and threshold."""

    placed: Mapping[Segment, Placed] = field(default_factory=dict)
    writers: frozenset[tuple[int, Writer]] = frozenset()
    mark: int = 0
    interval: int = 0
    threshold: int = 0


def name_entity(placed: Placed) -> Entity:
    """Return the entry of a segment."""
    where = {"cell": placed.cell, "generation": placed.generation}
    if isinstance(placed, Copied):
        action = P4TableAction("cached", **where, producer=placed.producer, port=placed.port)
    else:
        action = P4TableAction("recorded", **where, writers=placed.group, forward=int(placed.forward))
    match = P4TableMatch(name=placed.segment.name, segment=placed.segment.number)
    return P4TableEntry(NAMES, match=match, action=action)


def mark_entity(generation: int) -> Entity:
    """Return the entry that marks all generations below this one as used: a name without writers."""
    return name_entity(Recorded(MARK, _MARK_CELL, generation, group=0, forward=False))


def writer_entity(group: int, writer: Writer) -> Entity:
    """Return the entry that lets a host write the names of a group (from 1)."""
    match = P4TableMatch(src_addr=writer.address, writers=group)
    if writer.port:
        match["ingress_port"] = (writer.port, _ANY_PORT)
    return P4TableEntry(WRITERS, match=match, action=P4TableAction("NoAction"), priority=1)


def hot_names_entity(interval: int, threshold: int) -> Entity:
    """Return the entry that restarts the count of interests, and reports names that reach a threshold (0: none)."""
    action = P4TableAction("find_hot", interval=interval, threshold=threshold)
    return P4TableEntry(HOT_NAMES, action=action, is_default_action=True)


def route_entity(prefix: Prefix, producer: int) -> Entity:
    """Return the entry that sends requests for names with a prefix to a producer; longer prefixes come first."""
    match = P4TableMatch()
    if prefix.first:
        match["first"] = (prefix.first, _WHOLE)
    if prefix.first_two:
        match["first_two"] = (prefix.first_two, _WHOLE)
    priority = 1 + bool(prefix.first) + bool(prefix.first_two)
    return P4TableEntry(ROUTES, match=match, action=P4TableAction("to_producer", producer=producer), priority=priority)


def routes_in(entities: Entities) -> dict[Prefix, int]:
    """Return the producers of prefixes that a switch's entries describe."""
    routes = {}
    for entity in entities.values():
        if isinstance(entity, P4TableEntry) and entity.table_id == ROUTES:
            match = dict(key_of(entity).match)
            first, first_two = (match.get(field, (0, 0)) for field in ("first", "first_two"))
            prefix = Prefix(*(value[0] if isinstance(value, tuple) else value for value in (first, first_two)))
            routes[prefix] = _arguments(entity)["producer"]
    return routes


def held_in(entities: Entities) -> StoreTables:
    """Return the store content that a switch's entries describe."""
    entries = [entity for entity in entities.values() if isinstance(entity, P4TableEntry)]
    placed = {placed_segment.segment: placed_segment for placed_segment in _placed(entries)}
    mark = placed.pop(MARK, None)
    hot = next((_arguments(entry) for entry in entries if entry.table_id == HOT_NAMES), dict[str, int]())
    writers = (_writer(entry) for entry in entries if entry.table_id == WRITERS)
    return StoreTables(
        placed,
        frozenset(writers),
        0 if mark is None else mark.generation,
        hot.get("interval", 0),
        hot.get("threshold", 0),
    )


def hot_name(message: Mapping[str, int]) -> HotName:
    """Return the content of a digest's message."""
    segment = Segment(message["name"], message["segment"])
    return HotName(segment, message["requests"], message["producer"], message["interval"])


def segment_of(entry: P4TableEntry) -> Segment:
    """Return the segment of an entry of `store_names`."""
    return Segment(_number(entry, "name"), _number(entry, "segment"))


def _placed(entries: list[P4TableEntry]) -> Iterator[Placed]:
    for entry in entries:
        if entry.table_id != NAMES:
            continue
        arguments, segment = _arguments(entry), segment_of(entry)
        if "producer" in arguments:
            yield Copied(segment, arguments["cell"], arguments["generation"], arguments["producer"], arguments["port"])
        else:
            yield Recorded(
                segment, arguments["cell"], arguments["generation"], arguments["writers"], bool(arguments["forward"])
            )


def _writer(entry: P4TableEntry) -> tuple[int, Writer]:
    port = dict(key_of(entry).match).get("ingress_port", (0, 0))
    return _number(entry, "writers"), Writer(_number(entry, "src_addr"), port[0] if isinstance(port, tuple) else port)


def _arguments(entry: P4TableEntry) -> dict[str, int]:
    action = entry.action
    return {name: int(value) for name, value in action.args.items()} if isinstance(action, P4TableAction) else {}


def _number(entry: P4TableEntry, field_name: str) -> int:
    match: Mapping[str, object] = entry.match or {}
    value = match[field_name]
    return int(value) if isinstance(value, int | IPv4Address) else 0
