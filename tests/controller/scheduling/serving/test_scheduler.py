"""The scheduler on a running API server: placement, reasons, conflicts, groups, profiles."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Decision, Metadata, Node, Pod, PodGroup, Project
from controller.apiserver.resources.decision import Outcome
from controller.apiserver.resources.hardware import DeviceNeed, Load, Request
from controller.apiserver.resources.node import DeviceLoad, NodeSpec
from controller.apiserver.resources.pod import Container, Location, PeerNeed, Phase, PodSpec
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.apiserver.resources.project import ProjectSpec
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import PodProfileSettings
from controller.scheduling.process import reload_of, serve
from controller.scheduling.settings import MetricsSettings, QueueSettings, SchedulerSettings
from dataplane.clock import MonotonicClock
from dataplane.daemon import Lifecycle
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.serving.conftest import QUICK, Cluster, Play
from tests.waiting import until

GPU = DeviceNeed(kind=DeviceKind.GPU)
SPREAD = PodProfileSettings(name="spread", scores=(PolicySettings(policy="least-used"),))


def placed(pods: dict[str, Pod]) -> bool:
    return bool(pods) and all(pod.status.node is not None for pod in pods.values())


async def check_books(cluster: Cluster) -> None:
    """Check that each bound pod holds its request once on its node, and that there are no other shares."""
    nodes = (await cluster.client.of(Node).list()).items
    pods = {pod.metadata.name: pod for pod in (await cluster.client.of(Pod).list()).items}
    shares = Counter((share.pod, node.metadata.name, share.epoch) for node in nodes for share in node.shares)
    bound = {(name, pod.status.node, pod.status.epoch) for name, pod in pods.items() if pod.status.node is not None}
    assert shares == Counter(bound)
    for node in nodes:
        assert node.value is not None
        node.value.check(node.held)
        assert node.held.cpu_milli == sum(pods[share.pod].spec.request.cpu_milli for share in node.shares)


def test_pods_are_placed_and_decisions_have_reasons(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1")
        await cluster.add_node("h2", gpus=("T4",))
        await cluster.add_pod("before")
        async with cluster.scheduling() as scheduler:
            need = Request(cpu_milli=1000, devices=(DeviceNeed(kind=DeviceKind.GPU, thousandths=250),))
            pod = await cluster.add_pod("gpu")
            await cluster.client.of(Pod).delete("gpu", expected=None)
            await cluster.client.of(Pod).create(
                Pod(metadata=Metadata(name="needs-gpu"), spec=replace(pod.spec, request=need))
            )
            pods = await cluster.pods_when(lambda pods: placed(pods) and {"before", "needs-gpu"} <= pods.keys())
            assert pods["needs-gpu"].status.node == "h2"
            assert pods["needs-gpu"].status.devices[0].thousandths == 250
            decision = await cluster.client.of(Decision).get(str(pods["needs-gpu"].status.decision))
            assert [(refusal.reason, refusal.nodes, refusal.policy) for refusal in decision.spec.refused] == [
                ("it has 0 of 1 gpu", ("h1",), "device-model")
            ]
            assert decision.spec.scores[0].node == "h2"
            assert "least-used: " in " ".join(decision.spec.scores[0].reasons)
            assert decision.spec.reason.startswith("h2: ")
            # The queue is empty once the answer to the last binding has been read.
            await until(lambda: len(scheduler.queue) == 0, "the queue does not become empty")
        await check_books(cluster)

    play(act)


def test_projects_take_turns(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=4)
        await cluster.client.of(Project).create(Project(metadata=Metadata(name="b"), spec=ProjectSpec(weight=2.9)))
        async with cluster.scheduling():
            for project, count in (("a", 8), ("b", 6)):
                for number in range(count):
                    spec = PodSpec(containers=(Container(name="m", image="i"),), request=Request(cpu_milli=1000))
                    metadata = Metadata(name=f"{project}{number}", project=project)
                    await cluster.client.of(Pod).create(Pod(metadata=metadata, spec=spec))
                await cluster.pods_when(lambda pods: sum(pod.status.node is not None for pod in pods.values()) == 4)
            for ended, follows in (("a0", "b0"), ("a1", "b1"), ("a2", "b2"), ("b0", "b3"), ("a3", "a4"), ("b1", "b4")):
                await cluster.client.release(ReleaseRequest(releases=(Release(pod=ended, phase=Phase.SUCCEEDED),)))
                await cluster.pods_when(lambda pods, name=follows: pods[name].status.node == "h1")  # type: ignore[misc]

    play(act)


def test_refused_pod_is_placed_once_there_is_room(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=1)
        async with cluster.scheduling():
            await cluster.add_pod("first")
            await cluster.pods_when(placed)
            await cluster.add_pod("second")
            why = await cluster.decision_about("second", Outcome.REFUSED)
            assert why.spec.reason == "none of 1 nodes: 1 by fits (cpu: 1000 thousandths of cores wanted, 0 free)"
            assert why.spec.refused[0].reason == "cpu: 1000 thousandths of cores wanted, 0 free"
            await cluster.client.release(ReleaseRequest(releases=(Release(pod="first", phase=Phase.SUCCEEDED),)))
            await cluster.pods_when(lambda pods: pods["second"].status.node == "h1")
        await check_books(cluster)

    play(act)


def test_pods_that_wait_say_why(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=1)
        await cluster.client.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=2)))
        patient = SchedulerSettings(queue=replace(QUICK, longest_wait_ns=3600 * 10**9))
        async with cluster.scheduling(patient) as scheduler:
            for name, more in (("big", {"cores": 2}), ("g0", {"group": "g"}), ("g1", {"group": "g"})):
                await cluster.add_pod(name, **more)
            waiting = await cluster.pods_when(
                lambda pods: len(pods) == 3 and all(p.status.reasons for p in pods.values())
            )
            reason = "none of 1 nodes: 1 by fits (cpu: 2000 thousandths of cores wanted, 1000 free)"
            assert waiting["big"].status.reasons == (reason,)
            assert "does not fit as a whole" in waiting["g1"].status.reasons[0]
            # Own writes wake no pod, and an unchanged outcome is not written again.
            due_ns = scheduler.queue.next_due_ns()
            assert due_ns is not None
            assert due_ns > MonotonicClock().now_ns()
            scheduler.queue.wake(MonotonicClock().now_ns())
            await cluster.add_pod("last", node_labels={"zone": "a"})
            pods = await cluster.pods_when(lambda pods: "last" in pods and bool(pods["last"].status.reasons))
            assert all(pods[name].metadata.revision == pod.metadata.revision for name, pod in waiting.items())
            await cluster.add_node("h2", cores=4)
            placed_now = await cluster.pods_when(lambda pods: all(pods[name].status.node for name in waiting))
            assert {placed_now[name].status.reasons for name in waiting} == {()}
        await check_books(cluster)

    play(act)


def test_a_node_that_takes_pods_again(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        node = await cluster.add_node("h1")
        closed = await cluster.client.of(Node).replace(replace(node, spec=NodeSpec(unschedulable=True)))
        async with cluster.scheduling():
            await cluster.add_pod("p")
            why = await cluster.decision_about("p", Outcome.REFUSED)
            assert why.spec.refused[0].reason == "it is not ready"
            await cluster.client.of(Node).replace(replace(closed, spec=NodeSpec()))
            await cluster.pods_when(placed)

    play(act)


def test_device_idle_again_wakes_pods_refused_for_its_load(play: Play) -> None:
    """Long before the longest wait ends."""

    async def act(cluster: Cluster) -> None:
        async def report(busy: float) -> None:
            node = await cluster.client.of(Node).get("h1")
            loads = (DeviceLoad(number=0, load=Load(busy=busy)),)
            await cluster.client.of(Node).replace_status(replace(node, status=replace(node.status, devices=loads)))

        await cluster.add_node("h1", gpus=("T4",))
        await report(1.0)
        queue = QueueSettings(first_wait_ns=1_000_000, longest_wait_ns=600_000_000_000)
        async with cluster.scheduling(SchedulerSettings(queue=queue)):
            spec = PodSpec(containers=(Container(name="c", image="image"),), request=Request(devices=(GPU,)))
            await cluster.client.of(Pod).create(Pod(metadata=Metadata(name="p"), spec=spec))
            await cluster.decision_about("p", Outcome.REFUSED, "device-threshold")
            await report(0.5)
            await cluster.pods_when(placed)

    play(act)


def test_two_schedulers_never_place_twice(play: Play) -> None:
    """Both see all pods and just enough cores: the later one decides again."""

    async def act(cluster: Cluster) -> None:
        for number in range(5):
            await cluster.add_node(f"h{number}", cores=8)
        async with cluster.scheduling() as first, cluster.scheduling() as other:
            for number in range(40):
                await cluster.add_pod(f"p{number}")
            pods = await cluster.pods_when(lambda pods: len(pods) == 40 and placed(pods))
            assert {pod.status.epoch for pod in pods.values()} == {1}
            decisions = (await cluster.client.of(Decision).list(fields="outcome=bound")).items
            assert Counter(decision.spec.subjects[0] for decision in decisions) == Counter(pods.keys())
            assert first is not other
        await check_books(cluster)

    play(act)


def test_a_stale_view_is_refused_and_read_again(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=1)
        await cluster.add_node("h2", cores=1)
        async with cluster.scheduling() as scheduler:
            await cluster.add_pod("first")
            await cluster.pods_when(placed)
            # As if the watch were late: both nodes look unbound.
            late = [
                replace(node, shares=(), shares_version=0, metadata=replace(node.metadata, revision=1))
                for node in scheduler.view.nodes.values()
            ]
            scheduler.view.take_all(Node, late)
            await cluster.add_pod("second")
            after = await cluster.pods_when(placed)
            assert {pod.status.node for pod in after.values()} == {"h1", "h2"}
        await check_books(cluster)

    play(act)


def test_a_group_is_placed_whole_or_not_at_all(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=2)
        await cluster.client.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=3)))
        async with cluster.scheduling():
            for number in range(3):
                await cluster.add_pod(f"g{number}", group="g")
            why = await cluster.decision_about("g0", Outcome.REFUSED)
            assert why.spec.reason.startswith("group g does not fit as a whole: g0: ")
            assert all(pod.status.node is None for pod in (await cluster.client.of(Pod).list()).items)
            await cluster.add_node("h2", cores=2)
            pods = await cluster.pods_when(placed)
            assert {pod.status.decision for pod in pods.values()} == {pods["g0"].status.decision}
            assert (await cluster.client.of(PodGroup).get("g")).status.bound == 3
        await check_books(cluster)

    play(act)


def test_location_and_network_demands_are_met(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1")
        await cluster.add_node("h2")
        async with cluster.scheduling():
            await cluster.add_pod("there", location=Location(node="h2"))
            await cluster.add_pod("labelled", node_labels={"zone": "a"})
            await cluster.add_pod("device", location=Location(device=1))
            await cluster.add_pod("near", peers=(PeerNeed(host="h1", min_bps=5),))
            names = ("labelled", "device", "near")
            reasons = {name: (await cluster.decision_about(name, Outcome.REFUSED)).spec for name in names}
            assert reasons["labelled"].refused[0].reason == "its label zone is unset, not a"
            assert reasons["device"].refused[0].reason == "it has 0 devices, no device 1"
            assert reasons["near"].refused[0].reason == "the network is unknown"
            pods = await cluster.pods_when(lambda pods: pods["there"].status.node is not None)
            assert pods["there"].status.node == "h2"

    play(act)


def test_profiles_of_others_are_left_alone_and_reload(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1")
        async with cluster.scheduling() as scheduler:
            await cluster.add_pod("other", profile="spread")
            await cluster.add_pod("ours")
            await cluster.pods_when(lambda pods: pods["ours"].status.node is not None)
            assert "pods of profile spread are left to another scheduler" in caplog.text

            def broken() -> SchedulerSettings:
                return SchedulerSettings(profiles=(PodProfileSettings(filters=(PolicySettings(policy="x"),)),))

            async def hang_up(read: Callable[[], SchedulerSettings]) -> None:
                before = SchedulerSettings(name="another")
                lifecycle = Lifecycle("scheduler", before, read, asyncio.Event(), print)
                lifecycle.reload(reload_of(scheduler))
                lifecycle.hang_up()
                await asyncio.sleep(0)
                await lifecycle.close()

            await hang_up(broken)
            assert "keeping the previous profiles: profile default: unknown policy 'x'" in caplog.text
            assert set(scheduler.profiles) == {"default", "accelerated"}
            scheduler.note_unreachable("waiting 0.1 s: nobody is there")
            scheduler.note_unreachable("waiting 0.2 s: nobody is there")
            assert caplog.text.count("nobody is there") == 1
            await hang_up(lambda: SchedulerSettings(profiles=(PodProfileSettings(), SPREAD)))
            assert "restart required for: name" in caplog.text
            await cluster.pods_when(placed)

    play(act)


def test_the_queue_is_bounded_and_nothing_is_forgotten(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=8)
        settings = SchedulerSettings(queue=replace(QUICK, most=2))
        for number in range(8):
            await cluster.add_pod(f"p{number}")
        async with cluster.scheduling(settings):
            await cluster.pods_when(placed)

    play(act)


def test_metrics_and_ready_line(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        lines = asyncio.Queue[str]()
        stop = asyncio.Event()
        settings = SchedulerSettings(api=cluster.socket, metrics=MetricsSettings(port=0))
        task = asyncio.create_task(serve(settings, stop, on_ready=lines.put_nowait))
        line = await lines.get()
        assert line.startswith(f"profiles default, accelerated, API at {cluster.socket}, metrics at http://127.0.0.1:")
        stop.set()
        await task

    play(act)
