"""The part of OpenConfig's tree that a switch serves: each leaf with the property of a port that it shows.

Modules: openconfig-interfaces, openconfig-if-ethernet, openconfig-p4rt (a port's number in P4Runtime), openconfig-bfd
(hellos); millrace-hellos, which adds to a session the time of its last state change and whether it was ever up; and
millrace-segments, which tells why a port does not join TCP segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataplane.switch.gnmi.schema import MODULES, Kind, Leaf, PortView, Type, Value, nodes_of
from dataplane.switch.ports.states import Diagnostic, HelloSession, PortCounters

_OPENCONFIG: Final = "OpenConfig working group"
MODELS: Final = (
    (MODULES["oc-if"], _OPENCONFIG, "3.8.1"),
    (MODULES["oc-eth"], _OPENCONFIG, "2.18.0"),
    (MODULES["oc-p4rt"], _OPENCONFIG, "1.0.0"),
    (MODULES["oc-bfd"], _OPENCONFIG, "0.5.0"),
    (MODULES["hellos"], "Millrace", "0.1.0"),
    (MODULES["segments"], "Millrace", "0.1.0"),
)
"""Name, organization and version of each model that the leaves below belong to."""

ENABLED: Final = "interfaces/interface/config/enabled"
HELLOS_ENABLED: Final = "bfd/interfaces/interface/config/enabled"
HELLOS_INTERVAL: Final = "bfd/interfaces/interface/config/desired-minimum-tx-interval"
HELLOS_MULTIPLIER: Final = "bfd/interfaces/interface/config/detection-multiplier"
"""The configurable leaves."""

SPEEDS: Final = {
    10_000_000: "SPEED_10MB",
    100_000_000: "SPEED_100MB",
    1_000_000_000: "SPEED_1GB",
    2_500_000_000: "SPEED_2500MB",
    5_000_000_000: "SPEED_5GB",
    10_000_000_000: "SPEED_10GB",
    25_000_000_000: "SPEED_25GB",
    40_000_000_000: "SPEED_40GB",
    50_000_000_000: "SPEED_50GB",
    100_000_000_000: "SPEED_100GB",
    200_000_000_000: "SPEED_200GB",
    400_000_000_000: "SPEED_400GB",
    600_000_000_000: "SPEED_600GB",
    800_000_000_000: "SPEED_800GB",
    1_600_000_000_000: "SPEED_1600GB",
}
"""Rates in bit/s with names in openconfig-if-ethernet; others are SPEED_UNKNOWN."""

DIAGNOSTICS: Final = {
    Diagnostic.CONTROL_DETECTION_EXPIRED: "DETECTION_TIMEOUT",
    Diagnostic.NEIGHBOR_SIGNALED_DOWN: "NEIGHBOR_DOWN",
}
"""RFC 5880's diagnostics with other names in openconfig-bfd."""

IN_DROPS: Final = frozenset({"no_program", "oversize"})
"""Drops of incoming frames; a port's other drops are of outgoing ones, or the port is down."""

_IF: Final = "oc-if:interfaces/interface[name]/"
_BFD: Final = "oc-bfd:bfd/interfaces/interface[id]/"
_PEER: Final = f"{_BFD}peers/peer[local-discriminator]/"

Read = Callable[[PortView], Value | None]


def _leaf(path: str, type_: Type, read: Read, kind: Kind = Kind.OPERATIONAL) -> Leaf:
    return Leaf(nodes_of(path), kind, type_, read)


def _identity(path: str, module: str, read: Read, kind: Kind) -> Leaf:
    return Leaf(nodes_of(path), kind, Type.IDENTITY, read, identities=MODULES[module])


def _counter(name: str, read: Callable[[PortCounters], int]) -> Leaf:
    nodes = nodes_of(f"{_IF}state/counters/{name}")
    return Leaf(nodes, Kind.OPERATIONAL, Type.UINT64, lambda view: read(view.counters), on_change=False)


def _session(path: str, type_: Type, read: Callable[[HelloSession], Value], *, on_change: bool = True) -> Leaf:
    def read_view(view: PortView) -> Value | None:
        return None if view.state.hello is None else read(view.state.hello)

    return Leaf(nodes_of(_PEER + path), Kind.OPERATIONAL, type_, read_view, on_change)


def _configured(path: str, type_: Type, read: Read) -> tuple[Leaf, Leaf]:
    """Return a configurable leaf and its mirror in the sibling state container."""
    base, _, name = path.rpartition("/")
    return (
        _leaf(f"{base}/config/{name}", type_, read, Kind.CONFIG),
        _leaf(f"{base}/state/{name}", type_, read, Kind.STATE),
    )


