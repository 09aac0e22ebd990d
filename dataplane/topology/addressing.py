"""Address plan: a node's addresses unless its topology file sets them.

Switch n (INT node id, 1 to 65535) owns 10.<n high>.<n low>.0/24 and fd00:0:0:<n>::/64; its hosts count from 1 in the
file's order, the switch itself is .254 (the source of its telemetry reports, and the destination of contributions to
its sums). MAC addresses are locally administered: 02:00:<n>:<host> for hosts, 02:01:<n>:<port> for switch ports, each
number in two octets.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from dataplane.topology.values import SwitchNode, Topology

MAX_NODE_ID = 0xFFFF
"""The plan has two octets for a switch."""
MAX_HOSTS_PER_SWITCH = 253
"""Automatic host addresses are .1 to .253."""

_SWITCH_OCTET = 254

SWITCH_ADDRESSES = 10 << 24 | _SWITCH_OCTET, 0xFF0000FF
"""Matches any switch's address, of this fabric or of one that may join it later: value and mask."""

_HOST_MACS = 0x0200 << 32
_PORT_MACS = 0x0201 << 32


def host_ipv4(node_id: int, index: int) -> IPv4Address:
    """Return the address of a switch's host number `index`, from 1."""
    return switch_subnet_ipv4(node_id)[index]


def host_ipv6(node_id: int, index: int) -> IPv6Address:
    """Return the address of a switch's host number `index`, from 1."""
    return switch_subnet_ipv6(node_id)[index]


def host_mac(node_id: int, index: int) -> int:
    """Return the 48-bit MAC address of a switch's host number `index`, from 1."""
    return _HOST_MACS | node_id << 16 | index


def port_mac(node_id: int, port: int) -> int:
    """Return the 48-bit MAC address of a switch port."""
    return _PORT_MACS | node_id << 16 | port


def switch_ipv4(node_id: int) -> IPv4Address:
    """Return the address that a switch sends its telemetry reports from, and receives contributions at."""
    return switch_subnet_ipv4(node_id)[_SWITCH_OCTET]


def report_source(switch: SwitchNode) -> IPv4Address:
    """Return the source address of a switch's telemetry reports: the topology's, else the plan's."""
    return switch_ipv4(switch.node_id) if switch.report_source is None else switch.report_source


def switch_subnet_ipv4(node_id: int) -> IPv4Network:
    """Return the prefix that holds a switch's automatically addressed hosts."""
    return IPv4Network((10 << 24 | node_id << 8, 24))


def switch_subnet_ipv6(node_id: int) -> IPv6Network:
    """Return the prefix that holds a switch's automatically addressed hosts."""
    return IPv6Network((0xFD00 << 112 | node_id << 64, 64))


def mac_at(topology: Topology, node: str, port: int) -> int:
    """Return the 48-bit MAC address of a node's interface: a host's own, or a switch port's."""
    if node in topology.host:
        return topology.host[node].mac
    return port_mac(topology.switch[node].node_id, port)


def gateway_mac(topology: Topology, host: str) -> int:
    """Return the MAC address that a host sends its frames to: its switch port's."""
    edge = topology.attachment[host]
    return mac_at(topology, edge.node, edge.port)


def parse_mac(text: str) -> int:
    """Parse '02:00:00:01:00:01' to 48 bits; raise ValueError for anything else and for group addresses."""
    octets = text.split(":")
    if len(octets) != 6 or any(len(octet) != 2 for octet in octets):
        raise ValueError(f"{text!r} is not a MAC address such as '02:00:00:01:00:01'")
    try:
        raw = bytes.fromhex("".join(octets))
    except ValueError:
        raise ValueError(f"{text!r} is not a MAC address such as '02:00:00:01:00:01'") from None
    if len(raw) != 6 or raw[0] & 1 or not any(raw):
        raise ValueError(f"{text!r} is not the address of one interface")
    return int.from_bytes(raw, "big")


def format_mac(mac: int) -> str:
    """Format 48 bits as '02:00:00:01:00:01'."""
    return mac.to_bytes(6, "big").hex(":")
