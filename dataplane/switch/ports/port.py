"""Ports of a switch that runs in the kernel: AF_PACKET sockets on network devices (packet(7), linux/if_packet.h)."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

from dataplane.errors import PortError
from dataplane.nic.devices.device import DeviceWatch
from dataplane.nic.devices.offloads import disable_offloads
from dataplane.nic.port import (
    PORT_DOWN,
    SEND_QUEUE_FULL,
    SEND_REFUSED,
    SOCKET_FULL,
    TOO_LONG,
    LinkStatus,
    Port,
    PortReading,
)

__all__ = [
    "PORT_DOWN",
    "SEND_QUEUE_FULL",
    "SEND_REFUSED",
    "SOCKET_FULL",
    "TOO_LONG",
    "PacketPort",
    "Port",
    "PortReading",
    "restore_vlan_tag",
]

_ETH_P_ALL = 3
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _STATISTICS, _AUXDATA, _IGNORE_OUTGOING = 1, 6, 8, 23
_MEMBERSHIP_PROMISCUOUS = 1
_OUTGOING = 4
_SO_RCVBUFFORCE = 33
_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1

_AUXILIARY = struct.Struct("=IIIHHHH")
"""struct tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid."""
_ANCILLARY_BYTES = socket.CMSG_SPACE(_AUXILIARY.size)
_CHECKSUM_NOT_READY, _VLAN_VALID, _TPID_VALID = 1 << 3, 1 << 4, 1 << 6
_ETHERTYPE_VLAN = 0x8100

_SOCKET_BYTES = 4 << 20
_LONGEST_FRAME_BYTES = 1 << 17
"""More than any device delivers: what is cut off could not be counted as oversize by the switch."""
_DROP_NAMES = {
    errno.EAGAIN: SEND_QUEUE_FULL,
    errno.ENOBUFS: SEND_QUEUE_FULL,
    errno.ENETDOWN: PORT_DOWN,
    errno.ENXIO: PORT_DOWN,
    errno.ENODEV: PORT_DOWN,
    errno.EMSGSIZE: TOO_LONG,
}


class PacketPort:
    """A network device opened raw and promiscuous, offloads off; sees no frames that this machine sends through it.

    Raises PortError if the device is missing or down, or the caller has no rights (CAP_NET_RAW, CAP_NET_ADMIN).
    """

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._down = False
        self._rx_frames = self._rx_bytes = self._tx_frames = self._tx_bytes = 0
        self._checksum_not_ready = 0
        self._drops: dict[str, int] = {}
        self._buffer = memoryview(bytearray(_LONGEST_FRAME_BYTES))
        self._socket = _open(interface)
        self._watch = DeviceWatch(interface, socket.if_nametoindex(interface))

    @property
    def name(self) -> str:
        """The device's name."""
        return self._interface

    @property
    def is_down(self) -> bool:
        """Whether the device was found down or gone the last time it was used."""
        return self._down

    @property
    def link_status(self) -> LinkStatus:
        """How the device is now, whether it is used or not."""
        return self._watch.link_status

    @property
    def speed_bps(self) -> int | None:
        """How fast the device says that it is; None if it does not tell."""
        return self._watch.speed_bps

    def receive(self, max_frames: int) -> list[bytes]:
        """Return up to `max_frames` frames, VLAN tags back in their place; none if nothing has arrived.

        A device that fails is down until a frame passes again: whoever holds the port says so, and the others go on.
        """
        frames: list[bytes] = []
        while len(frames) < max_frames:
            try:
                length, ancillary, _, address = self._socket.recvmsg_into([self._buffer], _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                self._down = True
                break
            self._down = False
            if address[2] != _OUTGOING:
                frames.append(self._finish(bytes(self._buffer[:length]), ancillary))
        self._rx_frames += len(frames)
        self._rx_bytes += sum(map(len, frames))
        return frames

    def send(self, frames: Sequence[bytes]) -> int:
        """Send frames in order; return how many the device took, the others are counted as drops by cause."""
        sent = 0
        for frame in frames:
            try:
                self._socket.send(frame)
            except OSError as error:
                name = _DROP_NAMES.get(error.errno or 0, SEND_REFUSED)
                self._drops[name] = self._drops.get(name, 0) + 1
                self._down = self._down or name == PORT_DOWN
                continue
            sent += 1
            self._down = False
            self._tx_bytes += len(frame)
        self._tx_frames += sent
        return sent

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def read_counters(self) -> PortReading:
        """Return the counters; `socket_full` is what the kernel dropped because the process was too slow."""
        if self._socket.fileno() >= 0:
            raw = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
            full = int.from_bytes(raw[4:8], "little")
            if full:
                self._drops[SOCKET_FULL] = self._drops.get(SOCKET_FULL, 0) + full
        return PortReading(
            self._rx_frames,
            self._rx_bytes,
            self._tx_frames,
            self._tx_bytes,
            self._checksum_not_ready,
            dict(self._drops),
        )

    def close(self) -> None:
        """Close the socket; the device stops being promiscuous."""
        self._socket.close()
        self._watch.close()

    def _finish(self, frame: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> bytes:
        for level, kind, data in ancillary:
            if (level, kind, len(data)) == (_SOL_PACKET, _AUXDATA, _AUXILIARY.size):
                status, _, _, _, _, tci, tpid = _AUXILIARY.unpack(data)
                if status & _CHECKSUM_NOT_READY:
                    self._checksum_not_ready += 1
                if status & _VLAN_VALID:
                    frame = restore_vlan_tag(frame, tci, tpid if status & _TPID_VALID else _ETHERTYPE_VLAN)
        return frame


def restore_vlan_tag(frame: bytes, tci: int, tpid: int) -> bytes:
    """Return a frame with the VLAN tag that the kernel took out put back behind the addresses (IEEE 802.1Q, 9.3)."""
    return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]


def _open(interface: str) -> socket.socket:
    try:
        index = socket.if_nametoindex(interface)
    except OSError as error:
        raise PortError(f"interface {interface}: no such device in this network namespace") from error
    try:
        # Protocol 0 until the socket is bound, so that no other device's frames come in before.
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError as error:
        raise PortError(f"interface {interface}: raw sockets need root (CAP_NET_RAW)") from error
    try:
        _require_up(opened, interface)
        disable_offloads(interface)
        _configure(opened, index)
        opened.bind((interface, _ETH_P_ALL))
    except OSError as error:
        opened.close()
        raise PortError(f"interface {interface}: cannot be opened: {os.strerror(error.errno or 0)}") from error
    except PortError:
        opened.close()
        raise
    return opened


def _configure(opened: socket.socket, index: int) -> None:
    opened.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SOCKET_BYTES)
    membership = struct.pack("=iHH8s", index, _MEMBERSHIP_PROMISCUOUS, 0, b"")
    opened.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, membership)


def _require_up(opened: socket.socket, interface: str) -> None:
    request = struct.pack("16sH", interface.encode(), 0).ljust(40, b"\0")
    flags = struct.unpack_from("=H", fcntl.ioctl(opened.fileno(), _SIOCGIFFLAGS, request), 16)[0]
    if not flags & _IFF_UP:
        raise PortError(f"interface {interface}: is down: ip link set {interface} up")
