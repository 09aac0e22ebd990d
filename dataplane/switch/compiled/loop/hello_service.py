"""The worker that sends hellos on all ports: sends due ones past the queues, and checks which neighbours are silent."""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    copy,
    exchange,
    kernel,
    load_relaxed,
    reference,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ring
from dataplane.native.locks import lock, unlock
from dataplane.nic.ports.kernels import commit, flush, reserve
from dataplane.nic.ports.queue import PortQueue
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.hello_state import (
    AGAIN_NS,
    NEVER,
    frame_to_send,
    hear,
    is_due,
    is_hello,
    look,
    next_look_ns,
    note_sent,
)
from dataplane.switch.compiled.memory.pool import take
from dataplane.switch.compiled.memory.traffic import OutPort, crossing_ns, hold
from dataplane.switch.compiled.memory.worker import Worker
from dataplane.switch.hellos.frames import FRAME_BYTES


@kernel(inline=True)
def listens(port: OutPort) -> bool:
    """Return whether frames addressed as hellos are the switch's own on this port."""
    return address(port.hello) != 0 and load_relaxed(port.hello.listening) != 0


@kernel(inline=True)
def note_look(worker: Worker, port: OutPort, turn_ns: u64) -> None:
    """Record that a worker's queue of a port was empty when its turn began."""
    if address(port.hello) != 0:
        port.hello.looks[worker.number] = turn_ns


@kernel
def take_hello(worker: Worker, port: OutPort, data: Array[u8], length: u32, now_ns: u64) -> bool:
    """Take a frame out of the traffic if it is addressed as a hello, and ring for Python if it has news."""
    if not is_hello(data, length):
        return False
    if hear(port.hello, data, length, now_ns):
        ring(worker.reports)
    return True


@kernel(inline=True)
def serve_hellos(worker: Worker, now_ns: u64) -> None:
    """Process the due hellos of all ports; workers other than the first only wake up to record that they looked."""
    if load_relaxed(worker.hello_changed) != 0 or now_ns >= worker.hello_due_ns:
        _serve(worker, now_ns)


@kernel(inline=False)
def _serve(worker: Worker, now_ns: u64) -> None:
    exchange(worker.hello_changed, 0)
    due_ns: u64 = NEVER
    if worker.hello_look_ns != 0:
        due_ns = now_ns + worker.hello_look_ns
    if worker.number == 0:
        for index in range(worker.traffic.count):
            port = view(OutPort, worker.traffic.ports[index])
            if address(port.hello) != 0 and worker.queues[index] != 0:
                port_due_ns = _serve_port(worker, port, view(PortQueue, worker.queues[index]), now_ns)
                due_ns = min(due_ns, port_due_ns)
    worker.hello_due_ns = due_ns


@kernel
def _serve_port(worker: Worker, port: OutPort, queue: PortQueue, now_ns: u64) -> u64:
    """Check and send on one port; return the next time to do so."""
    hello = port.hello
    if look(hello):
        ring(worker.reports)
    if is_due(hello, now_ns):
        if _send(worker, port, queue, frame_to_send(hello), now_ns):
            note_sent(hello, now_ns)
        else:
            hello.next_ns = now_ns + AGAIN_NS
    send_ns = hello.next_ns if load_relaxed(hello.interval_ns) != 0 else NEVER
    look_ns = next_look_ns(hello, now_ns)
    return min(send_ns, look_ns)


@kernel
def _send(worker: Worker, port: OutPort, queue: PortQueue, data: Array[u8], now_ns: u64) -> bool:
    """Give a frame to the device, or to the port's cable if it has one; return False if that is impossible now."""
    if port.delay_ns == 0:
        slot = reserve(queue, FRAME_BYTES)
        if address(slot) == 0:
            return False
        copy(slot, data, FRAME_BYTES)
        commit(queue, FRAME_BYTES)
        flush(queue)
        return True
    block = take(worker.core[0].frames[0])
    if block == 0:
        return False
    frame = view(Packet, block)
    copy(frame.data, data, FRAME_BYTES)
    frame.length = FRAME_BYTES
    lock(reference(port.egress_lock))
    hold(port, frame, now_ns + crossing_ns(port))
    unlock(reference(port.egress_lock))
    return True


@kernel(inline=True)
def is_forged(port: OutPort, data: Array[u8], length: u32) -> bool:
    """Return whether a neighbour could mistake a program's frame for a hello; counts it if so."""
    if listens(port) and is_hello(data, length):
        port.hello_forged += 1
        return True
    return False
