"""Polled queues of real processes, seen and driven through the API server and the node's manager."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apiserver.resources import Node
from controller.apiserver.resources.nic import NicMode, NicModeRequest, PolledQueue
from controller.apps.cli.app import app
from controller.common.errors import ForbiddenError, NotFoundError, StaleError
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.nic.server import NicServer
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, open_port
from dataplane.rpc.access import Role
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.nic.nic_world import polling, queues_when, section, serving, started
from tests.controller.workloads.nodes.node_world import World, play
from tests.network_namespace import network_namespace
from tests.waiting import until

PROGRAM = Path(__file__).parents[4] / "dataplane" / "programs" / "copies.json"
FRAME = b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5" + bytes(50)


@pytest.fixture
def namespace() -> Iterator[str]:
    with network_namespace(("a1", "b1")) as name:
        yield name


async def queues_of_node(world: World, count: int) -> tuple[PolledQueue, ...]:
    """Return the node's polled queues once it reports this many."""
    queues: tuple[PolledQueue, ...] = ()

    async def are_there() -> bool:
        nonlocal queues
        queues = (await world.client.of(Node).get("h1")).status.nic_queues
        return len(queues) == count

    await until(are_there, lambda: queues)
    return queues


@pytest.mark.root
def test_modes_of_polled_queues_change_without_loss(namespace: str, tmp_path: Path) -> None:
    nic = section(tmp_path)

    async def act(world: World) -> None:
        settings = world.settings(nic=nic, network_namespace=f"/run/netns/{namespace}", report_s=2.0)
        async with world.managing(MemoryRuntime(), settings):
            loop = asyncio.get_running_loop()
            async with polling(namespace, nic.socket or "", "a1") as process:
                (queue,) = await queues_of_node(world, 1)
                assert (queue.name, queue.kind, queue.program, queue.process, queue.user) == (
                    *("a1:0", "packet_v2", "poller", process.pid, os.geteuid()),
                )
                assert (queue.is_confirmed, queue.is_granted, queue.network_namespace) == (True, False, None)
                assert queue.mode is NicMode.WAITING
                assert set(queue.modes) == set(NicMode)
                assert queue.thread != process.pid
                assert queue.core in range(os.cpu_count() or 1)
                await change_modes(world, loop, namespace)
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.close()
                assert await asyncio.to_thread(process.stdout.readline) == b"4000\n"
            assert await queues_of_node(world, 0) == ()
        assert "polled queue a1:0 of Node h1: polling" in (world.served.folder / "audit").read_text()

    play(tmp_path, act)


