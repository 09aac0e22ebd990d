"""Pairs of hosts whose 5-tuples the hash has spread over several paths."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.values import Snapshot
from controller.intents import FlowSpec
from controller.paths.graph import Network, Path

Parts = tuple[tuple[Path, float], ...]
"""Paths with their shares of a pair's rate."""


def parts_of(snapshot: Snapshot, network: Network) -> Mapping[FlowSpec, Parts]:
    """Return the paths of the pairs that were seen on more than one; a 5-tuple without a rate counts for nothing."""
    hosts = network.topology.host_by_address
    rates: dict[FlowSpec, dict[Path, int]] = {}
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or src is dst or not state.rate_bps:
            continue
        path = state.switches
        if path and (path[0], path[-1]) == network.ends(src.name, dst.name) and network.has_path(path):
            by_path = rates.setdefault(FlowSpec(src.name, dst.name), {})
            by_path[path] = by_path.get(path, 0) + state.rate_bps
    return {
        pair: tuple((path, rate_bps / sum(by_path.values())) for path, rate_bps in sorted(by_path.items()))
        for pair, by_path in rates.items()
        if len(by_path) > 1
    }
