"""PacketReplicationEngineEntry: multicast groups and clone sessions (specification, section 9.5)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeVar

from finsy.proto import p4r

from dataplane.switch.p4runtime import bytestrings, strings
from dataplane.switch.p4runtime.catalog import MAX_MULTICAST_GROUPS
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid
from dataplane.switch.p4runtime.strings import StringMap
from dataplane.switch.tables import CloneSession, ForwardingState, Replica

_Value = TypeVar("_Value")

_PORT_BITS = 9
_MAX_INSTANCE = 0xFFFF
_MAX_SESSION = 0x7FFF
_MAX_CLASS = 7
_MAX_LENGTH = 0xFFFF
"""v1model: ports of 9 bits; egress_rid, mcast_grp, packet_length of 16; priority of 3. bmv2: 2^15 sessions."""

GROUP = "multicast group"
SESSION = "clone session"


def write(context: Context, kind: UpdateKind, message: p4r.PacketReplicationEngineEntry) -> None:
    """Insert, modify or delete a multicast group or clone session."""
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            _write_group(context, kind, message.multicast_group_entry)
        case "clone_session_entry":
            _write_session(context, kind, message.clone_session_entry)
        case _:
            raise invalid("the packet replication entry is empty")


def _write_group(context: Context, kind: UpdateKind, message: p4r.MulticastGroupEntry) -> None:
    state, ports, group_id = context.state, context.catalog.strings.ports, message.multicast_group_id
    _check_id(GROUP, group_id, MAX_MULTICAST_GROUPS)
    _check_presence(GROUP, group_id, kind, present=group_id in state.multicast_groups)
    if kind is UpdateKind.DELETE:
        del state.multicast_groups[group_id]
        state.replication_notes.pop((GROUP, group_id), None)
        return
    places = _places(message.replicas, ports, f"{GROUP} {group_id}")
    state.multicast_groups[group_id] = _present(places, state.ports_down)
    state.replication_notes[GROUP, group_id] = _note(message, ports)


def _write_session(context: Context, kind: UpdateKind, message: p4r.CloneSessionEntry) -> None:
    state, ports, session_id = context.state, context.catalog.strings.ports, message.session_id
    _check_id(SESSION, session_id, _MAX_SESSION)
    _check_presence(SESSION, session_id, kind, present=session_id in state.clone_sessions)
    if kind is UpdateKind.DELETE:
        del state.clone_sessions[session_id]
        state.replication_notes.pop((SESSION, session_id), None)
        return
    where = f"{SESSION} {session_id}"
    if not 0 <= message.class_of_service <= _MAX_CLASS:
        raise invalid(f"{where}: class of service {message.class_of_service} is not in 0..{_MAX_CLASS}")
    if not 0 <= message.packet_length_bytes <= _MAX_LENGTH:
        raise invalid(f"{where}: packet length {message.packet_length_bytes} is not in 0..{_MAX_LENGTH}")
    replicas = _present(_places(message.replicas, ports, where), state.ports_down)
    state.clone_sessions[session_id] = CloneSession(replicas, message.class_of_service, message.packet_length_bytes)
    state.replication_notes[SESSION, session_id] = _note(message, ports)


def follow_ports(state: ForwardingState, ports: StringMap | None) -> None:
    """Move copies whose port went down to their backups, and back when it is up; the caller holds the state's lock."""
    for (kind, identifier), note in state.replication_notes.items():
        message = p4r.MulticastGroupEntry if kind == GROUP else p4r.CloneSessionEntry
        written = message.FromString(note).replicas
        if not any(replica.backup_replicas for replica in written):
            continue
        replicas = _present(_places(written, ports, f"{kind} {identifier}"), state.ports_down)
        if kind == GROUP:
            state.multicast_groups[identifier] = replicas
        else:
            state.clone_sessions[identifier] = replace(state.clone_sessions[identifier], replicas=replicas)


def undo(context: Context, message: p4r.PacketReplicationEngineEntry) -> Undo:
    """Return a function that restores the present state of the group or session."""
    state = context.state
    if message.WhichOneof("type") == "multicast_group_entry":
        return _undo(state, state.multicast_groups, GROUP, message.multicast_group_entry.multicast_group_id)
    return _undo(state, state.clone_sessions, SESSION, message.clone_session_entry.session_id)


def _undo(state: ForwardingState, values: MutableMapping[int, _Value], kind: str, identifier: int) -> Undo:
    present, note = values.get(identifier), state.replication_notes.get((kind, identifier))

    def restore() -> None:
        if present is None:
            del values[identifier]
        else:
            values[identifier] = present
        if note is None:
            state.replication_notes.pop((kind, identifier), None)
        else:
            state.replication_notes[kind, identifier] = note

    return restore


