"""The receive loop: datagrams of a UDP socket into the network's state, without the interpreter.

`collectors.ingest.report_sources.SocketSource` and `NativeCore.take` do the same step by step; one suite runs both. The
lock of the state is held while payloads are taken, `SLICE` at a time, never across a system call that may wait.
"""

from __future__ import annotations

from collectors.native.kernels.batch import take_reports
from collectors.native.kernels.state.windows import begin_batch
from collectors.native.receive_state import (
    BEHIND_NS,
    CONTROL_BYTES,
    EMPTY,
    FAILED,
    FOR_PYTHON,
    HEAD_BYTES,
    LATE_NS,
    MESSAGES,
    NAME_BYTES,
    OUT_OF_TIME,
    ROWS,
    STRIDE_BYTES,
    ReceiveState,
)
from collectors.native.structures import Decoder
from collectors.native.tables import SequenceTable, TelemetryTables
from dataplane.clock import NS_PER_S
from dataplane.linux import EBADF, EFAULT, EINVAL, ENOTSOCK, MSG_DONTWAIT, MSG_TRUNC, POLLIN
from dataplane.native import (
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    copy,
    i32,
    i64,
    kernel,
    load_be32,
    load_u16,
    load_u32,
    load_u64,
    offset,
    reference,
    stack_array,
    u8,
    u32,
    u64,
)
from dataplane.native.doorbell import ppoll, read
from dataplane.native.locks import has_waiters, release_lock, take_lock
from dataplane.nic.ports.kernels.messages import header_at
from dataplane.nic.ports.kernels.system import ioctl, last_error, monotonic_ns, real_time_ns, recvmmsg

SLICE = 512
"""Payloads processed before others get the state: about a quarter of a millisecond."""
PAUSE_NS = 1_000_000
"""Pause once the socket is empty: whatever arrives meanwhile shares one wake-up."""
SIOCGSTAMPNS = 0x8907
"""Arrival time of the last datagram read, by CLOCK_REALTIME, in struct timespec (socket(7))."""
SOL_UDP, UDP_GRO = 17, 104
"""Level and type of the control message with the size of the datagrams that the kernel coalesced (udp(7))."""
AF_INET, AF_INET6 = 2, 10
_CONTROL_HEADER, _ALIGNED = 16, 7


@kernel
def receive_reports(  # noqa: PLR0917 - kernels have no keywords
    state: ReceiveState,
    tables: TelemetryTables,
    sequences: SequenceTable,
    decoder: Decoder,
    until_ns: u64,
    waits: u32,
) -> u32:
    """Receive until a time of the monotonic clock, or until Python is needed; return the reason.

    Without `waits` it also returns once the socket is empty. Unprocessed payloads stay in the state for the next call.
    """
    reason: u32 = run_loop(state, tables, sequences, decoder, until_ns, waits)
    state.returned_ns = clock_ns(state)
    return reason


@kernel
def run_loop(  # noqa: PLR0917 - kernels have no keywords
    state: ReceiveState,
    tables: TelemetryTables,
    sequences: SequenceTable,
    decoder: Decoder,
    until_ns: u64,
    waits: u32,
) -> u32:
    """Receive, and return why it ended."""
    while True:
        while state.row < state.row_count:
            if not take_rows(state, tables, sequences, decoder):
                return FOR_PYTHON
            if decoder.item_count > decoder.most_items:
                return OUT_OF_TIME
        if monotonic_ns() >= until_ns:
            return OUT_OF_TIME
        if state.message < state.message_count:
            take_apart(state)
        elif read_messages(state):
            state.is_idle = 0
        elif state.error != 0:
            return FAILED
        elif waits == 0:
            return EMPTY
        elif wait_for_messages(state, until_ns):
            return OUT_OF_TIME


# ---- payloads into the state


@kernel(inline=False)
def take_rows(state: ReceiveState, tables: TelemetryTables, sequences: SequenceTable, decoder: Decoder) -> bool:
    """Process the payloads that messages were split into; return False if the next one is for Python to read."""
    take_lock(state.lock)
    is_python: bool = False
    while state.row < state.row_count and not is_python and decoder.item_count <= decoder.most_items:
        is_python = take_slice(state, tables, sequences, decoder)
        if has_waiters(state.lock):
            release_lock(state.lock)
            take_lock(state.lock)
    release_lock(state.lock)
    return not is_python


