"""Scaling of a network to rates that a packet-level simulation or a kernel can keep up with."""

from __future__ import annotations

from dataclasses import replace

from dataplane.errors import FabricError
from dataplane.topology.values import Topology


def scaled(topology: Topology, rate_factor: float) -> Topology:
    """Return the topology with every rate divided by `rate_factor`; links are otherwise unchanged.

    Divide the demands by the same factor and every link has the same load; a frame's time on the wire grows by it.
    Raises FabricError for a factor that is not positive or leaves a link less than 1 bit/s.
    """
    if not 0 < rate_factor < float("inf"):
        raise FabricError(f"{topology.name}: rates cannot be divided by {rate_factor}")
    links = tuple(replace(link, rate_bps=round(link.rate_bps / rate_factor)) for link in topology.links)
    starved = next((link for link in links if link.rate_bps < 1), None)
    if starved is not None:
        raise FabricError(f"{topology.name}: divided by {rate_factor}, {starved.a.node}-{starved.b.node} has no rate")
    return replace(topology, links=links)
