"""Turns a user's topology, matrix and settings into a scenario of a watchable size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from controller.apps.demo.scenario import Scenario, ScenarioSettings, plan
from controller.apps.demo.settings import DEFAULT_WATCH, DemoSettings
from controller.apps.demo.surge import base_load_bps
from controller.network.base_paths import base_paths, next_hops
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.errors import ConfigError, FabricError
from dataplane.topology.demands import load_demands, load_yates
from dataplane.topology.file import load_topology, topologies_folder
from dataplane.topology.scaling import scaled
from dataplane.topology.values import LinkKey, Topology

Demands = Mapping[tuple[str, str], float]
"""bit/s by (source host, destination host)."""

_YATES_SUFFIX = ".txt"
_VIRTUAL_HOPS_PER_S = 4000.0
_VIRTUAL_HOPS_PER_LINK_S = 30.0
"""Hops per second and link in a large fabric: with fewer, a second is a few frames long."""
_KERNEL_HOPS_PER_S = 1200.0
_FLUID_SAMPLES_PER_S = 2000.0
_MOST_PAIRS = 512
"""Maximum number of sending host pairs without a matrix; with more, each would send a frame per second."""
_REPORT_BYTES = 250
"""Approximate size of a report on the wire."""
_REPORT_SHARE = 0.3
"""Maximum share of a link towards the collector that reports may take."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario and the origin of its demands."""

    scenario: Scenario
    demands_from: str
    rate_divisor: int


@dataclass(frozen=True, slots=True)
class ScaledLoad:
    """A topology and demands (bit/s) of a size that a machine can follow, and the demands' origin."""

    topology: Topology
    demands: dict[tuple[str, str], float]
    demands_from: str
    rate_divisor: int


def scaled_load(
    topology: Topology,
    demands_file: Path | None,
    settings: ScenarioSettings,
    *,
    kernel: bool = False,
    fluid: bool = False,
) -> ScaledLoad:
    """Return topology and matrix, both scaled; raise ConfigError or FabricError naming the problem.

    A fluid is followed at any rate: it is scaled only if the settings say so.
    """
    demands, source = _demands(topology, demands_file, settings)
    demands = normalised(topology, demands, settings.peak_utilisation)
    divisor = settings.rate_divisor or (1 if fluid else _divisor(topology, demands, settings, kernel=kernel))
    small = {pair: rate_bps / divisor for pair, rate_bps in demands.items()}
    return ScaledLoad(scaled(topology, divisor), small, source, divisor)


def prepare(
    spec: str, demands_file: Path | None, settings: ScenarioSettings, *, kernel: bool = False, fluid: bool = False
) -> Prepared:
    """Return the scenario for a topology and a matrix; raise ConfigError or FabricError naming the problem."""
    topology = load_topology(spec)
    if topology.collector is None:
        raise FabricError(f"topology {topology.name}: has no collector; the demo needs one")
    load = scaled_load(topology, demands_file, settings, kernel=kernel, fluid=fluid)
    return Prepared(plan(load.topology, load.demands, settings), load.demands_from, load.rate_divisor)


def sampled(settings: DemoSettings, scenario: Scenario, *, fluid: bool = False) -> DemoSettings:
    """Return settings with a default report rate that leaves room on the links to the collector.

    Of a fluid, it is also one that the simulator can follow.
    """
    if settings.watch != DEFAULT_WATCH:
        return settings
    rate_bps = sum(planned.rate_bps for planned in scenario.flows)
    if fluid:
        every = math.ceil(rate_bps / (8 * scenario.frame_bytes) / _FLUID_SAMPLES_PER_S)
        settings = replace(settings, watch=replace(settings.watch, sample_every=max(DEFAULT_WATCH.sample_every, every)))
    return replace(settings, watch=sampled_watch(settings.watch, scenario.topology, rate_bps, scenario.frame_bytes))


def sampled_watch(watch: Watch, topology: Topology, rate_bps: float, frame_bytes: int) -> Watch:
    """Return a watch whose reports about this much traffic leave room on the links to the collector."""
    if topology.collector is None:
        return watch
    switch = topology.attachment[topology.collector.host].node
    arriving = [link for link in topology.directed_links.values() if link.head.node == switch]
    between = max((link.rate_bps for link in arriving if link.key.src in topology.switch), default=1)
    access = topology.directed_links[LinkKey(switch, topology.collector.host)].rate_bps
    frames_per_s = rate_bps / (8 * frame_bytes)
    every = math.ceil(frames_per_s * 8 * _REPORT_BYTES / (_REPORT_SHARE * min(between, access)))
    return replace(watch, sample_every=max(watch.sample_every, every))


