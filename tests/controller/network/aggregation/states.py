"""States of a network for deciders of aggregation."""

from __future__ import annotations

from collectors.values import DelaySource, LinkState, Snapshot
from dataplane.topology.values import Topology


def nominal(topology: Topology, **utilisation: float) -> Snapshot:
    """Return a state with the topology's delays, and the given utilisation of links at the named switches."""
    links = {
        key: LinkState(
            key,
            link.rate_bps,
            link.delay_ns,
            link.delay_ns,
            link.delay_ns,
            queue_occupancy_frames=0.0,
            utilisation=max(utilisation.get(key.src, 0.0), utilisation.get(key.dst, 0.0)),
            available_bps=link.rate_bps,
            loss=None,
            age_ns=0,
            samples=1,
            source=DelaySource.NOMINAL,
        )
        for key, link in topology.directed_links.items()
    }
    return Snapshot(0, links, {}, {})
