"""The forwarding loop: takes bursts from ports, runs the program, serves queues and cables; one call, no Python in it.

Each worker has its own queue of each port, its own machine and its own blocks. A turn of the loop serves what is due,
takes a burst from every port, and serves the results; with nothing to do it spins briefly, then sleeps.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    atomic_add,
    copy,
    fence,
    i64,
    kernel,
    load_acquire,
    load_relaxed,
    pause,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import hear, ring
from dataplane.nic.ports.kernels import receive, wait
from dataplane.nic.ports.kernels import release as give_back
from dataplane.nic.ports.kernels.system import monotonic_ns
from dataplane.nic.ports.queue import PortQueue
from dataplane.switch.abi import Packet, Reason
from dataplane.switch.compiled.loop.egress import enqueue_placed, is_kept, serve_all
from dataplane.switch.compiled.loop.hello_service import listens, note_look, serve_hellos, take_hello
from dataplane.switch.compiled.loop.passes import admit
from dataplane.switch.compiled.loop.tapping import tap_frame
from dataplane.switch.compiled.memory.core import count
from dataplane.switch.compiled.memory.pool import give, give_all, take
from dataplane.switch.compiled.memory.rings import get
from dataplane.switch.compiled.memory.traffic import (
    NEVER,
    OutPort,
    next_arrival_ns,
    next_event_ns,
)
from dataplane.switch.compiled.memory.worker import BURST_FRAMES, Worker

LONGEST_FRAME = 9_238
NS_PER_US = 1_000
FOREVER = -1
SPINS_PER_LOOK = 16
TURNS_PER_LOOK = 1024
"""Turns after which a worker that never sleeps checks for devices that went down."""


@kernel
def run_worker(worker: Worker) -> None:
    """Forward until `stop` is set; on return every packet is in a queue, on a cable or gone."""
    idle_since: u64 = 0
    while load_acquire(worker.stop) == 0:
        now_ns = monotonic_ns()
        if turn(worker, now_ns):
            idle_since = 0
        else:
            worker.idle_turns += 1
            if idle_since == 0:
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
    """Return a worker's private blocks."""
    give_all(worker.core[0].packets[0])
    give_all(worker.core[0].frames[0])


@kernel
def turn(worker: Worker, now_ns: u64) -> bool:
    """Do all the work that can be done now; return whether there was any."""
    machine = worker.core[0].machine
    store_release(machine.epoch, machine.epoch + 1)
    fence()
    served = serve_all(worker, now_ns)
    received = _receive_all(worker, now_ns)
    serve_hellos(worker, now_ns)
    if received > 0:
        served = serve_all(worker, monotonic_ns())
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
def _receive_all(worker: Worker, turn_ns: u64) -> u64:
    traffic = worker.traffic
    received: u64 = 0
    for index in range(traffic.count):
        if worker.queues[index] != 0:
            queue = view(PortQueue, worker.queues[index])
            received += _receive(worker, view(OutPort, traffic.ports[index]), queue, turn_ns)
    if address(worker.injected) != 0:
        received += _receive_injected(worker, worker.cpu_port)
    return received


@kernel
def _receive(worker: Worker, port: OutPort, queue: PortQueue, turn_ns: u64) -> u64:
    frames = receive(queue, worker.frames, worker.lengths, BURST_FRAMES)
    if frames < BURST_FRAMES:
        note_look(worker, port, turn_ns)
    if frames == 0:
        return 0
    now_ns = _arrival_ns(worker)
    listening = listens(port)
    hellos: u64 = 0
    nbytes: u64 = 0
    for index in range(frames):
        length = worker.lengths[index]
        frame = array_at(u8, worker.frames[index])
        if listening and take_hello(worker, port, frame, length, now_ns):
            hellos += 1
            continue
        nbytes += as_u64(length)
        _accept(worker, port, frame, length)
    give_back(queue)
    atomic_add(port.rx_frames, as_u64(frames) - hellos)
    atomic_add(port.rx_bytes, nbytes)
    enqueue_placed(worker, now_ns)
    return as_u64(frames)


@kernel
def _arrival_ns(worker: Worker) -> u64:
    """Return the time of a burst, read after taking it, so that no timestamp is earlier than its frame."""
    now_ns = monotonic_ns()
    worker.core[0].machine.now_us = now_ns // NS_PER_US
    return now_ns


@kernel
def _receive_injected(worker: Worker, port: OutPort) -> u64:
    """Process frames injected by Python as if they had come in on the CPU port."""
    frames: u64 = 0
    for _ in range(BURST_FRAMES):
        block = get(worker.injected)
        if block == 0:
            break
        frame = view(Packet, block)
        now_ns = _arrival_ns(worker)
        atomic_add(port.rx_frames, 1)
        atomic_add(port.rx_bytes, as_u64(frame.length))
        _accept(worker, port, frame.data, frame.length)
        give(worker.core[0].frames[0], frame)
        enqueue_placed(worker, now_ns)
        frames += 1
    return frames


@kernel
def _accept(worker: Worker, port: OutPort, data: Array[u8], length: u32) -> None:
    """Take one frame through ingress, or count the reason for not doing so."""
    core = worker.core[0]
    if load_relaxed(port.is_up) == 0:
        atomic_add(port.rx_port_down, 1)
        return
    if length > LONGEST_FRAME:
        atomic_add(port.oversize, 1)
        return
    if address(worker.tap) != 0:
        tap_frame(worker, as_u64(port.number), data, length)
    block = take(core.packets[0])
    if block == 0:
        count(core, Reason.NO_BUFFER)
        return
    packet = view(Packet, block)
    copy(packet.data, data, as_u64(length))
    admit(core, packet, as_u32(port.number), length)


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
    # Spinning would have caught what came so soon; next time it will.
    soon = monotonic_ns() - now_ns < worker.spin_ns
    worker.spin_now_ns = worker.spin_ns if soon else worker.spin_now_ns // 2
    hear(worker.bell)


@kernel
def _next_due_ns(worker: Worker) -> u64:
    traffic = worker.traffic
    due_ns = worker.hello_due_ns
    for index in range(traffic.count):
        port = view(OutPort, traffic.ports[index])
        if is_kept(port, worker.queues[index]):
            continue
        event_ns = next_event_ns(port)
        arrival_ns = next_arrival_ns(port)
        due_ns = min(due_ns, event_ns)
        due_ns = min(due_ns, arrival_ns)
    return due_ns


@kernel
def _report_lost_ports(worker: Worker) -> None:
    """Notify Python when a device went down or came back."""
    down: u64 = 0
    for index in range(worker.traffic.count):
        if worker.queues[index] != 0:
            down = down * 31 + as_u64(view(PortQueue, worker.queues[index]).down)
    if down != worker.down_seen:
        worker.down_seen = down
        ring(worker.reports)


KERNELS = (run_worker,)
"""Kernels called from Python."""
