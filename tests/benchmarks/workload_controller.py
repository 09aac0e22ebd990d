"""The workload controller's load, and how long pods of a silent node are nowhere.

    python -m tests.benchmarks.workload_controller

A round of decisions at openb's size (1,523 nodes, 8,152 pods, 400 groups of 8 among them), in time of the processor;
and, with real daemons over one API server, the time from the end of a silent node's lease and margin until
its pods are bound elsewhere. Nothing is compared: there is no other program that does this here.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Node, Pod, Resource
from controller.apiserver.resources.node import Share
from controller.apiserver.resources.pod_group import GroupPhase, PodGroupStatus
from controller.scheduling.process import serve as serve_scheduler
from controller.scheduling.settings import QueueSettings, SchedulerSettings
from controller.workloads.placement.settings import PlacementSettings, SilenceSettings
from controller.workloads.placement.view import View
from tests.controller.workloads.placement.knowing import S, decide, member, node, pod, share_of, view_of
from tests.controller.workloads.placement.serving_placement import TEMPLATE, Cluster, group_of, play

NODES, PODS, GROUPS, SIZE = 1523, 8152, 400, 8
LEASE_S, MARGIN_S, TIMES, PODS_ON_IT = 1.0, 0.5, 7, 20


def cluster_view() -> tuple[View, list[Node]]:
    """Return the view of a cluster of openb's size, each resource its own object."""
    bound = PodGroupStatus(phase=GroupPhase.BOUND)
    groups = [
        replace(group_of(name, SIZE), metadata=Metadata(name=name, uid=name, revision=1), status=bound)
        for name in (f"g{number}" for number in range(GROUPS))
    ]
    pods = [
        member(group, index, f"h{(SIZE * at + index) % NODES}")
        for at, group in enumerate(groups)
        for index in range(SIZE)
    ]
    pods += [pod(f"p{number}", f"h{number % NODES}") for number in range(PODS - len(pods))]
    shares: defaultdict[str | None, list[Share]] = defaultdict(list)
    for each_pod in pods:
        shares[each_pod.status.node].append(share_of(each_pod))
    nodes = [replace(node(f"h{at}"), shares=tuple(shares[f"h{at}"])) for at in range(NODES)]
    everything: list[Resource] = [own(resource) for resource in (*nodes, *pods, *groups)]
    return view_of(*everything), nodes


def own(resource: Resource) -> Resource:
    """Return a resource as it comes from the network: nothing of it is shared."""
    return msgspec.json.decode(msgspec.json.encode(resource), type=type(resource))


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def median_ms(view: View, seconds: float) -> float:
    """Return the processor's time for a round."""
    times = []
    for _ in range(15):
        begun = time.process_time()
        decide(view, seconds)
        times.append(time.process_time() - begun)
    return 1e3 * statistics.median(times)


def load_figures() -> dict[str, float]:
    """Return times of rounds, of a report, and the memory that is needed."""
    before = resident_bytes()
    view, nodes = cluster_view()
    figures = {"view_mb": (resident_bytes() - before) / 1e6, "round_ms": median_ms(view, 1)}
    begun = time.process_time()
    for reporter in nodes[100:]:
        status, metadata = replace(reporter.status, heartbeat_ns=2), replace(reporter.metadata, revision=2)
        view.take(replace(reporter, status=status, metadata=metadata), 40 * S)
    figures["report_us"] = 1e6 * (time.process_time() - begun) / len(nodes[100:])
    figures["round_100_silent_ms"] = median_ms(view, 46)
    return figures


async def recovery_s(cluster: Cluster) -> list[float]:
    """Return, for each node that fell silent, how long after lease and margin its pods were bound elsewhere."""
    times_s, spare = [], "spare"
    await cluster.add_node(spare)
    for number in range(TIMES):
        name, names = f"lost{number}", {f"p{number}-{at}" for at in range(PODS_ON_IT)}
        await close(cluster, spare, closed=True)
        await cluster.add_node(name, lease_s=LEASE_S)
        for pod_name in names:
            await cluster.client.of(Pod).create(Pod(metadata=Metadata(name=pod_name), spec=TEMPLATE))
        await cluster.pods_when(all_on(names, name))
        await close(cluster, spare, closed=False)
        begun = time.monotonic()
        await cluster.report(name)
        await cluster.report(spare)
        await cluster.pods_when(all_on(names, spare))
        times_s.append(time.monotonic() - begun - LEASE_S - MARGIN_S)
    return times_s


def all_on(names: set[str], where: str) -> Callable[[dict[str, Pod]], bool]:
    """Return whether all of these pods are bound to a node, as `pods_when` asks."""
    return lambda pods: {pods[name].status.node if name in pods else None for name in names} == {where}


async def close(cluster: Cluster, name: str, *, closed: bool) -> None:
    """Have a node take no pods, or take them again."""
    node = await cluster.client.of(Node).get(name)
    await cluster.client.of(Node).replace(replace(node, spec=replace(node.spec, unschedulable=closed)))


def recovery_figures() -> dict[str, float]:
    """Return how long pods of a silent node are nowhere, beyond lease and margin."""
    times_s: list[float] = []

    async def act(cluster: Cluster) -> None:
        stop = asyncio.Event()
        queue = QueueSettings(first_wait_ns=1_000_000, longest_wait_ns=500_000_000)
        scheduler = asyncio.create_task(serve_scheduler(SchedulerSettings(api=cluster.socket, queue=queue), stop))
        silence = SilenceSettings(margin_s=MARGIN_S, partition_share=1.0)
        async with cluster.controlled(PlacementSettings(silence=silence)):
            times_s.extend(await recovery_s(cluster))
        stop.set()
        await scheduler

    with tempfile.TemporaryDirectory() as folder:
        play(act, Path(folder))
    return {"rebound_ms": 1e3 * statistics.median(times_s), "rebound_longest_ms": 1e3 * max(times_s)}


def main() -> None:
    """Print a table, and all figures as JSON in the last line."""
    figures = load_figures() | recovery_figures()
    for name, value in figures.items():
        print(f"{name:22} {value:10.2f}")
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
