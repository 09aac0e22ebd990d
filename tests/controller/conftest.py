"""Small topologies for the controller's tests."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import pytest

from dataplane.topology.values import CollectorAddress, Endpoint, HostNode, Link, SwitchNode, Topology

MakeTopology = Callable[..., Topology]

_CABLES = (("a", 2, "b", 2), ("a", 3, "c", 2), ("b", 3, "d", 2), ("c", 3, "d", 3), ("b", 4, "c", 4))


def make_diamond(
    delays_ns: tuple[int, ...] = (1000, 1000, 1000, 1000, 5000), rate_bps: int = 10_000_000, *, ipv6: bool = True
) -> Topology:
    """Four switches: a-b-d and a-c-d, and a cross cable b-c; hosts ha at a, hd at d, hb at b, the collector at c."""
    switches = tuple(SwitchNode(name, number) for number, name in enumerate("abcd", start=1))
    hosts = tuple(
        HostNode(
            f"h{name}",
            mac=0x020000000000 | number << 16 | 1,
            ipv4=IPv4Address(f"10.0.{number}.1"),
            ipv6=IPv6Address(f"fd00:0:0:{number}::1") if ipv6 and name != "b" else None,
        )
        for number, name in enumerate("abcd", start=1)
    )
    links = tuple(
        Link(Endpoint(a, pa), Endpoint(b, pb), rate_bps, delay, 64)
        for (a, pa, b, pb), delay in zip(_CABLES, delays_ns, strict=True)
    )
    access = tuple(Link(Endpoint(f"h{name}", 0), Endpoint(name, 1), rate_bps * 10, 100, 64) for name in "abcd")
    return Topology("diamond", switches, hosts, links + access, CollectorAddress("hc", 32766))


@pytest.fixture(scope="session")
def diamond() -> Topology:
    """Return the diamond with two equally good ways from a to d."""
    return make_diamond()


@pytest.fixture(scope="session")
def diamond_of() -> MakeTopology:
    """Return a factory for diamonds with any delays."""
    return make_diamond
