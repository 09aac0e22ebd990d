"""Sockets that preserve frame boundaries, e.g. UNIX datagram and seqpacket sockets: several messages a system call."""

from __future__ import annotations

from dataplane.linux import EAGAIN, EINTR, EMSGSIZE, ENOBUFS, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, POLLIN
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    i32,
    i64,
    kernel,
    offset,
    sizeof,
    stack_array,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ppoll
from dataplane.nic.layouts import InputOutputVector, MessageHeader
from dataplane.nic.ports.kernels.counting import count_no_room, may_send
from dataplane.nic.ports.kernels.system import last_error, recvmmsg, sendmmsg
from dataplane.nic.ports.kernels.timestamps import stamp_burst
from dataplane.nic.ports.queue import MessageQueue


@kernel(inline=True)
def header_at(vector: Array[u8], position: u32) -> MessageHeader:
    """Return one struct mmsghdr of a vector."""
    return view(MessageHeader, address(vector) + as_u64(position) * sizeof(MessageHeader))


@kernel
def receive_messages(queue: MessageQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Receive up to `limit` messages into the buffers that are not lent."""
    first: u32 = queue.rx_borrowed
    room: u32 = queue.slots - first
    room = min(room, limit)
    if room == 0 or queue.hung_up != 0:
        return 0
    start: u64 = as_u64(first) * sizeof(MessageHeader)
    got: i32 = recvmmsg(queue.fd, offset(queue.rx_vector, start), room, MSG_DONTWAIT, array_at(u8, 0))
    if got <= 0:
        if got < 0 and not is_passing(last_error()):
            queue.down = 1
        return 0
    queue.down = 0
    queue.rx_borrowed += as_u32(got)
    return keep_frames(queue, first, frames, lengths)


@kernel
def keep_frames(queue: MessageQueue, first: u32, frames: Array[u64], lengths: Array[u32]) -> u32:
    """List the messages from `first` on that are whole and not empty; an empty one may be the stream's end."""
    count: u32 = 0
    position: u32 = first
    while position < queue.rx_borrowed:
        header = header_at(queue.rx_vector, position)
        if header.length == 0:
            if queue.is_stream != 0:
                queue.down = 1
                queue.hung_up = 1
        elif (as_u32(header.flags) & MSG_TRUNC) != 0:
            queue.rx_too_long += 1
        else:
            frames[count] = address(queue.rx_buffers) + as_u64(position) * as_u64(queue.slot_bytes)
            lengths[count] = header.length
            queue.rx_bytes += as_u64(header.length)
            count += 1
        position += 1
    stamp_burst(queue, count)
    queue.rx_frames += as_u64(count)
    return count


@kernel(inline=True)
def release_messages(queue: MessageQueue) -> None:
    """Make all buffers free to receive into."""
    queue.rx_borrowed = 0


@kernel
def is_readable_messages(queue: MessageQueue) -> bool:
    """Return whether the socket has a message."""
    if queue.hung_up != 0:
        return False
    polled = stack_array(u64, 1)
    zero = stack_array(i64, 2)
    polled[0] = as_u64(as_u32(queue.fd)) | (POLLIN << 32)
    zero[0] = 0
    zero[1] = 0
    return ppoll(polled, 1, zero, array_at(u8, 0)) > 0


@kernel(inline=True)
def reserve_messages(queue: MessageQueue, length: u32) -> Array[u8]:
    """Return the next buffer, or null (counted) if none is free."""
    if queue.tx_pending == queue.slots:
        flush_messages(queue)
    if length > queue.transmit_room or queue.tx_pending == queue.slots:
        count_no_room(queue, length)
        return array_at(u8, 0)
    return offset(queue.tx_buffers, as_u64(queue.tx_position) * as_u64(queue.slot_bytes))


@kernel(inline=True)
def commit_messages(queue: MessageQueue, length: u32) -> bool:
    """Queue the reserved buffer."""
    frame: Array[u8] = offset(queue.tx_buffers, as_u64(queue.tx_position) * as_u64(queue.slot_bytes))
    if not may_send(queue, frame, length):
        return False
    header = header_at(queue.tx_vector, queue.tx_position)
    view(InputOutputVector, header.vector).nbytes = as_u64(length)
    queue.tx_position = next_position(queue.tx_position, queue.slots)
    queue.tx_pending += 1
    return True


@kernel
def flush_messages(queue: MessageQueue) -> u32:
    """Send queued messages, as far as the socket takes them; return how many."""
    taken: u32 = 0
    while queue.tx_pending > 0:
        run: u32 = queue.slots - queue.tx_first
        run = min(run, queue.tx_pending)
        start: u64 = as_u64(queue.tx_first) * sizeof(MessageHeader)
        sent: i32 = sendmmsg(queue.fd, offset(queue.tx_vector, start), run, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent > 0:
            queue.down = 0
            taken += as_u32(sent)
            count_sent(queue, as_u32(sent))
        elif not drop_unsent(queue, last_error()):
            break
    return taken


@kernel
def count_sent(queue: MessageQueue, count: u32) -> None:
    """Count the first queued messages as sent."""
    left: u32 = count
    while left > 0:
        queue.tx_bytes += as_u64(header_at(queue.tx_vector, queue.tx_first).length)
        step_over(queue)
        left -= 1
    queue.tx_frames += as_u64(count)


@kernel(inline=True)
def is_passing(error: i32) -> bool:
    """Return whether an errno is only temporary."""
    return error == EAGAIN or error == EINTR or error == ENOBUFS  # noqa: PLR1714 - kernels have no `in`


@kernel
def drop_unsent(queue: MessageQueue, error: i32) -> bool:
    """Drop and count the messages that an error concerns; return whether to continue with others."""
    if is_passing(error):
        return False
    if error == EMSGSIZE:
        queue.tx_too_long += 1
        step_over(queue)
        return True
    queue.down = 1
    queue.tx_down += as_u64(queue.tx_pending)
    while queue.tx_pending > 0:
        step_over(queue)
    return False


@kernel(inline=True)
def step_over(queue: MessageQueue) -> None:
    """Skip the first queued message."""
    queue.tx_first = next_position(queue.tx_first, queue.slots)
    queue.tx_pending -= 1


@kernel(inline=True)
def next_position(position: u32, count: u32) -> u32:
    """Return the next position in a ring of that size."""
    return 0 if position + 1 == count else position + 1
