"""Made-up snapshots for the rules."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from collectors.values import DelaySource, FlowKey, LinkState, PathState, ReporterState, Snapshot
from dataplane.topology.values import LinkKey

MS = 1_000_000
LINK = LinkKey("s1", "s2")
OTHER = LinkKey("s2", "s1")
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 5000, 6001)

IDLE = LinkState(LINK, 10**9, 5000, 5000, 5000, 0.0, 0.0, 10**9, None, 0, 10, DelaySource.STAMPS)


def snapshot(at_ms: float, utilisation: float = 0.0, *, lost: int = 0, rate_bps: int | None = None) -> Snapshot:
    """Return a snapshot in which s1->s2 has this utilisation, s2->s1 none, and one reporter lost this many reports."""
    links = {
        LINK: replace(IDLE, utilisation=utilisation),
        OTHER: replace(IDLE, link=OTHER),
    }
    path = PathState(FLOW, ("s1", "s2"), 5000, 10**9, 0, rate_bps)
    return Snapshot(round(at_ms * MS), links, {FLOW: path}, {(7, 0): ReporterState(7, 0, 100, lost, 0, 0, 0)})
