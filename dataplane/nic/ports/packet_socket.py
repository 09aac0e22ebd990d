"""AF_PACKET sockets with rings in shared memory: packet(7), kernel Documentation/networking/packet_mmap.

A port with several queues is a fanout group: the kernel hands each frame to one socket by the hash of its flow.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dataplane.errors import PortError
from dataplane.linux import (
    DROP_ALL,
    PACKET_ADD_MEMBERSHIP,
    PACKET_MEMBERSHIP_PROMISCUOUS,
    PACKET_STATISTICS,
    SO_DETACH_FILTER,
    SO_SNDBUFFORCE,
    SOL_PACKET,
    attach_filter,
)
from dataplane.native import Array
from dataplane.nic.devices.device import Device, refusal
from dataplane.nic.layouts import ETHERNET_BYTES, PacketV2Header, PacketV3Header, field_offset
from dataplane.nic.ports.memory_map import MemoryMap, require_memory
from dataplane.nic.ports.queue import Cursor, JoinGate, PacketQueue, PortKind, SlotRing
from dataplane.nic.ports.segment_sender import SegmentSender, open_gate, shut_gate
from dataplane.nic.settings import RingSettings

_ETH_P_ALL = 3
_RX_RING, _VERSION, _TX_RING = 5, 10, 13
_LOSS, _TIMESTAMP, _FANOUT, _QDISC_BYPASS, _IGNORE_OUTGOING = 14, 17, 18, 20, 23
_RAW_HARDWARE = 1 << 6
"""SOF_TIMESTAMPING_RAW_HARDWARE: the device's own clock, if it has stamped the frame."""
_VERSIONS = {PortKind.PACKET_V2: 1, PortKind.PACKET_V3: 2}
_FANOUT_HASH, _FANOUT_UNIQUE_ID, _FANOUT_IGNORE_OUTGOING = 0, 0x2000, 0x4000
_REQUEST = struct.Struct("=IIII")
"""struct tpacket_req: block size, blocks, frame size, frames."""
_REQUEST_V3 = struct.Struct("=IIIIIII")
"""struct tpacket_req3: the same, then retire timeout in ms, private bytes, features."""
_BLOCK_BYTES, _LINE_BYTES = 1 << 16, 64
_RX_HEAD_BYTES, _TX_HEAD_BYTES = 112, 48
"""Upper bounds of headers, address, the gap for a VLAN tag and alignment in a slot."""
_LARGEST_SEND_BUFFER = 1 << 30


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of slots in a ring, in bytes."""

    ring_bytes: int
    block_bytes: int
    slot_bytes: int

    def describe(self, start: int, ring: Array[SlotRing], *cursors: Array[Cursor]) -> None:
        """Fill in a ring at an address, and cursors at its beginning."""
        per_block = self.block_bytes // self.slot_bytes
        ring[0].start, ring[0].end = start, start + self.ring_bytes
        ring[0].slot_bytes, ring[0].slots = self.slot_bytes, self.ring_bytes // self.block_bytes * per_block
        ring[0].block_slots, ring[0].block_gap = per_block, self.block_bytes - per_block * self.slot_bytes
        for cursor in cursors:
            cursor[0].slot, cursor[0].left = start, per_block


class PacketSocket:
    """One AF_PACKET socket and its rings; receives nothing before `start`. Raises PortError.

    With a `gate` it joins TCP segments while that is open.
    """

    def __init__(self, device: Device, kind: PortKind, settings: RingSettings, gate: JoinGate | None = None) -> None:
        self.device = device
        self.gate = gate
        self.queue = PacketQueue(kind=kind, down=0)
        self._map: MemoryMap | None = None
        self._sender: SegmentSender | None = None
        try:
            # Protocol 0 until the socket is bound, to receive no other device's frames before.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        except OSError as error:
            raise refusal(device.name, "a raw socket", error) from error
        try:
            self._configure(settings)
            self._make_rings(kind, settings)
            if gate is not None:
                self._join_segments(settings, gate)
        except OSError as error:
            self.close()
            raise refusal(device.name, "cannot be opened", error) from error
        except PortError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once closed."""
        return self._socket.fileno()

    def join(self, group: int | None) -> int:
        """Join the fanout group, or create one; return its number."""
        flags = _FANOUT_HASH if group is not None else _FANOUT_HASH | _FANOUT_UNIQUE_ID
        if self._sender is not None:  # frames that it sends belong to no member, and would come back
            flags |= _FANOUT_IGNORE_OUTGOING
        try:
            self._socket.setsockopt(SOL_PACKET, _FANOUT, (group or 0) | flags << 16)
            return self._socket.getsockopt(SOL_PACKET, _FANOUT) & 0xFFFF
        except OSError as error:
            raise refusal(self.device.name, "queues cannot be made", error) from error

    def start(self) -> None:
        """Start receiving frames."""
        self._socket.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)

    def read_drops(self) -> None:
        """Update the queue's `rx_dropped`; each reading resets the kernel's own count."""
        if self._socket.fileno() >= 0:
            raw = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12)
            self.queue.rx_dropped += int.from_bytes(raw[4:8], "little")

    def close(self) -> None:
        """Close socket and rings; the device stops being promiscuous."""
        self.read_drops()
        self._socket.close()
        if self._sender is not None:
            self._sender.close()
        if self._map is not None:
            self._map.close()

    def _join_segments(self, settings: RingSettings, gate: JoinGate) -> None:
        frame_bytes = settings.frame_bytes or self.device.slot_bytes
        self._sender = SegmentSender(self.device.name, frame_bytes, gate, qdisc_bypass=settings.qdisc_bypass)
        self.queue.segments = self._sender.memory.line
        self.queue.transmit_room = self._sender.memory.room

    def _configure(self, settings: RingSettings) -> None:
        opened = self._socket
        attach_filter(opened, DROP_ALL)
        opened.setsockopt(SOL_PACKET, _VERSION, _VERSIONS[PortKind(self.queue.kind)])
        opened.setsockopt(SOL_PACKET, _IGNORE_OUTGOING, 1)
        opened.setsockopt(SOL_PACKET, _LOSS, 1)
        opened.setsockopt(SOL_PACKET, _QDISC_BYPASS, int(settings.qdisc_bypass))
        if settings.stamps == "hardware":
            opened.setsockopt(SOL_PACKET, _TIMESTAMP, _RAW_HARDWARE)
        membership = struct.pack("=iHH8s", self.device.index, PACKET_MEMBERSHIP_PROMISCUOUS, 0, b"")
        opened.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)

    def _make_rings(self, kind: PortKind, settings: RingSettings) -> None:
        frame_bytes = settings.frame_bytes or self.device.slot_bytes
        rx_slot, tx_slot = _round_up(frame_bytes + _RX_HEAD_BYTES), _round_up(frame_bytes + _TX_HEAD_BYTES)
        if kind is PortKind.PACKET_V3:
            block_bytes = _power_of_two(max(settings.block_bytes, rx_slot, _BLOCK_BYTES))
            rx_bytes = max(-(-settings.rx_bytes(rx_slot) // block_bytes), 2) * block_bytes
            self._ask(_RX_RING, block_bytes, rx_bytes // block_bytes, rx_slot, settings.block_timeout_ms)
            rx = _Layout(rx_bytes, block_bytes, block_bytes)
        else:
            rx = self._ask_slots(_RX_RING, settings.rx_bytes(rx_slot), rx_slot)
        tx = self._ask_slots(_TX_RING, settings.tx_bytes(tx_slot), tx_slot)
        # A frame in the transmit ring is charged up to twice its size.
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, min(2 * tx.ring_bytes, _LARGEST_SEND_BUFFER))
        self._map = MemoryMap(rx.ring_bytes + tx.ring_bytes, self._socket.fileno())
        self._socket.bind((self.device.name, _ETH_P_ALL))
        queue, start = self.queue, self._map.address
        rx.describe(start, queue.rx, queue.rx_cursor, queue.rx_released)
        tx.describe(start + rx.ring_bytes, queue.tx, queue.tx_cursor, queue.tx_unsent)
        self._fill_in(kind, tx_slot)

    def _ask_slots(self, option: int, nbytes: int, slot_bytes: int) -> _Layout:
        """Request a ring of slots with that many bytes in all."""
        block_bytes = _power_of_two(max(_BLOCK_BYTES, slot_bytes))
        blocks = -(-nbytes // block_bytes)
        self._ask(option, block_bytes, blocks, slot_bytes, 0)
        return _Layout(blocks * block_bytes, block_bytes, slot_bytes)

    def _ask(self, option: int, block_bytes: int, blocks: int, slot_bytes: int, timeout_ms: int) -> None:
        require_memory(f"interface {self.device.name}", block_bytes * blocks)
        size = (block_bytes, blocks, slot_bytes, blocks * (block_bytes // slot_bytes))
        is_v3 = self.queue.kind == PortKind.PACKET_V3
        request = _REQUEST_V3.pack(*size, timeout_ms, 0, 0) if is_v3 else _REQUEST.pack(*size)
        try:
            self._socket.setsockopt(SOL_PACKET, option, request)
        except OSError as error:
            if error.errno not in {errno.ENOMEM, errno.EINVAL}:
                raise
            ring = "receive" if option == _RX_RING else "transmit"
            reason = (
                f"a {ring} ring of {block_bytes * blocks >> 10} KiB cannot be allocated: {os.strerror(error.errno)}"
            )
            raise PortError(f"interface {self.device.name}: {reason}") from error

    def _fill_in(self, kind: PortKind, tx_slot: int) -> None:
        queue = self.queue
        queue.fd = self._socket.fileno()
        header = PacketV2Header if kind is PortKind.PACKET_V2 else PacketV3Header
        queue.tx_status_offset = field_offset(header, "status")
        queue.tx_length_offset = field_offset(header, "length")
        queue.tx_data_offset = ctypes.sizeof(header)
        queue.transmit_room = tx_slot - queue.tx_data_offset
        queue.shortest_frame = ETHERNET_BYTES
        queue.longest_frame = self.device.mtu + ETHERNET_BYTES


def open_packet_sockets(device: Device, kind: PortKind, queues: int, settings: RingSettings) -> Sequence[PacketSocket]:
    """Return that many sockets on one device that share its frames by flow, each frame going to one of them."""
    opened: list[PacketSocket] = []
    group = None
    try:
        gate = _gate(settings)
        opened.extend(PacketSocket(device, kind, settings, gate) for _ in range(queues))
        # The kernel numbers the group's sockets in the order in which they join.
        first = settings.first_queue % queues
        for each in opened[first:] + opened[:first] if queues > 1 else ():
            group = each.join(group)
    except PortError:
        for each in opened:
            each.close()
        raise
    # Otherwise several of them would receive a frame while they join.
    for each in opened:
        each.start()
    return opened


def _gate(settings: RingSettings) -> JoinGate | None:
    if settings.join_segments == "never":
        return None
    return open_gate() if settings.join_segments == "always" else shut_gate()


def _round_up(nbytes: int) -> int:
    """Round up to a multiple of a cache line; an odd one, so that slots share no cache set."""
    return (nbytes + _LINE_BYTES - 1) // _LINE_BYTES * _LINE_BYTES | _LINE_BYTES


def _power_of_two(nbytes: int) -> int:
    return 1 << (nbytes - 1).bit_length()
