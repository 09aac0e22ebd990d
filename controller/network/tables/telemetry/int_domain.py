"""Marks of an INT domain's packets, and its borders: `int_marker`, `int_tunnels` (p4/ingress/int_marker.p4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from finsy import P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.tables.entities import Entity
from dataplane.config import Strict
from dataplane.topology.values import Topology
from dataplane.wire import aggregation, store
from dataplane.wire.ethernet import ETHER_IPV4, ETHER_IPV6
from dataplane.wire.int_shim_gre import ETHER_BRIDGED, ETHER_INT
from dataplane.wire.marking import EXACT_DSCP, INT_DSCP, Marking

_SHIM_TYPES = (1, 3)
_VXLAN_FLAGS = (0x08, 0x0C)
"""Flags that the program accepts as VXLAN and VXLAN-GPE on their ports."""
_PORTS_OF_PROGRAMS = {4789: "VXLAN", 4790: "VXLAN-GPE", aggregation.UDP_PORT: "sums", store.UDP_PORT: "stored content"}
_CARRIED_BY_GRE = (ETHER_IPV4, ETHER_IPV6, ETHER_BRIDGED)

Dscp = Annotated[int, msgspec.Meta(ge=1, le=0x3F)]
Word = Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]
MtuBytes = Annotated[int, msgspec.Meta(ge=68, le=0xFFFF)]


class PortRole(Strict, frozen=True):
    """Role of one switch port; fields left out follow the domain's default for such ports."""

    switch: str
    """Name of the switch."""
    port: int
    """Number of the port."""
    source: bool | None = None
    """Packets that enter here start to carry telemetry, and must not carry it yet; default: at a host."""
    sink: bool | None = None
    """Telemetry is removed from packets that leave here; default: at a host."""
    mtu_bytes: MtuBytes | None = None
    """The longest IP packet that the port takes; left out, the domain's between switches, and any towards a host."""


class IntDomain(Strict, frozen=True):
    """Settings shared by the switches of a fabric, of which the collector must know the `marking`."""

    dscp: Dscp = INT_DSCP
    """The DSCP of packets with INT, in the bits of the mask; without effect if there is a UDP port or probe marker."""
    dscp_mask: Dscp = EXACT_DSCP
    """The bits of the DSCP that mark: 63 for a value, one of them for a bit, which leaves the others to QoS."""
    udp_port: Word | None = None
    """The UDP port of packets with INT: UDP packets' own changes to it, others get a UDP header; left out, none."""
    always_new_udp: bool = False
    """With a UDP port: UDP packets get a new UDP header, too."""
    probe_marker: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The 64 bits before INT behind TCP and UDP; left out, none."""
    tunnels: bool = False
    """GRE, VXLAN and VXLAN-GPE packets carry INT inside of the tunnel."""
    gre_protocol: Word = ETHER_INT
    """GRE's protocol type for INT, which has none assigned."""
    mtu_bytes: MtuBytes | None = None
    """The longest IP packet of links between switches; left out, any."""
    strip_at_mtu: bool = False
    """Hops whose metadata would make a packet too long report its stack and remove it, instead of setting M."""
    ports: tuple[PortRole, ...] = ()
    """Ports whose role differs from what their neighbours imply."""

    def marking(self) -> Marking:
        """Return the marks in the form of packet decoders."""
        by_dscp = self.udp_port is None and self.probe_marker is None
        return Marking(
            dscp=self.dscp if by_dscp else None,
            udp_port=self.udp_port,
            dscp_mask=self.dscp_mask,
            probe_marker=self.probe_marker,
            gre_protocol=self.gre_protocol if self.tunnels else None,
        )

    def role(self, topology: Topology, switch: str, port: int) -> PortRole:
        """Return a port's role with all fields set, except for an unlimited length."""
        edge = topology.neighbours[switch][port].node in topology.host
        configured = next((role for role in self.ports if (role.switch, role.port) == (switch, port)), None)
        default = PortRole(switch=switch, port=port, source=edge, sink=edge, mtu_bytes=None if edge else self.mtu_bytes)
        if configured is None:
            return default
        return PortRole(
            switch=switch,
            port=port,
            source=default.source if configured.source is None else configured.source,
            sink=default.sink if configured.sink is None else configured.sink,
            mtu_bytes=default.mtu_bytes if configured.mtu_bytes is None else configured.mtu_bytes,
        )


DEFAULT_DOMAIN = IntDomain()


def check_domain(topology: Topology, domain: IntDomain) -> None:
    """Raise ControllerError for marks that exclude each other or match anything, and ports that do not exist."""
    if domain.udp_port is not None and domain.probe_marker is not None:
        raise ControllerError("INT domain: either a UDP port or a probe marker")
    if domain.always_new_udp and domain.udp_port is None:
        raise ControllerError("INT domain: always_new_udp needs a udp_port")
    if domain.dscp & ~domain.dscp_mask:
        raise ControllerError(f"INT domain: DSCP {domain.dscp:#x} has bits outside its mask {domain.dscp_mask:#x}")
    if domain.tunnels and domain.gre_protocol in _CARRIED_BY_GRE:
        raise ControllerError(f"INT domain: GRE protocol {domain.gre_protocol:#06x} is that of packets without INT")
    if domain.probe_marker is not None and not 0 <= domain.probe_marker < 1 << 64:
        raise ControllerError("INT domain: a probe marker must fit 64 bits")
    if domain.probe_marker is not None and domain.probe_marker >> 60 in _SHIM_TYPES:
        raise ControllerError(f"INT domain: probe marker {domain.probe_marker:#018x} begins like a shim")
    if domain.probe_marker is not None and domain.probe_marker >> 56 in _VXLAN_FLAGS:
        raise ControllerError(f"INT domain: probe marker {domain.probe_marker:#018x} begins like VXLAN")
    if domain.udp_port in _PORTS_OF_PROGRAMS:
        raise ControllerError(
            f"INT domain: UDP port {domain.udp_port} is that of {_PORTS_OF_PROGRAMS[domain.udp_port]}"
        )
    for role in domain.ports:
        if role.switch not in topology.switch or role.port not in topology.neighbours[role.switch]:
            raise ControllerError(f"INT domain: there is no port {role.port} of switch {role.switch!r} in use")


def domain_entities(domain: IntDomain) -> Iterator[Entity]:
    """Yield the entries of a switch whose marks differ from the program's default."""
    if domain.udp_port is not None:
        action = P4TableAction("mark_by_udp_port", udp_port=domain.udp_port, always_new_udp=int(domain.always_new_udp))
        yield P4TableEntry("int_marker", action=action, is_default_action=True)
    elif domain.probe_marker is not None:
        action = P4TableAction("mark_by_probe", probe_marker=domain.probe_marker)
        yield P4TableEntry("int_marker", action=action, is_default_action=True)
    elif (domain.dscp, domain.dscp_mask) != (INT_DSCP, EXACT_DSCP):
        action = P4TableAction("mark_by_dscp", dscp=domain.dscp, mask=domain.dscp_mask)
        yield P4TableEntry("int_marker", action=action, is_default_action=True)
    if domain.tunnels:
        action = P4TableAction("carry_in_tunnels", gre_protocol=domain.gre_protocol)
        yield P4TableEntry("int_tunnels", action=action, is_default_action=True)
