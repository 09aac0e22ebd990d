"""Preemption on a running API server: victims, the nominated pod, and whole groups."""

from __future__ import annotations

from collections.abc import Callable

from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Decision, Metadata, Pod, PodGroup
from controller.apiserver.resources.decision import Outcome
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import GroupPhase, PodGroupSpec
from tests.controller.scheduling.serving.conftest import Cluster, Play, placed_name


def stopping(*names: str) -> Callable[[dict[str, Pod]], bool]:
    return lambda pods: all(name in pods and pods[name].status.phase is Phase.STOPPING for name in names)


async def stop(cluster: Cluster, *names: str) -> None:
    """Act as the node managers of stopping pods: release them as the eviction says."""
    pods = {name: await cluster.client.of(Pod).get(name) for name in names}
    releases = tuple(
        Release(pod=name, epoch=pod.status.epoch, phase=pod.status.then or Phase.FAILED) for name, pod in pods.items()
    )
    await cluster.client.release(ReleaseRequest(releases=releases))


def test_a_pod_of_a_higher_priority_gets_the_room_of_a_lower_one(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=2)
        async with cluster.scheduling():
            await cluster.add_pod("low", cores=1)
            await cluster.add_pod("middle", cores=1, priority=5)
            await cluster.pods_when(lambda pods: placed_name("low")(pods) and placed_name("middle")(pods))
            await cluster.add_pod("high", cores=1, priority=10)
            pods = await cluster.pods_when(
                lambda pods: stopping("low")(pods) and pods["high"].status.nominated is not None
            )
            assert pods["low"].status.then is Phase.PENDING
            assert pods["low"].status.reasons == ("room for pod high of priority 10",)
            assert pods["middle"].status.phase is Phase.BOUND
            assert pods["high"].status.nominated == "h1"
            why = await cluster.decision_about("high", Outcome.PREEMPTING)
            assert why.spec.preempted == ("low",)
            refused = "none of 1 nodes: 1 by fits (cpu: 1000 thousandths of cores wanted, 0 free)"
            assert why.spec.reason == f"{refused}; evicting pods of lower priority: low"
            assert why.spec.refused[0].reason == "cpu: 1000 thousandths of cores wanted, 0 free"
            await stop(cluster, "low")
            pods = await cluster.pods_when(placed_name("high"))
            assert pods["high"].status.nominated is None
            await cluster.decision_about("low", Outcome.REFUSED)
            decisions = (await cluster.client.of(Decision).list(fields="outcome=preempting")).items
            assert len(decisions) == 1, "one request at a time"

    play(act)


def test_room_that_is_promised_is_not_given_to_a_lower_one(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=2)
        async with cluster.scheduling() as scheduler:
            await cluster.add_pod("one", cores=1)
            await cluster.add_pod("two", cores=1)
            await cluster.pods_when(lambda pods: placed_name("one")(pods) and placed_name("two")(pods))
            await cluster.add_pod("high", cores=2, priority=10)
            await cluster.pods_when(stopping("one", "two"))
            await stop(cluster, "one")
            await cluster.add_pod("small", cores=1)
            why = await cluster.decision_about("small", Outcome.REFUSED)
            assert why.spec.refused[0].reason == "cpu: 1000 thousandths of cores wanted, 0 free"
            await stop(cluster, "two")
            pods = await cluster.pods_when(placed_name("high"))
            assert pods["small"].status.node is None
            for evicted in ("one", "two"):  # they are pending again and would compete with "small"
                await cluster.client.of(Pod).delete(evicted)
            await cluster.client.of(Pod).delete("high")
            await cluster.client.release(ReleaseRequest(releases=(Release(pod="high", epoch=1),)))
            await cluster.pods_when(placed_name("small"))
            assert not tuple(scheduler.view.nominated())

    play(act)


def test_a_group_goes_whole_and_waits_whole(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=1)
        await cluster.add_node("h2", cores=1)
        await cluster.client.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=2)))
        async with cluster.scheduling():
            await cluster.add_pod("g0", group="g")
            await cluster.add_pod("g1", group="g")
            await cluster.pods_when(lambda pods: placed_name("g0")(pods) and placed_name("g1")(pods))
            await cluster.add_pod("high", priority=10)
            await cluster.pods_when(stopping("g0", "g1"))
            status = (await cluster.client.of(PodGroup).get("g")).status
            assert (status.phase, status.bound) == (GroupPhase.PENDING, 0)
            await stop(cluster, "g0")
            await stop(cluster, "g1")
            pods = await cluster.pods_when(placed_name("high"))
            assert pods["g0"].status.node is None
            assert pods["g1"].status.node is None
            why = await cluster.decision_about("g0", Outcome.REFUSED)
            assert why.spec.reason.startswith("group g does not fit as a whole: ")
            await cluster.add_node("h3", cores=1)
            await cluster.pods_when(lambda pods: placed_name("g0")(pods) and placed_name("g1")(pods))

    play(act)


def test_no_victims_for_equal_priority_or_in_vain(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=1)
        async with cluster.scheduling():
            await cluster.add_pod("low", cores=1)
            await cluster.pods_when(placed_name("low"))
            await cluster.add_pod("same", cores=1)
            await cluster.add_pod("large", cores=9, priority=10)
            await cluster.decision_about("same", Outcome.REFUSED)
            await cluster.decision_about("large", Outcome.REFUSED)
            assert (await cluster.client.of(Pod).get("low")).status.phase is Phase.BOUND

    play(act)
