"""Batched decisions equal those of a scheduler that decides one pod at a time and waits for each."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.placements import NewDecision, State, bind
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.hardware import DeviceNeed, DeviceShares, Request
from controller.apiserver.resources.pod import Container, Location, PodSpec
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.scheduling.pods import PodProfile
from controller.scheduling.serving import binding
from controller.scheduling.serving.binding import request_of
from controller.scheduling.serving.outcomes import Knowledge, outcome_of, spec_of
from controller.scheduling.serving.room import priority_of
from controller.scheduling.serving.scheduler import Scheduler
from controller.scheduling.serving.view import ClusterView
from controller.scheduling.settings import SchedulerSettings
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.serving.conftest import Cluster, Play
from tests.waiting import until

Places = dict[str, tuple[str | None, DeviceShares]]


def one_by_one(nodes: tuple[Node, ...], pods: tuple[Pod, ...], groups: tuple[PodGroup, ...]) -> Places:
    """Return the nodes of pods decided one by one, each after the results of those before."""
    view, revisions = ClusterView(), count(1_000_000)
    view.take_all(Node, nodes)
    view.take_all(Pod, pods)
    view.take_all(PodGroup, groups)
    subjects = {pod.spec.group or pod.metadata.name: pod for pod in pods}
    order = sorted(subjects.items(), key=lambda entry: (-priority_of(view, entry[1]), entry[1].metadata.created_ns))
    profiles = PodProfile.by_name(SchedulerSettings().profiles)
    for name, pod in order:
        waiting = (pod,) if pod.spec.group is None else view.members(name)
        knowledge = Knowledge(view, profiles, None)
        outcome = outcome_of(name, waiting, knowledge, 16)
        if not outcome.shares:
            continue
        what = "pod" if pod.spec.group is None else "group"
        spec = spec_of(what, name, outcome, knowledge, scheduler="plain", begun_ns=0, now_ns=0)
        request = request_of(outcome, NewDecision(name="d", spec=spec), profiles[pod.spec.profile], knowledge, {})
        state = State({member.metadata.name: member for member in waiting}, dict(view.nodes), dict(view.groups))
        made, revision = bind(state, request, 0), next(revisions)
        for resource in (*made.pods.values(), *made.nodes.values(), *made.groups.values()):
            assert resource is not None
            assert view.take(replace(resource, metadata=replace(resource.metadata, revision=revision)))
    return {name: (pod.status.node, pod.status.devices) for name, pod in view.pods.items()}


async def fill(cluster: Cluster, rng: random.Random) -> None:
    """Create nodes with and without GPUs and more pods than fit: several priorities and sizes, some in a group."""
    for number in range(8):
        await cluster.add_node(f"h{number}", cores=8, gpus=("T4",) * (number % 4))
    for name, priority in (("g", 1), ("h", 2)):
        # With their own priorities: otherwise their place depends on which list, pods or groups, comes first.
        group = PodGroup(metadata=Metadata(name=name), spec=PodGroupSpec(size=4, priority=priority))
        await cluster.client.of(PodGroup).create(group)
    for number in range(70):
        gpu = DeviceNeed(kind=DeviceKind.GPU, thousandths=rng.choice((250, 500, 1000)))
        spec = PodSpec(
            containers=(Container(name="c", image="image"),),
            request=Request(cpu_milli=rng.choice((250, 500, 1500)), devices=(gpu,) * rng.choice((0, 0, 1))),
            priority=rng.choice((0, 0, 3)),
            group={10: "g", 20: "g", 30: "g", 40: "g", 50: "h", 51: "h", 52: "h", 53: "h"}.get(number),
            location=Location(node="h3") if number % 17 == 16 else None,
        )
        await cluster.client.of(Pod).create(Pod(metadata=Metadata(name=f"p{number}"), spec=spec))


@pytest.mark.parametrize("most", [1, 32])
def test_batches_decide_as_one_by_one(play: Play, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(binding, "MOST_BINDINGS", most)

    async def act(cluster: Cluster) -> None:
        await fill(cluster, random.Random(3))
        nodes, pods = await cluster.client.of(Node).list(), await cluster.client.of(Pod).list()
        groups = await cluster.client.of(PodGroup).list()
        expected = one_by_one(nodes.items, pods.items, groups.items)
        async with cluster.scheduling():
            scheduled = await cluster.pods_when(
                lambda pods: all(pod.status.node or pod.status.reasons for pod in pods.values())
            )
        assert {name: (pod.status.node, pod.status.devices) for name, pod in scheduled.items()} == expected
        assert 40 < sum(where is not None for where, _ in expected.values()) < 70

    play(act)


async def _is_behind(cluster: Cluster, scheduler: Scheduler) -> bool:
    """Return whether the scheduler's watch lags behind its bindings."""
    nodes = (await cluster.client.of(Node).list()).items
    return any(scheduler.view.nodes[node.metadata.name].metadata.revision < node.metadata.revision for node in nodes)


def test_refused_binding_is_retried_and_the_batch_kept(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        for number in range(4):
            await cluster.add_node(f"h{number}", cores=16)
        async with cluster.scheduling() as scheduler:
            await cluster.add_pod("first")
            await cluster.pods_when(lambda pods: all(pod.status.node for pod in pods.values()))

            async def is_idle() -> bool:
                return len(scheduler.queue) == 0 and not await _is_behind(cluster, scheduler)

            await until(is_idle, "the scheduler does not catch up", poll_s=0.01)
            # As if the watch of one node were late: its version is not the one the scheduler assumes.
            late = [
                replace(node, shares_version=9, metadata=replace(node.metadata, revision=1)) if name == "h1" else node
                for name, node in scheduler.view.nodes.items()
            ]
            scheduler.view.take_all(Node, late)
            await asyncio.gather(*(cluster.add_pod(f"p{number}") for number in range(20)))
            pods = await cluster.pods_when(lambda pods: len(pods) == 21 and all(p.status.node for p in pods.values()))
            assert {pod.status.epoch for pod in pods.values()} == {1}
            assert "h1" in {pod.status.node for pod in pods.values()}
            assert scheduler.view.nodes["h1"].shares_version < 9
            # Our watch may be ahead of the answer to the scheduler.
            await until(lambda: len(scheduler.queue) == 0, "the queue does not become empty")
            nodes = (await cluster.client.of(Node).list()).items
            assert sum(len(node.shares) for node in nodes) == 21

    play(act)
