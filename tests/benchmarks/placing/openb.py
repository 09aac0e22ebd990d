"""The cluster trace openb as its own simulator replays it: all its pods, and more drawn until enough is asked for.

That simulator (hkust-adsl/kubernetes-scheduler-simulator) shuffles the pods of the list and adds some that it draws
with replacement until 130 % of the GPUs are requested; none ends. Its typical pods are told apart without memory.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from controller.cluster.hardware import WHOLE, Cluster, Node, Request
from controller.cluster.workloads.files import openb_nodes, openb_pods
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import PendingPod, PodProfile, PodProfileSettings, Snapshot, decide
from controller.scheduling.pods.profiles import Ties
from controller.scheduling.pods.workload import Workload

NODES: Final = "openb_node_list_all_node.csv"
PODS: Final = "openb_pod_list_default.csv"
ASKED_FOR: Final = 1.3


@dataclass(frozen=True, slots=True)
class Trace:
    """The nodes and the requests of the pods, in the files' order, and how often each request comes."""

    nodes: tuple[Node, ...]
    requests: tuple[Request, ...]
    workload: Workload

    @classmethod
    def of(cls, folder: Path) -> Trace | None:
        """Return the trace in a folder, None if it is not there."""
        if not (folder / NODES).exists() or not (folder / PODS).exists():
            return None
        requests = tuple(task.request for task in openb_pods(folder / PODS))
        return cls(tuple(openb_nodes(folder / NODES)), requests, Workload.of(requests))

    @property
    def gpu_nodes(self) -> tuple[Node, ...]:
        """Those that have GPUs."""
        return tuple(node for node in self.nodes if node.devices)

    def snapshot(self, nodes: tuple[Node, ...]) -> Snapshot:
        """Return nodes with everything free."""
        return replace(Snapshot.of(Cluster.of(nodes)), workload=self.workload)

    def arrivals(self, capacity_milli: int, seed: int) -> list[PendingPod]:
        """Return pods in the order in which they come."""
        rng = random.Random(seed)
        requests = list(self.requests)
        rng.shuffle(requests)
        asked = sum(map(gpu_milli, requests))
        while asked + gpu_milli(request := rng.choice(self.requests)) <= ASKED_FOR * capacity_milli:
            requests.append(request)
            asked += gpu_milli(request)
        return [PendingPod(f"pod-{number}", request) for number, request in enumerate(requests)]


def gpu_milli(request: Request) -> int:
    """Return the thousandths of GPUs that a request asks for."""
    return sum(wanted.count * wanted.thousandths for wanted in request.devices)


def profile_of(score: str, devices: str) -> PodProfile:
    """Return the profile in which one policy ranks nodes, and one chooses the device; of equal nodes the first."""
    filters = tuple(PolicySettings(policy=name) for name in ("ready", "device-model", "fits"))
    scores = (PolicySettings(policy=score),)
    settings = PodProfileSettings(
        name=score, filters=filters, scores=scores, devices=PolicySettings(policy=devices), ties=Ties.FIRST
    )
    return PodProfile.of(settings)


def unallocated(profile: PodProfile, snapshot: Snapshot, pods: list[PendingPod]) -> tuple[float, list[PendingPod]]:
    """Place pods one after the other; return how many GPUs stay unallocated, and the pods that found no place.

    The snapshot is of nodes that the caller gives away: shares are taken in place.
    """
    refused = []
    for pod in pods:
        choice = decide(profile, pod, snapshot)
        if not choice.is_placed:
            refused.append(pod)
            continue
        snapshot.free.add(snapshot.columns, choice.candidate, profile.shares(pod, snapshot, choice.candidate), -1)
    return int(snapshot.free.device_milli.sum()) / WHOLE, refused
