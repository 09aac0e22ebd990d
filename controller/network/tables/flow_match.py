"""Rules that name flows by hosts, protocol and ports, and the ternary matches that they become."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from finsy import P4TableMatch

from controller.common.errors import ControllerError
from controller.network.tables.routing import Family, host_addresses
from dataplane.config import Settings
from dataplane.topology.values import Topology

Port = Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]


class FlowRule(Settings, frozen=True):
    """Match of flows by packet fields; omitted ones match everything."""

    section: ClassVar[str]
    """Name of this kind of rule in error messages."""

    src: str | None = None
    """Name of the sending host."""
    dst: str | None = None
    """Name of the receiving host."""
    protocol: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    """IP protocol."""
    src_port: Port | None = None
    """Source port."""
    dst_port: Port | None = None
    """Destination port."""


def flow_match(topology: Topology, rule: FlowRule, family: Family, protocol: int | None) -> P4TableMatch | None:
    """Return a rule's match in a table of one family, None if a host that it names has no address of it.

    Raise ControllerError for a rule that names a host which the topology does not have.
    """
    match = P4TableMatch() if protocol is None else P4TableMatch(protocol=(protocol, 0xFF))
    for field, host in (("src_addr", rule.src), ("dst_addr", rule.dst)):
        if host is None:
            continue
        if host not in topology.host:
            raise ControllerError(f"{rule.section}: there is no host {host!r} in topology {topology.name}")
        address = host_addresses(topology, host).get(family)
        if address is None:
            return None
        match[field] = (address, (1 << family.bits) - 1)
    for field, port in (("src_port", rule.src_port), ("dst_port", rule.dst_port)):
        if port is not None:
            match[field] = (port, 0xFFFF)
    return match