def normalised(topology: Topology, demands: Demands, peak_utilisation: float) -> dict[tuple[str, str], float]:
    """Return demands in the same proportions that load the busiest link between switches to `peak_utilisation`."""
    load = base_load_bps(topology, demands)
    peak = max((load[key] / topology.directed_links[key].rate_bps for key in load), default=0.0)
    if not peak:
        raise FabricError(f"topology {topology.name}: the demands cross no link between switches")
    return {pair: rate_bps * peak_utilisation / peak for pair, rate_bps in demands.items()}


def _demands(topology: Topology, file: Path | None, settings: ScenarioSettings) -> tuple[Demands, str]:
    hosts = senders(topology)
    file = file or _default_file(topology)
    if file is None:
        some = _spread(topology, hosts)
        which = "all hosts" if len(some) == len(hosts) else f"{len(some)} of {len(hosts)} hosts"
        return {(src, dst): 1.0 for src in some for dst in some if src != dst}, f"equal demands between {which}"
    if file.suffix == _YATES_SUFFIX:
        matrices = load_yates(file, hosts)
        if not 0 <= settings.matrix < len(matrices):
            raise ConfigError(f"has {len(matrices)} matrices, from 0; there is no {settings.matrix}", file=str(file))
        matrix, source = matrices[settings.matrix], f"{file.name}, matrix {settings.matrix}"
    else:
        matrix, source = load_demands(file, hosts), file.name
    return {(src, dst): float(rate_bps) for src, dst, rate_bps in matrix.pairs()}, source


def senders(topology: Topology) -> tuple[str, ...]:
    """Return the hosts that send and receive: all but the collector's, in the order of their switches' ids."""
    collector = topology.collector.host if topology.collector else None
    ids = {node.name: node.node_id for node in topology.switches}
    hosts = [host.name for host in topology.hosts if host.name != collector]
    return tuple(sorted(hosts, key=lambda name: (ids[topology.attachment[name].node], hosts.index(name))))


def _spread(topology: Topology, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return all hosts of evenly spaced switches, up to `_MOST_PAIRS` pairs.

    With one host of each switch, the hosts' own links would be fuller than those between switches.
    """
    most = math.isqrt(_MOST_PAIRS)
    if len(hosts) <= most:
        return hosts
    by_switch: dict[str, list[str]] = {}
    for host in hosts:
        by_switch.setdefault(topology.attachment[host].node, []).append(host)
    groups = list(by_switch.values())
    count = min(len(groups), max(2, most // max(map(len, groups))))
    return tuple(host for index in range(count) for host in groups[index * len(groups) // count])


def _default_file(topology: Topology) -> Path | None:
    """Return a topology's bundled matrix, None if there is none."""
    bundled = topologies_folder() / f"{topology.name}-demands.csv"
    return bundled if bundled.is_file() else None


def _divisor(topology: Topology, demands: Demands, settings: ScenarioSettings, *, kernel: bool) -> int:
    """Return the divisor, of two significant digits, that makes the background `hops_per_s` frames times switches."""
    hops = next_hops(topology)
    bit_hops = 0.0
    for (src, dst), rate_bps in demands.items():
        path = next(base_paths(hops, topology.attachment[src].node, topology.attachment[dst].node), ())
        bit_hops += rate_bps * len(path)
    hops_per_s = settings.hops_per_s or (_KERNEL_HOPS_PER_S if kernel else _virtual_hops_per_s(topology))
    exact = bit_hops / (8 * settings.frame_bytes) / hops_per_s
    if exact <= 1:
        return 1
    step: int = 10 ** max(0, math.floor(math.log10(exact)) - 1)
    return math.ceil(exact / step) * step


def _virtual_hops_per_s(topology: Topology) -> float:
    inner = sum({key.src, key.dst} <= topology.switch.keys() for key in topology.directed_links)
    return max(_VIRTUAL_HOPS_PER_S, _VIRTUAL_HOPS_PER_LINK_S * inner)
