"""The path of a packet through ingress and egress: clones, copies, resubmission, recirculation, drops.

Each step mirrors its twin in `InterpretedPipeline`, as a kernel around the compiler's functions for a program.
"""

from __future__ import annotations

from dataplane.native import Array, as_u32, as_u64, copy, kernel, load_acquire, u8, u32, u64, view
from dataplane.switch.abi import MAX_MULTICAST_GROUPS, SESSION_VALID, Packet, Reason, Replicas
from dataplane.switch.compiled.generated import (
    NO_LENGTH,
    NOT_ENOUGH_ROOM,
    p4_copy,
    p4_deparse,
    p4_digest,
    p4_egress,
    p4_emitted_bytes,
    p4_get_egress_spec,
    p4_get_instance_type,
    p4_get_mcast_grp,
    p4_get_priority,
    p4_ingress,
    p4_keep,
    p4_note_errors,
    p4_parse,
    p4_reset,
    p4_set_deq_qdepth,
    p4_set_deq_timedelta,
    p4_set_egress_global_timestamp,
    p4_set_egress_port,
    p4_set_egress_rid,
    p4_set_egress_spec,
    p4_set_enq_qdepth,
    p4_set_enq_timestamp,
    p4_set_ingress_global_timestamp,
    p4_set_ingress_port,
    p4_set_instance_type,
    p4_set_packet_length,
    p4_set_qid,
)
from dataplane.switch.compiled.memory.core import (
    Core,
    clear_registers,
    count,
    drop,
    duplicate,
    place,
    set_length,
)
from dataplane.switch.compiled.memory.pool import BUFFER_BYTES, give, take
from dataplane.switch.v1model import DROP_PORT, MAX_RESUBMITS, InstanceType

PASSES = MAX_RESUBMITS + 1
PORT_MASK = (1 << 9) - 1
SESSION_NUMBER = SESSION_VALID - 1


# ---- ingress


@kernel
def admit(core: Core, packet: Packet, port: u32, length: u32) -> None:
    """Take a packet whose frame is in its buffer through parser and ingress; the results are placed for queueing."""
    machine = core.machine
    packet.port = port
    packet.length = length
    packet.ingress_length = length
    clear_registers(packet)
    p4_reset(machine, packet)
    p4_set_ingress_port(machine, packet, as_u64(port & PORT_MASK))
    set_length(core, packet, length)
    p4_set_ingress_global_timestamp(machine, packet, machine.now_us)
    _enter(core, packet)


@kernel
def _enter(core: Core, packet: Packet) -> None:
    """Take a packet through ingress, and again for each resubmission."""
    for _ in range(PASSES):
        fault = _run_ingress(core, packet)
        if fault != 0:
            drop(core, packet, fault)
            return
        if packet.resubmit == 0:
            _leave_ingress(core, packet)
            return
        if not _resubmit(core, packet):
            return
    drop(core, packet, Reason.RESUBMIT_LIMIT)


@kernel
def _run_ingress(core: Core, packet: Packet) -> u32:
    machine = core.machine
    fault = p4_parse(machine, packet)
    if fault != 0:
        return fault
    if packet.parser_error != core.no_error:
        error = packet.parser_error
        machine.parser_errors[min(error, core.other_errors)] += 1
    p4_note_errors(machine, packet)
    fault = p4_ingress(machine, packet)
    if fault != 0:
        return fault
    packet.exit = 0
    if packet.clone_session != 0:
        fault = _clone_ingress(core, packet)
        if fault != 0:
            return fault
    if packet.digest != 0:
        p4_digest(machine, packet)
        packet.digest = 0
    return 0


@kernel
def _resubmit(core: Core, packet: Packet) -> bool:
    """Restore the packet as it came in, except for the fields of the list; False: no room, and dropped."""
    block = take(core.packets[0])
    if block == 0:
        drop(core, packet, Reason.NO_BUFFER)
        return False
    machine = core.machine
    fresh = view(Packet, block)
    p4_reset(machine, fresh)
    p4_keep(machine, packet, fresh, packet.resubmit, InstanceType.RESUBMITTED)
    p4_copy(machine, fresh, packet)
    give(core.packets[0], fresh)
    clear_registers(packet)
    set_length(core, packet, packet.length)
    return True


