"""Inputs of traffic engineering: demands as telemetry shows them, and saved weighted routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collectors.values import FlowKey, Snapshot
from controller.common.errors import ControllerError
from controller.network.base_paths import next_hops
from controller.network.intents import WeightedRoute
from controller.network.tables.weighted_routes import spreads_of
from dataplane.topology.values import LinkKey, Topology


def demands_of(
    snapshot: Snapshot, topology: Topology, explicit_path: Callable[[FlowKey], Sequence[str] | None] = lambda _: None
) -> tuple[dict[tuple[str, str], float], dict[LinkKey, float]]:
    """Return the traffic between hosts as telemetry shows it, in bit/s by (source, destination) switch.

    Traffic with an explicit path cannot be split: it is returned second, in bit/s by link. A flow of
    unknown rate does not count.
    """
    hosts = topology.host_by_address
    demands: dict[tuple[str, str], float] = {}
    pinned: dict[LinkKey, float] = {}
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or not state.rate_bps:
            continue
        path = explicit_path(key)
        if path is None:
            pair = topology.attachment[src.name].node, topology.attachment[dst.name].node
            demands[pair] = demands.get(pair, 0.0) + state.rate_bps
        for link in map(LinkKey, path or (), (path or ())[1:]):
            pinned[link] = pinned.get(link, 0.0) + state.rate_bps
    return demands, pinned


def possible(saved: tuple[WeightedRoute, ...], topology: Topology) -> tuple[WeightedRoute, ...]:
    """Return saved weighted routes, none where the topology no longer has all of them."""
    try:
        spreads_of(topology, next_hops(topology), saved)
    except ControllerError:
        return ()
    return saved
