"""The workload controller over a real API server."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import GroupPhase
from controller.workloads.placement.settings import PlacementSettings, RetrySettings, SilenceSettings
from tests.controller.workloads.placement.serving_placement import TEMPLATE, Cluster, group_of, play

QUICK = PlacementSettings(silence=SilenceSettings(margin_s=0.2), retries=RetrySettings(most=1, first_wait_s=0.1))


def names(count: int, group: str = "g") -> set[str]:
    return {f"{group}-{index}" for index in range(count)}


def test_group_becomes_pods_that_follow_its_size_and_end(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        groups = cluster.client.of(PodGroup)
        async with cluster.controlled(), cluster.controlled():  # two of them do no harm
            made = await groups.create(group_of("g", 3))
            pods = await cluster.pods_when(lambda pods: set(pods) == names(3))
            assert pods["g-1"].spec.containers[0].environment == {
                "MILLRACE_GROUP": "g",
                "MILLRACE_INDEX": "1",
                "MILLRACE_SIZE": "3",
            }
            await groups.replace(replace(made, spec=replace(made.spec, size=5)))
            await cluster.pods_when(lambda pods: set(pods) == names(5))
            current = await groups.get("g")
            await groups.replace(replace(current, spec=replace(current.spec, size=2)))
            await cluster.pods_when(lambda pods: set(pods) == names(2))
            await cluster.client.of(Pod).delete("g-0")
            await cluster.pods_when(lambda pods: set(pods) == names(2) and pods["g-0"].metadata.uid != "")
            await groups.delete("g")
            await cluster.pods_when(lambda pods: not pods)

    play(act, tmp_path)


def test_pods_of_a_silent_node_are_released_and_others_stay(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", lease_s=0.3)
        await cluster.add_node("h2")
        for name, node in (("a", "h1"), ("b", "h2")):
            await cluster.client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=TEMPLATE))
            await cluster.bind({name: node})
        async with cluster.controlled(QUICK):
            pods = await cluster.pods_when(lambda pods: pods["a"].status.node is None)
            assert (pods["a"].status.phase, pods["a"].status.epoch) == (Phase.PENDING, 1)
            assert "node h1 is silent for" in pods["a"].status.reasons[0]
            assert (await cluster.client.of(Pod).get("b")).status.node == "h2"
            current = await cluster.client.of(Node).get("h1")
            assert (current.status.ready, current.shares) == (False, ())
            assert current.status.reason.startswith("silent: no report for")

    play(act, tmp_path)


def test_a_group_that_is_not_placed_in_time_has_failed(tmp_path: Path) -> None:
    async def act(cluster: Cluster) -> None:
        async with cluster.controlled(QUICK):
            await cluster.client.of(PodGroup).create(group_of("g", 2, wait_s=0.3))
            groups = await cluster.groups_when(lambda all_: all_["g"].status.phase is GroupPhase.FAILED)
            assert groups["g"].status.reasons[0] == "it was not placed within 0.3 s"
            pods = await cluster.pods_when(lambda pods: {pod.status.phase for pod in pods.values()} == {Phase.FAILED})
            assert pods["g-0"].status.reasons == ("its group g has failed", "it was not placed within 0.3 s")

    play(act, tmp_path)