@kernel
def _leave_ingress(core: Core, packet: Packet) -> None:
    machine = core.machine
    group = p4_get_mcast_grp(machine, packet)
    if group != 0:
        _multicast(core, packet, group)
        return
    port = p4_get_egress_spec(machine, packet)
    if port == DROP_PORT:
        drop(core, packet, Reason.INGRESS_DROP)
        return
    p4_set_instance_type(machine, packet, InstanceType.NORMAL)
    place(core, packet, as_u32(port), p4_get_priority(machine, packet))


@kernel
def _multicast(core: Core, packet: Packet, group: u64) -> None:
    replicas: u64 = 0
    if group < MAX_MULTICAST_GROUPS:
        replicas = load_acquire(core.machine.groups[group])
    if replicas == 0:
        drop(core, packet, Reason.MULTICAST_GROUP_EMPTY)
        return
    if view(Replicas, replicas).count == 0:
        drop(core, packet, Reason.MULTICAST_GROUP_EMPTY)
        return
    p4_set_instance_type(core.machine, packet, InstanceType.REPLICATION)
    clear_registers(packet)
    _replicate(core, packet, view(Replicas, replicas), p4_get_priority(core.machine, packet))


# ---- egress


@kernel
def run_egress(core: Core, packet: Packet, enqueued_us: u64, waited_us: u64) -> bool:
    """Run egress at the machine's time; return True if the packet must be deparsed, False if it was disposed of."""
    machine = core.machine
    p4_set_egress_global_timestamp(machine, packet, machine.now_us)
    p4_set_enq_timestamp(machine, packet, enqueued_us)
    p4_set_enq_qdepth(machine, packet, as_u64(packet.enq_qdepth))
    p4_set_deq_timedelta(machine, packet, waited_us)
    p4_set_deq_qdepth(machine, packet, as_u64(packet.deq_qdepth))
    p4_set_qid(machine, packet, as_u64(packet.priority))
    p4_set_egress_port(machine, packet, as_u64(packet.egress_port & PORT_MASK))
    p4_set_egress_spec(machine, packet, 0)  # anything but the drop port
    p4_set_packet_length(machine, packet, as_u64(packet.packet_length))
    fault = p4_egress(machine, packet)
    if fault != 0:
        drop(core, packet, fault)
        return False
    if packet.clone_session != 0:
        _clone_egress(core, packet)
    if p4_get_egress_spec(machine, packet) == DROP_PORT:
        drop(core, packet, Reason.EGRESS_DROP)
        return False
    if packet.recirculate != 0:
        _recirculate(core, packet)
        return False
    return True


@kernel
def deparse(core: Core, packet: Packet, out: Array[u8], capacity: u32) -> u32:
    """Write the outgoing frame; return its length, or a value from NO_LENGTH on that tells why there is none."""
    length = p4_deparse(core.machine, packet, out, capacity)
    if length < NO_LENGTH and length > packet.truncate:
        return packet.truncate
    return length


@kernel
def drop_unsent(core: Core, packet: Packet, length: u32) -> None:
    """Drop a packet for which `deparse` returned no length."""
    drop(core, packet, Reason.FRAME_TOO_LONG if length == NOT_ENOUGH_ROOM else length - NO_LENGTH)


@kernel
def _recirculate(core: Core, packet: Packet) -> None:
    """Send a packet through ingress as it would have left; whole, as truncation ends with the truncated packet."""
    block = take(core.packets[0])
    if block == 0:
        drop(core, packet, Reason.NO_BUFFER)
        return
    machine = core.machine
    fresh = view(Packet, block)
    length = p4_deparse(machine, packet, fresh.data, BUFFER_BYTES)
    if length >= NO_LENGTH:
        give(core.packets[0], fresh)
        drop_unsent(core, packet, length)
        return
    p4_reset(machine, fresh)
    p4_keep(machine, packet, fresh, packet.recirculate, InstanceType.RECIRCULATED)
    clear_registers(fresh)
    fresh.port = packet.port
    fresh.length = length
    fresh.ingress_length = length
    give(core.packets[0], packet)
    set_length(core, fresh, length)
    _enter(core, fresh)


# ---- clones and copies


@kernel
def _clone_ingress(core: Core, packet: Packet) -> u32:
    """Place copies of the packet as it came in; they are parsed again, since ingress has changed the headers."""
    machine = core.machine
    session = load_acquire(machine.sessions[packet.clone_session & SESSION_NUMBER])
    fault: u32 = 0
    if session == 0:
        core.copies += 1
        count(core, Reason.CLONE_SESSION_UNKNOWN)
    else:
        fault = _clone_parsed(core, packet, view(Replicas, session))
    packet.clone_session = 0
    packet.clone_list = 0
    return fault


