"""Bandwidth that a pod needs to all of its peers at once: the load added to links, and the links that cannot carry it.

A flow takes one of several paths by a hash unknown to the scheduler, so its rate counts on all of them: the promise
holds whichever path it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from controller.cluster.cost_map import CostMap, Load
from controller.cluster.cost_map.routing import Routing
from controller.scheduling.framework.policies import Flags, Ids
from controller.scheduling.pods.values import Peer

Rows = npt.NDArray[np.intp]


def loads_of(host: str, peers: Iterable[Peer]) -> tuple[Load, ...]:
    """Return a pod's needs on a host as load: its peers' bandwidth, in both directions."""
    return tuple(
        Load(src, dst, peer.min_bps)
        for peer in peers
        if peer.min_bps and peer.host and host and peer.host != host
        for src, dst in ((host, peer.host), (peer.host, host))
    )


def carries_all(costs: CostMap, hosts: Ids, peers: Sequence[Peer], candidates: Flags) -> Flags:
    """Return which of the candidate hosts, by number, give all peers their bandwidth at the same time.

    Each peer by itself may get it while all together do not: they share links, starting with the host's own.
    """
    carries: dict[int, bool] = {}
    carried = candidates.copy()
    for index in np.flatnonzero(candidates).tolist():
        host = int(hosts[index])
        if host not in carries:
            carries[host] = not len(_overloaded(costs, host, peers))
        carried[index] = carries[host]
    return carried


def overloaded_link(costs: CostMap, host: int, peers: Sequence[Peer]) -> str | None:
    """Return a link that cannot carry all of a pod's needs on a host, by number; None if all links can."""
    rows = _overloaded(costs, host, peers)
    if not len(rows):
        return None
    row, model = int(rows[-1]), costs.model  # hosts' own links come last and are the easiest to read
    if row < model.inner.stop:
        return str(model.table.links[row])
    up = row < model.up.stop
    name = model.hosts[row - (model.up.start if up else model.down.start)]
    return f"the link {'from' if up else 'to'} {name}"


def _overloaded(costs: CostMap, host: int, peers: Sequence[Peer]) -> Rows:
    added = np.zeros(len(costs.links.rate_bps), np.int64)
    for peer in peers:
        other = costs.model.host_number.get(peer.host)
        if peer.min_bps and other is not None and other != host:
            added[_rows(costs, host, other)] += peer.min_bps
            added[_rows(costs, other, host)] += peer.min_bps
    return np.flatnonzero((added > 0) & (added > costs.links.available_bps))


_ways: tuple[Routing, dict[tuple[int, int], Rows]] | None = None
"""The links of pairs of hosts, for the last routing used."""


def _rows(costs: CostMap, src: int, dst: int) -> Rows:
    """Return all links that a flow between two hosts may take, including the hosts' own."""
    global _ways  # noqa: PLW0603 - a cache, replaced whole
    if _ways is None or _ways[0] is not costs.routing:
        _ways = costs.routing, {}
    cached = _ways[1]
    if (rows := cached.get((src, dst))) is None:
        own = (costs.model.up.start + src, costs.model.down.start + dst)
        rows = cached[src, dst] = np.array([*costs.routing.shares(src, dst), *own], np.intp)
    return rows
