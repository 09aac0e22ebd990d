"""Turns off what a network device would do to frames behind the switch's back: ethtool ioctls of linux/ethtool.h.

A veth pair hands frames over unfinished: checksums left to hardware that is not there, segments of 64 KB, VLAN tags
beside the frame. A switch must see what is on the wire.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct

from dataplane.errors import PortError

_SIOCETHTOOL = 0x8946
_GET_FLAGS, _SET_FLAGS = 0x25, 0x26
_VLAN_FLAGS = 1 << 7 | 1 << 8
"""ETH_FLAG_TXVLAN and ETH_FLAG_RXVLAN: tags carried beside the frame."""
_SETTINGS = {
    "receive checksums": 0x15,
    "transmit checksums": 0x17,
    "scatter-gather": 0x19,
    "TCP segmentation": 0x1F,
    "generic segmentation": 0x24,
    "generic receive": 0x2C,
}
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)


def disable_offloads(interface: str) -> None:
    """Switch checksum, segmentation, aggregation and VLAN offloads of a device off, as far as it has them.

    Acts in the network namespace of the calling thread. Raises PortError if the device is missing or rights are.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, command in _SETTINGS.items():
            _ethtool(control, interface, command, 0, name)
        flags = _ethtool(control, interface, _GET_FLAGS, 0, "flags")
        if flags & _VLAN_FLAGS:
            _ethtool(control, interface, _SET_FLAGS, flags & ~_VLAN_FLAGS, "VLAN offload")


def _ethtool(control: socket.socket, interface: str, command: int, value: int, what: str) -> int:
    """Run one command on struct ethtool_value {u32 cmd, data}; return data, 0 where the device has no such thing."""
    argument = array.array("B", struct.pack("=II", command, value))
    request = struct.pack("16sP", interface.encode(), argument.buffer_info()[0])
    try:
        fcntl.ioctl(control.fileno(), _SIOCETHTOOL, request.ljust(40, b"\0"))
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return 0
        raise PortError(f"interface {interface}: {what} cannot be switched off: {error.strerror}") from error
    result: int = struct.unpack("=II", argument.tobytes())[1]
    return result
