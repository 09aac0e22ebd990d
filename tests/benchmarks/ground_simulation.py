"""Speed of the simulation when it replays tasks with transfers, and its transfers' deviation from packets.

`tests/benchmarks/ground.py` calls `figures()`; standalone: `python -m tests.benchmarks.ground_simulation [--tasks N]
[--data FOLDER]`. Given a folder of published traces, it also replays the cluster trace openb and the batch log
lublin_256.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import WHOLE, Cluster, Device, Node
from controller.cluster.workloads.families import Layers, layered_graph
from controller.cluster.workloads.files import openb_nodes, openb_pods, swf_jobs
from controller.scheduling.pods import PodProfile, PodProfileSettings
from controller.scheduling.simulation.simulator import simulate
from controller.scheduling.simulation.summary import summary_of
from controller.scheduling.simulation.trace import Trace
from controller.scheduling.simulation.workload import GraphArrival, Workload
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind, MediumKind, MemoryMedium
from tests.benchmarks.simulating.errors import largest_error

TASKS = 100_000
_TASKS_OF_A_GRAPH = 32
_APART_NS = 60_000_000
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Replay:
    """A workload that was replayed, and how long that took."""

    name: str
    trace: Trace
    seconds: float

    @property
    def tasks_per_s(self) -> float:
        """Units replayed a second, by the clock on the wall."""
        return len(self.trace.names) / self.seconds


def graphs(tasks: int) -> Replay:
    """Replay layered task graphs, whose edges carry 64 MB on the average, on 128 nodes of a leaf-spine fabric."""
    topology = from_text("leaf-spine:leaves=8,spines=4,hosts=16")
    devices = tuple(Device(number, DeviceKind.GPU, "A100", 40 * _GIB) for number in range(2))
    memory = (MemoryMedium(MediumKind.DRAM, 128 * _GIB),)
    cluster = Cluster.of(
        Node(host.name, 32 * WHOLE, memory, devices) for host in topology.hosts if host.name != "collector"
    )
    work = Workload(
        graphs=tuple(
            GraphArrival(layered_graph(Layers(), seed), seed * _APART_NS) for seed in range(tasks // _TASKS_OF_A_GRAPH)
        )
    )
    return _replay("task graphs with transfers", cluster, work, CostMap.of(topology, Snapshot(0, {}, {}, {})))


def openb(data: Path) -> Replay:
    """Replay openb's pods with known run times on its 1,523 nodes."""
    cluster = Cluster.of(openb_nodes(data / "openb_node_list_all_node.csv"))
    return _replay("openb", cluster, Workload(tuple(openb_pods(data / "openb_pod_list_default.csv"))), None)


def lublin(data: Path) -> Replay:
    """Replay 10,000 batch jobs, of 22 processors on the average, on 16 nodes of 16 cores."""
    cluster = Cluster.of(Node(f"n{number}", 16 * WHOLE) for number in range(16))
    return _replay("lublin_256", cluster, Workload(tuple(swf_jobs(data / "lublin_256.swf"))), None)


def _replay(name: str, cluster: Cluster, work: Workload, costs: CostMap | None) -> Replay:
    profile = PodProfile.of(PodProfileSettings())
    start_s = time.perf_counter()
    trace = simulate(cluster, work, profile, costs=costs)
    return Replay(name, trace, time.perf_counter() - start_s)


def figures(tasks: int = TASKS) -> dict[str, float]:
    """Return `sim_tasks_per_s` over graphs with transfers, and `sim_error`, the largest relative error."""
    graphs(10 * _TASKS_OF_A_GRAPH)  # kernels are compiled
    replay = graphs(tasks)
    return {"sim_tasks_per_s": round(replay.tasks_per_s), "sim_error": round(largest_error(), 5)}


def main() -> None:
    """Print a table for people, and the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    graphs(10 * _TASKS_OF_A_GRAPH)
    replays = [graphs(arguments.tasks)]
    if arguments.data is not None:
        replays += [openb(arguments.data), lublin(arguments.data)]
    for replay in replays:
        summary = summary_of(replay.trace)
        print(
            f"{replay.name:28} {len(replay.trace.names):7} tasks {replay.trace.transfers:7} transfers "
            f"{replay.seconds:7.1f} s {replay.tasks_per_s:7.0f} tasks/s; "
            f"waiting {summary.waiting.mean_ns / 1e9:.1f} s, response {summary.response.mean_ns / 1e9:.1f} s, "
            + ", ".join(f"{name} {100 * share:.1f} %" for name, share in summary.utilisation.items())
        )
    print(json.dumps({"sim_tasks_per_s": round(replays[0].tasks_per_s), "sim_error": round(largest_error(), 5)}))


if __name__ == "__main__":
    main()
