"""The manager over a real API server and an in-memory runtime."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.pod import Container, Phase, PodSpec, Restart
from controller.common.errors import ForbiddenError, StaleError
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.machine import machine_of
from controller.workloads.nodes.process import serve
from controller.workloads.nodes.runtimes.base import ContainerOrder
from controller.workloads.nodes.serving.dismissals import Dismissal, Dismissals
from controller.workloads.nodes.settings import IdleSection, OnStop
from dataplane.cgroups import Usage
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from dataplane.topology.values import DeviceKind
from tests.collectors.devices.machines import PCI, SERVER, SERVER_LINKS
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.node_world import World, play
from tests.recorded import write_tree
from tests.waiting import until


def test_a_pod_that_is_bound_runs_and_one_that_is_deleted_goes(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("a", containers=(Container(name="x", image="i", environment={"K": "v"}),))
            running = await world.in_phase("a", Phase.RUNNING)
            status = running.status.containers[0]
            assert (status.name, status.state, status.restarts, status.image_digest) == ("x", "running", 0, "sha256:i")
            assert running.status.started_ns is not None
            order = runtime.orders[status.runtime_id]
            assert order.environment["MILLRACE_NODE"] == "h1"
            assert order.environment["K"] == "v"
            assert order.labels["millrace.epoch"] == "1"
            await world.client.of(Pod).delete("a")
            await world.until_gone("a")
            await world.until(lambda: _holds(not runtime.containers))
            assert runtime.calls == [("create", "a"), ("start", "a"), ("stop", "a"), ("remove", "a")]
            assert (await world.client.of(Node).get("h1")).shares == ()

    play(tmp_path, act)


def test_secrets_come_from_the_node_alone(tmp_path: Path) -> None:
    runtime, folder = MemoryRuntime(), tmp_path / "secrets"
    (folder / "vision").mkdir(parents=True)
    for path in (folder, folder / "vision"):
        path.chmod(0o700)

    async def act(world: World) -> None:
        async with world.managing(runtime, world.settings(secrets=str(folder))):
            container = Container(name="x", image="i", secrets={"KEY": "api-key"})
            spec = PodSpec(containers=(container,))
            await world.client.of(Pod).create(Pod(metadata=Metadata(name="a", project="vision"), spec=spec))
            await world.rebind("a")
            line = "secret api-key of project vision: no such file or directory"
            await world.pod_when("a", lambda pod: line in str(pod.status))
            (folder / "vision" / "api-key").write_text("hidden\n")
            (folder / "vision" / "api-key").chmod(0o600)
            running = await world.in_phase("a", Phase.RUNNING)
            assert runtime.orders[running.status.containers[0].runtime_id].environment["KEY"] == "hidden"
            assert "hidden" not in str((await world.client.of(Pod).list()).items)

    play(tmp_path, act)


def test_node_is_created_with_its_hardware_and_reports(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def act(world: World) -> None:
        async with world.managing(MemoryRuntime()):
            await world.until(lambda: _has_images(world))
            node = await world.client.of(Node).get("h1")
            assert node.hardware is not None
            assert node.hardware.cpu_milli > 0
            assert node.status.runtime == "memory 1"
            assert node.status.heartbeat_ns is not None
            assert node.status.load is not None
            assert node.status.images[0].digest == "sha256:image"
            with open_nvml() as nvml:
                found = machine_of(world.settings(), nvml)
            assert node.status.notes == found.notes
        nowhere = world.settings(network_namespace="nowhere")
        problem = "network counters: network namespace /run/netns/nowhere: No such file or directory"
        async with world.managing(MemoryRuntime(), nowhere, ready=False):

            async def is_told() -> bool:
                return (await world.client.of(Node).get("h1")).status.notes == (*found.notes, problem)

            await world.until(is_told)
        assert caplog.messages.count(problem) == 1

    play(tmp_path, act)


def test_pod_of_a_device_that_disappears_is_given_back(tmp_path: Path) -> None:
    root, runtime = Root(write_tree(tmp_path / "machine", SERVER, SERVER_LINKS)), MemoryRuntime()
    address, number, need = "0000:81:00.0", 1, Request(devices=(DeviceNeed(kind=DeviceKind.GPU),))

    async def act(world: World) -> None:
        settings = world.settings(devices={number: ("/dev/null",), 0: ("/dev/null",)})
        async with world.managing(runtime, settings, root=root):
            await world.bind("a", devices=(number,), request=need)
            await world.bind("b", devices=(0,), request=need)
            await world.in_phase("a", Phase.RUNNING)
            await world.in_phase("b", Phase.RUNNING)
            shutil.rmtree(root.path / PCI / address)
            pod = await world.in_phase("a", Phase.PENDING)
            gone = f"device {number} of node h1 is gone: {address}: it is not on its bus any more"
            assert pod.status.reasons == (gone,)

            async def is_reported() -> bool:
                hardware = (await world.client.of(Node).get("h1")).hardware
                return hardware is not None and [device.number for device in hardware.devices if device.gone] == [
                    number
                ]

            await until(is_reported, "the node's report has all devices")
            node = await world.client.of(Node).get("h1")
            assert f"device {number} is gone: {address}: it is not on its bus any more" in node.status.notes
            with pytest.raises(StaleError, match="Pod a requests 1 gpu, which its binding lacks"):
                await world.rebind("a", devices=(number,))
            assert (await world.pod("b")).status.phase is Phase.RUNNING

    play(tmp_path, act)


def test_ended_container_is_recreated_and_counted(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("a")
            await world.in_phase("a", Phase.RUNNING)
            for number in (1, 2):
                runtime.end(runtime.running("a")[0], 3)
                restarted = await world.pod_when("a", lambda pod, n=number: _restarts(pod) == n)  # type: ignore[misc]
                await world.in_phase("a", Phase.RUNNING)
            assert restarted.status.epoch == 1

    play(tmp_path, act)


def test_a_pod_that_has_done_its_work_is_released(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("good", restart=Restart.ON_FAILURE)
            await world.bind("bad", restart=Restart.NEVER)
            for name in ("good", "bad"):
                await world.in_phase(name, Phase.RUNNING)
            runtime.end(runtime.running("good")[0], 0)
            runtime.end(runtime.running("bad")[0], 9)
            good = await world.in_phase("good", Phase.SUCCEEDED)
            bad = await world.in_phase("bad", Phase.FAILED)
            assert good.status.containers[0].exit_code == 0
            assert bad.status.containers[0].exit_code == 9
            assert bad.status.reasons == ("main: ended with 9",)
            await world.until(lambda: _holds(not runtime.containers))

    play(tmp_path, act)


def test_missing_image_is_reported_and_retried(tmp_path: Path) -> None:
    runtime = MemoryRuntime()
    runtime.absent.add("none")

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("a", image="none")
            await world.bind("once", image="none", restart=Restart.NEVER)
            waiting = await world.pod_when("a", lambda pod: bool(pod.status.reasons))
            assert waiting.status.phase is Phase.STARTING
            assert waiting.status.reasons == ("main: image none is not there",)
            failed = await world.in_phase("once", Phase.FAILED)
            assert failed.status.reasons == ("main: image none is not there",)
            runtime.absent.clear()
            assert (await world.in_phase("a", Phase.RUNNING)).status.reasons == ()

    play(tmp_path, act)


TWO_GPUS = """\
millrace: 1
name: one
switches: [{name: s1}]
hosts:
- {name: h1, switch: s1, cores: 4, devices: [{kind: gpu, count: 2}]}
"""


def test_missing_device_is_reported(tmp_path: Path) -> None:
    topology = tmp_path / "one.yaml"
    topology.write_text(TWO_GPUS)
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        settings = world.settings(topology=str(topology), devices={0: ("/dev/null",)})
        async with world.managing(runtime, settings):
            request = {"devices": [{"kind": "gpu"}]}
            for number, name in enumerate(("a", "b")):
                await world.bind(name, devices=(number,), request=_request(request))
                await world.in_phase(name, Phase.RUNNING)
            orders = {order.labels["millrace.pod"]: order for order in runtime.orders.values()}
            assert orders["a"].devices == ("/dev/null",)
            assert (orders["b"].devices, orders["b"].environment["MILLRACE_DEVICES"]) == ((), "1")
        with pytest.raises(NodeError, match="devices: 7: this node has no device of that number"):
            async with world.managing(runtime, world.settings(devices={7: ("/dev/null",)})) as manager:
                await manager  # a report of the one before may have arrived last, and have ended the wait

    play(tmp_path, act)


def test_runtime_hanging_for_one_pod_does_not_block_others(tmp_path: Path) -> None:
    runtime = MemoryRuntime()
    runtime.hangs.add("slow")
    runtime.deadline_s = 30.0

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("slow")
            for name in ("a", "b", "c"):
                await world.bind(name)
            for name in ("a", "b", "c"):
                await world.in_phase(name, Phase.RUNNING)
            await world.client.of(Pod).delete("slow")  # the start is abandoned
            await world.until_gone("slow")

    play(tmp_path, act)


def test_silent_runtime_makes_the_node_not_ready(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        async with world.managing(runtime):
            runtime.hangs.add("list")
            await world.bind("a")

            async def is_away() -> bool:
                return not await world.is_ready()

            await world.until(is_away)
            reason = (await world.client.of(Node).get("h1")).status.reason
            assert reason == "memory: list: no answer within 0.05 s"
            runtime.hangs.clear()
            await world.in_phase("a", Phase.RUNNING)
            await world.until(world.is_ready)

    play(tmp_path, act)


def test_restarted_manager_adopts_running_containers(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        async with world.managing(runtime):
            for name in ("a", "b"):
                await world.bind(name)
                await world.in_phase(name, Phase.RUNNING)
        before, calls = dict(runtime.containers), list(runtime.calls)
        async with world.managing(runtime):
            await world.bind("c")
            await world.in_phase("c", Phase.RUNNING)
        assert {key: runtime.containers[key] for key in before} == before
        assert runtime.calls == [*calls, ("create", "c"), ("start", "c")]

    play(tmp_path, act)


def test_unwanted_containers_go_before_a_node_is_ready(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("a")
            await world.in_phase("a", Phase.RUNNING)
        # While no manager runs, the pod is returned and bound here again.
        await world.client.release(ReleaseRequest(releases=(Release(pod="a", epoch=1),)))
        labels = {**next(iter(runtime.containers.values())).labels, "millrace.pod": "b", "millrace.uid": "none"}
        stranger = await runtime.create(ContainerOrder(name="stranger", labels=labels, image="i"))
        await runtime.start_container(stranger)
        await world.rebind("a")
        async with world.managing(runtime):
            assert stranger not in runtime.containers
            assert not runtime.running("b")
            running = await world.in_phase("a", Phase.RUNNING)
            assert running.status.epoch == 2
            assert [container.labels["millrace.epoch"] for container in runtime.containers.values()] == ["2"]

    play(tmp_path, act)


def test_containers_of_another_manager_are_left_alone(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        labels = {"millrace.node": "h1", "millrace.manager": "another", "millrace.pod": "a", "millrace.uid": "u"}
        other = await runtime.create(ContainerOrder(name="other", labels=labels, image="i"))
        async with world.managing(runtime):
            await world.bind("a")
            await world.in_phase("a", Phase.RUNNING)
            assert other in runtime.containers

    play(tmp_path, act)


def test_second_manager_or_foreign_state_folder_is_refused(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        async with world.managing(MemoryRuntime()):
            with pytest.raises(NodeError, match=r"state: folder .*: a manager already runs there \(process \d+\)"):
                # Not until the node is ready: the first manager's next report would make it so.
                async with world.managing(MemoryRuntime(), ready=False) as second:
                    await second
        with pytest.raises(NodeError, match="belongs to node h1, not to h2"):
            async with world.managing(MemoryRuntime(), replace(world.settings(), node="h2")):
                pass

    play(tmp_path, act)


def test_second_state_folder_waits_for_the_first_lease_to_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runtime, other = MemoryRuntime(), MemoryRuntime()

    async def act(world: World) -> None:
        await world.make_node(lease_s=1.0)
        second = world.settings(state=str(tmp_path / "another"))
        async with world.managing(runtime):
            await world.bind("a")
            await world.in_phase("a", Phase.RUNNING)
            task = asyncio.create_task(serve(second, asyncio.Event(), runtime=other))
            await world.until(lambda: _holds("Node h1 has a manager, of state folder " in caplog.text), task)
            await world.bind("b")
            await world.in_phase("b", Phase.RUNNING)
            first = await _manager(world)
        assert not other.calls
        known_ns = await world.heartbeat_ns("h1")
        try:
            await world.until(lambda: _holds(bool(other.running("a") and other.running("b"))), task)
            node = await world.client.of(Node).get("h1")
            assert node.status.manager != first
            assert (node.status.heartbeat_ns or 0) >= known_ns + 1_000_000_000
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    play(tmp_path, act)


def test_manager_that_signed_off_cleanly_is_succeeded_at_once(tmp_path: Path) -> None:
    runtime, other = MemoryRuntime(), MemoryRuntime()

    async def act(world: World) -> None:
        await world.make_node(lease_s=100_000.0)
        stop = asyncio.Event()
        task = asyncio.create_task(serve(world.settings(on_stop=OnStop.STOP), stop, runtime=runtime))
        await world.until(world.is_ready, task)
        await world.bind("a")
        await world.in_phase("a", Phase.RUNNING)
        stop.set()
        await task
        before = await _manager(world)
        async with world.managing(other, world.settings(state=str(tmp_path / "another"))):
            assert await _manager(world) != before
            await world.rebind("a")
            await world.in_phase("a", Phase.RUNNING)
            assert other.running("a")
        (tmp_path / "another" / "lease").unlink()  # which ends the guard

    play(tmp_path, act)


def test_a_token_of_another_node_ends_the_manager_with_a_line(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        made = await world.served.client_of(Role.NODE, "h2")
        token = tmp_path / "token"
        token.write_text(f"{made.place.token}\n")
        token.chmod(0o600)
        await made.close()
        settings = replace(world.settings(token_file=str(token)), api=world.served.url)
        with pytest.raises(ForbiddenError, match=r"h2 \(node h2\) may not"):
            async with world.managing(MemoryRuntime(), settings):
                pass

    play(tmp_path, act)


def test_its_own_token_is_enough(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        made = await world.served.client_of(Role.NODE, "h1")
        token = tmp_path / "token"
        token.write_text(f"{made.place.token}\n")
        token.chmod(0o600)
        await made.close()
        settings = replace(world.settings(token_file=str(token)), api=world.served.url)
        async with world.managing(runtime, settings):
            await world.bind("a", restart=Restart.NEVER)
            await world.in_phase("a", Phase.RUNNING)
            runtime.end(runtime.running("a")[0], 0)
            await world.in_phase("a", Phase.SUCCEEDED)

    play(tmp_path, act)


class IdleRuntime(MemoryRuntime):
    """A runtime in which pod `busy` computes whenever its usage is read, and the stop of pod `slow` hangs."""

    async def start_container(self, id: str) -> None:  # noqa: A002
        await super().start_container(id)
        if self._pod(id) == "slow":
            self.hangs.add("slow")

    async def usage(self, id: str) -> Usage:  # noqa: A002
        if self._pod(id) == "busy":
            self.cpu_ns["busy"] = self.cpu_ns.get("busy", 0) + 10**12
        return await super().usage(id)


def test_an_idle_pod_is_released_and_a_busy_one_stays(tmp_path: Path) -> None:
    """By its own limit or the node's; a pod whose device does not report its use stays, as one that objects."""
    runtime = IdleRuntime()
    topology = tmp_path / "one.yaml"
    topology.write_text(TWO_GPUS)
    gpu = _request({"devices": [{"kind": "gpu"}]})

    async def act(world: World) -> None:
        idle = IdleSection(limit_s=0.2)
        settings = world.settings(topology=str(topology), devices={1: ("/dev/null",)}, idle=idle)
        async with world.managing(runtime, settings):
            await world.bind("stays", idle_limit_s="never")
            await world.bind("holds", devices=(1,), request=gpu)
            await world.bind("busy", idle_limit_s=0.2)
            # Device 0 has no files: it is only allocated, and computes for nobody.
            await world.bind("lazy", idle_limit_s=0.3)
            await world.bind("forgotten", devices=(0,), request=gpu)
            for name in ("lazy", "forgotten"):
                lazy = await world.in_phase(name, Phase.SUCCEEDED)
                assert lazy.status.reasons[0].startswith("idle for ")
            for name in ("stays", "holds", "busy"):
                assert (await world.pod(name)).status.node == "h1"
            notes = (await world.client.of(Node).get("h1")).status.notes
            assert "device 1 does not report its use: pods that hold it never count as idle" in notes

    play(tmp_path, act)


