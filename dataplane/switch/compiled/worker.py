"""The forwarding loop: takes bursts from ports, runs the program, serves queues and cables; one call, no Python in it.

Each worker has its own queue of each port, its own machine and its own blocks. A turn of the loop serves what is due,
takes a burst from every port, and serves what that brought; with nothing to do it spins for a short time, then sleeps.
"""

from __future__ import annotations

from typing import Literal

from dataplane.native import (
    Array,
    Inline,
    Struct,
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    atomic_add,
    copy,
    external,
    fence,
    i32,
    i64,
    kernel,
    load_acquire,
    load_relaxed,
    pause,
    reference,
    stack_array,
    store_relaxed,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.spinlock import try_lock, unlock
from dataplane.nic.kernels import commit, flush, receive, reserve, wait
from dataplane.nic.kernels import release as give_back
from dataplane.nic.queue import PortQueue
from dataplane.switch.abi import Packet, Reason
from dataplane.switch.compiled.core import Core, count, drop
from dataplane.switch.compiled.generated import NO_LENGTH, p4_emitted_bytes
from dataplane.switch.compiled.passes import admit, deparse, drop_unsent, run_egress
from dataplane.switch.compiled.pool import BUFFER_BYTES, give, give_all, take
from dataplane.switch.compiled.queues import (
    NEVER,
    OutPort,
    Traffic,
    arrived,
    dequeue,
    enqueue,
    hold,
    next_arrival_ns,
    next_event_ns,
    occupy,
)
from dataplane.switch.compiled.rings import Bell, PacketRing, get, hear, put, ring

BURST_FRAMES = 32
"""Frames taken from a port before the next one has its turn."""
ROUNDS = 64
"""Instants of a port that are served in one turn: one that feeds itself with clones lets the others have theirs."""
IN_FLIGHT_FRAMES = 49_152
"""Frames that a cable holds; what comes then is dropped as `cable_full`."""
LONGEST_FRAME = 9_238
CLOCK_MONOTONIC = 1
NS_PER_S = 1_000_000_000
NS_PER_US = 1_000
FOREVER = -1
SPINS_PER_LOOK = 16
TURNS_PER_LOOK = 1024
"""Turns after which a worker that never sleeps looks for devices that went down."""
EVENTFD = 8


class Worker(Struct):
    """What one thread of the forwarding loop works with; `queues` has an entry for each port of `traffic`."""

    core: Inline[Core, Literal[1]]
    traffic: Traffic
    queues: Array[u64]  # addresses of this worker's PortQueue, 0 where a port has none
    polled: Array[u64]  # the same without gaps
    polled_count: u32
    stop: u32  # 1: return at the end of the turn
    bell: Bell  # wakes this worker
    other: Bell  # of a worker that has queues of all ports
    reports: Bell  # tells Python that there is something to look at
    frames: Array[u64]  # BURST_FRAMES addresses
    lengths: Array[u32]
    scratch: Array[u8]  # BUFFER_BYTES
    injected: PacketRing  # frames from Python; null for all workers but one
    cpu_port: OutPort
    packets_in: PacketRing  # frames for Python
    takes_packets_in: u64  # 1: somebody reads them
    spin_ns: u64  # at most
    spin_now_ns: u64  # what has paid lately
    down_seen: u64  # which queues were down when it last looked, hashed
    turns: u64
    sleeps: u64


@external
def clock_gettime(clock: i32, instant: Array[i64]) -> i32:
    """Write seconds and nanoseconds of a clock (clock_gettime(2))."""
    raise NotImplementedError


@kernel
def run_worker(worker: Worker) -> None:
    """Forward until `stop` is set; every packet is in a queue, on a cable or gone when it returns."""
    idle_since: u64 = 0
    while load_acquire(worker.stop) == 0:
        now_ns = read_clock()
        if turn(worker, now_ns):
            idle_since = 0
        elif idle_since == 0:
            idle_since = now_ns
        elif now_ns - idle_since < worker.spin_now_ns:
            for _ in range(SPINS_PER_LOOK):
                pause()
        else:
            sleep(worker, now_ns)
            idle_since = 0
    rest(worker)


@kernel
def rest(worker: Worker) -> None:
    """Give back what a worker keeps for itself."""
    give_all(worker.core[0].packets[0])
    give_all(worker.core[0].frames[0])


@kernel
def read_clock() -> u64:
    """Return nanoseconds on the machine's monotonic clock."""
    instant = stack_array(i64, 2)
    clock_gettime(CLOCK_MONOTONIC, instant)
    return as_u64(instant[0]) * NS_PER_S + as_u64(instant[1])


@kernel
def turn(worker: Worker, now_ns: u64) -> bool:
    """Do everything that can be done now; return whether there was anything."""
    machine = worker.core[0].machine
    store_release(machine.epoch, machine.epoch + 1)
    fence()
    served = _serve_all(worker, now_ns)
    received = _receive_all(worker, now_ns)
    if received > 0:
        served = _serve_all(worker, now_ns)
    store_release(machine.epoch, machine.epoch + 1)
    events = machine.events
    if load_relaxed(events.head) != load_relaxed(events.tail):
        ring(worker.reports)
    worker.turns += 1
    if worker.turns % TURNS_PER_LOOK == 0:
        _report_lost_ports(worker)
    return served + received > 0


# ---- into the switch


@kernel
def _receive_all(worker: Worker, now_ns: u64) -> u64:
    traffic = worker.traffic
    worker.core[0].machine.now_us = now_ns // NS_PER_US
    received: u64 = 0
    for place in range(traffic.count):
        if worker.queues[place] != 0:
            queue = view(PortQueue, worker.queues[place])
            received += _receive(worker, view(OutPort, traffic.ports[place]), queue, now_ns)
    if address(worker.injected) != 0:
        received += _receive_injected(worker, worker.cpu_port, now_ns)
    return received


@kernel
def _receive(worker: Worker, port: OutPort, queue: PortQueue, now_ns: u64) -> u64:
    frames = receive(queue, worker.frames, worker.lengths, BURST_FRAMES)
    if frames == 0:
        return 0
    nbytes: u64 = 0
    for index in range(frames):
        length = worker.lengths[index]
        nbytes += as_u64(length)
        _accept(worker, port, array_at(u8, worker.frames[index]), length)
    give_back(queue)
    atomic_add(port.rx_frames, as_u64(frames))
    atomic_add(port.rx_bytes, nbytes)
    _enqueue_placed(worker, now_ns)
    return as_u64(frames)


@kernel
def _receive_injected(worker: Worker, port: OutPort, now_ns: u64) -> u64:
    """Take what Python puts in as if it had come in on the CPU port."""
    frames: u64 = 0
    for _ in range(BURST_FRAMES):
        block = get(worker.injected)
        if block == 0:
            break
        frame = view(Packet, block)
        atomic_add(port.rx_frames, 1)
        atomic_add(port.rx_bytes, as_u64(frame.length))
        _accept(worker, port, frame.data, frame.length)
        give(worker.core[0].frames[0], frame)
        frames += 1
    _enqueue_placed(worker, now_ns)
    return frames


@kernel
def _accept(worker: Worker, port: OutPort, data: Array[u8], length: u32) -> None:
    """Take one frame through ingress, or count why not."""
    core = worker.core[0]
    if load_relaxed(port.is_up) == 0:
        atomic_add(port.rx_port_down, 1)
        return
    if length > LONGEST_FRAME:
        atomic_add(port.oversize, 1)
        return
    block = take(core.packets[0])
    if block == 0:
        count(core, Reason.NO_BUFFER)
        return
    packet = view(Packet, block)
    copy(packet.data, data, as_u64(length))
    admit(core, packet, as_u32(port.number), length)


@kernel
def _enqueue_placed(worker: Worker, now_ns: u64) -> None:
    core = worker.core[0]
    block = core.placed_first
    core.placed_first = 0
    while block != 0:
        packet = view(Packet, block)
        block = packet.next
        enqueue(worker.traffic, core, packet, now_ns)


# ---- out of the switch


@kernel
def _serve_all(worker: Worker, now_ns: u64) -> u64:
    traffic = worker.traffic
    served: u64 = 0
    for place in range(traffic.count):
        port = view(OutPort, traffic.ports[place])
        if worker.queues[place] != 0:
            flush_pending(port, view(PortQueue, worker.queues[place]))
        if not _is_due(port, now_ns):
            continue
        if worker.queues[place] != 0 or address(port) == address(worker.cpu_port):
            served += _serve(worker, port, place, now_ns)
        else:
            ring(worker.other)
    return served


@kernel(inline=True)
def flush_pending(port: OutPort, queue: PortQueue) -> None:
    """Try again to send what the device had no room for."""
    if queue.tx_pending != 0 and try_lock(reference(port.serving)):
        flush_in_order(port, queue)
        unlock(reference(port.serving))


@kernel(inline=True)
def flush_in_order(port: OutPort, queue: PortQueue) -> None:
    """Send what was committed; what the device has no room for keeps the port, so that no flow is reordered."""
    flush(queue)
    store_relaxed(port.sender, address(queue) if queue.tx_pending != 0 else 0)


@kernel(inline=True)
def is_kept(port: OutPort, queue: u64) -> bool:
    """Return whether frames of another worker have to leave first; its queue serves the port as soon as they have."""
    sender = load_relaxed(port.sender)
    return sender != queue and sender != 0  # noqa: PLR1714 - kernels have no `in`


@kernel(inline=True)
def _is_due(port: OutPort, now_ns: u64) -> bool:
    return next_event_ns(port) <= now_ns or next_arrival_ns(port) <= now_ns


@kernel
def _serve(worker: Worker, port: OutPort, place: u64, now_ns: u64) -> u64:
    """Serve a port unless another worker does; that one then looks again, so that nothing is left lying."""
    served: u64 = 0
    rounds: u64 = 0
    while rounds < ROUNDS and _is_due(port, now_ns):
        if is_kept(port, worker.queues[place]) or not try_lock(reference(port.serving)):
            return served
        if is_kept(port, worker.queues[place]):
            unlock(reference(port.serving))
            return served
        served += _send_due(worker, port, place, now_ns)
        unlock(reference(port.serving))
        rounds += 1
    return served


@kernel
def _send_due(worker: Worker, port: OutPort, place: u64, now_ns: u64) -> u64:
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
            _leave(worker, port, place, packet, start_ns)
            served += 1
        _enqueue_placed(worker, start_ns)
        rounds += 1
    if worker.queues[place] != 0:
        queue = view(PortQueue, worker.queues[place])
        served += send_arrived(worker, port, queue, now_ns)
        flush_in_order(port, queue)
    return served


@kernel
def _leave(worker: Worker, port: OutPort, place: u64, packet: Packet, start_ns: u64) -> None:
    """Run egress and send, or put onto the cable, what it leaves of the packet."""
    core = worker.core[0]
    start_us = start_ns // NS_PER_US
    enqueued_us = packet.enqueued_ns // NS_PER_US
    # Another worker may have put it in after the instant at which the port fell free.
    waited_us = start_us - enqueued_us if start_us > enqueued_us else 0
    core.machine.now_us = start_us
    if not run_egress(core, packet, enqueued_us, waited_us):
        return
    if load_relaxed(port.is_up) == 0:
        port.tx_port_down += 1
        give(core.packets[0], packet)
    elif worker.queues[place] == 0:
        _hand_in(worker, port, packet)
    elif port.rate_bps == 0 and port.delay_ns == 0:
        _send(worker, port, view(PortQueue, worker.queues[place]), packet)
    else:
        _delay(worker, port, packet, start_ns)


@kernel
def _send(worker: Worker, port: OutPort, queue: PortQueue, packet: Packet) -> None:
    """Deparse straight into a slot of the device; through memory of ours where that has no room."""
    core = worker.core[0]
    room = queue.transmit_room
    slot = reserve(queue, room)
    length: u32 = 0
    if address(slot) != 0 and p4_emitted_bytes(core.machine, packet) + packet.length - packet.parsed <= room:
        length = deparse(core, packet, slot, room)
        if length < NO_LENGTH:
            commit(queue, length)
    else:  # never a second time: the deparser may count or draw numbers
        length = deparse(core, packet, worker.scratch, BUFFER_BYTES)
        if length < NO_LENGTH and address(slot) != 0:
            _send_bytes(queue, worker.scratch, length)
    if length >= NO_LENGTH:
        drop_unsent(core, packet, length)
        return
    port.tx_frames += 1
    port.tx_bytes += as_u64(length)
    give(core.packets[0], packet)


@kernel
def _send_bytes(queue: PortQueue, data: Array[u8], length: u32) -> None:
    """Copy a frame into a slot of the device; where there is none, the queue has counted it."""
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
    port.tx_frames += 1
    port.tx_bytes += as_u64(length)
    departs_ns = occupy(port, as_u64(length), start_ns)
    give(core.packets[0], packet)
    if block == 0:
        port.cable_full += 1
        return
    frame = view(Packet, block)
    frame.length = length
    hold(port, frame, departs_ns + port.delay_ns)


@kernel
def send_arrived(worker: Worker, port: OutPort, queue: PortQueue, now_ns: u64) -> u64:
    """Give the device what has crossed the cable."""
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
    """Hand a packet that leaves by the CPU port over to Python."""
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


# ---- nothing to do


@kernel
def sleep(worker: Worker, now_ns: u64) -> None:
    """Wait for a frame, the bell, or the next instant at which something is due."""
    _report_lost_ports(worker)
    due_ns = _next_due_ns(worker)
    timeout_ns: i64 = FOREVER
    if due_ns != NEVER:
        timeout_ns = as_i64(due_ns - now_ns) if due_ns > now_ns else 0
    worker.sleeps += 1
    wait(worker.polled, worker.polled_count, worker.bell.fd, timeout_ns)
    # Spinning would have caught what came so soon; next time it shall.
    soon = read_clock() - now_ns < worker.spin_ns
    worker.spin_now_ns = worker.spin_ns if soon else worker.spin_now_ns // 2
    hear(worker.bell)


@kernel
def _next_due_ns(worker: Worker) -> u64:
    traffic = worker.traffic
    due_ns: u64 = NEVER
    for place in range(traffic.count):
        port = view(OutPort, traffic.ports[place])
        if is_kept(port, worker.queues[place]):
            continue
        event_ns = next_event_ns(port)
        arrival_ns = next_arrival_ns(port)
        due_ns = min(due_ns, event_ns)
        due_ns = min(due_ns, arrival_ns)
    return due_ns


@kernel
def _report_lost_ports(worker: Worker) -> None:
    """Tell Python when a device went down or came back."""
    down: u64 = 0
    for place in range(worker.traffic.count):
        if worker.queues[place] != 0:
            down = down * 31 + as_u64(view(PortQueue, worker.queues[place]).down)
    if down != worker.down_seen:
        worker.down_seen = down
        ring(worker.reports)


KERNELS = (run_worker,)
"""What Python calls."""