async def try_commands(api: str, process: int) -> None:
    """Run the commands on a node with two pollers."""

    def run(command: str) -> list[dict[str, object]]:
        result = CliRunner().invoke(app, [*command.split(), "--api", api, "--format", "json"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        rows: list[dict[str, object]] = json.loads(result.stdout)
        return rows

    listed = await asyncio.to_thread(run, "nic list --node h1")
    assert [(row["node"], row["queue"], row["program"]) for row in listed] == [("h1", "a1:0", "poller")] * 2
    changed = await asyncio.to_thread(run, f"nic mode h1 a1:0 waiting --process {process}")
    assert [(row["process"], row["mode"], row["held by"]) for row in changed] == [(process, "waiting", "")]


async def change_modes(world: World, loop: asyncio.AbstractEventLoop, namespace: str) -> None:
    """Send frames while the mode of a1 changes."""
    port = namespaces.call(namespace, lambda: open_port("b1"))
    with port:
        for mode in (NicMode.POLLING, NicMode.HYBRID, NicMode.POLLING, NicMode.WAITING):
            sending = loop.run_in_executor(None, send, port)
            answer = await world.client.set_nic_mode("h1", NicModeRequest("a1", 0, mode))
            assert [(queue.name, queue.mode) for queue in answer.queues] == [("a1:0", mode)]
            await sending

    async def is_reported() -> bool:
        (queue,) = (await world.client.of(Node).get("h1")).status.nic_queues
        counted = (queue.received, queue.received_bytes, queue.dropped) == (4000, 4000 * len(FRAME), 0)
        return (
            counted and queue.mode is NicMode.WAITING and (queue.empty_polls or 0) > 0 and queue.cpu_share is not None
        )

    await until(is_reported)


def send(port: NicPort) -> None:
    sent = 0
    while sent < 1000:
        sent += port.send([FRAME] * min(50, 1000 - sent))


@pytest.mark.root
def test_orders_for_other_queues_are_refused_in_a_line(namespace: str, tmp_path: Path) -> None:
    nic = section(tmp_path)

    async def act(world: World) -> None:
        settings = world.settings(nic=nic, network_namespace=f"/run/netns/{namespace}", report_s=2.0)
        async with world.managing(MemoryRuntime(), settings):
            path = nic.socket or ""
            async with polling(namespace, path, "a1"), polling(namespace, path, "a1") as second:
                await queues_of_node(world, 2)
                order = NicModeRequest("a1", None, NicMode.HYBRID)
                with pytest.raises(NotFoundError, match="Node h1 reports no polled queue b1:3"):
                    await world.client.set_nic_mode("h1", NicModeRequest("b1", 3, NicMode.HYBRID))
                with pytest.raises(StaleError, match=r"a1 is polled by poller \(process .*: name the process"):
                    await world.client.set_nic_mode("h1", order)
                of_second = NicModeRequest("a1", None, NicMode.HYBRID, second.pid)
                assert [queue.process for queue in (await world.client.set_nic_mode("h1", of_second)).queues] == [
                    second.pid
                ]
                await try_commands(world.served.socket, second.pid)
                async with await world.served.client_of(Role.USER) as user:
                    with pytest.raises(ForbiddenError, match="may not replace modes of polled queues"):
                        await user.set_nic_mode("h1", order)

    play(tmp_path, act)


@pytest.mark.root
@pytest.mark.parametrize("pipeline", ["compiled", "interpreter"])
def test_switch_reports_its_queues_and_follows_orders(namespace: str, tmp_path: Path, pipeline: str) -> None:
    nic, ready = section(tmp_path), tmp_path / "ready"
    argv = ["dataplane.switch.process", "-i", "1@a1", "--device-id", "5", "--ready-file", str(ready), str(PROGRAM)]
    argv += ["--pipeline", pipeline, "--", "--grpc-server-addr", f"unix:{tmp_path}/p4.sock"]

    async def act() -> None:
        async with serving(nic, namespace) as server:
            with started(namespace, nic.socket or "", *argv) as process:
                (queue,) = await queues_when(server, lambda queues: len(queues) == 1 and ready.exists())
                assert (queue.name, queue.program, queue.process) == ("a1:0", "switch 5", process.pid)
                assert queue.is_confirmed
                port = namespaces.call(namespace, lambda: open_port("b1"))
                with port:
                    await (drive_workers if pipeline == "compiled" else drive_interpreter)(server, port)

    asyncio.run(act())


async def drive_workers(server: NicServer, port: NicPort) -> None:
    """Change the mode of a native switch's worker while frames come."""
    for rounds, mode in enumerate((NicMode.POLLING, NicMode.WAITING, NicMode.HYBRID), start=1):
        sending = asyncio.get_running_loop().run_in_executor(None, send, port)
        (queue,) = (await server.set_mode(NicModeRequest("a1", 0, mode))).queues
        assert queue.mode is mode
        await sending
        (queue,) = await queues_when(server, lambda queues, count=1000 * rounds: queues[0].received == count)  # type: ignore[misc]
        assert (queue.mode, queue.dropped) == (mode, 0)
        assert (queue.polls or 0) > (queue.empty_polls or 0) > 0


async def drive_interpreter(server: NicServer, port: NicPort) -> None:
    """Ask an interpreting switch for what it cannot do."""
    assert server.queues()[0].modes == ()
    with pytest.raises(NodeError, match=r"switch 5 \(process .* refuses: interface a1: the interpreter only waits"):
        await server.set_mode(NicModeRequest("a1", None, NicMode.POLLING))
    send(port)
    await queues_when(server, lambda queues: queues[0].received == 1000)
