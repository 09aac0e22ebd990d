"""Pairs of hosts whose 5-tuples the hash has spread over several paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collectors.values import Snapshot
from controller.intents import FlowSpec
from controller.paths.deciding.decide import Part
from controller.paths.deciding.graph import Network, Path
from controller.paths.measured_rate import MeasuredRate

_MOSTLY: Final = 0.85
"""A pair of which this share is on one path counts there as a whole: rather too much is believed of a link than not."""


def parts_of(snapshot: Snapshot, network: Network) -> Mapping[FlowSpec, tuple[Part, ...]]:
    """Return the paths of the pairs that are not mostly on one; a 5-tuple without a rate counts for nothing."""
    hosts = network.topology.host_by_address
    rates: dict[FlowSpec, dict[Path, MeasuredRate]] = {}
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or src is dst or not state.rate_bps:
            continue
        path, rate = state.switches, MeasuredRate.of(state)
        if rate and path and (path[0], path[-1]) == network.ends(src.name, dst.name) and network.has_path(path):
            by_path = rates.setdefault(FlowSpec(src.name, dst.name), {})
            by_path[path] = by_path[path] + rate if path in by_path else rate
    return {
        pair: tuple(Part(path, rate.rate_bps - rate.past_bps, rate.variance) for path, rate in sorted(by_path.items()))
        for pair, by_path in rates.items()
        if max(one.rate_bps for one in by_path.values()) < _MOSTLY * sum(one.rate_bps for one in by_path.values())
    }
