"""What must be known of a network device before it becomes a port: netdevice(7) and ethtool requests."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from dataclasses import dataclass

from dataplane.errors import PortError
from dataplane.nic.layouts import ETHERNET_BYTES, SIOCGIFMTU

_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1
_SIOCETHTOOL, _GET_CHANNELS = 0x8946, 0x3C
_CHANNELS = struct.Struct("=IIIIIIIII")
"""struct ethtool_channels: cmd, then the most and the present number of rx, tx, other and combined channels."""
_REQUEST_BYTES = 40
_VLAN_TAGS_BYTES = 8


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is up, in the network namespace of the thread that looked."""

    name: str
    index: int
    mtu: int

    @property
    def slot_bytes(self) -> int:
        """Return how many bytes its longest frame has, two VLAN tags included."""
        return self.mtu + ETHERNET_BYTES + _VLAN_TAGS_BYTES


class DeviceWatch:
    """Tells of a device how it is now, in the network namespace that the watch was made in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def fileno(self) -> int:
        """Return the descriptor of the socket that asks."""
        return self._control.fileno()

    @property
    def is_up(self) -> bool:
        """Whether the device is there and up."""
        try:
            return bool(read_flags(self._control.fileno(), self.name) & _IFF_UP)
        except OSError:
            return False

    def close(self) -> None:
        """Close the socket."""
        self._control.close()


def find_device(interface: str) -> Device:
    """Return the device; raise PortError if it is missing or down."""
    try:
        index = socket.if_nametoindex(interface)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            if not read_flags(control.fileno(), interface) & _IFF_UP:
                raise PortError(f"interface {interface}: is down: ip link set {interface} up")
            reply = fcntl.ioctl(control.fileno(), SIOCGIFMTU, request_for(interface))
    except OSError as error:
        if error.errno not in {None, errno.ENODEV, errno.ENXIO}:
            raise refusal(interface, "cannot be looked at", error) from error
        raise PortError(f"interface {interface}: no such device in this network namespace") from error
    return Device(interface, index, struct.unpack_from("=i", reply, 16)[0])


def read_flags(descriptor: int, interface: str) -> int:
    """Return the device's IFF_ flags; raise OSError if it is missing."""
    reply = fcntl.ioctl(descriptor, _SIOCGIFFLAGS, request_for(interface))
    flags: int = struct.unpack_from("=H", reply, 16)[0]
    return flags


def request_for(interface: str) -> bytes:
    """Return a struct ifreq with the device's name."""
    return struct.pack("16s", interface.encode()).ljust(_REQUEST_BYTES, b"\0")


def count_receive_queues(interface: str) -> int:
    """Return how many receive queues the device uses; 1 for a device that cannot tell."""
    argument = array.array("B", _CHANNELS.pack(_GET_CHANNELS, *[0] * 8))
    request = struct.pack("16sP", interface.encode(), argument.buffer_info()[0]).ljust(_REQUEST_BYTES, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control.fileno(), _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return 1
            raise PortError(f"interface {interface}: its queues cannot be counted: {error.strerror}") from error
    rx: int
    combined: int
    rx, combined = _CHANNELS.unpack(argument.tobytes())[5], _CHANNELS.unpack(argument.tobytes())[8]
    return max(rx + combined, 1)


def refusal(interface: str, what: str, error: OSError) -> PortError:
    """Return the error of a device that would not do something, in one line."""
    if error.errno in {errno.EPERM, errno.EACCES}:
        return PortError(f"interface {interface}: {what} needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)")
    return PortError(f"interface {interface}: {what}: {os.strerror(error.errno or 0)}")