@kernel
def _clone_parsed(core: Core, packet: Packet, session: Replicas) -> u32:
    block = take(core.packets[0])
    if block == 0:
        core.copies += 1
        count(core, Reason.NO_BUFFER)
        return 0
    machine = core.machine
    clone = view(Packet, block)
    clone.port = packet.port
    clone.length = packet.length
    clone.ingress_length = packet.ingress_length
    clear_registers(clone)
    copy(clone.data, packet.data, as_u64(packet.length))
    p4_reset(machine, clone)
    p4_set_ingress_port(machine, clone, as_u64(packet.port & PORT_MASK))
    fault = p4_parse(machine, clone)
    if fault != 0:
        give(core.packets[0], clone)
        return fault
    p4_keep(machine, packet, clone, packet.clone_list, InstanceType.INGRESS_CLONE)
    core.copies += 1
    clear_registers(clone)
    clone.packet_length = clone.length
    _send_clone(core, clone, clone.parsed, session)
    return 0


@kernel
def _clone_egress(core: Core, packet: Packet) -> None:
    """Place copies of the packet as it is at the end of egress, with all headers."""
    machine = core.machine
    session = load_acquire(machine.sessions[packet.clone_session & SESSION_NUMBER])
    if session == 0:
        core.copies += 1
        count(core, Reason.CLONE_SESSION_UNKNOWN)
    else:
        block = duplicate(core, packet)
        if block != 0:
            clone = view(Packet, block)
            p4_keep(machine, packet, clone, packet.clone_list, InstanceType.EGRESS_CLONE)
            _send_clone(core, clone, p4_emitted_bytes(machine, clone), view(Replicas, session))
    packet.clone_session = 0
    packet.clone_list = 0


@kernel
def deflect(core: Core, packet: Packet, session_number: u32, depth: u32) -> None:
    """Place a packet refused by a queue with that many frames at a clone session's ports; copies are dropped."""
    machine = core.machine
    kind = p4_get_instance_type(machine, packet)
    session = load_acquire(machine.sessions[session_number])
    if session == 0 or (kind != InstanceType.NORMAL and kind != InstanceType.REPLICATION):  # noqa: PLR1714 - kernel
        give(core.packets[0], packet)
        return
    last = core.placed_last if core.placed_first != 0 else 0
    p4_set_instance_type(machine, packet, InstanceType.DEFLECTED)
    core.copies += 1
    clear_registers(packet)
    _send_clone(core, packet, p4_emitted_bytes(machine, packet), view(Replicas, session))
    block = view(Packet, last).next if last != 0 else core.placed_first
    while block != 0:
        placed = view(Packet, block)
        placed.refused_depth = depth
        block = placed.next


@kernel
def _send_clone(core: Core, clone: Packet, headers: u32, session: Replicas) -> None:
    """Truncate a clone to its session's length and place it for every replica; headers are truncated on leaving."""
    limit = session.packet_length
    if limit > 0 and limit < headers + (clone.length - clone.parsed):
        clone.length = clone.parsed + (limit - headers if limit > headers else 0)
        clone.packet_length = limit
        if limit < headers:
            clone.truncate = limit
    _replicate(core, clone, session, as_u64(session.class_of_service))


@kernel
def _replicate(core: Core, packet: Packet, replicas: Replicas, priority: u64) -> None:
    """Place a copy for every replica, each with the packet's own length limit; the packet itself is the last one."""
    if replicas.count == 0:
        core.copies -= 1
        give(core.packets[0], packet)
        return
    last = replicas.count - 1
    for index in range(last):
        block = duplicate(core, packet)
        if block != 0:
            twin = view(Packet, block)
            twin.truncate = packet.truncate
            _place_replica(core, twin, replicas, index, priority)
    _place_replica(core, packet, replicas, last, priority)


@kernel(inline=True)
def _place_replica(core: Core, packet: Packet, replicas: Replicas, index: u32, priority: u64) -> None:
    p4_set_egress_rid(core.machine, packet, as_u64(replicas.instances[index]))
    place(core, packet, replicas.ports[index], priority)
