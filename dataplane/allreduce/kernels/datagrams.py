"""Packet transport over a kernel UDP socket, several packets per system call."""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import BURST, STRIDE, EngineState, Status
from dataplane.allreduce.kernels.receive import accept_packet
from dataplane.allreduce.kernels.send_schedule import packet_of
from dataplane.clock import NS_PER_S
from dataplane.linux import EAGAIN, EINTR, ENETDOWN, ENOBUFS, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, POLLIN
from dataplane.native import (
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
from dataplane.native.doorbell import ppoll
from dataplane.nic.layouts import InputOutputVector
from dataplane.nic.ports.kernels.messages import header_at
from dataplane.nic.ports.kernels.system import last_error, recvmmsg, sendmmsg

_POLLOUT = 4
_ENETUNREACH, _ECONNREFUSED, _EHOSTUNREACH = 101, 111, 113


@kernel
def send_datagrams(engine: EngineState, count: u32) -> u32:
    """Send the gathered items; return how many the socket accepted."""
    for at in range(as_u64(count)):
        header = header_at(engine.tx_vector, as_u32(at))
        view(InputOutputVector, header.vector).base = address(packet_of(engine, engine.tx_items[at]))
    sent: i32 = sendmmsg(engine.fd, engine.tx_vector, count, MSG_DONTWAIT | MSG_NOSIGNAL)
    if sent >= 0:
        return as_u32(sent)
    # A path that is down may come back: timers will retry.
    return 0 if note_error(engine, last_error()) else count


@kernel
def note_error(engine: EngineState, error: i32) -> bool:
    """Return whether the socket is merely busy; keep other errors for the message, and stop for a permanent one."""
    if error == EAGAIN or error == EINTR or error == ENOBUFS:  # noqa: PLR1714, SIM109 - kernels have no `in`
        return True
    engine.error = error
    passes: bool = error == ENETDOWN or error == _ENETUNREACH or error == _ECONNREFUSED or error == _EHOSTUNREACH  # noqa: PLR1714
    if not passes:
        engine.status = Status.SOCKET
    return False


@kernel
def receive_datagrams(engine: EngineState) -> u32:
    """Receive at most one burst; return the number of packets."""
    got: i32 = recvmmsg(engine.fd, engine.rx_vector, BURST, MSG_DONTWAIT, array_at(u8, 0))
    if got <= 0:
        if got < 0:
            note_error(engine, last_error())
        return 0
    for at in range(as_u64(as_u32(got))):
        header = header_at(engine.rx_vector, as_u32(at))
        is_whole: bool = (as_u32(header.flags) & MSG_TRUNC) == 0
        accept_packet(engine, offset(engine.rx_buffers, at * STRIDE), header.length if is_whole else 0)
    return as_u32(got)


@kernel
def wait_for_datagrams(engine: EngineState, left_ns: u64) -> None:
    """Wait for a packet, or for room in the socket if it is full."""
    events: u64 = POLLIN | _POLLOUT if engine.blocked != 0 else POLLIN
    polled = stack_array(u64, 1)
    time = stack_array(i64, 2)
    polled[0] = as_u64(as_u32(engine.fd)) | (events << 32)
    time[0] = as_i64(left_ns // NS_PER_S)
    time[1] = as_i64(left_ns % NS_PER_S)
    ppoll(polled, 1, time, array_at(u8, 0))
