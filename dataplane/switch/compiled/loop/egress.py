"""Egress: due packets leave their queues, run egress, and go to a device, a cable, or Python.

A port is served by one worker at a time, each using its own queue of the device.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    as_u32,
    as_u64,
    copy,
    kernel,
    load_relaxed,
    reference,
    store_relaxed,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ring
from dataplane.native.locks import try_lock, unlock
from dataplane.nic.ports.kernels import commit, flush, reserve
from dataplane.nic.ports.queue import PortQueue
from dataplane.switch.abi import Packet, Reason
from dataplane.switch.compiled.generated import NO_LENGTH, p4_emitted_bytes
from dataplane.switch.compiled.loop.hello_service import is_forged
from dataplane.switch.compiled.loop.passes import deflect, deparse, drop_unsent, run_egress
from dataplane.switch.compiled.memory.core import drop
from dataplane.switch.compiled.memory.pool import BUFFER_BYTES, give, take
from dataplane.switch.compiled.memory.rings import put
from dataplane.switch.compiled.memory.traffic import (
    OutPort,
    arrived,
    crossing_ns,
    dequeue,
    enqueue,
    hold,
    next_arrival_ns,
    next_event_ns,
    occupy,
)
from dataplane.switch.compiled.memory.worker import Worker

NS_PER_US = 1_000
ROUNDS = 64
"""Instants of a port served in one turn, so that a port that feeds itself with clones does not starve the others."""
IN_FLIGHT_FRAMES = 49_152
"""Capacity of a cable in frames; further ones are dropped as `cable_full`."""


@kernel
def serve_all(worker: Worker, now_ns: u64) -> u64:
    """Serve every port at which something is due; return how many packets that was."""
    traffic = worker.traffic
    served: u64 = 0
    for index in range(traffic.count):
        port = view(OutPort, traffic.ports[index])
        if worker.queues[index] != 0:
            flush_pending(port, view(PortQueue, worker.queues[index]))
        if not _is_due(port, now_ns):
            continue
        if worker.queues[index] != 0 or address(port) == address(worker.cpu_port):
            served += _serve(worker, port, index, now_ns)
        else:
            ring(worker.other)
    return served


@kernel(inline=True)
def flush_pending(port: OutPort, queue: PortQueue) -> None:
    """Retry sending what the device had no room for."""
    if queue.tx_pending != 0 and try_lock(reference(port.egress_lock)):
        flush_in_order(port, queue)
        unlock(reference(port.egress_lock))


@kernel(inline=True)
def flush_in_order(port: OutPort, queue: PortQueue) -> None:
    """Send what was committed; while the device has no room, the worker keeps the port, to avoid reordering flows."""
    flush(queue)
    store_relaxed(port.sender, address(queue) if queue.tx_pending != 0 else 0)


@kernel(inline=True)
def is_kept(port: OutPort, queue: u64) -> bool:
    """Return whether another worker's frames must leave first; its queue serves the port as soon as they have."""
    sender = load_relaxed(port.sender)
    return sender != queue and sender != 0  # noqa: PLR1714 - kernels have no `in`


@kernel(inline=True)
def _is_due(port: OutPort, now_ns: u64) -> bool:
    return next_event_ns(port) <= now_ns or next_arrival_ns(port) <= now_ns


@kernel
def _serve(worker: Worker, port: OutPort, index: u64, now_ns: u64) -> u64:
    """Serve a port unless another worker does; that worker then checks again, so that nothing is left behind."""
    served: u64 = 0
    rounds: u64 = 0
    while rounds < ROUNDS and _is_due(port, now_ns):
        if is_kept(port, worker.queues[index]) or not try_lock(reference(port.egress_lock)):
            return served
        if is_kept(port, worker.queues[index]):
            unlock(reference(port.egress_lock))
            return served
        served += _send_due(worker, port, index, now_ns)
        unlock(reference(port.egress_lock))
        rounds += 1
    return served


@kernel
def _send_due(worker: Worker, port: OutPort, index: u64, now_ns: u64) -> u64:
    """Send what leaves its queue or has crossed the cable by now; return how many packets that was."""
    served: u64 = 0
    rounds: u64 = 0
    while rounds < ROUNDS:
        block = dequeue(port, now_ns)
        if block == 0:
            break
        start_ns = port.start_ns
        while block != 0:
            packet = view(Packet, block)
            block = packet.next
            _leave(worker, port, index, packet, start_ns)
            served += 1
        enqueue_placed(worker, start_ns)
        rounds += 1
    if worker.queues[index] != 0:
        queue = view(PortQueue, worker.queues[index])
        served += send_arrived(worker, port, queue, now_ns)
        flush_in_order(port, queue)
    return served


@kernel
def _leave(worker: Worker, port: OutPort, index: u64, packet: Packet, start_ns: u64) -> None:
    """Run egress and send the resulting frames, or put them onto the cable."""
    core = worker.core[0]
    start_us = start_ns // NS_PER_US
    enqueued_us = packet.enqueued_ns // NS_PER_US
    # Another worker may have put it in after the instant at which the port became free.
    waited_us = start_us - enqueued_us if start_us > enqueued_us else 0
    core.machine.now_us = start_us
    if not run_egress(core, packet, enqueued_us, waited_us):
        return
    if load_relaxed(port.is_up) == 0:
        port.tx_port_down += 1
        give(core.packets[0], packet)
    elif worker.queues[index] == 0:
        _hand_in(worker, port, packet)
    elif port.rate_bps == 0 and port.delay_ns == 0 and port.gap_ns == 0:
        _send(worker, port, view(PortQueue, worker.queues[index]), packet)
    else:
        _delay(worker, port, packet, start_ns)


