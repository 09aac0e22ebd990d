"""Transmit side of an AF_PACKET port that joins TCP segments: a socket and the memory of queued frames."""

from __future__ import annotations

import ctypes
import socket

from dataplane.linux import SO_SNDBUFFORCE, SOL_PACKET
from dataplane.nic.layouts import InputOutputVector, MessageHeader
from dataplane.nic.ports.kernels.segment_transmit import FRAME_OFFSET
from dataplane.nic.ports.memory_map import MemoryMap
from dataplane.nic.ports.queue import JoinGate, SegmentLine

SLOTS = 1_024
FOREVER = (1 << 64) - 1
"""Time in a gate for "always" (`until_ns`) or "never" (`ask_from_ns`)."""
_VNET_HEADER, _QDISC_BYPASS = 15, 20
_LINE_BYTES = 64
_SEND_BUFFER_BYTES = 1 << 26


def shut_gate() -> JoinGate:
    """Return a shut gate, with no keeper to ask."""
    return JoinGate(ask_from_ns=FOREVER)


def open_gate() -> JoinGate:
    """Return a gate that is always open."""
    return JoinGate(until_ns=FOREVER, ask_from_ns=FOREVER)


class LineMemory:
    """Memory for frames of up to `frame_bytes` bytes, and their queue, which sends by a socket.

    They are joined while the gate is open.
    """

    def __init__(self, descriptor: int, frame_bytes: int, gate: JoinGate, slots: int = SLOTS) -> None:
        # An odd number of cache lines: slots share no cache set.
        slot_bytes = -(-(frame_bytes + FRAME_OFFSET) // _LINE_BYTES) * _LINE_BYTES | _LINE_BYTES
        self._map = MemoryMap(slots * slot_bytes)
        self._gate = gate
        self._vector = (MessageHeader * slots)()
        self._pieces = (InputOutputVector * slots)()
        self.room = slot_bytes - FRAME_OFFSET
        """The longest frame that a slot takes, in bytes."""
        self.line = SegmentLine(
            fd=descriptor,
            slots=slots,
            slot_bytes=slot_bytes,
            buffers=self._map.address,
            vector=ctypes.addressof(self._vector),
            pieces=ctypes.addressof(self._pieces),
            gate=gate,
        )

    def close(self) -> None:
        """Free the frames; a second call does nothing."""
        self._map.close()


class SegmentSender:
    """A raw socket on a device, which receives nothing, and its line. Raises OSError."""

    def __init__(self, device: str, frame_bytes: int, gate: JoinGate, *, qdisc_bypass: bool) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            self._socket.setsockopt(SOL_PACKET, _VNET_HEADER, 1)
            self._socket.setsockopt(SOL_PACKET, _QDISC_BYPASS, int(qdisc_bypass))
            self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
            self._socket.bind((device, 0))  # no protocol: receives nothing
            self.memory = LineMemory(self._socket.fileno(), frame_bytes, gate)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket and free the memory; a second call does nothing."""
        self._socket.close()
        self.memory.close()