@pytest.mark.parametrize("ends", ["not", "killed", "stopped with its pods"])
def test_idle_pod_with_a_slow_stop_has_succeeded_too(tmp_path: Path, ends: str) -> None:
    """Neither its own report of stopping, a successor nor its own end gives the pod another start."""
    runtime = IdleRuntime()

    async def act(world: World) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(serve(world.settings(on_stop=OnStop.STOP), stop, runtime=runtime))
        await world.until(world.is_ready, task)
        await world.bind("slow", idle_limit_s=0.2)
        await world.in_phase("slow", Phase.STOPPING)
        if ends == "killed":
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif ends == "stopped with its pods":
            stop.set()
        runtime.hangs.clear()
        async with world.managing(runtime) if ends == "killed" else nullcontext():
            pod = await world.pod_when("slow", lambda pod: pod.status.node is None)
        stop.set()
        await asyncio.gather(task, return_exceptions=True)
        assert pod.status.phase is Phase.SUCCEEDED
        assert pod.status.reasons[0].startswith("idle for ")
        assert runtime.calls.count(("start", "slow")) == 1

    play(tmp_path, act)


def test_final_dismissals_are_kept_and_damage_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "dismissed.json"
    order = Dismissal("uid", 1, Phase.FAILED, "full", grace_ns=5)
    Dismissals(file).add(order)
    kept = Dismissals(file)
    kept.add(Dismissal("uid", 1, Phase.PENDING, "leaves", grace_ns=3))
    kept.add(Dismissal("other", 1, Phase.PENDING, "leaves"))
    assert kept.of("uid", 1) == replace(order, grace_ns=3)
    assert Dismissals(file).of("uid", 1) == replace(order, grace_ns=3)
    assert Dismissals(file).of("other", 1) is None
    kept.keep({"uid": 2, "other": 1})
    assert Dismissals(file).of("uid", 1) is None
    assert not caplog.messages
    for damaged in (b"[{", b"\xff", b'[{"uid": 1}]'):
        file.write_bytes(damaged)
        assert Dismissals(file).of("uid", 1) is None
        assert caplog.messages.pop().startswith(f"{file}: not read, pods that were dismissed before may run again: ")


