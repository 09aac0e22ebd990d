"""Workers of all-reduces that take granted queues by themselves, in namespaces."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import Popen

import pytest

from controller.apiserver.resources.nic import NicMode, NicModeRequest, PolledQueue
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.nic.server import NicServer
from controller.workloads.nodes.settings import QueueGrant
from dataplane.fabric.kernel import namespaces
from dataplane.wire.aggregation import UDP_PORT
from tests.controller.workloads.nodes.nic.nic_world import queues_when, section, serving, started
from tests.dataplane.allreduce.cabling import cabled
from tests.dataplane.allreduce.serving import Server, Weather

WORKER, SWITCH = "10.77.0.1", "10.77.0.2"


@pytest.mark.root
def test_workers_take_granted_queues_and_else_udp_sockets(tmp_path: Path) -> None:
    rings, xdp = QueueGrant(device="eth0", jobs=("resnet",)), QueueGrant(device="eth0", kind="xdp")

    async def act(namespace: str) -> None:
        async with AsyncExitStack() as stack:
            managers = []
            for grant in (rings, xdp):
                (tmp_path / grant.kind).mkdir()
                server = serving(section(tmp_path / grant.kind, grants=(grant,)), namespace)
                managers.append(await stack.enter_async_context(server))
            module = "tests.controller.workloads.nodes.nic.granted_worker"
            sockets = [str(manager.path) for manager in managers]
            with started(namespace, "", module, SWITCH, *sockets) as process:
                me = f"worker of job 7 (process {process.pid}, user 0)"
                assert await lines_of(process) == [
                    "worker of job 7: rings on eth0, queue 0 granted by node h1",
                    f"worker of job 7: UDP sockets: queue 0 of eth0 is held by {me}",
                    "sums True",
                ]
                await look_at(managers[0], process, "packet_v2", "resnet")
                go_on(process)
                assert await lines_of(process) == [
                    "worker of job 7: AF_XDP on eth0, queue 0 granted by node h1",
                    "sums True",
                ]
                await queues_when(managers[0], lambda queues: not queues)
                await look_at(managers[1], process, "xdp", "resnet")
                go_on(process)
            await queues_when(managers[1], lambda queues: not queues)

    with cabled("mr-grant", {WORKER: 0x020000007701, SWITCH: 0x020000007702}) as names:
        first, second = (
            namespaces.call(names[SWITCH], lambda at=at: Server(2 - at, 16, Weather(), at=(SWITCH, UDP_PORT + at)))  # type: ignore[misc]
            for at in (0, 1)
        )
        with first, second:
            asyncio.run(act(names[WORKER]))


async def look_at(manager: NicServer, process: Popen[bytes], kind: str, job: str) -> None:
    """Check what a manager says of the queue that it has granted."""

    def is_told(queues: tuple[PolledQueue, ...]) -> bool:
        return len(queues) == 1 and queues[0].core is not None and queues[0].received > 0 < queues[0].sent

    (queue,) = await queues_when(manager, is_told)
    assert (queue.name, queue.kind, queue.process, queue.job) == ("eth0:0", kind, process.pid, job)
    assert queue.is_granted
    assert queue.is_confirmed
    with pytest.raises(NodeError, match="refuses: interface eth0: a worker of an all-reduce only waits"):
        await manager.set_mode(NicModeRequest("eth0", None, NicMode.POLLING))


async def lines_of(process: Popen[bytes]) -> list[str]:
    """Return what a process writes up to its sums."""
    lines: list[str] = []
    assert process.stdout is not None
    while not lines or not lines[-1].startswith("sums"):
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, lines
        lines.append(line.decode().rstrip())
    return lines


def go_on(process: Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
