"""Inputs and results of rebalancing: flows that telemetry shows, and the decided change."""

from __future__ import annotations

from dataclasses import dataclass

from controller.network.paths.deciding.graph import Rows
from dataplane.topology.values import LinkKey

LinkWeights = tuple[tuple[int, int], ...]
"""(row of the link, weight), in order of port: the spread of a switch's traffic for one destination."""

GroupKey = tuple[int, int]
"""The switch and the destination switch, by number."""

NextHops = tuple[tuple[str, int], ...]
"""(switch, weight)."""


@dataclass(frozen=True, slots=True)
class MeasuredFlow:
    """A 5-tuple without an explicit path: its hash, the links it was last seen on, and its rate.

    `packets` are those that the rate was estimated from: with few, it is uncertain.
    """

    hashed: int
    rows: Rows
    source: int
    destination: int
    rate_bps: int
    packets_per_s: float
    packets: float


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Change of weights at one switch for traffic to hosts of another: when, from what to what, and why.

    `link` is the one that could not carry its load, or died, None for a group that returns to equal weights; the
    utilisations are that link's, before and as predicted (for a return: of the fullest link concerned).
    """

    time_ns: int
    switch: str
    destination: str
    old_weights: NextHops
    new_weights: NextHops
    link: LinkKey | None
    utilisation_before: float
    utilisation_after: float
    reason: str


def show(next_hops: NextHops) -> str:
    """Return next hops with their weights for people."""
    return ", ".join(f"{peer} ({weight})" for peer, weight in next_hops)
