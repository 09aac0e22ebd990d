"""Sends frames by sendmmsg(2), with a struct virtio_net_hdr in front: a train of TCP segments is one message.

Linux carries it as one packet to the other end, and splits it where the receiver takes no such packets.
"""

from __future__ import annotations

from dataplane.linux import EAGAIN, EINTR, EMSGSIZE, ENOBUFS, MSG_DONTWAIT
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u16,
    as_u32,
    as_u64,
    atomic_add,
    fence,
    fill,
    i32,
    kernel,
    load_relaxed,
    offset,
    sizeof,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ring_if_waiting
from dataplane.nic.layouts import (
    VIRTIO_NEEDS_CHECKSUM,
    VIRTIO_TCP_IPV4,
    InputOutputVector,
    MessageHeader,
    VirtioHeader,
)
from dataplane.nic.ports.kernels.counting import count_no_room, may_send, means_down, refresh_mtu
from dataplane.nic.ports.kernels.segments import (
    CHECKSUM_OFFSET,
    TCP,
    begin_train,
    extend_train,
    follows,
    has_right_checksums,
    segment_payload,
    write_headers,
)
from dataplane.nic.ports.kernels.system import last_error, monotonic_ns, sendmmsg
from dataplane.nic.ports.queue import JoinGate, PacketQueue, SegmentLine

_ALLOWED, _DENIED = 1, 2
FRAME_OFFSET = 16
"""Offset of the frame in a slot; the struct virtio_net_hdr ends there."""


@kernel(inline=True)
def frame_at(line: SegmentLine, slot: u32) -> u64:
    """Return the address of a slot's frame."""
    return address(line.buffers) + as_u64(slot) * as_u64(line.slot_bytes) + FRAME_OFFSET


@kernel(inline=True)
def virtio_of(frame: u64) -> VirtioHeader:
    """Return the header in front of a frame."""
    return view(VirtioHeader, frame - sizeof(VirtioHeader))


@kernel(inline=True)
def piece_at(line: SegmentLine, slot: u32) -> InputOutputVector:
    """Return a slot's struct iovec."""
    return view(InputOutputVector, address(line.pieces) + as_u64(slot) * sizeof(InputOutputVector))


@kernel(inline=True)
def message_at(line: SegmentLine, number: u32) -> MessageHeader:
    """Return a message."""
    return view(MessageHeader, address(line.vector) + as_u64(number) * sizeof(MessageHeader))


@kernel
def reserve_segment(queue: PacketQueue, length: u32) -> Array[u8]:
    """Return the next free slot's frame, or null (counted)."""
    line = queue.segments
    if length > queue.transmit_room:
        count_no_room(queue, length)
        return array_at(u8, 0)
    if line.frames == line.slots:
        flush_segments(queue)
        if line.frames == line.slots:
            count_no_room(queue, length)
            return array_at(u8, 0)
    return array_at(u8, frame_at(line, line.frames))


@kernel
def commit_segment(queue: PacketQueue, length: u32) -> bool:
    """Queue the reserved frame, appended to the train that it follows or as its own message."""
    line = queue.segments
    position = frame_at(line, line.frames)
    frame = array_at(u8, position)
    if not may_send(queue, frame, length):
        return False
    start = segment_payload(frame, length)
    if not join(line, frame, length, start):
        begin_message(line, position, length, start)
    line.frames += 1
    queue.tx_pending += 1
    return True


@kernel(inline=True)
def join(line: SegmentLine, frame: Array[u8], length: u32, start: u32) -> bool:
    """Append a frame to the previous one's message if allowed; only then are the first one's checksums verified."""
    train = line.train[0]
    if start == 0 or train.head == 0:
        return False
    head = array_at(u8, train.head)
    if line.permission == _DENIED or not follows(train, head, frame, length, start) or not may_join(line):
        return False
    if train.frames == 1 and not has_right_checksums(head, train.payload_offset + train.segment_bytes):
        return False
    if not has_right_checksums(frame, length):
        return False
    piece = piece_at(line, line.frames)
    piece.base = address(frame) + as_u64(start)
    piece.nbytes = as_u64(length - start)
    message_at(line, line.messages - 1).vector_count += 1
    if not extend_train(train, frame, length):
        end_train(line)
    return True


@kernel(inline=True)
def may_join(line: SegmentLine) -> bool:
    """Return whether the gate is open; checked once between two flushes, and no earlier than it matters."""
    if line.permission == 0:
        line.permission = ask(line.gate)
    return line.permission == _ALLOWED


