"""The engine's loop: send what the window allows, take what comes, wait."""

from __future__ import annotations

from dataplane.allreduce.kernels.accepting import accept_packet, take_epoch
from dataplane.allreduce.kernels.generating import generate, is_generated, packet_of, slot_of
from dataplane.allreduce.kernels.layouts import BURST, STRIDE, EngineState, State, Status
from dataplane.allreduce.kernels.pacing import PACKET, expire, note_sent, push
from dataplane.native import (
    Array,
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    i32,
    i64,
    kernel,
    offset,
    stack_array,
    u8,
    u32,
    u64,
    view,
)
from dataplane.nic.kernels.messages import header_at
from dataplane.nic.kernels.system import NS_PER_S, last_error, monotonic_ns, ppoll, recvmmsg, sendmmsg
from dataplane.nic.layouts import (
    EAGAIN,
    EINTR,
    ENETDOWN,
    ENOBUFS,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    MSG_TRUNC,
    POLLIN,
    InputOutputVector,
)

_LONGEST_WAIT_NS = 20_000_000
"""After which `stop` is looked at."""
_POLLOUT = 4
_ENETUNREACH, _ECONNREFUSED, _EHOSTUNREACH = 101, 111, 113


@kernel
def run_engine(engine: EngineState) -> None:
    """Carry an all-reduce on until `status` has something to say."""
    engine.status = Status.DONE
    while goes_on(engine):
        engine.now_ns = monotonic_ns()
        transmit(engine)
        if engine.unfinished == 0 and is_generated(engine):
            engine.status = Status.SATURATED if engine.saturated != 0 else Status.DONE
            return
        if not goes_on(engine):
            return
        got: u32 = receive(engine)
        if engine.next_expiry_ns <= engine.now_ns:
            expire(engine)
        elif got == 0:
            wait(engine)
        if goes_on(engine):
            check_limits(engine)


@kernel(inline=True)
def goes_on(engine: EngineState) -> bool:
    """Return whether nothing has happened that the caller has to know."""
    return engine.status == Status.DONE


@kernel
def check_limits(engine: EngineState) -> None:
    """Return to the caller when told to, in another epoch, or when nothing has come for too long."""
    if engine.stop != 0:
        engine.status = Status.STOPPED
        return
    take_epoch(engine, engine.wanted_epoch)
    if engine.held_until_ns != 0:
        engine.patient_from_ns = engine.now_ns
        if engine.now_ns >= engine.held_until_ns:
            engine.bad_item = oldest(engine)
            engine.status = Status.HELD
    elif engine.now_ns - max(engine.last_result_ns, engine.patient_from_ns) > engine.patience_ns:
        engine.bad_item = oldest(engine)
        engine.status = Status.DEADLINE


@kernel
def oldest(engine: EngineState) -> u32:
    """Return the oldest item without a result."""
    for back in range(as_u64(engine.window)):
        item: u32 = engine.next_item - engine.window + as_u32(back)
        if slot_of(engine, item).state != State.DONE:
            return item
    return engine.next_item


@kernel
def transmit(engine: EngineState) -> None:
    """Send repetitions, then new items, as far as both windows and the socket allow."""
    engine.blocked = 0
    while engine.blocked == 0 and goes_on(engine):
        room: u32 = as_u32(engine.congestion_window // PACKET)
        if engine.probe != 0 and engine.pending_count > 0:
            room = max(room, engine.in_flight + 1)
            engine.probe = 0
        count: u32 = 0
        while count < BURST and engine.in_flight + count < room:
            if engine.pending_count == 0 and not generated(engine):
                break
            item: u32 = pop(engine)
            if slot_of(engine, item).item == item and slot_of(engine, item).state == State.READY:
                engine.tx_items[count] = item
                header = header_at(engine.tx_vector, count)
                view(InputOutputVector, header.vector).base = address(packet_of(engine, item))
                count += 1
        if count == 0:
            return
        send_burst(engine, count)


@kernel(inline=True)
def generated(engine: EngineState) -> bool:
    """Put the next item in line, if there is one."""
    item: u32 = engine.next_item
    if not generate(engine):
        return False
    push(engine, item)
    return True


@kernel(inline=True)
def pop(engine: EngineState) -> u32:
    """Take the first item in line."""
    item: u32 = engine.pending[engine.pending_first]
    engine.pending_first = (engine.pending_first + 1) & (engine.window - 1)
    engine.pending_count -= 1
    return item


@kernel
def send_burst(engine: EngineState, count: u32) -> None:
    """Send the packets that were gathered; what the socket has no room for stays in line."""
    sent: i32 = sendmmsg(engine.fd, engine.tx_vector, count, MSG_DONTWAIT | MSG_NOSIGNAL)
    taken: u32 = count  # a path that is down may come back: timers will try again
    if sent >= 0:
        taken = as_u32(sent)
    elif note_error(engine, last_error()):
        taken = 0
    for at in range(as_u64(count)):
        item: u32 = engine.tx_items[at]
        if as_u32(at) < taken:
            note_sent(engine, slot_of(engine, item))
        else:
            push(engine, item)
    if taken < count:
        engine.blocked = 1


@kernel
def note_error(engine: EngineState, error: i32) -> bool:
    """Return whether the socket is only busy; keep other errors for the message, and stop for one that lasts."""
    if error == EAGAIN or error == EINTR or error == ENOBUFS:  # noqa: PLR1714, SIM109 - kernels have no `in`
        return True
    engine.error = error
    passes: bool = error == ENETDOWN or error == _ENETUNREACH or error == _ECONNREFUSED or error == _EHOSTUNREACH  # noqa: PLR1714
    if not passes:
        engine.status = Status.SOCKET
    return False


@kernel
def receive(engine: EngineState) -> u32:
    """Take what has come, a burst at most; return how much."""
    got: i32 = recvmmsg(engine.fd, engine.rx_vector, BURST, MSG_DONTWAIT, array_at(u8, 0))
    engine.now_ns = monotonic_ns()
    if got <= 0:
        if got < 0:
            note_error(engine, last_error())
        return 0
    engine.received += as_u64(as_u32(got))
    for at in range(as_u64(as_u32(got))):
        header = header_at(engine.rx_vector, as_u32(at))
        packet: Array[u8] = offset(engine.rx_buffers, at * STRIDE)
        accept_packet(engine, packet, header.length if (as_u32(header.flags) & MSG_TRUNC) == 0 else 0)
    return as_u32(got)


@kernel
def wait(engine: EngineState) -> None:
    """Wait for a packet, for room in the socket if it lacks that, or for the next timer."""
    until: u64 = min(engine.next_expiry_ns, engine.now_ns + _LONGEST_WAIT_NS)
    left: u64 = until - engine.now_ns
    events: u64 = POLLIN | _POLLOUT if engine.blocked != 0 else POLLIN
    polled = stack_array(u64, 1)
    time = stack_array(i64, 2)
    polled[0] = as_u64(as_u32(engine.fd)) | (events << 32)
    time[0] = as_i64(left // NS_PER_S)
    time[1] = as_i64(left % NS_PER_S)
    ppoll(polled, 1, time, array_at(u8, 0))