@kernel(inline=True)
def take_slice(state: ReceiveState, tables: TelemetryTables, sequences: SequenceTable, decoder: Decoder) -> bool:
    """Take some payloads; True if the next one is Python's to read."""
    begin_batch(tables, state.now_ns)
    tables.batch.skips_others = as_u64(state.skips_others)
    tables.records.is_behind = as_u64(state.is_behind)
    tables.batch.sources = address(state.sources) if state.checks_sources != 0 else 0
    end: u32 = min(state.row + SLICE, state.row_count)
    refused: u64 = tables.counts.wrong_source
    state.row = take_reports(tables, sequences, decoder, state.data, state.places, state.lengths, state.row, end)
    if tables.counts.wrong_source != refused:
        note_refused(state, tables.counts.refused_row)
    return state.row < end and decoder.item_count <= decoder.most_items


@kernel(inline=False)
def note_refused(state: ReceiveState, row: u32) -> None:
    """Copy what Python needs to explain a refused payload, as its buffer may be reused first."""
    state.refused = 1
    state.refused_source = state.sources[row]
    state.refused_bytes = min(state.lengths[row], HEAD_BYTES)
    copy(reference(state.refused_head[0]), offset(state.data, state.places[row]), as_u64(state.refused_bytes))
    name = offset(state.names, as_u64(state.message_of[row]) * NAME_BYTES)
    copy(reference(state.refused_name[0]), name, NAME_BYTES)


# ---- messages into payloads


@kernel(inline=False)
def take_apart(state: ReceiveState) -> None:
    """List the datagrams that the next messages are made of, as many as there is room for."""
    state.row = 0
    count: u32 = 0
    while state.message < state.message_count and count < ROWS:
        header = header_at(state.headers, state.message)
        length: u32 = header.length
        if state.message_at == 0:
            if (as_u32(header.flags) & MSG_TRUNC) != 0:
                state.cut += 1
                header.length = 0  # also when this message is processed again
                length = 0
            state.segment = segment_of(state, length, header.control_bytes)
        source: u32 = sender_of(state, state.message)
        start: u64 = as_u64(state.message) * STRIDE_BYTES
        while count < ROWS:
            at: u32 = state.message_at
            state.places[count] = start + as_u64(at)
            state.lengths[count] = min(state.segment, length - at)
            state.sources[count] = source
            state.message_of[count] = state.message
            count += 1
            if length - at <= state.segment:
                state.message += 1
                state.message_at = 0
                break
            state.message_at = at + state.segment
    state.row_count = count


@kernel(inline=True)
def segment_of(state: ReceiveState, length: u32, control_bytes: u64) -> u32:
    """Return the size of the datagrams that a message is made of: of all but the last, which may be shorter."""
    control = offset(state.controls, as_u64(state.message) * CONTROL_BYTES)
    at: u64 = 0
    end: u64 = min(control_bytes, CONTROL_BYTES)
    while at + _CONTROL_HEADER + 4 <= end:
        nbytes: u64 = load_u64(control, at)
        if load_u32(control, at + 8) == SOL_UDP and load_u32(control, at + 12) == UDP_GRO:
            size: u32 = load_u32(control, at + _CONTROL_HEADER)
            return size if size != 0 and size < length else length
        if nbytes < _CONTROL_HEADER or nbytes > CONTROL_BYTES:
            break
        at += nbytes + _ALIGNED & ~as_u64(_ALIGNED)
    return length


@kernel(inline=True)
def sender_of(state: ReceiveState, message: u32) -> u32:
    """Return the IPv4 address that a message came from, 0 for one from IPv6."""
    name = offset(state.names, as_u64(message) * NAME_BYTES)
    family: u32 = as_u32(load_u16(name, 0))
    if family == AF_INET:
        return load_be32(name, 4)
    # An IPv4 address in an IPv6 one (RFC 4291, 2.5.5.2).
    if family == AF_INET6 and load_u64(name, 8) == 0 and load_be32(name, 16) == 0xFFFF:
        return load_be32(name, 20)
    return 0


# ---- the socket


