"""`millrace scheduler simulate`: parses the command line and replays a workload."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, nodes_of
from controller.cluster.workloads.families import Batch, Layers, batch, check_ranges, layered_graph
from controller.cluster.workloads.files import openb_nodes, openb_pods, spotri_graph, swf_jobs
from controller.common.errors import SchedulerError
from controller.scheduling.pods import PodProfile, PodProfileSettings
from controller.scheduling.simulation.export import check_name, write_trace
from controller.scheduling.simulation.network import Spreading
from controller.scheduling.simulation.queue import Order
from controller.scheduling.simulation.settings import SimulationSettings
from controller.scheduling.simulation.simulator import simulate
from controller.scheduling.simulation.summary import Summary, summary_of
from controller.scheduling.simulation.tracing import Tracer
from controller.scheduling.simulation.workload import GraphArrival, Workload
from dataplane.clock import NS_PER_S
from dataplane.topology.file import load_topology

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The command's options."""

    workloads: tuple[str, ...]
    topology: str | None
    nodes: Path | None
    profiles: tuple[PodProfileSettings, ...]
    profile: str
    order: str
    spreading: str
    edge_bytes: int
    seed: int
    trace: Path | None


class Progress:
    """Says at most every `every_s` seconds how many units have finished."""

    def __init__(self, say: Callable[[str], None], every_s: float = 10.0) -> None:
        self._say, self._every_s = say, every_s
        self._said_s = time.monotonic()

    def __call__(self, trace: Tracer) -> None:
        """Look at the events so far."""
        now_s = time.monotonic()
        if now_s - self._said_s >= self._every_s:
            self._said_s = now_s
            self._say(f"{trace.ended} of {trace.count} tasks have finished")


@dataclass(frozen=True, slots=True)
class _Graphs:
    """Number and spacing of layered graphs."""

    graphs: int = 1
    apart_s: float = 1.0


def run(options: SimulateOptions, say: Callable[[str], None]) -> Summary:
    """Replay, write the trace if requested, and return the summary; raise MillraceError for invalid arguments.

    A long replay tells `say` now and then how far it is.
    """
    if options.trace is not None:
        check_name(options.trace)
    settings = SimulationSettings(
        order=_one_of(Order, "--order", options.order),
        spreading=_one_of(Spreading, "--spreading", options.spreading),
        seed=options.seed,
    )
    profile = _profile(options)
    cluster, costs = cluster_of(options.topology, options.nodes)
    workload = workload_of(options.workloads, options.edge_bytes, options.seed)
    trace = simulate(cluster, workload, profile, settings, costs, watch=Progress(say))
    if options.trace is not None:
        write_trace(trace, options.trace)
    return summary_of(trace, workload.skipped)


def cluster_of(topology: str | None, nodes: Path | None) -> tuple[Cluster, CostMap | None]:
    """Return nodes, and the network between them if a topology gives it."""
    if (topology is None) == (nodes is None):
        raise SchedulerError("give either --topology or --nodes")
    if nodes is not None:
        return Cluster.of(openb_nodes(nodes)), None
    loaded = load_topology(str(topology))
    hosts = nodes_of(loaded)
    if not hosts:
        raise SchedulerError(f"topology {loaded.name} states no host's cores, memory or devices")
    return Cluster.of(hosts), CostMap.of(loaded, Snapshot(0, {}, {}, {}))


def workload_of(texts: tuple[str, ...], default_edge_bytes: int, seed: int) -> Workload:
    """Return the combined workload of `KIND:FILE` and `FAMILY:key=value,...` arguments."""
    parts = [_workload(text, seed) for text in texts]
    return Workload(
        tuple(task for part in parts for task in part.tasks),
        tuple(graph for part in parts for graph in part.graphs),
        default_edge_bytes=default_edge_bytes,
        skipped=sum((Counter(part.skipped) for part in parts), Counter()),
    )


def _workload(text: str, seed: int) -> Workload:
    kind, separator, rest = text.partition(":")
    if kind not in _KINDS or not separator:
        raise SchedulerError(f"workload {text!r} must begin with one of {', '.join(f'{name}:' for name in _KINDS)}")
    return _KINDS[kind](rest, seed)


def _swf(file: str, _: int) -> Workload:
    skipped: Counter[str] = Counter()
    return Workload(swf_jobs(Path(file), skipped), skipped=skipped)


def _batch(text: str, seed: int) -> Workload:
    return Workload(batch(_converted("batch", Batch, _pairs("batch", text)), seed))


def _layers(text: str, seed: int) -> Workload:
    pairs = _pairs("layers", text)
    own: dict[str, str] = {name: pairs.pop(name) for name in ("graphs", "apart_s") if name in pairs}
    graphs, family = _converted("layers", _Graphs, own), _converted("layers", Layers, pairs)
    check_ranges("layers", graphs, {"graphs": (1, 10**6), "apart_s": (0, 1e9)})
    first = seed * graphs.graphs
    return Workload(
        graphs=tuple(
            GraphArrival(layered_graph(family, first + number), round(number * graphs.apart_s * NS_PER_S))
            for number in range(graphs.graphs)
        )
    )


_KINDS: Final[Mapping[str, Callable[[str, int], Workload]]] = {
    "swf": _swf,
    "openb": lambda file, _: Workload(tuple(openb_pods(Path(file)))),
    "spotri": lambda file, _: Workload(graphs=(GraphArrival(spotri_graph(Path(file))),)),
    "batch": _batch,
    "layers": _layers,
}


def _pairs(kind: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, separator, value = part.partition("=")
        if not separator or name in pairs:
            raise SchedulerError(f"workload {kind}: {part!r} is not key=value, or repeats a key")
        pairs[name] = value
    return pairs


def _converted(kind: str, family: type[Any], pairs: Mapping[str, str]) -> Any:  # noqa: ANN401 - the family's
    keys = {field.name for field in dataclasses.fields(family)}
    if unknown := sorted(pairs.keys() - keys):
        raise SchedulerError(f"workload {kind}: unknown key {unknown[0]!r}")
    try:
        return msgspec.convert(dict(pairs), family, strict=False)
    except msgspec.ValidationError as error:
        raise SchedulerError(f"workload {kind}: {error}") from None


def _one_of(kind: type[E], option: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise SchedulerError(f"{option} {text!r} is not one of {', '.join(map(str, kind))}") from None


def _profile(options: SimulateOptions) -> PodProfile:
    profiles = PodProfile.by_name(options.profiles)
    if options.profile not in profiles:
        raise SchedulerError(f"unknown profile {options.profile!r}; known: {', '.join(profiles)}")
    return profiles[options.profile]
