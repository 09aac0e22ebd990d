"""AF_XDP sockets, one for each receive queue of a device: kernel Documentation/networking/af_xdp, linux/if_xdp.h.

Uses the driver's own zero-copy mode if there is one; else the kernel copies.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import socket
import struct
import time
from collections.abc import Sequence

from dataplane.errors import PortError
from dataplane.native import array_at, pointer_to, u8
from dataplane.nic.devices.device import Device, refusal
from dataplane.nic.layouts import ETHERNET_BYTES, XdpDescriptor
from dataplane.nic.ports.bpf import SocketProgram
from dataplane.nic.ports.memory_map import MemoryMap, require_memory
from dataplane.nic.ports.queue import PortKind, XdpQueue, XdpRing
from dataplane.nic.settings import RingSettings

_AF_XDP, _SOL_XDP = 44, 283
_OFFSETS, _RX_RING, _TX_RING, _MEMORY, _FILL_RING, _COMPLETION_RING, _STATISTICS, _OPTIONS = range(1, 9)
_IS_ZERO_COPY = 1
_SO_BUSY_POLL, _SO_PREFER_BUSY_POLL, _SO_BUSY_POLL_BUDGET = 46, 69, 70
_BUSY_POLL_FRAMES = 64
_RX_OFFSET, _TX_OFFSET, _FILL_OFFSET, _COMPLETION_OFFSET = 0, 0x80000000, 0x100000000, 0x180000000
_USE_NEED_WAKEUP, _USE_FRAGMENTS = 1 << 3, 1 << 4
_REGISTRATION = struct.Struct("=QQIIII")
"""struct xdp_umem_reg: address, length, chunk bytes, headroom, flags, metadata bytes."""
_ADDRESS = struct.Struct("=HHIII")
"""struct sockaddr_xdp: family, flags, interface, queue, descriptor of a socket whose memory is shared."""
_HEADROOM_BYTES = 256
"""Headroom that the kernel keeps in front of a frame in its chunk (XDP_PACKET_HEADROOM)."""
_GATHER_SLOTS = 256
_PATIENCE, _PAUSE_S = 50, 0.01


class XdpSocket:
    """One AF_XDP socket on one queue of a device; raises PortError."""

    def __init__(self, device: Device, number: int, program: SocketProgram, settings: RingSettings) -> None:
        self.device, self.number = device, number
        self.queue = XdpQueue(kind=PortKind.XDP)
        self._maps: list[MemoryMap] = []
        self._program = program
        try:
            self._socket = socket.socket(_AF_XDP, socket.SOCK_RAW, 0)
        except OSError as error:
            raise refusal(device.name, "an AF_XDP socket", error) from error
        try:
            self._set_up(settings)
        except OSError as error:
            self.close()
            raise self._explain(error) from error
        except PortError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once closed."""
        return self._socket.fileno()

    @property
    def is_zero_copy(self) -> bool:
        """True if the device's driver reads and writes the socket's memory itself; else the kernel copies."""
        return bool(self._socket.getsockopt(_SOL_XDP, _OPTIONS) & _IS_ZERO_COPY)

    @property
    def program_place(self) -> str:
        """Place of the program that hands it frames: "driver" or "generic"."""
        return self._program.mode

    def read_drops(self) -> None:
        """Update the queue's `rx_dropped`: no chunk to receive into, too long for one, or a full ring."""
        if self._socket.fileno() >= 0:
            fields = struct.unpack("=6Q", self._socket.getsockopt(_SOL_XDP, _STATISTICS, 48))
            self.queue.rx_dropped = fields[0] + fields[3]

    def close(self) -> None:
        """Detach the program from the device, close the socket and free its memory."""
        self._program.close()
        self.read_drops()
        self._socket.close()
        for each in self._maps:
            each.close()

    def _set_up(self, settings: RingSettings) -> None:
        frame_bytes = settings.frame_bytes or self.device.slot_bytes
        chunk_bytes = self.queue.chunk_bytes = min(_power_of_two(frame_bytes + _HEADROOM_BYTES), mmap.PAGESIZE)
        slot_bytes = self.queue.slot_bytes = max(_power_of_two(frame_bytes), chunk_bytes)
        chunks = _power_of_two(settings.rx_bytes(chunk_bytes) // chunk_bytes)
        slots = _power_of_two(settings.tx_bytes(slot_bytes) // slot_bytes)
        is_cut = frame_bytes + _HEADROOM_BYTES > chunk_bytes
        self._make_memory(chunks, slots, is_cut=is_cut)
        pieces = slots * (slot_bytes // chunk_bytes)
        for option, size in (
            (_FILL_RING, chunks),
            (_COMPLETION_RING, pieces),
            (_RX_RING, chunks),
            (_TX_RING, pieces),
        ):
            self._socket.setsockopt(_SOL_XDP, option, size)
        self._map_rings(chunks, pieces)
        self._fill(chunks)
        self._poll_busily(settings.busy_poll_us)
        self._bind(_USE_NEED_WAKEUP | (_USE_FRAGMENTS if is_cut else 0))
        self._fill_in(slot_bytes if is_cut else chunk_bytes)

    def _poll_busily(self, duration_us: int) -> None:
        """Run the device's receiver in the thread that asks for frames (busy polling)."""
        if duration_us > 0:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_PREFER_BUSY_POLL, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_BUSY_POLL, duration_us)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_BUSY_POLL_BUDGET, _BUSY_POLL_FRAMES)
            self.queue.busy_poll = 1

    def _make_memory(self, chunks: int, slots: int, *, is_cut: bool) -> None:
        queue = self.queue
        chunk_bytes, slot_bytes = queue.chunk_bytes, queue.slot_bytes
        area_bytes = chunks * chunk_bytes + slots * slot_bytes
        require_memory(f"interface {self.device.name}", area_bytes)
        area = MemoryMap(area_bytes)
        self._maps.append(area)
        queue.area, queue.area_bytes = array_at(u8, area.address), area_bytes
        registration = _REGISTRATION.pack(area.address, area_bytes, chunk_bytes, 0, 0, 0)
        self._socket.setsockopt(_SOL_XDP, _MEMORY, registration)
        # Slots begin at multiples of their size, which distinguishes a frame's first piece from the others.
        first = -(-chunks * chunk_bytes // slot_bytes) * slot_bytes
        free = range(first, area_bytes - slot_bytes + 1, slot_bytes)
        queue.free_slots = pointer_to((ctypes.c_uint64 * len(free))(*reversed(free)))
        queue.free_count = len(free)
        if is_cut:
            gather = MemoryMap(_GATHER_SLOTS * slot_bytes)
            self._maps.append(gather)
            queue.gather, queue.gather_bytes = array_at(u8, gather.address), slot_bytes
            queue.gather_slots = _GATHER_SLOTS

    def _map_rings(self, chunks: int, pieces: int) -> None:
        offsets = struct.unpack("=16Q", self._socket.getsockopt(_SOL_XDP, _OFFSETS, 128))
        descriptor, address = ctypes.sizeof(XdpDescriptor), ctypes.sizeof(ctypes.c_uint64)
        self.queue.rx = self._map_ring(_RX_OFFSET, offsets[0:4], chunks, descriptor)
        self.queue.tx = self._map_ring(_TX_OFFSET, offsets[4:8], pieces, descriptor)
        self.queue.fill = self._map_ring(_FILL_OFFSET, offsets[8:12], chunks, address)
        self.queue.completion = self._map_ring(_COMPLETION_OFFSET, offsets[12:16], pieces, address)

    def _map_ring(self, page_offset: int, offsets: Sequence[int], size: int, entry_bytes: int) -> XdpRing:
        producer, consumer, entries, flags = offsets
        ring = MemoryMap(entries + size * entry_bytes, self._socket.fileno(), page_offset)
        self._maps.append(ring)
        return XdpRing(
            producer=ring.address + producer,
            consumer=ring.address + consumer,
            flags=ring.address + flags,
            entries=ring.address + entries,
            mask=size - 1,
        )

    def _fill(self, chunks: int) -> None:
        """Give the kernel all chunks to receive into."""
        queue = self.queue
        places = (ctypes.c_uint64 * chunks).from_address(queue.fill.entries)
        places[:] = [*range(0, chunks * queue.chunk_bytes, queue.chunk_bytes)]
        queue.fill.producer[0] = queue.fill_position = chunks

    def _bind(self, flags: int) -> None:
        address = _ADDRESS.pack(_AF_XDP, flags, self.device.index, self.number, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        patience = _PATIENCE
        while libc.bind(self._socket.fileno(), address, len(address)) != 0:
            if ctypes.get_errno() != errno.EBUSY or patience == 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            # The kernel releases a queue shortly after the socket on it was closed.
            time.sleep(_PAUSE_S)
            patience -= 1

    def _fill_in(self, room: int) -> None:
        queue = self.queue
        queue.fd = self._socket.fileno()
        queue.transmit_room = room
        queue.shortest_frame = ETHERNET_BYTES
        queue.longest_frame = self.device.mtu + ETHERNET_BYTES

    def _explain(self, error: OSError) -> PortError:
        where = f"interface {self.device.name}"
        if error.errno == errno.EBUSY:
            return PortError(f"{where}: queue {self.number} is in use by another AF_XDP socket")
        if error.errno == errno.ENOBUFS:
            allowed = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] >> 10
            asked = self.queue.area_bytes >> 10
            problem = f"{asked} KiB of rings exceed the memory that a user may lock, {allowed} KiB"
            return PortError(f"{where}: {problem}: raise ulimit -l, or ask for smaller rings")
        what = f"AF_XDP on queue {self.number} ({self.queue.area_bytes >> 10} KiB of rings)"
        return refusal(self.device.name, what, error)


def open_xdp_sockets(device: Device, queues: int, settings: RingSettings) -> Sequence[XdpSocket]:
    """Return a socket for each of the device's queues, with its program in place.

    Raises PortError if the device has another number of receive queues, or refuses the sockets or the program.
    """
    from dataplane.nic.devices.ethernet import read_channels  # noqa: PLC0415 - only Linux has netlink

    channels = read_channels(device.name)
    present = 1 if channels is None else channels.receive_queues
    if present != queues:
        problem = f"has {present} receive queues; AF_XDP needs one of ours for each, not {queues}"
        is_combined = channels is not None and channels.most_combined > 0
        remedy = f"combined {queues}" if is_combined else f"rx {queues} tx {queues}"
        raise PortError(f"interface {device.name}: {problem}: ethtool -L {device.name} {remedy}")
    program = SocketProgram(device, queues)
    opened: list[XdpSocket] = []
    try:
        for number in range(queues):
            opened.append(XdpSocket(device, number, program, settings))
            program.add(number, opened[-1].fileno())
        program.attach()
    except PortError:
        program.close()
        for each in opened:
            each.close()
        raise
    return opened


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