@kernel(inline=False)
def read_messages(state: ReceiveState) -> bool:
    """Read what the socket has, at most `MESSAGES` at a time; False if there is nothing.

    After a pause longer than `LATE_NS` few are read at a time, because they may be of different ages.
    """
    begun_ns: u64 = clock_ns(state)
    is_late: bool = begun_ns - state.read_up_to_ns > LATE_NS
    most: u32 = state.late_messages if is_late else MESSAGES
    i: u32 = 0
    while i < state.message_count:  # the kernel has written how much of these it used
        header = header_at(state.headers, i)
        header.name_bytes = NAME_BYTES
        header.control_bytes = CONTROL_BYTES
        i += 1
    state.message = 0
    state.message_at = 0
    state.message_count = 0
    got: i32 = recvmmsg(state.fd, state.headers, most, MSG_DONTWAIT, array_at(u8, 0))
    if got <= 0:
        state.read_up_to_ns = begun_ns
        state.late_messages = 1
        state.behind_since_ns = 0
        if got < 0 and is_lasting(last_error()):
            state.error = last_error()
        return False
    state.message_count = as_u32(got)
    age_ns: u64 = age_of_newest(state)
    state.oldest_ns = max(state.oldest_ns, age_ns)
    if age_ns <= LATE_NS:
        state.behind_since_ns = 0
    elif state.behind_since_ns == 0:
        state.behind_since_ns = begun_ns
    state.is_behind = as_u32(state.behind_since_ns != 0 and begun_ns - state.behind_since_ns > BEHIND_NS)
    state.now_ns = come_late(state, age_ns) if is_late else clock_ns(state)
    return True


@kernel(inline=True)
def is_lasting(error: i32) -> bool:
    """Return whether an errno means that the socket is permanently unreadable."""
    return error == EBADF or error == EFAULT or error == EINVAL or error == ENOTSOCK  # noqa: PLR1714


@kernel(inline=True)
def clock_ns(state: ReceiveState) -> u64:
    """Return the collector's time."""
    return state.virtual_ns if state.virtual_ns != 0 else monotonic_ns()


@kernel(inline=True)
def age_of_newest(state: ReceiveState) -> u64:
    """Return how long the datagram had waited that was read last; 0 where the kernel has no stamp of it."""
    stamp = stack_array(i64, 2)
    if ioctl(state.fd, SIOCGSTAMPNS, array_at(u8, address(stamp))) != 0:
        return 0
    came_ns: u64 = as_u64(stamp[0]) * NS_PER_S + as_u64(stamp[1])
    wall_ns: u64 = real_time_ns() + state.wall_ahead_ns
    return wall_ns - came_ns if as_i64(wall_ns - came_ns) > 0 else 0


@kernel(inline=False)
def come_late(state: ReceiveState, age_ns: u64) -> u64:
    """Return when late datagrams came, and read more at a time if they are of one age.

    A change of the machine's time makes them neither come later than now nor before what was read earlier.
    """
    now_ns: u64 = clock_ns(state)
    came_ns: u64 = max(now_ns - min(age_ns, now_ns), state.read_up_to_ns)
    if came_ns - state.read_up_to_ns < LATE_NS // 2:
        state.late_messages = min(2 * state.late_messages, MESSAGES)
    else:
        state.late_messages = max(state.late_messages // 4, 1)
    state.read_up_to_ns = came_ns
    if now_ns - came_ns <= LATE_NS:
        return now_ns
    state.came_ns = min(max(came_ns, state.came_ns), now_ns)
    return state.came_ns


@kernel(inline=False)
def wait_for_messages(state: ReceiveState, until_ns: u64) -> bool:
    """Wait for datagrams; True if the caller has rung. After a busy time it first pauses, and then looks again."""
    now_ns: u64 = monotonic_ns()
    left_ns: u64 = until_ns - now_ns if until_ns > now_ns else 0
    sockets: u64 = 1  # only the caller's bell
    if state.is_idle != 0:
        sockets = 2
    else:
        left_ns = min(left_ns, PAUSE_NS)
    state.is_idle = 1
    polled = stack_array(u64, 2)
    polled[0] = as_u64(as_u32(state.wake_fd)) | (POLLIN << 32)
    polled[1] = as_u64(as_u32(state.fd)) | (POLLIN << 32)
    timeout = stack_array(i64, 2)
    timeout[0] = as_i64(left_ns // NS_PER_S)
    timeout[1] = as_i64(left_ns % NS_PER_S)
    ppoll(polled, sockets, timeout, array_at(u8, 0))
    if polled[0] >> 48 == 0:
        return False
    heard = stack_array(u64, 1)
    read(state.wake_fd, heard, 8)
    return True