@kernel
def _send(worker: Worker, port: OutPort, queue: PortQueue, packet: Packet) -> None:
    """Deparse straight into a slot of the device, or through our own memory if that has no room."""
    core = worker.core[0]
    room = queue.transmit_room
    slot = reserve(queue, room)
    length: u32 = 0
    forged = False
    if address(slot) != 0 and p4_emitted_bytes(core.machine, packet) + packet.length - packet.parsed <= room:
        length = deparse(core, packet, slot, room)
        if length < NO_LENGTH:
            forged = is_forged(port, slot, length)
            if not forged:
                commit(queue, length)
    else:  # never a second time: the deparser may count or draw random numbers
        length = deparse(core, packet, worker.scratch, BUFFER_BYTES)
        if length < NO_LENGTH:
            forged = is_forged(port, worker.scratch, length)
            if not forged and address(slot) != 0:
                _send_bytes(queue, worker.scratch, length)
    if length >= NO_LENGTH:
        drop_unsent(core, packet, length)
        return
    if not forged:
        port.tx_frames += 1
        port.tx_bytes += as_u64(length)
    give(core.packets[0], packet)


@kernel
def _send_bytes(queue: PortQueue, data: Array[u8], length: u32) -> None:
    """Copy a frame into a slot of the device; if there is none, the queue has counted it."""
    slot = reserve(queue, length)
    if address(slot) != 0:
        copy(slot, data, as_u64(length))
        commit(queue, length)


@kernel
def _delay(worker: Worker, port: OutPort, packet: Packet, start_ns: u64) -> None:
    """Let the frame occupy the port and put it onto the cable."""
    core = worker.core[0]
    block = take(core.frames[0]) if port.in_flight < IN_FLIGHT_FRAMES else 0
    data = worker.scratch if block == 0 else view(Packet, block).data
    length = deparse(core, packet, data, BUFFER_BYTES)
    if length >= NO_LENGTH:
        if block != 0:
            give(core.frames[0], view(Packet, block))
        drop_unsent(core, packet, length)
        return
    if is_forged(port, data, length):
        if block != 0:
            give(core.frames[0], view(Packet, block))
        give(core.packets[0], packet)
        return
    port.tx_frames += 1
    port.tx_bytes += as_u64(length)
    departs_ns = occupy(port, as_u64(length), start_ns)
    give(core.packets[0], packet)
    if block == 0:
        port.cable_full += 1
        return
    frame = view(Packet, block)
    frame.length = length
    hold(port, frame, departs_ns + crossing_ns(port))


@kernel
def send_arrived(worker: Worker, port: OutPort, queue: PortQueue, now_ns: u64) -> u64:
    """Hand the device what has crossed the cable."""
    sent: u64 = 0
    while True:
        block = arrived(port, now_ns)
        if block == 0:
            return sent
        frame = view(Packet, block)
        _send_bytes(queue, frame.data, frame.length)
        give(worker.core[0].frames[0], frame)
        sent += 1


@kernel
def _hand_in(worker: Worker, port: OutPort, packet: Packet) -> None:
    """Hand a packet that leaves by the CPU port to Python."""
    core = worker.core[0]
    if load_relaxed(worker.takes_packets_in) == 0:
        port.no_receiver += 1
        give(core.packets[0], packet)
        return
    block = take(core.frames[0])
    if block == 0:
        drop(core, packet, Reason.NO_BUFFER)
        return
    frame = view(Packet, block)
    length = deparse(core, packet, frame.data, BUFFER_BYTES)
    if length >= NO_LENGTH:
        give(core.frames[0], frame)
        drop_unsent(core, packet, length)
        return
    frame.length = length
    give(core.packets[0], packet)
    if put(worker.packets_in, frame):
        port.tx_frames += 1
        port.tx_bytes += as_u64(length)
    else:
        port.receiver_full += 1
        give(core.frames[0], frame)


@kernel
def enqueue_placed(worker: Worker, now_ns: u64) -> None:
    """Enqueue the pipeline's packets at their ports, and deflect those that are refused."""
    core = worker.core[0]
    _enqueue_all(worker, now_ns)
    if core.refused_first != 0:
        _deflect_refused(worker)
        _enqueue_all(worker, now_ns)


@kernel
def _deflect_refused(worker: Worker) -> None:
    core = worker.core[0]
    block = core.refused_first
    core.refused_first = 0
    while block != 0:
        packet = view(Packet, block)
        block = packet.next
        deflect(core, packet, as_u32(worker.traffic.deflect_session), packet.refused_depth)


@kernel
def _enqueue_all(worker: Worker, now_ns: u64) -> None:
    core = worker.core[0]
    block = core.placed_first
    core.placed_first = 0
    while block != 0:
        packet = view(Packet, block)
        block = packet.next
        enqueue(worker.traffic, core, packet, now_ns)
