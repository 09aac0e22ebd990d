"""Destination of reports: `report_target`, the clone session that carries them, and `collector` (p4/egress).

`collector` lets a switch recognise the reports of others, so that nothing is reported about them.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy import P4CloneSessionEntry, P4TableAction, P4TableEntry

from controller.network.base_paths import NextHops
from controller.network.tables.entities import Entity
from controller.network.tables.routing import ports_towards
from dataplane.switch.traffic import DEFLECT_SESSION
from dataplane.topology.addressing import mac_at, report_source
from dataplane.topology.values import CollectorAddress, Topology

REPORT_SESSION = 250
"""The clone session that the program sends reports through; `DEFLECT_SESSION` is for what full queues refuse."""


def report_entities(
    topology: Topology,
    hops: NextHops,
    switch: str,
    *,
    to: CollectorAddress | None = None,
    full_queues: bool = False,
) -> Iterator[Entity]:
    """Yield the session and the addresses of a switch's reports; nothing without a reachable collector.

    They go `to` one of several collectors, None: the topology's. With `full_queues` also the session by which the
    built-in switch hands over what its queues refuse.
    """
    to = to or topology.collector
    if to is None:
        return
    ports = ports_towards(topology, hops, switch, to.host)
    if not ports:
        return
    # One replica only: a second one on an equally good port would repeat every report.
    port = ports[0]
    peer = topology.neighbours[switch][port]
    yield P4CloneSessionEntry(REPORT_SESSION, replicas=(port,))
    if full_queues:
        yield P4CloneSessionEntry(DEFLECT_SESSION, replicas=(port,))
    host = topology.host[to.host]
    target = P4TableAction(
        "set_report_target",
        src_mac=mac_at(topology, switch, port),
        dst_mac=mac_at(topology, peer.node, peer.port),
        src_addr=int(report_source(topology.switch[switch])),
        dst_addr=int(host.ipv4),
        udp_port=to.udp_port,
    )
    yield P4TableEntry("report_target", action=target, is_default_action=True)
    collector = P4TableAction(
        "set_collector",
        addr=int(host.ipv4),
        ipv6_addr=0 if host.ipv6 is None else int(host.ipv6),
        udp_port=to.udp_port,
    )
    yield P4TableEntry("collector", action=collector, is_default_action=True)
