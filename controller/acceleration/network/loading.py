"""Loads a job's environment from files and the current network state, as `explain` and `run` need it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

from collectors.values import Snapshot
from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.grounds import Ground, ground_by_rate, ground_over
from controller.acceleration.network.hardware import Hardware, load_hardware
from controller.cluster.cost_map import CostMap
from controller.cluster.network_state.follower import ask
from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

BASE_ROUTES: Final = "paths are base routes: no path server given"


def load_ground(
    topology: str | None,
    hardware: Path | Hardware | None,
    *,
    feed: str | None = None,
    path_server: str | None = None,
    rate_bps: float | None = None,
) -> Ground:
    """Return the environment from a topology (file, name, family) and a hardware file, with the current network.

    `feed` is a collector's: paths are then measured, on the path server's routes if one is named, else on base routes.
    `rate_bps` replaces all paths. With neither, the topology's paths are assumed idle, as a note states. Raise
    ConfigError for files, FeedError and PathError for a server that does not answer (within 10 s), CostMapError for
    another network, AccelerationError for inconsistent input.
    """
    if feed is not None and rate_bps is not None:
        raise AccelerationError("give a collector's feed or a rate, not both")
    if topology is None and (feed is not None or rate_bps is None):
        problem = "a collector's feed needs one" if feed is not None else "give one, or a rate"
        raise AccelerationError(f"no topology for the network between machines: {problem}")
    if path_server is not None and feed is None:
        raise AccelerationError("a path server without a collector's feed: free bandwidth on its routes is unknown")
    asked = load_hardware(hardware) if isinstance(hardware, Path) else hardware or Hardware()
    loaded = None if topology is None else load_topology(topology)
    if rate_bps is not None:
        return ground_by_rate(asked, rate_bps, loaded)
    assert loaded is not None, "without a topology there is a rate"
    ground = ground_over(asked, costs_of(loaded, feed, path_server))
    if feed is not None and path_server is None:
        return replace(ground, notes=(*ground.notes, BASE_ROUTES))
    return ground


def costs_of(topology: Topology, feed: str | None, path_server: str | None) -> CostMap:
    """Return a topology's cost map: idle, or measured by a collector's feed, on base routes or a path server's.

    Raise FeedError and PathError for a server that does not answer, CostMapError for another network.
    """
    if feed is None:
        return CostMap.of(topology, Snapshot(0, {}, {}, {}))
    return asyncio.run(ask(topology, NetworkStateSettings(feed=feed, path_server=path_server))).costs
