"""Polled queues of real processes, seen and driven through the API server and the node's manager."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.apiserver.resources import Node
from controller.apiserver.resources.nic import NicMode, NicModeRequest, PolledQueue
from controller.common.errors import ForbiddenError, NotFoundError, StaleError
from controller.workloads.nodes.settings import NicSection
from dataplane.fabric.kernel import namespaces
from dataplane.nic import open_port
from dataplane.nic.managed.link import SOCKET_VARIABLE
from dataplane.rpc.access import Role
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.node_world import World, play
from tests.network_namespace import network_namespace
from tests.waiting import until

ROOT = Path(__file__).parents[5]
FRAME = b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5" + bytes(50)


@pytest.fixture
def namespace() -> Iterator[str]:
    with network_namespace(("a1", "b1")) as name:
        yield name


@contextmanager
def polling(namespace: str, socket: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a poller in a namespace until the block ends."""
    argv = [sys.executable, "-m", "tests.controller.workloads.nodes.nic.poller", *arguments]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), SOCKET_VARIABLE: str(socket)}
    with namespaces.start(namespace, argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"polling\n"
            yield process
        finally:
            process.kill()


def section(folder: Path, **more: object) -> NicSection:
    (folder / "nic").mkdir(exist_ok=True)
    return NicSection(socket=str(folder / "nic" / "s.sock"), period_s=0.05, **more)  # type: ignore[arg-type]


async def queues_when(world: World, count: int) -> tuple[PolledQueue, ...]:
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
        settings = world.settings(nic=nic, network_namespace=f"/run/netns/{namespace}")
        async with world.managing(MemoryRuntime(), settings):
            loop = asyncio.get_running_loop()
            with polling(namespace, Path(nic.socket or ""), "a1") as process:
                (queue,) = await queues_when(world, 1)
                assert (queue.name, queue.kind, queue.program, queue.process, queue.user) == (
                    *("a1:0", "packet_v2", "poller", process.pid, os.geteuid()),
                )
                assert (queue.is_confirmed, queue.is_granted, queue.network_namespace) == (True, False, None)
                assert queue.mode is NicMode.WAITING
                assert set(queue.modes) == set(NicMode)
                assert queue.thread != process.pid
                assert queue.core is not None and queue.core < (os.cpu_count() or 1)
                await change_modes(world, loop, namespace)
                assert process.stdin is not None and process.stdout is not None
                process.stdin.close()
                assert process.stdout.readline() == b"4000\n"
            assert await queues_when(world, 0) == ()
        assert "polled queue a1:0 of Node h1: polling" in (world.served.folder / "audit").read_text()

    play(tmp_path, act)


async def change_modes(world: World, loop: asyncio.AbstractEventLoop, namespace: str) -> None:
    """Send frames while the mode of a1 changes."""
    port = namespaces.call(namespace, lambda: open_port("b1"))
    with port:
        for mode in (NicMode.POLLING, NicMode.HYBRID, NicMode.WAITING, NicMode.POLLING):
            sending = loop.run_in_executor(None, send, port)
            answer = await world.client.set_nic_mode("h1", NicModeRequest("a1", 0, mode))
            assert [(queue.name, queue.mode) for queue in answer.queues] == [("a1:0", mode)]
            await sending

    async def is_reported() -> bool:
        (queue,) = (await world.client.of(Node).get("h1")).status.nic_queues
        counted = (queue.received, queue.received_bytes, queue.dropped) == (4000, 4000 * len(FRAME), 0)
        return (
            counted and queue.mode is NicMode.POLLING and (queue.empty_polls or 0) > 0 and queue.cpu_share is not None
        )

    await until(is_reported)


def send(port: object) -> None:
    sent = 0
    while sent < 1000:
        sent += port.send([FRAME] * min(50, 1000 - sent))  # type: ignore[attr-defined]


@pytest.mark.root
def test_orders_for_other_queues_are_refused_in_a_line(namespace: str, tmp_path: Path) -> None:
    nic = section(tmp_path)

    async def act(world: World) -> None:
        settings = world.settings(nic=nic, network_namespace=f"/run/netns/{namespace}")
        async with world.managing(MemoryRuntime(), settings):
            path = Path(nic.socket or "")
            with polling(namespace, path, "a1"), polling(namespace, path, "a1") as second:
                await queues_when(world, 2)
                order = NicModeRequest("a1", None, NicMode.HYBRID)
                with pytest.raises(NotFoundError, match="Node h1 reports no polled queue b1:3"):
                    await world.client.set_nic_mode("h1", NicModeRequest("b1", 3, NicMode.HYBRID))
                with pytest.raises(StaleError, match=r"a1 is polled by poller \(process .*: name the process"):
                    await world.client.set_nic_mode("h1", order)
                of_second = NicModeRequest("a1", None, NicMode.HYBRID, second.pid)
                assert [queue.process for queue in (await world.client.set_nic_mode("h1", of_second)).queues] == [
                    second.pid
                ]
                async with await world.served.client_of(Role.USER) as user:
                    with pytest.raises(ForbiddenError, match="may not replace modes of polled queues"):
                        await user.set_nic_mode("h1", order)

    play(tmp_path, act)
