"""Values that tests write into a switch; every target turns them into its own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Match: TypeAlias = Mapping[str, int | tuple[int, int]]
"""exact: value; lpm: (value, prefix length); ternary: (value, mask). Ternary fields that are absent match all."""

REPORT_SESSION = 250
CPU_PORT = 255

HOST_PORT, UP_PORT, DOWN_PORT, COLLECTOR_PORT = 1, 2, 3, 4
"""A switch under test: hosts at 1 (the edge port), other switches at 2 and 3, the way to the collector at 4."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table entry; `arguments` in the order of the action's parameters."""

    table: str
    match: Match
    action: str
    arguments: tuple[int, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class DefaultAction:
    """A table's default action."""

    table: str
    action: str
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """A route over a group of next hops, each the arguments of `forward`; it makes its members 1, 2, ... itself."""

    table: str
    selector: str
    match: Match
    group: int
    next_hops: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CloneTo:
    """A clone session, the reports' unless it says otherwise, to one port."""

    port: int
    session: int = REPORT_SESSION


@dataclass(frozen=True, slots=True)
class MulticastTo:
    """A multicast group: (port, replica number) for each copy."""

    group: int
    replicas: tuple[tuple[int, int], ...]


Item: TypeAlias = Entry | DefaultAction | Spread | CloneTo | MulticastTo


def mac(number: int) -> int:
    """Return a locally administered address."""
    return 0x02_00_00_00_00_00 | number


NEXT_HOP_MAC, SWITCH_MAC = mac(0xA1), mac(0xB1)
COLLECTOR, COLLECTOR6, COLLECTOR_UDP_PORT = 0x0AFF00FE, 0xFC << 120 | 0xFE, 32766
REPORT_TARGET = (mac(0xC1), mac(0xC2), 0x0AFF0001, COLLECTOR, COLLECTOR_UDP_PORT)


MD, HOP_BY_HOP, MX, XD = range(4)
"""Modes that a watch may ask for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Arguments of `watch`, and the protocol that it looks for (0: any)."""

    instructions: int = 0xFF00
    sample_every: int = 1
    max_hops: int = 8
    mode: int = MD
    watch_id: int = 7
    protocol: int = 0
    domain_instructions: int = 0
    discard: int = 0

    def entries(self) -> list[Entry]:
        """Return one entry in each family's watchlist."""
        arguments = (
            self.watch_id,
            self.sample_every,
            self.instructions,
            self.max_hops,
            self.mode,
            self.domain_instructions,
            self.discard,
        )
        match = {"protocol": (self.protocol, 0xFF)} if self.protocol else {"src_port": (0, 0), "dst_port": (0, 0)}
        return [Entry(f"ipv{version}_watchlist", match, "watch", arguments, priority=1) for version in (4, 6)]


def watch_drops(quota: int = 0, *, reason: int = 0) -> tuple[Item, ...]:
    """Return entries that report every drop, or those for one reason; `quota` in 2^20 us, 0: all."""
    match = {"reason": (reason, 0xFF if reason else 0)}
    tables = ("ipv4_drop_watch", "ipv6_drop_watch", "other_drop_watch")
    watches = [Entry(table, match, "watch_drops", (5, quota), priority=1) for table in tables]
    return (DefaultAction("drop_reports", "report_drops"), *watches)


ANY_ADDRESS = (0, 0, 0, 0)
"""Addresses under masks with which a host's port accepts any source address."""


@dataclass(frozen=True, slots=True)
class Role:
    """Setup of a switch under test: everything routed from anywhere goes to `out_port`."""

    node_id: int
    out_port: int
    out_is_edge: bool = False
    watch: Watch | None = None
    reports: bool = True
    mtu_bytes: int = 0
    strip_at_mtu: bool = False
    own: tuple[int, int, int, int] = ANY_ADDRESS
    """Address and mask, for IPv4 and IPv6, of the host's packets."""
    extra: tuple[Item, ...] = field(default=())

    def items(self) -> list[Item]:
        """Return all entries of the role."""
        items: list[Item] = [
            DefaultAction("node", "set_node", (self.node_id,)),
            Entry("port_roles", {"ingress_port": HOST_PORT}, "set_source_port", self.own),
            Entry(
                "egress_ports",
                {"egress_port": self.out_port},
                "set_egress_port",
                (SWITCH_MAC, self.out_is_edge, self.mtu_bytes, self.strip_at_mtu),
            ),
            Spread("ipv4_routes", "ipv4_ecmp", {"dst_addr": (0x0A000000, 8)}, 1, ((self.out_port, NEXT_HOP_MAC),)),
            Spread("ipv6_routes", "ipv6_ecmp", {"dst_addr": (0xFC << 120, 8)}, 1, ((self.out_port, NEXT_HOP_MAC),)),
        ]
        if self.reports:
            items += [
                DefaultAction("report_target", "set_report_target", REPORT_TARGET),
                DefaultAction("collector", "set_collector", (COLLECTOR, COLLECTOR6, COLLECTOR_UDP_PORT)),
                CloneTo(COLLECTOR_PORT),
            ]
        if self.watch is not None:
            items += self.watch.entries()
        return [*items, *self.extra]


def source(watch: Watch, node_id: int = 101) -> Role:
    """Return the first switch of a path: from the host at port 1 to port 3."""
    return Role(node_id, DOWN_PORT, watch=watch)


def transit(node_id: int = 102) -> Role:
    """Return a switch in the middle."""
    return Role(node_id, DOWN_PORT)


def sink(node_id: int = 103) -> Role:
    """Return the last switch: to the host at port 1."""
    return Role(node_id, HOST_PORT, out_is_edge=True)
