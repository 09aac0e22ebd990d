"""The kernel's sockets beneath DPDK's virtual devices: to sleep on, to count drops with, to filter.

DPDK's drivers do not expose them, and neither wait nor count what the kernel had no room for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

from dataplane.linux import PACKET_STATISTICS, SO_DOMAIN, SOL_PACKET, attach_filter

AF_XDP = 44
_SOL_XDP, _XDP_STATISTICS, _XDP_STATISTICS_BYTES = 283, 7, 48
_INCOMING_ONLY = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in ((0x30, 0, 0, 0xFFFFF004), (0x15, 0, 1, 4), (0x06, 0, 0, 0), (0x06, 0, 0, 0x40000))
)
"""A classic BPF program: drop frames whose packet type is PACKET_OUTGOING, take others whole."""


class DriverSocket:
    """A second descriptor of a DPDK socket, whose own is `original`; close it before DPDK closes that one."""

    def __init__(self, handle: socket.socket, original: int) -> None:
        self._socket, self._original = handle, original
        self._inode = os.fstat(original).st_ino

    def fileno(self) -> int:
        """Return the descriptor, -1 once closed."""
        return self._socket.fileno()

    @property
    def is_packet(self) -> bool:
        """True for an AF_PACKET socket, False for AF_XDP."""
        return self._socket.family == socket.AF_PACKET

    def ignore_outgoing(self) -> None:
        """Receive only what comes from the wire, not what others on this machine send through the device."""
        if self.is_packet:
            attach_filter(self._socket, _INCOMING_ONLY)

    def read_drops(self) -> tuple[int, bool]:
        """Return how many frames the kernel had no room for, and whether that counts only since the last reading."""
        if self.is_packet:
            raw = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            return int.from_bytes(raw[4:8], "little"), True
        raw = self._socket.getsockopt(_SOL_XDP, _XDP_STATISTICS, _XDP_STATISTICS_BYTES)
        dropped, _, _, ring_full = struct.unpack_from("=QQQQ", raw)
        return dropped + ring_full, False

    def close(self) -> None:
        """Close this descriptor; the socket is DPDK's."""
        self._socket.close()

    def close_forgotten(self) -> None:
        """Close DPDK's own descriptor if DPDK did not when it closed the port: net_af_xdp of 22.11 forgets to."""
        with contextlib.suppress(OSError):
            if os.fstat(self._original).st_ino == self._inode:
                os.close(self._original)


def open_descriptors() -> set[int]:
    """Return this process's open descriptors, except the one that lists them."""
    listed = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return {number for number in listed if Path(f"/proc/self/fd/{number}").is_symlink()}


def find_sockets(before: set[int], interface: str) -> list[DriverSocket]:
    """Return the sockets on a device that were not open before, in the order of its queues.

    The drivers open them in sequence, and each gets the lowest free number.
    """
    sockets: list[DriverSocket] = []
    for number in sorted(open_descriptors() - before):
        second = _duplicate(number)
        if second is not None and _is_on(second, interface):
            sockets.append(DriverSocket(second, number))
        elif second is not None:
            second.close()
    return sockets


def _duplicate(descriptor: int) -> socket.socket | None:
    """Return a socket object of a second descriptor if it is one of AF_PACKET or AF_XDP."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_RAW, 0, fileno=os.dup(descriptor))
    except OSError:
        # Another thread has closed it.
        return None
    family = probe.getsockopt(socket.SOL_SOCKET, SO_DOMAIN)
    if family in (socket.AF_PACKET, AF_XDP):
        return socket.socket(family, socket.SOCK_RAW, 0, fileno=probe.detach())
    probe.close()
    return None


def _is_on(handle: socket.socket, interface: str) -> bool:
    """Return whether the socket is bound to the device; AF_XDP sockets do not say."""
    return handle.family == AF_XDP or handle.getsockname()[0] == interface
