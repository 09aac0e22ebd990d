"""Next hop of our own frames to an aggregator, from the kernel's routing and neighbour tables (rtnetlink)."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Final

from dataplane.errors import AllReduceError
from dataplane.nic.run_off_loop import run_off_loop

_UNICAST: Final = 1
"""RTN_UNICAST; an address of this machine is RTN_LOCAL, 2."""
_UNKNOWN: Final = 0x01 | 0x20
"""NUD_INCOMPLETE and NUD_FAILED: no answer has arrived."""
_DISCARD: Final = 9
_LOOK_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class NextHop:
    """Origin of frames: the device, this machine's address there, and 48-bit MAC addresses of both ends."""

    interface: str
    source: IPv4Address
    source_mac: int
    next_mac: int


@run_off_loop
def find_next_hop(destination: str, source: str = "", deadline_s: float = 3.0) -> NextHop:
    """Return the route of the kernel's own packets; resolve the next hop's MAC address if it is unknown.

    An empty `source` leaves the choice to the kernel. Raises AllReduceError.
    """
    # Only Linux has netlink; UDP sockets work without it.
    from pyroute2 import IPRoute  # noqa: PLC0415
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    with IPRoute() as netlink:
        try:
            wanted = {"dst": destination} | ({"src": source} if source else {})
            route = netlink.route("get", **wanted)[0]
        except NetlinkError as error:
            raise AllReduceError(f"no route to {destination}: {error.args[-1]}") from None
        if route["type"] != _UNICAST:
            raise AllReduceError(f"{destination} is this machine's own: rings need a device that leads to it")
        index = route.get_attr("RTA_OIF")
        link = netlink.link("get", index=index)[0]
        interface = link.get_attr("IFLA_IFNAME")
        hop = route.get_attr("RTA_GATEWAY") or destination
        return NextHop(
            interface,
            IPv4Address(source or route.get_attr("RTA_PREFSRC")),
            _number(link.get_attr("IFLA_ADDRESS")),
            _neighbour(netlink, index, interface, hop, deadline_s),
        )


def _neighbour(netlink: Any, index: int, interface: str, hop: str, deadline_s: float) -> int:  # noqa: ANN401 - untyped
    """Return the MAC address of a next hop; send it a packet so that the kernel resolves it."""
    until = time.monotonic() + deadline_s
    while (mac := _resolved_mac(netlink, index, hop)) is None:
        if time.monotonic() > until:
            raise AllReduceError(f"{hop} on {interface} did not answer for its MAC address within {deadline_s:g} s")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(b"", (hop, _DISCARD))
        time.sleep(_LOOK_S)
    return mac


def _resolved_mac(netlink: Any, index: int, hop: str) -> int | None:  # noqa: ANN401 - untyped
    for neighbour in netlink.get_neighbours(family=socket.AF_INET, ifindex=index):
        mac = neighbour.get_attr("NDA_LLADDR")
        if neighbour.get_attr("NDA_DST") == hop and mac and not neighbour["state"] & _UNKNOWN:
            return _number(mac)
    return None


def _number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)
