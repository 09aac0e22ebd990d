"""Ports on sockets that preserve boundaries: UNIX datagram and seqpacket sockets (unix(7)), one frame a message."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from pathlib import Path

from dataplane.errors import PortError
from dataplane.nic.layouts import InputOutputVector, MessageHeader
from dataplane.nic.ports.memory_map import MemoryMap
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import MessageQueue, PortKind

_KINDS = (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)


class MessageSocket:
    """A connected socket with buffers to receive into and to send from; owns the socket."""

    def __init__(self, opened: socket.socket, slots: int, slot_bytes: int) -> None:
        self._socket = opened
        self._map = MemoryMap(2 * slots * slot_bytes)
        rx_buffers, tx_buffers = self._map.address, self._map.address + slots * slot_bytes
        self._vectors = [_make_vector(address, slots, slot_bytes) for address in (rx_buffers, tx_buffers)]
        self.queue = MessageQueue(
            kind=PortKind.MESSAGES,
            fd=opened.fileno(),
            transmit_room=slot_bytes,
            shortest_frame=1,
            longest_frame=slot_bytes,
            device_fd=-1,
            rx_vector=ctypes.addressof(self._vectors[0][0]),
            rx_buffers=rx_buffers,
            tx_vector=ctypes.addressof(self._vectors[1][0]),
            tx_buffers=tx_buffers,
            slots=slots,
            slot_bytes=slot_bytes,
            is_stream=int(opened.type == socket.SOCK_SEQPACKET),
        )

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once closed."""
        return self._socket.fileno()

    def read_drops(self) -> None:
        """Do nothing: these sockets lose no frames; the sender waits or gets an error."""

    def close(self) -> None:
        """Close the socket and free the buffers."""
        self._socket.close()
        self._map.close()


def open_socket_port(opened: socket.socket, name: str, *, slots: int = 256, slot_bytes: int = 1 << 14) -> NicPort:
    """Return a port on a connected datagram or seqpacket socket, which it then owns.

    Raises PortError if it is another kind of socket.
    """
    if opened.type not in _KINDS:
        raise PortError(
            f"port {name}: its socket does not preserve frame boundaries: use a datagram or seqpacket socket"
        )
    opened.setblocking(False)
    return NicPort(name, [MessageSocket(opened, slots, slot_bytes)])


def connect_socket_port(path: Path, name: str | None = None, *, own_path: Path | None = None) -> NicPort:
    """Return a port on the UNIX socket at `path`, whatever its kind; `own_path` is where a datagram peer answers to.

    Raises PortError if nothing listens there.
    """
    error = OSError(errno.EPROTOTYPE, os.strerror(errno.EPROTOTYPE))
    for kind in _KINDS:
        opened = socket.socket(socket.AF_UNIX, kind)
        try:
            if own_path is not None and kind == socket.SOCK_DGRAM:
                opened.bind(str(own_path))
            opened.connect(str(path))
        except OSError as refused:
            opened.close()
            error = refused
            if refused.errno != errno.EPROTOTYPE:
                break
        else:
            return open_socket_port(opened, name or str(path))
    raise PortError(f"port {name or path}: {path}: {error.strerror}") from error


def _make_vector(address: int, slots: int, slot_bytes: int) -> tuple[ctypes.Array[MessageHeader], object]:
    """Return one struct mmsghdr for each buffer of `slot_bytes`, and the vectors that they point to."""
    pieces = (InputOutputVector * slots)()
    headers = (MessageHeader * slots)()
    for number in range(slots):
        pieces[number].base = address + number * slot_bytes
        pieces[number].nbytes = slot_bytes
        headers[number].vector = ctypes.addressof(pieces[number])
        headers[number].vector_count = 1
    return headers, pieces
