"""Properties of a network device before it becomes a port (rtnetlink), and while it is one (netdevice(7))."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

from dataplane.errors import PortError
from dataplane.linux import IFF_UP, SIOCGIFFLAGS
from dataplane.nic.layouts import ETHERNET_BYTES
from dataplane.nic.port import LinkStatus
from dataplane.nic.run_off_loop import run_off_loop

_SIOCGIFNAME, _IFF_RUNNING = 0x8910, 1 << 6
_ETHERNET_TYPES = (1, 772)
"""ARPHRD_ETHER, ARPHRD_LOOPBACK: device types with Ethernet headers."""
_REQUEST_BYTES = 40
_LONGEST_NAME = 127
"""Bytes of an alternative name, the longer kind."""
_SIOCETHTOOL, _ETHTOOL_GSET, _ETHTOOL_COMMAND_BYTES = 0x8946, 1, 44
_SPEED_LOW, _SPEED_HIGH = 12, 28
"""Offsets of the two halves of the speed, in Mbit/s, in struct ethtool_cmd."""
_SPEED_UNKNOWN = (0, 0xFFFF, 0xFFFF_FFFF)
_VLAN_TAGS_BYTES = 8


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is up, in the network namespace of the thread that looked."""

    name: str
    index: int
    mtu: int
    kind: str = ""
    """Kind of a virtual device: veth, bridge ..."""

    @property
    def slot_bytes(self) -> int:
        """Return the length of its longest frame in bytes, two VLAN tags included."""
        return self.mtu + ETHERNET_BYTES + _VLAN_TAGS_BYTES


class DeviceWatch:
    """Reads the current state of a device, in the network namespace in which the watch was made.

    The device is identified by its index, so that a later device of the same name is not mistaken for it.
    """

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index
        try:
            self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError as error:
            raise refusal(name, "cannot be watched", error) from error

    def fileno(self) -> int:
        """Return the descriptor of the query socket."""
        return self._control.fileno()

    @property
    def is_up(self) -> bool:
        """True if the device exists and is up."""
        return bool(self._read_flags() & IFF_UP)

    @property
    def has_link(self) -> bool:
        """True if the device exists and is up, with a carrier from the other end of its cable."""
        return bool(self._read_flags() & _IFF_RUNNING)

    @property
    def link_status(self) -> LinkStatus:
        """The current state of the device."""
        flags = self._read_flags()
        if flags & IFF_UP:
            return LinkStatus.UP if flags & _IFF_RUNNING else LinkStatus.NO_CARRIER
        return LinkStatus.DOWN if self._is_there else LinkStatus.GONE

    @property
    def speed_bps(self) -> int | None:
        """The speed that the device reports (ethtool(8), "Speed"); None if it reports none."""
        command = bytearray(struct.pack("=I", _ETHTOOL_GSET).ljust(_ETHTOOL_COMMAND_BYTES, b"\0"))
        answer = (ctypes.c_char * len(command)).from_buffer(command)
        request = struct.pack("=16sQ", self.name.encode(), ctypes.addressof(answer)).ljust(_REQUEST_BYTES, b"\0")
        try:
            fcntl.ioctl(self._control.fileno(), _SIOCETHTOOL, request)
        except OSError:
            return None
        low, high = struct.unpack_from("=H", command, _SPEED_LOW)[0], struct.unpack_from("=H", command, _SPEED_HIGH)[0]
        mbps = high << 16 | low
        return None if mbps in _SPEED_UNKNOWN else mbps * 1_000_000

    @property
    def _is_there(self) -> bool:
        try:
            fcntl.ioctl(self._control.fileno(), _SIOCGIFNAME, struct.pack("=16xi", self.index).ljust(_REQUEST_BYTES))
        except OSError:
            return False
        return True

    def _read_flags(self) -> int:
        """Return the device's IFF_ flags, 0 if it is gone."""
        try:
            request = struct.pack("=16xi", self.index).ljust(_REQUEST_BYTES, b"\0")
            reply = fcntl.ioctl(self._control.fileno(), _SIOCGIFNAME, request)
            flags: int = struct.unpack_from("=H", fcntl.ioctl(self._control.fileno(), SIOCGIFFLAGS, reply), 16)[0]
        except OSError:
            return 0
        return flags

    def close(self) -> None:
        """Close the socket."""
        self._control.close()


def find_device(interface: str) -> Device:
    """Return the device; raise PortError if it is missing or down."""
    link = find_link(interface)
    if not link["flags"] & IFF_UP:
        raise PortError(f"interface {interface} is down: ip link set {interface} up")
    if link["ifi_type"] not in _ETHERNET_TYPES:
        raise PortError(f"interface {interface}: not an Ethernet device: its frames have no Ethernet header")
    information = link.get_attr("IFLA_LINKINFO")
    kind = None if information is None else information.get_attr("IFLA_INFO_KIND")
    return Device(interface, link["index"], link.get_attr("IFLA_MTU"), kind or "")


@run_off_loop
def find_link(interface: str) -> Any:  # noqa: ANN401 - pyroute2 is untyped
    """Return what rtnetlink reports of a device; raise PortError if there is none of that name."""
    if len(interface.encode()) > _LONGEST_NAME:
        raise PortError(f"interface {interface[:_LONGEST_NAME]}...: the name of a device cannot be that long")
    # Only Linux has netlink; ports without a device do not need it.
    from pyroute2 import IPRoute  # noqa: PLC0415
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    try:
        with IPRoute() as netlink:
            (link,) = netlink.link("get", ifname=interface)
    except NetlinkError as error:
        if error.code not in {errno.ENODEV, errno.EINVAL, errno.ERANGE}:
            raise refusal(interface, "cannot be inspected", OSError(error.code, str(error))) from error
        raise PortError(f"interface {interface}: no such device in this network namespace") from error
    except OSError as error:
        raise refusal(interface, "cannot be inspected", error) from error
    return link


def request_for(interface: str) -> bytes:
    """Return a struct ifreq with the device's name."""
    return struct.pack("16s", interface.encode()).ljust(_REQUEST_BYTES, b"\0")


def refusal(interface: str, what: str, error: OSError) -> PortError:
    """Return a one-line error for a request that the device refused."""
    if error.errno in {errno.EPERM, errno.EACCES}:
        return PortError(f"interface {interface}: {what}: needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)")
    if error.errno in {errno.ENODEV, errno.ENXIO}:
        return PortError(f"interface {interface}: no such device in this network namespace")
    return PortError(f"interface {interface}: {what}: {os.strerror(error.errno or 0)}")
