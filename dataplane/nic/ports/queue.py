"""One queue of a port, as kernels and Python see it: its kind, its position, its counters.

A queue, in both directions, belongs to one thread at a time. Only that thread writes its counters; any may read them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from dataplane.native import Array, Inline, Struct, i32, u8, u32, u64
from dataplane.native.doorbell import Bell


class PortKind(IntEnum):
    """Transport of a queue's frames."""

    PACKET_V2 = 1
    """AF_PACKET: TPACKET_V2 receive ring and transmit ring."""
    PACKET_V3 = 2
    """AF_PACKET: TPACKET_V3 receive blocks and transmit ring; fewest cycles, delayed by up to a block's time."""
    XDP = 3
    """AF_XDP: one socket for each queue of the device."""
    MEMORY = 4
    """Rings in this process's memory."""
    MESSAGES = 5
    """A datagram or seqpacket socket, one frame a message."""
    DPDK = 6
    """A DPDK port: poll-mode drivers, on kernel devices or in place of them."""


class PortQueue(Struct):
    """Common head of every kind of queue; bytes are those of frames, without FCS."""

    kind: u32  # a PortKind
    fd: i32  # descriptor to poll, -1: none
    down: u32  # 1: found down or gone when last used
    hung_up: u32  # 1: the descriptor would wake every poll from now on, so it is not polled
    transmit_room: u32  # bytes that fit a reserved slot
    shortest_frame: u32
    longest_frame: u32  # without VLAN tag: one outer tag may come on top
    tx_pending: u32  # committed frames that the kernel has not taken yet
    rx_frames: u64
    rx_bytes: u64
    rx_dropped: u64  # dropped by the kernel, before this process saw them
    rx_too_long: u64  # longer than a slot of the ring
    checksum_not_ready: u64  # forwarded nevertheless
    tx_frames: u64
    tx_bytes: u64
    tx_full: u64
    tx_too_long: u64
    tx_refused: u64
    tx_down: u64
    device: Array[u8]  # struct ifreq with the device's name, null if there is none
    device_fd: i32  # a socket for device queries
    padding: u32
    stamps: Array[u64]  # null, or `receive`'s output for the frames' times in ns, with room for its limit
    stamp_kinds: Array[u8]  # set whenever `stamps` is: a `StampKind` for each
    virtual_ns: u64  # 0, or the current time for queues whose frames carry none
    rx_too_short: u64  # shorter than an Ethernet header


class SlotRing(Struct):
    """Slots of one size in blocks of one size; none crosses a block's end."""

    start: u64  # addresses
    end: u64
    slot_bytes: u32
    slots: u32
    block_slots: u32
    block_gap: u32  # bytes after a block's last slot


class Cursor(Struct):
    """A position in a `SlotRing`."""

    slot: u64  # address
    left: u32  # slots left in the block
    reserved: u32


class Train(Struct):
    """Queued consecutive TCP segments of one flow, which become one message."""

    head: u64  # address of the first frame; 0: nothing may follow
    payload_offset: u32
    segment_bytes: u32  # payload of each but the last
    sequence: u32  # expected in the next one
    identification: u32
    frames: u32
    total_length: u32  # length of all as one IPv4 packet
    pushed: u32  # PSH, if the last one has it
    reserved: u32


class JoinGate(Struct):
    """Time until which a port may join segments; set by whatever inspects the other end of its cable."""

    until_ns: u64  # on the monotonic clock; 0: never, the maximum: always
    ask_from_ns: u64  # from then on a refused sender rings the bell; the maximum: never
    asked: u64  # 1: a sender would have joined
    trains: u64  # trains joined so far
    bell: Bell  # null: no keeper to ask


class SegmentLine(Struct):
    """Frames queued for sendmmsg(2), each after a struct virtio_net_hdr; trains of TCP segments are one message."""

    fd: i32
    slots: u32
    slot_bytes: u32
    frames: u32  # slots in use
    messages: u32
    sent: u32  # messages that the kernel took or that were dropped
    buffers: Array[u8]
    vector: Array[u8]  # a struct mmsghdr for each slot
    pieces: Array[u8]  # a struct iovec for each slot
    train: Inline[Train, Literal[1]]
    gate: JoinGate  # shared by all queues of a port
    permission: u32  # the gate's answer since the last flush: 0 not asked, 1 yes, 2 no
    reserved: u32


