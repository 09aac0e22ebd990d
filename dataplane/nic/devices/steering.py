"""Choice of a device's receive queue: by the hash of a flow, or by the device's rules (linux/ethtool.h).

Ethtool netlink reads the hash table; it has no rules yet, and sets the table only from Linux 6.17 on. So writes go
through ioctl(2), which every driver that can steer understands.
"""

from __future__ import annotations

import array
import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from dataplane.errors import PortError
from dataplane.nic.devices.device import refusal
from dataplane.nic.devices.ethernet import SIOCETHTOOL, ask_driver

_SET_INDIRECTION, _COUNT_RULES, _DELETE_RULE, _INSERT_RULE = 0x39, 0x2E, 0x31, 0x32
_INDIRECTION = struct.Struct("=II")
"""struct ethtool_rxfh_indir: cmd, size; then a u32 for each value of the hash."""
_RULE = struct.Struct("=IIQI52s20s52s20s4xQI4xI4x")
"""struct ethtool_rxnfc: cmd, flow type, data; then struct ethtool_rx_flow_spec: flow type, fields, extension, their
masks, queue, location; then how many rules."""
_FLOW_TYPES = {("tcp", 4): 1, ("udp", 4): 2, ("tcp", 6): 5, ("udp", 6): 6}
_ANY_LOCATION = 0xFFFF_FFFF
_DROP = (1 << 64) - 1
_ADDRESS_BYTES = {4: 4, 6: 16}
_LARGEST_PORT = 0xFFFF

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class SteeringRule:
    """Steers frames of a transport protocol with these addresses and ports (None: any) to a queue; queue None drops."""

    protocol: Literal["tcp", "udp"]
    queue: int | None
    version: Literal[4, 6] = 4
    source: Address | None = None
    destination: Address | None = None
    source_port: int | None = None
    destination_port: int | None = None
    location: int | None = None
    """Position in the device's table, None: the device chooses."""

    def encode(self) -> bytes:
        """Return struct ethtool_rxnfc that inserts the rule; raise PortError for what no frame can have."""
        addresses, ports = (self.source, self.destination), (self.source_port, self.destination_port)
        if any(address is not None and address.version != self.version for address in addresses):
            raise PortError(f"steering rule: {self.source} to {self.destination} is not IPv{self.version}")
        if any(port is not None and not 0 <= port <= _LARGEST_PORT for port in ports):
            raise PortError(f"steering rule: ports {ports[0]} and {ports[1]} must be 0 to {_LARGEST_PORT}")
        nbytes = _ADDRESS_BYTES[self.version]
        fields = b"".join([bytes(nbytes) if each is None else each.packed for each in addresses])
        masks = b"".join([bytes(nbytes) if each is None else b"\xff" * nbytes for each in addresses])
        fields += b"".join([(port or 0).to_bytes(2, "big") for port in ports])
        masks += b"".join([bytes(2) if port is None else b"\xff\xff" for port in ports])
        flow_type = _FLOW_TYPES[self.protocol, self.version]
        queue = _DROP if self.queue is None else self.queue
        location = _ANY_LOCATION if self.location is None else self.location
        return _RULE.pack(_INSERT_RULE, flow_type, 0, flow_type, fields, b"", masks, b"", queue, location, 0)


def set_indirection(interface: str, queues: Sequence[int]) -> None:
    """Assign the values of a flow's hash to queues in turn; no queues: restore the driver's own spread."""
    argument = array.array("B", _INDIRECTION.pack(_SET_INDIRECTION, len(queues)))
    argument.frombytes(struct.pack(f"={len(queues)}I", *queues))
    _request(interface, f"steering ({len(queues)} values of the hash)", argument)


def insert_rule(interface: str, rule: SteeringRule) -> int:
    """Insert a rule into a device's table; return its location there."""
    argument = array.array("B", rule.encode())
    _request(interface, f"steering rule for queue {rule.queue}", argument)
    location: int = _RULE.unpack(argument.tobytes())[9]
    return location


def delete_rule(interface: str, location: int) -> None:
    """Delete the rule at a location of a device's table."""
    argument = array.array("B", _RULE.pack(_DELETE_RULE, 0, 0, 0, b"", b"", b"", b"", 0, location, 0))
    _request(interface, f"steering rule {location}", argument)


def count_rules(interface: str) -> int | None:
    """Return how many rules a device's table holds, None if it has no table; raise PortError otherwise."""
    argument = array.array("B", _RULE.pack(_COUNT_RULES, 0, 0, 0, b"", b"", b"", b"", 0, 0, 0))
    try:
        ask_driver(interface, SIOCETHTOOL, argument)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return None
        raise refusal(interface, "steering rules", error) from error
    count: int = _RULE.unpack(argument.tobytes())[10]
    return count


def _request(interface: str, what: str, argument: array.array[int]) -> None:
    try:
        ask_driver(interface, SIOCETHTOOL, argument)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise PortError(f"interface {interface}: {what}: its driver does not support it") from error
        raise refusal(interface, what, error) from error