def _diagnostic(diagnostic: Diagnostic) -> str:
    return DIAGNOSTICS.get(diagnostic, diagnostic.value)


def _dropped(counters: PortCounters, *, coming_in: bool) -> int:
    return sum(number for name, number in counters.drops.items() if (name in IN_DROPS) is coming_in)


def _hello_change(view: PortView) -> int | None:
    return None if view.state.hello is None else view.hello_change_ns


_INTERFACE_LEAVES: Final = (
    _leaf(f"{_IF}name", Type.STRING, lambda view: view.name, Kind.CONFIG),
    *_configured(f"{_IF}name", Type.STRING, lambda view: view.name),
    *_configured(f"{_IF}enabled", Type.BOOLEAN, lambda view: view.state.admin_up),
    _identity(f"{_IF}config/type", "ianaift", lambda _: "ethernetCsmacd", Kind.CONFIG),
    _identity(f"{_IF}state/type", "ianaift", lambda _: "ethernetCsmacd", Kind.STATE),
    _leaf(f"{_IF}state/oc-p4rt:id", Type.UINT32, lambda view: view.state.port, Kind.STATE),
    _leaf(f"{_IF}state/ifindex", Type.UINT32, lambda view: view.state.port),
    _leaf(f"{_IF}state/admin-status", Type.STRING, lambda view: "UP" if view.state.admin_up else "DOWN"),
    _leaf(f"{_IF}state/oper-status", Type.STRING, lambda view: view.state.oper.value),
    _leaf(f"{_IF}state/last-change", Type.UINT64, lambda view: view.last_change_ns),
    _leaf(f"{_IF}state/segments:not-joined", Type.STRING, lambda view: view.state.not_joined),
    _counter("in-pkts", lambda counters: counters.rx_frames),
    _counter("in-octets", lambda counters: counters.rx_bytes),
    _counter("in-discards", lambda counters: _dropped(counters, coming_in=True)),
    _counter("out-pkts", lambda counters: counters.tx_frames),
    _counter("out-octets", lambda counters: counters.tx_bytes),
    _counter("out-discards", lambda counters: _dropped(counters, coming_in=False)),
    _identity(
        f"{_IF}oc-eth:ethernet/state/port-speed",
        "oc-eth",
        lambda view: SPEEDS.get(view.state.speed_bps or 0, "SPEED_UNKNOWN"),
        Kind.STATE,
    ),
)

_HELLO_LEAVES: Final = (
    _leaf(f"{_BFD}id", Type.STRING, lambda view: view.name, Kind.CONFIG),
    *_configured(f"{_BFD}id", Type.STRING, lambda view: view.name),
    *_configured(f"{_BFD}enabled", Type.BOOLEAN, lambda view: view.state.hello is not None),
    *_configured(f"{_BFD}desired-minimum-tx-interval", Type.UINT32, lambda view: view.hellos.interval_ns // 1000),
    *_configured(f"{_BFD}detection-multiplier", Type.UINT32, lambda view: view.hellos.multiplier),
    _leaf(f"{_BFD}interface-ref/config/interface", Type.STRING, lambda view: view.name, Kind.CONFIG),
    _leaf(f"{_BFD}interface-ref/state/interface", Type.STRING, lambda view: view.name, Kind.STATE),
    _session("local-discriminator", Type.STRING, lambda hello: str(hello.local_discriminator)),
    _session("state/local-discriminator", Type.STRING, lambda hello: str(hello.local_discriminator)),
    _session("state/remote-discriminator", Type.STRING, lambda hello: str(hello.remote_discriminator)),
    _session("state/session-state", Type.STRING, lambda hello: hello.state.value),
    _session("state/remote-session-state", Type.STRING, lambda hello: hello.remote_state.value),
    _session("state/local-diagnostic-code", Type.STRING, lambda hello: _diagnostic(hello.diagnostic)),
    _session("state/remote-diagnostic-code", Type.STRING, lambda hello: _diagnostic(hello.remote_diagnostic)),
    _leaf(f"{_PEER}state/hellos:last-change", Type.UINT64, _hello_change),
    _session("state/hellos:was-up", Type.BOOLEAN, lambda hello: hello.was_up),
    _session("state/async/transmitted-packets", Type.UINT64, lambda hello: hello.sent, on_change=False),
    _session("state/async/received-packets", Type.UINT64, lambda hello: hello.received, on_change=False),
)

LEAVES: Final = (*_INTERFACE_LEAVES, *_HELLO_LEAVES)
"""Every served leaf; those of a port are adjacent, in this order."""
