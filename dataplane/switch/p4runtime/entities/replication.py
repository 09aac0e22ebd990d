"""PacketReplicationEngineEntry: multicast groups and clone sessions (specification, section 9.5)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from finsy.proto import p4r

from dataplane.switch.p4runtime import bytestrings
from dataplane.switch.p4runtime.context import Context, UpdateKind
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.tables import CloneSession, ForwardingState, Replica

_PORT_BITS = 9
_MAX_INSTANCE = 0xFFFF
_MAX_GROUP = 0xFFFF
_MAX_SESSION = 0x7FFF
_MAX_CLASS = 7
_MAX_LENGTH = 0xFFFF
"""v1model: ports of 9 bits; egress_rid, mcast_grp, packet_length of 16; priority of 3. bmv2: 2^15 sessions."""

GROUP = "multicast group"
SESSION = "clone session"


def write(context: Context, kind: UpdateKind, message: p4r.PacketReplicationEngineEntry) -> None:
    """Insert, modify or delete a multicast group or clone session."""
    state = context.state
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            _write_group(state, kind, message.multicast_group_entry)
        case "clone_session_entry":
            _write_session(state, kind, message.clone_session_entry)
        case _:
            raise invalid("the packet replication entry is empty")


def _write_group(state: ForwardingState, kind: UpdateKind, message: p4r.MulticastGroupEntry) -> None:
    group_id = message.multicast_group_id
    _check_id(GROUP, group_id, _MAX_GROUP)
    _check_presence(GROUP, group_id, kind, present=group_id in state.multicast_groups)
    if kind is UpdateKind.DELETE:
        del state.multicast_groups[group_id]
        state.replication_notes.pop((GROUP, group_id), None)
        return
    state.multicast_groups[group_id] = _replicas(message.replicas, f"{GROUP} {group_id}")
    state.replication_notes[GROUP, group_id] = _note(message)


def _write_session(state: ForwardingState, kind: UpdateKind, message: p4r.CloneSessionEntry) -> None:
    session_id = message.session_id
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
    replicas = _replicas(message.replicas, where)
    state.clone_sessions[session_id] = CloneSession(replicas, message.class_of_service, message.packet_length_bytes)
    state.replication_notes[SESSION, session_id] = _note(message)


def _note(message: p4r.MulticastGroupEntry | p4r.CloneSessionEntry) -> bytes:
    """Return what a read answers: the message as written, ports in canonical form (both kinds of port are in use)."""
    answer = copy.deepcopy(message)
    for replica in answer.replicas:
        if replica.WhichOneof("port_kind") == "port":
            replica.port = bytestrings.encode(int.from_bytes(replica.port, "big"))
    return answer.SerializeToString()


def _replicas(messages: Iterable[p4r.Replica], where: str) -> tuple[Replica, ...]:
    replicas = tuple(_replica(message, where) for message in messages)
    if len(set(replicas)) != len(replicas):
        raise invalid(f"{where}: a port and instance occur twice")
    return replicas


def _replica(message: p4r.Replica, where: str) -> Replica:
    if message.backup_replicas:
        raise unimplemented(f"{where}: backup replicas")
    match message.WhichOneof("port_kind"):
        case "port":
            port = bytestrings.decode(message.port, _PORT_BITS, f"{where}: port")
        case "egress_port":
            port = message.egress_port
        case _:
            raise invalid(f"{where}: a replica has no port")
    if port >> _PORT_BITS:
        raise invalid(f"{where}: port {port} does not fit {_PORT_BITS} bits")
    if message.instance > _MAX_INSTANCE:
        raise invalid(f"{where}: instance {message.instance} is above {_MAX_INSTANCE}")
    return Replica(port, message.instance)


def read(context: Context, message: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
    """Return one group or session, or all of the kind."""
    match message.WhichOneof("type"):
        case "multicast_group_entry":
            return iter(_read_groups(context.state, message.multicast_group_entry.multicast_group_id))
        case "clone_session_entry":
            return iter(_read_sessions(context.state, message.clone_session_entry.session_id))
        case _:
            raise invalid("the packet replication entry is empty")


def _read_groups(state: ForwardingState, wanted: int) -> list[p4r.Entity]:
    entities = []
    for group_id, replicas in state.multicast_groups.items():
        if wanted in {0, group_id}:
            entry = p4r.MulticastGroupEntry(multicast_group_id=group_id, replicas=_encode(replicas))
            note = state.replication_notes.get((GROUP, group_id))
            if note is not None:
                entry = p4r.MulticastGroupEntry.FromString(note)
            engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)
            entities.append(p4r.Entity(packet_replication_engine_entry=engine))
    return entities


def _read_sessions(state: ForwardingState, wanted: int) -> list[p4r.Entity]:
    entities = []
    for session_id, session in state.clone_sessions.items():
        if wanted in {0, session_id}:
            entry = p4r.CloneSessionEntry(
                session_id=session_id,
                replicas=_encode(session.replicas),
                class_of_service=session.class_of_service,
                packet_length_bytes=session.packet_length_bytes,
            )
            note = state.replication_notes.get((SESSION, session_id))
            if note is not None:
                entry = p4r.CloneSessionEntry.FromString(note)
            engine = p4r.PacketReplicationEngineEntry(clone_session_entry=entry)
            entities.append(p4r.Entity(packet_replication_engine_entry=engine))
    return entities


def _encode(replicas: Iterable[Replica]) -> list[p4r.Replica]:
    return [p4r.Replica(port=bytestrings.encode(item.port), instance=item.instance) for item in replicas]


def _check_id(what: str, identifier: int, largest: int) -> None:
    if not 1 <= identifier <= largest:
        raise invalid(f"{what} {identifier} is not in 1..{largest}")


def _check_presence(what: str, identifier: int, kind: UpdateKind, *, present: bool) -> None:
    if kind is UpdateKind.INSERT and present:
        raise P4RuntimeError(Code.ALREADY_EXISTS, f"{what} {identifier} exists already")
    if kind is not UpdateKind.INSERT and not present:
        raise P4RuntimeError(Code.NOT_FOUND, f"there is no {what} {identifier}")
