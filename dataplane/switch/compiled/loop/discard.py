"""The forwarding loop of a switch without a program: counts incoming frames, sends what is still on its cables."""

from __future__ import annotations

from dataplane.native import (
    address,
    array_at,
    as_u64,
    atomic_add,
    kernel,
    load_acquire,
    load_relaxed,
    reference,
    u8,
    u64,
    view,
)
from dataplane.native.locks import try_lock, unlock
from dataplane.nic.ports.kernels import receive
from dataplane.nic.ports.kernels import release as give_back
from dataplane.nic.ports.kernels.system import monotonic_ns
from dataplane.nic.ports.queue import PortQueue
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.loop.egress import flush_in_order, flush_pending, is_kept, send_arrived
from dataplane.switch.compiled.loop.hello_service import listens, note_look, serve_hellos, take_hello
from dataplane.switch.compiled.loop.loop import rest, sleep
from dataplane.switch.compiled.memory.pool import give
from dataplane.switch.compiled.memory.rings import get
from dataplane.switch.compiled.memory.traffic import OutPort
from dataplane.switch.compiled.memory.worker import BURST_FRAMES, Worker


@kernel
def run_without_program(worker: Worker) -> None:
    """Count and discard frames until `stop` is set."""
    while load_acquire(worker.stop) == 0:
        now_ns = monotonic_ns()
        if not _turn(worker, now_ns):
            sleep(worker, now_ns)
    rest(worker)


@kernel
def _turn(worker: Worker, now_ns: u64) -> bool:
    traffic = worker.traffic
    done: u64 = 0
    for index in range(traffic.count):
        if worker.queues[index] != 0:
            port = view(OutPort, traffic.ports[index])
            queue = view(PortQueue, worker.queues[index])
            done += _discard(worker, port, queue, now_ns)
            flush_pending(port, queue)
            done += _send_arrived(worker, port, queue, now_ns)
    if address(worker.injected) != 0:
        done += _discard_injected(worker)
    serve_hellos(worker, now_ns)
    return done > 0


@kernel
def _send_arrived(worker: Worker, port: OutPort, queue: PortQueue, now_ns: u64) -> u64:
    """Send what has crossed the cable, unless another worker does so or has frames that must go first."""
    if load_relaxed(port.in_flight) == 0 or is_kept(port, address(queue)) or not try_lock(reference(port.egress_lock)):
        return 0
    sent: u64 = 0
    if not is_kept(port, address(queue)):
        sent = send_arrived(worker, port, queue, now_ns)
        flush_in_order(port, queue)
    unlock(reference(port.egress_lock))
    return sent


@kernel
def _discard(worker: Worker, port: OutPort, queue: PortQueue, turn_ns: u64) -> u64:
    frames = receive(queue, worker.frames, worker.lengths, BURST_FRAMES)
    if frames < BURST_FRAMES:
        note_look(worker, port, turn_ns)
    if frames == 0:
        return 0
    now_ns = monotonic_ns()
    listening = listens(port)
    hellos: u64 = 0
    nbytes: u64 = 0
    for index in range(frames):
        length = worker.lengths[index]
        if listening and take_hello(worker, port, array_at(u8, worker.frames[index]), length, now_ns):
            hellos += 1
        else:
            nbytes += as_u64(length)
    give_back(queue)
    _count(port, as_u64(frames) - hellos, nbytes)
    return as_u64(frames)


@kernel
def _discard_injected(worker: Worker) -> u64:
    block = get(worker.injected)
    if block == 0:
        return 0
    frame = view(Packet, block)
    _count(worker.cpu_port, 1, as_u64(frame.length))
    give(worker.core[0].frames[0], frame)
    return 1


@kernel
def _count(port: OutPort, frames: u64, nbytes: u64) -> None:
    atomic_add(port.rx_frames, frames)
    atomic_add(port.rx_bytes, nbytes)
    if load_relaxed(port.is_up) != 0:
        atomic_add(port.no_program, frames)
    else:
        atomic_add(port.rx_port_down, frames)
