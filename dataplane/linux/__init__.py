"""Linux's numbers that `socket`, `select` and `errno` lack or that kernels need as constants; filters and buffers."""

from __future__ import annotations

import ctypes
import socket
import struct
from dataclasses import dataclass
from typing import Final

SOL_SOCKET, SO_ERROR = 1, 4
SO_NO_CHECK = 11
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
"""Like SO_SNDBUF and SO_RCVBUF, but not bounded by net.core.wmem_max and rmem_max; need CAP_NET_ADMIN."""
SO_DOMAIN, SO_MEMINFO = 39, 55
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_MEMBERSHIP_PROMISCUOUS, PACKET_STATISTICS = 1, 1, 6
MSG_TRUNC, MSG_DONTWAIT, MSG_NOSIGNAL = 0x20, 0x40, 0x4000
SIOCGIFFLAGS, IFF_UP = 0x8913, 1
SIOCGIFMTU = 0x8921
POLLIN, POLLERR, POLLHUP, POLLNVAL = 1, 8, 16, 32
EINTR, ENXIO, EBADF, EAGAIN, EFAULT, EBUSY, ENODEV, EINVAL = 4, 6, 9, 11, 14, 16, 19, 22
ENOTSOCK, EMSGSIZE, ENETDOWN, ENOBUFS = 88, 90, 100, 105

_MEMINFO: Final = struct.Struct("9I")
"""SK_MEMINFO_VARS of linux/sock_diag.h."""

DROP_ALL: Final = struct.pack("=HBBI", 6, 0, 0, 0)
"""A classic BPF program (struct sock_filter): drop everything."""
_INSTRUCTION_BYTES = 8


def attach_filter(opened: socket.socket, program: bytes) -> None:
    """Attach a classic BPF program that decides how much of each packet a socket keeps (socket(7)); raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(code))
    opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)


def ask_receive_buffer(opened: socket.socket, nbytes: int) -> None:
    """Request a receive buffer of this many bytes; without the privilege, net.core.rmem_max bounds it."""
    wanted = min(nbytes, 0x7FFF_FFFF)  # the kernel takes at most 31 bits
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, wanted)
    except PermissionError:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)


@dataclass(frozen=True, slots=True)
class SocketBacklog:
    """Backlog of a socket: bytes of kernel memory in use, their maximum, and how often it was full.

    `dropped` has 32 bits and counts since the socket was created.
    """

    waiting_bytes: int
    room_bytes: int
    dropped: int


def read_backlog(opened: socket.socket) -> SocketBacklog | None:
    """Return a socket's backlog (SO_MEMINFO); None where the kernel does not report it, before Linux 4.12."""
    try:
        numbers = _MEMINFO.unpack(opened.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))
    except OSError:
        return None
    return SocketBacklog(waiting_bytes=numbers[0], room_bytes=numbers[1], dropped=numbers[8])