def test_the_lease_ends_everything_and_after_it_all_begins_again(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def main() -> None:
        (tmp_path / "api").mkdir()
        settings = settings_in(tmp_path / "api")
        async with local_timeout(60, "a test"):
            async with serving(settings, tmp_path / "api") as served:
                world = World(tmp_path, served)
                await world.make_node(lease_s=1.0)
                manager = world.managing(runtime)
                await manager.__aenter__()
                await world.bind("a", restart=Restart.NEVER)
                await world.in_phase("a", Phase.RUNNING)
                first = runtime.running("a")
            try:
                await until(lambda: not runtime.running("a"), "the pod outlives the lease")
                async with serving(settings, tmp_path / "api") as served:
                    world = World(tmp_path, served)
                    restarted = await world.pod_when("a", lambda pod: _restarts(pod) == 1)
                    assert restarted.status.epoch == 1
                    assert runtime.running("a") != first
                    await world.until(world.is_ready)
            finally:
                await manager.__aexit__(None, None, None)

    asyncio.run(main())


def test_stopping_manager_reports_and_keeps_or_stops_pods(tmp_path: Path) -> None:
    runtime = MemoryRuntime()

    async def stopped(world: World, how: OnStop) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(serve(world.settings(on_stop=how), stop, runtime=runtime))
        before = await world.heartbeat_ns("h1")
        await world.until(lambda: world.is_ready(after_ns=before), task)
        stop.set()
        await task

    async def act(world: World) -> None:
        async with world.managing(runtime):
            await world.bind("a")
            await world.in_phase("a", Phase.RUNNING)
        await stopped(world, OnStop.KEEP)
        assert runtime.running("a")
        node = await world.client.of(Node).get("h1")
        assert (node.status.ready, node.status.reason) == (False, "its manager has stopped")
        await stopped(world, OnStop.STOP)
        assert not runtime.containers
        released = await world.pod("a")
        assert (released.status.phase, released.status.node) == (Phase.PENDING, None)
        assert released.status.reasons == ("node h1 has signed off",)

    play(tmp_path, act)


async def _manager(world: World) -> str:
    return (await world.client.of(Node).get("h1")).status.manager


async def _holds(what: bool) -> bool:
    return what


async def _has_images(world: World) -> bool:
    return bool((await world.client.of(Node).get("h1")).status.images)


def _restarts(pod: Pod) -> int:
    return pod.status.containers[0].restarts if pod.status.containers and pod.status.phase is Phase.RUNNING else 0


def _request(raw: object) -> Request:
    return msgspec.convert(raw, Request)