def _note(message: p4r.MulticastGroupEntry | p4r.CloneSessionEntry, ports: StringMap | None) -> bytes:
    """Return the response to a read: the message as written, ports in canonical form (both kinds are in use)."""
    answer = copy.deepcopy(message)
    for replica in () if ports is not None else answer.replicas:
        if replica.WhichOneof("port_kind") == "port":
            replica.port = bytestrings.encode(int.from_bytes(replica.port, "big"))
        for backup in replica.backup_replicas:
            backup.port = bytestrings.encode(int.from_bytes(backup.port, "big"))
    return answer.SerializeToString()


BackedReplica = tuple[Replica, ...]
"""One copy of a packet: the preferred replica, then its backups, in order."""


def _present(places: Iterable[BackedReplica], down: AbstractSet[int]) -> tuple[Replica, ...]:
    """Return the present replicas; a copy whose ports are all down is not made, unless it has no backup."""
    replicas: list[Replica] = []
    for alternatives in places:
        usable = (
            [replica for replica in alternatives if replica.port not in down] if len(alternatives) > 1 else alternatives
        )
        replicas += usable[:1]
    return tuple(replicas)


def _places(messages: Iterable[p4r.Replica], ports: StringMap | None, where: str) -> tuple[BackedReplica, ...]:
    places = tuple(_place(message, ports, where) for message in messages)
    every = [replica for alternatives in places for replica in alternatives]
    if len(set(every)) != len(every):
        raise invalid(f"{where}: a port and instance occur twice")
    if any(backup.port == alternatives[0].port for alternatives in places for backup in alternatives[1:]):
        raise invalid(f"{where}: a replica and its backup have the same port")
    return places


def _place(message: p4r.Replica, ports: StringMap | None, where: str) -> BackedReplica:
    match message.WhichOneof("port_kind"):
        case "port":
            port = strings.decode(ports, message.port, _PORT_BITS, f"{where}: port")
        case "egress_port":
            port = message.egress_port
        case _:
            raise invalid(f"{where}: a replica has no port")
    preferred = _replica(port, message.instance, where)
    return preferred, *(
        _replica(strings.decode(ports, backup.port, _PORT_BITS, f"{where}: backup port"), backup.instance, where)
        for backup in message.backup_replicas
    )


def _replica(port: int, instance: int, where: str) -> Replica:
    if port >> _PORT_BITS:
        raise invalid(f"{where}: port {port} does not fit {_PORT_BITS} bits")
    if instance > _MAX_INSTANCE:
        raise invalid(f"{where}: instance {instance} is above {_MAX_INSTANCE}")
    return Replica(port, instance)


def read(context: Context, message: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
    """Return one group or session, or all of the kind."""
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            return iter(_read_groups(context, message.multicast_group_entry.multicast_group_id))
        case "clone_session_entry":
            return iter(_read_sessions(context, message.clone_session_entry.session_id))
        case _:
            raise invalid("the packet replication entry is empty")


def _read_groups(context: Context, wanted: int) -> list[p4r.Entity]:
    entities, state = [], context.state
    for group_id, replicas in state.multicast_groups.items():
        if wanted in {0, group_id}:
            entry = p4r.MulticastGroupEntry(multicast_group_id=group_id, replicas=_encode(context, replicas))
            note = state.replication_notes.get((GROUP, group_id))
            if note is not None:
                entry = p4r.MulticastGroupEntry.FromString(note)
            engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
            entities.append(p4r.Entity(packet_replication_engine_entry=engine))
    return entities


def _read_sessions(context: Context, wanted: int) -> list[p4r.Entity]:
    entities, state = [], context.state
    for session_id, session in state.clone_sessions.items():
        if wanted in {0, session_id}:
            entry = p4r.CloneSessionEntry(
                session_id=session_id,
                replicas=_encode(context, session.replicas),
                class_of_service=session.class_of_service,
                packet_length_bytes=session.packet_length_bytes,
            )
            note = state.replication_notes.get((SESSION, session_id))
            if note is not None:
                entry = p4r.CloneSessionEntry.FromString(note)
            engine = p4r.PacketReplicationEngineEntry(clone_session_entry=entry)
            entities.append(p4r.Entity(packet_replication_engine_entry=engine))
    return entities


def _encode(context: Context, replicas: Iterable[Replica]) -> list[p4r.Replica]:
    ports = context.catalog.strings.ports
    return [p4r.Replica(port=strings.encode(ports, item.port), instance=item.instance) for item in replicas]


def _check_id(what: str, identifier: int, largest: int) -> None:
    if not 1 <= identifier <= largest:
        raise invalid(f"{what} {identifier} is not in 1..{largest}")


def _check_presence(what: str, identifier: int, kind: UpdateKind, *, present: bool) -> None:
    if kind is UpdateKind.INSERT and present:
        raise P4RuntimeError(Code.ALREADY_EXISTS, f"{what} {identifier} already exists")
    if kind is not UpdateKind.INSERT and not present:
        raise P4RuntimeError(Code.NOT_FOUND, f"there is no {what} {identifier}")
