"""Tunnels that the kernel makes between two hosts' namespaces, as far as it has their kinds of device."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dataplane.topology.values import HostNode
from tests.payloads.kernel import TOPOLOGY, Bed
from tests.payloads.lines import CLIENT, FAR, Line, lines_inside

MTU_BYTES: Final = 1430
"""Payload that VXLAN over IPv6 leaves of 1,500 bytes; no other kind leaves less."""
KINDS: Final = ("vxlan", "vxlan over IPv6", "geneve", "gre", "gretap")


def add_tunnels(bed: Bed) -> tuple[list[Line], list[str]]:
    """Make a tunnel of each kind between the hosts that talk; return lines through them, and absent kinds."""
    lines, absent = list[Line](), list[str]()
    for number, kind in enumerate(KINDS, 1):
        near, far = (TOPOLOGY.host[name] for name in (CLIENT, FAR))
        inner = {CLIENT: f"192.168.{number}.1", FAR: f"192.168.{number}.2"}
        try:
            for here, there in ((near, far), (far, near)):
                bed.fabric.call_in(here.name, partial(_add, number, kind, here, there, inner[here.name]))
        except NetlinkError as error:
            if error.code != errno.EOPNOTSUPP:
                raise
            absent.append(kind)
        else:
            lines += lines_inside(kind, inner[CLIENT], inner[FAR])
    return lines, absent


def _add(number: int, kind: str, here: HostNode, there: HostNode, address: str) -> None:
    with IPRoute() as netlink:
        device = f"tunnel{number}"
        netlink.link("add", ifname=device, **_attributes(number, kind, here, there))
        (index,) = netlink.link_lookup(ifname=device)
        netlink.link("set", index=index, mtu=MTU_BYTES, state="up")
        netlink.addr("add", index=index, address=address, prefixlen=24)


def _attributes(number: int, kind: str, here: HostNode, there: HostNode) -> Mapping[str, Any]:
    """Return what rtnetlink is asked for; VXLAN has a UDP checksum over IPv6, and none over IPv4, as is usual."""
    v4 = (str(here.ipv4), str(there.ipv4))
    if kind == "vxlan":
        ends = {"vxlan_local": v4[0], "vxlan_group": v4[1]}
        return {"kind": "vxlan", "vxlan_id": number, "vxlan_port": 4789, "vxlan_udp_csum": 0, **ends}
    if kind == "vxlan over IPv6":
        v6 = {"vxlan_local6": str(here.ipv6), "vxlan_group6": str(there.ipv6)}
        return {"kind": "vxlan", "vxlan_id": number, "vxlan_port": 4789, **v6}
    if kind == "geneve":
        return {"kind": "geneve", "geneve_id": number, "geneve_remote": v4[1]}
    # Key and checksum.
    flags = {"gre_iflags": 0xA000, "gre_oflags": 0xA000, "gre_ikey": number, "gre_okey": number}
    return {"kind": kind, "gre_local": v4[0], "gre_remote": v4[1], "gre_ttl": 64, **flags}