@kernel
def ask(gate: JoinGate) -> u32:
    """Read the gate; if it is shut, tell its keeper that there is something to join."""
    now_ns = monotonic_ns()
    if now_ns < load_relaxed(gate.until_ns):
        return _ALLOWED
    if now_ns >= load_relaxed(gate.ask_from_ns) and address(gate.bell) != 0:
        store_release(gate.asked, 1)
        fence()
        ring_if_waiting(gate.bell)
    return _DENIED


@kernel(inline=True)
def begin_message(line: SegmentLine, position: u64, length: u32, start: u32) -> None:
    """Make a frame its own message, which others may follow if it is a segment."""
    end_train(line)
    header = virtio_of(position)
    fill(array_at(u8, address(header)), 0, sizeof(VirtioHeader))
    piece = piece_at(line, line.frames)
    piece.base = address(header)
    piece.nbytes = sizeof(VirtioHeader) + as_u64(length)
    message = message_at(line, line.messages)
    message.vector = address(piece)
    message.vector_count = 1
    line.messages += 1
    if start != 0:
        begin_train(line.train[0], position, array_at(u8, position), length, start)


@kernel
def end_train(line: SegmentLine) -> None:
    """End the train; several segments become one packet."""
    train = line.train[0]
    if train.head != 0 and train.frames > 1:
        header = virtio_of(train.head)
        header.flags = VIRTIO_NEEDS_CHECKSUM
        header.segmentation = VIRTIO_TCP_IPV4
        header.header_bytes = as_u16(train.payload_offset)
        header.segment_bytes = as_u16(train.segment_bytes)
        header.checksum_start = TCP
        header.checksum_offset = CHECKSUM_OFFSET
        write_headers(train, array_at(u8, train.head))
        atomic_add(line.gate.trains, 1)
    train.head = 0


@kernel
def flush_segments(queue: PacketQueue) -> u32:
    """Send queued frames as far as the device takes them; return how many."""
    line = queue.segments
    taken: u32 = 0
    stale: bool = True
    end_train(line)
    line.permission = 0
    while line.sent < line.messages:
        start = as_u64(line.sent) * sizeof(MessageHeader)
        sent: i32 = sendmmsg(line.fd, offset(line.vector, start), line.messages - line.sent, MSG_DONTWAIT)
        if sent > 0:
            queue.down = 0
            taken += count_messages(queue, as_u32(sent))
            continue
        error: i32 = last_error()
        if error == EAGAIN or error == EINTR:  # noqa: PLR1714, SIM109 - kernels have no `in`
            break
        if means_down(error) and stale:
            # A link that went down and came back leaves its error on the socket, for the first call to find.
            stale = False
            continue
        drop_messages(queue, error)
    if line.sent == line.messages:
        line.frames = 0
        line.messages = 0
        line.sent = 0
    return taken


@kernel
def count_messages(queue: PacketQueue, count: u32) -> u32:
    """Count the frames of the first queued messages as sent, with their bytes on the wire."""
    line = queue.segments
    frames: u32 = 0
    nbytes: u64 = 0
    for _ in range(count):
        message = message_at(line, line.sent)
        pieces = as_u32(message.vector_count)
        first = view(InputOutputVector, message.vector)
        headers: u64 = as_u64(view(VirtioHeader, first.base).header_bytes) if pieces > 1 else 0
        nbytes += first.nbytes - sizeof(VirtioHeader)
        for number in range(1, pieces):
            vector = message.vector + as_u64(number) * sizeof(InputOutputVector)
            nbytes += headers + view(InputOutputVector, vector).nbytes
        frames += pieces
        line.sent += 1
    queue.tx_pending -= frames
    queue.tx_frames += as_u64(frames)
    queue.tx_bytes += nbytes
    return frames


@kernel
def drop_messages(queue: PacketQueue, error: i32) -> None:
    """Drop the message that an error concerns, or all if the device is down, and count the frames."""
    line = queue.segments
    if means_down(error):
        queue.down = 1
        queue.tx_down += as_u64(queue.tx_pending)
        queue.tx_pending = 0
        line.sent = line.messages
        return
    frames = message_at(line, line.sent).vector_count
    line.sent += 1
    queue.tx_pending -= as_u32(frames)
    if error == ENOBUFS:
        queue.tx_full += frames
    elif error == EMSGSIZE:
        refresh_mtu(queue)
        queue.tx_too_long += frames
    else:
        queue.tx_refused += frames


KERNELS = (reserve_segment, commit_segment, flush_segments)
"""Kernels called by those of the ports."""
