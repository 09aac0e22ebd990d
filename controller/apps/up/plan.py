"""Plan of all daemons from one settings file: the fabric's load, who runs, in which order, and their settings files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from controller.apps.demo.prepare import ScaledLoad, sampled_watch, scaled_load, senders
from controller.apps.demo.scenario import ScenarioSettings, with_buffers
from controller.apps.up.daemon_plans import DaemonPlan, DaemonPlanner
from controller.apps.up.errors import UpError
from controller.apps.up.remains import SWITCHES
from controller.apps.up.settings import UpSettings
from controller.apps.up.state import StateFolder, write_private
from controller.network.daemon_settings import switch_addresses
from controller.network.tables.base import WATCH_ALL
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.config import document_of
from dataplane.fabric.live.settings import Time
from dataplane.topology.demands import DemandMatrix, dumps_demands
from dataplane.topology.file import dumps, load_topology
from dataplane.topology.values import Topology

GENERATED: Final = "# Derived from millrace.yaml by `millrace up` at each start: edit that file, not this one.\n"


@dataclass(frozen=True, slots=True)
class UpPlan:
    """Daemons to run, in start order."""

    topology: Topology
    load: ScaledLoad | None
    """None if switches run already, or hosts send nothing."""
    switches: Mapping[str, str]
    daemons: tuple[DaemonPlan, ...]
    settings: UpSettings
    state: StateFolder
    notes: tuple[str, ...] = ()
    """Lines for the log about what was chosen."""

    @property
    def stats_file(self) -> Path | None:
        """Path of the fabric's counters; None if the fabric is not ours."""
        return None if self.settings.switches else Path(self.settings.run) / "fabric.json"


def make_plan(settings: UpSettings, state: StateFolder) -> UpPlan:
    """Return the plan; raise ConfigError or another MillraceError naming the problem."""
    topology = load_topology(settings.topology)
    if topology.collector is None:
        raise UpError(f"topology {topology.name}: has no collector")
    topology, load = _scaled(settings, topology)
    run = Path(settings.run)
    switches = switch_addresses(settings.switches or f"unix:{run / SWITCHES}/{{name}}.sock", topology)
    watches = settings.watches or _watches(topology, load)
    make = DaemonPlanner(settings, state, topology, watches, load is not None)
    daemons = [
        make.collector(),
        make.paths(),
        make.controller(switches),
        make.api(switches),
        make.scheduler(),
        make.placement(),
        *([] if settings.balance is None else [make.balance(settings.balance)]),
        *(make.node(name) for name in settings.nodes),
        *(make.centre(name) for name in settings.centres),
        *(make.drive(node, unit) for node, unit in _drives(settings)),
    ]
    if not settings.switches:
        daemons.insert(0, make.fabric(load))
    return UpPlan(topology, load, switches, tuple(daemons), settings, state)


def write_generated(plan: UpPlan) -> None:
    """Write the daemons' settings files; raise UpError."""
    folder = plan.state.generated
    write_private(folder / "topology.yaml", GENERATED + dumps(plan.topology))
    if plan.load is not None:
        write_private(folder / "demands.csv", GENERATED + dumps_demands(_matrix(plan.load)))
    for daemon in plan.daemons:
        text = yaml.safe_dump(document_of(daemon.settings), sort_keys=False)
        write_private(settings_file(plan.state, daemon.name), GENERATED + text)


def settings_file(state: StateFolder, daemon: str) -> Path:
    """Return a daemon's settings file."""
    return state.generated / f"{daemon}.yaml"


def _drives(settings: UpSettings) -> Iterator[tuple[str, str]]:
    """Yield the nodes and names of units to control; raise UpError for a name that two nodes use."""
    nodes = dict[str, str]()
    for node, section in settings.nodes.items():
        for unit in section.drives:
            if (other := nodes.setdefault(unit, node)) != node:
                raise UpError(f"nodes.{node}.drives.{unit}: node {other} has a unit of that name")
            yield node, unit


def _scaled(settings: UpSettings, topology: Topology) -> tuple[Topology, ScaledLoad | None]:
    """Return the topology as it runs, and what its hosts send."""
    section = settings.fabric
    if settings.switches:
        return topology, None
    carries = any({link.a.node, link.b.node} <= topology.switch.keys() for link in topology.links)
    if not section.peak_utilisation or not carries or len(senders(topology)) < 2:
        return topology, None
    shape = ScenarioSettings(
        rate_divisor=section.rate_divisor,
        hops_per_s=section.hops_per_s,
        peak_utilisation=section.peak_utilisation,
        matrix=section.matrix,
    )
    demands = None if section.demands is None else Path(section.demands)
    load = scaled_load(topology, demands, shape, kernel=settings.time is Time.KERNEL)
    return with_buffers(load.topology, shape), load


def _watches(topology: Topology, load: ScaledLoad | None) -> tuple[Watch, ...]:
    if load is None:
        return WATCH_ALL
    frame_bytes = ScenarioSettings().frame_bytes
    return (sampled_watch(WATCH_ALL[0], topology, sum(load.demands.values()), frame_bytes),)


def _matrix(load: ScaledLoad) -> DemandMatrix:
    """Return demands as whole bit/s; a positive one stays positive."""
    nodes = senders(load.topology)
    rates = tuple(tuple(_whole(load.demands.get((src, dst), 0.0)) for dst in nodes) for src in nodes)
    return DemandMatrix(nodes, rates)


def _whole(rate_bps: float) -> int:
    return max(1, round(rate_bps)) if rate_bps > 0 else 0