class PacketQueue(PortQueue):
    """Rings of an AF_PACKET socket."""

    rx: Inline[SlotRing, Literal[1]]  # V3: a slot is a whole block
    tx: Inline[SlotRing, Literal[1]]
    rx_cursor: Inline[Cursor, Literal[1]]  # next slot to receive
    rx_released: Inline[Cursor, Literal[1]]
    tx_cursor: Inline[Cursor, Literal[1]]  # next slot to reserve
    tx_unsent: Inline[Cursor, Literal[1]]  # the first slot that the kernel has not taken
    rx_next: u64  # V3: address of the next frame's header
    rx_left: u32  # V3: frames of the current block still to come
    rx_borrowed: u32
    tx_pending_bytes: u64
    tx_voided: u32  # slots that the kernel has yet to skip
    tx_status_offset: u32
    tx_length_offset: u32
    tx_data_offset: u32
    segments: SegmentLine  # null, or the line that sends frames in place of the ring


class XdpRing(Struct):
    """One ring shared with the kernel; positions run through all of u32."""

    producer: Array[u32]
    consumer: Array[u32]
    flags: Array[u32]
    entries: u64  # address
    mask: u32
    reserved: u32


class XdpQueue(PortQueue):
    """The four rings of an AF_XDP socket and its memory: chunks to receive into, then slots to send from."""

    area: Array[u8]
    area_bytes: u64
    rx: XdpRing
    fill: XdpRing
    tx: XdpRing
    completion: XdpRing
    rx_position: u32
    rx_released: u32
    fill_position: u32
    tx_position: u32
    tx_settled: u32  # descriptors below are already counted
    chunk_bytes: u32
    slot_bytes: u32
    free_count: u32
    free_slots: Array[u64]  # a stack of places in the area
    gather: Array[u8]  # buffer for assembling frames of several chunks
    gather_bytes: u32
    gather_slots: u32
    gather_used: u32
    busy_poll: u32  # 1: a thread that finds nothing runs the device's receiver


class FrameRing(Struct):
    """Frames passing from one thread to another; counts run through all of u64.

    Each slot is a u32 length, 12 unused bytes, then the frame. The cache lines that the two sides write are separate.
    """

    slots: Array[u8]
    mask: u64  # number of slots - 1
    stride: u64  # distance between slots in bytes
    event_fd: i32  # an eventfd: written when frames come while the receiver waits
    closed: u32
    _gap0: Inline[u64, Literal[4]]
    tail: u64  # frames put in; written by the sender
    _gap1: Inline[u64, Literal[7]]
    head: u64  # frames given back; written by the receiver
    waiting: u64  # 1: the receiver waits to be woken
    _gap2: Inline[u64, Literal[6]]


class MemoryQueue(PortQueue):
    """One end of a cable in memory."""

    incoming: FrameRing
    outgoing: FrameRing
    rx_position: u64
    tx_position: u64


class MessageQueue(PortQueue):
    """A socket with the buffers that recvmmsg(2) and sendmmsg(2) use; the vectors are struct mmsghdr."""

    rx_vector: Array[u8]
    rx_buffers: Array[u8]
    tx_vector: Array[u8]
    tx_buffers: Array[u8]
    slots: u32
    slot_bytes: u32
    rx_borrowed: u32
    tx_first: u32  # the first slot that was not sent
    tx_position: u32
    is_stream: u32  # 1: an empty message means that the other end has closed


class DpdkLine(Struct):
    """State shared with dataplane/nic/dpdk/shim.c: buffers to send from, and counters."""

    slots: Inline[u64, Literal[256]]  # addresses to write frames to
    lengths: Inline[u32, Literal[256]]
    filled: u32  # number of slots
    room: u32  # bytes that fit a slot
    rx_too_long: u64
    lost: u64  # frames that the driver took but could not send
    sent_bytes: u64


class DpdkQueue(PortQueue):
    """A queue of a DPDK port; functions are addresses in the shim, so that no other queue needs DPDK."""

    context: u64  # their first argument
    line: DpdkLine
    receive_function: u64
    release_function: u64
    peek_function: u64
    transmit_function: u64
    tx_lost: u64  # part of line.lost that is already counted
    tx_sent_bytes: u64
    timer_fd: i32  # descriptor for Python to poll if `fd` is -1, once needed
    reserved: u32
