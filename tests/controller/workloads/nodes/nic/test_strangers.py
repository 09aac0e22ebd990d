"""Peers that lie, flood, fall silent or die, at the socket of polled queues."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.resources.nic import NicMode, NicModeRequest
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.nic.server import NicServer
from controller.workloads.nodes.settings import QueueGrant
from dataplane.clock import NS_PER_S
from dataplane.nic.managed.link import LinkError, connect
from dataplane.nic.managed.messages import Claim, Grant, Hello, Order, Outcome, QueueState, Report, Welcome, encode
from dataplane.nic.managed.reporter import claim_queues
from tests.controller.workloads.nodes.nic.nic_world import Client, polling, queues_when, section, serving
from tests.network_namespace import network_namespace
from tests.waiting import until

LO = QueueState(device="lo", index=1, queue=0, kind="dpdk", thread=0, mode="waiting", modes=("waiting", "hybrid"))
"""A queue of which the kernel shows nothing either way."""
Act = Callable[[NicServer], Awaitable[None]]


def play(folder: Path, act: Act, **more: object) -> None:
    """Run a function on a server of this process's own namespace."""

    async def main() -> None:
        clock = more.pop("now_ns", None)
        async with serving(section(folder, **more), now_ns=clock) as server:  # type: ignore[arg-type]
            await act(server)

    asyncio.run(main())


async def met(server: NicServer) -> Client:
    """Return a connection that was accepted."""
    client = Client(server.path)
    await client.send(Hello("liar"))
    welcome = await client.receive()
    assert isinstance(welcome, Welcome)
    assert (welcome.node, welcome.is_own, welcome.refusal) == ("h1", True, "")
    return client


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (replace(LO, index=99_999), "device 99999 is missing for the kernel, not lo"),
        (replace(LO, device="eth77"), "device 1 is lo for the kernel, not eth77"),
        (replace(LO, kind="packet_v2"), "it reports 1 queues of lo, the kernel shows 0 packet sockets there"),
        (replace(LO, kind="xdp"), "the kernel shows no XDP program of it on lo"),
    ],
)
def test_reports_that_contradict_the_kernel_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, queue: QueueState, said: str
) -> None:
    async def act(server: NicServer) -> None:
        with await met(server) as client:
            await client.send(Report((queue,)))
            assert await client.receive() is None
        assert server.queues() == ()

    play(tmp_path, act)
    assert f"polled queues of liar (process {os.getpid()}, user {os.geteuid()}): {said}" in caplog.text


def test_what_the_kernel_cannot_show_is_unconfirmed(tmp_path: Path) -> None:
    async def act(server: NicServer) -> None:
        with await met(server) as client:
            await client.send(Report((LO, replace(LO, queue=1, thread=1)), left_out=2))
            (first, second) = await queues_when(server, lambda queues: len(queues) == 2)
            assert not first.is_confirmed
            assert (first.process, first.thread, second.thread) == (os.getpid(), None, None)  # 1 is no thread of ours
            assert server.notes == ("polled queues: 2 more are not listed",)
        await queues_when(server, lambda queues: not queues)
        assert not server.notes

    play(tmp_path, act)


@pytest.mark.parametrize(
    "packets",
    [
        [b"{"],
        [b'{"type":"report","queues":[],"more":1}'],
        [encode(Report((LO, LO)))],
        [encode(Hello("again"))],
        [bytes(200_000)],
        [b'{"x":' + b"[" * 100_000],
        [encode(Report(()))] * 200,
    ],
    ids=["no JSON", "unknown key", "a queue twice", "a second hello", "too long", "too deep", "a flood"],
)
def test_invalid_messages_end_the_connection(tmp_path: Path, packets: list[bytes]) -> None:
    async def act(server: NicServer) -> None:
        with await met(server) as other, await met(server) as client:
            await other.send(Report((LO,)))
            await queues_when(server, lambda queues: len(queues) == 1)
            try:
                for packet in packets:
                    await client.send(packet)
            except (BrokenPipeError, ConnectionResetError):
                pass  # closed in the middle of the flood
            assert await client.receive() is None
            assert len(server.queues()) == 1  # others are still served

    play(tmp_path, act)


def test_connections_are_bounded(tmp_path: Path) -> None:
    async def act(server: NicServer) -> None:
        clients = [Client(server.path) for _ in range(40)]  # that say nothing
        closed = [asyncio.ensure_future(client.receive()) for client in clients]
        await until(lambda: sum(each.done() for each in closed) == 40 - 16)
        for each in closed:
            each.cancel()
        await asyncio.gather(*closed, return_exceptions=True)
        for client in clients:
            client.close()
        with await met(server), await met(server), Client(server.path) as third:
            await third.send(Hello("third"))
            welcome = await third.receive()
            assert isinstance(welcome, Welcome)
            assert welcome.refusal == "2 processes are connected already"

    play(tmp_path, act, most_processes=2)


def test_silent_processes_are_named_and_keep_their_grant(tmp_path: Path) -> None:
    now_ns = 10**12

    async def act(server: NicServer) -> None:
        nonlocal now_ns
        with await met(server) as client, await met(server) as other:
            await client.send(Claim(1, "lo", 1))
            assert await client.receive() == Grant(1, "packet_v2", (0,))
            await client.send(Report((LO,)))
            (queue,) = await queues_when(server, lambda queues: len(queues) == 1)
            assert queue.is_granted
            now_ns += 16 * NS_PER_S
            assert server.queues() == ()
            me = f"liar (process {os.getpid()}, user {os.geteuid()})"
            assert f"polled queues: {me} has not reported for 16 s" in server.notes
            await other.send(Claim(2, "lo", 1))
            assert await other.receive() == Grant(2, refusal=f"queue 0 of lo is held by {me}")
            with pytest.raises(NodeError, match="no process on node h1 polls lo"):
                await server.set_mode(NicModeRequest("lo", None, NicMode.HYBRID))
            client.close()

            async def is_free() -> bool:
                await other.send(Claim(3, "lo", 1))
                grant = await other.receive()
                await asyncio.sleep(0.05)  # not a flood
                return isinstance(grant, Grant) and not grant.refusal

            await until(is_free)

    play(tmp_path, act, grants=(QueueGrant(device="lo"),), now_ns=lambda: now_ns)


def test_answers_to_orders_must_be_about_reported_queues(tmp_path: Path) -> None:
    async def act(server: NicServer) -> None:
        with await met(server) as client:
            await client.send(Report((LO,)))
            await queues_when(server, lambda queues: len(queues) == 1)
            ordered = asyncio.ensure_future(server.set_mode(NicModeRequest("lo", None, NicMode.HYBRID)))
            order = await client.receive()
            assert isinstance(order, Order)
            await client.send(Outcome(order.number + 1, (LO,)))  # nobody waits for it
            await client.send(Outcome(order.number, (replace(LO, device="eth0"),)))
            with pytest.raises(NodeError, match="answers with queues that it has not reported"):
                await ordered
            ordered = asyncio.ensure_future(server.set_mode(NicModeRequest("lo", None, NicMode.HYBRID)))
            assert isinstance(await client.receive(), Order)
            client.close()
            with pytest.raises(NodeError, match="has ended"):
                await ordered

    play(tmp_path, act)


_AS_NOBODY = """
import os, sys
from pathlib import Path
from dataplane.nic.managed.link import LinkError
from dataplane.nic.managed.reporter import claim_queues
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        print(claim_queues("worker", "lo", 1, job="a", paths=[Path(path)]).grant)
    except LinkError as error:
        print(error)
"""


@pytest.mark.root
def test_other_users_get_what_grants_name() -> None:
    cases: list[tuple[tuple[str | int, ...], str, str]] = [
        ((), "a", "Permission denied"),
        (("daemon",), "a", "it is of user 65534"),
        (("daemon", 65534), "b", "queues of lo are granted to job b, not to a"),
        ((65534,), "a", "Grant(number=1, kind='packet_v2', queues=(0,), refusal='')"),
    ]

    async def act(folder: Path) -> None:
        async with AsyncExitStack() as stack:
            servers = []
            for number, (users, job, _) in enumerate(cases):
                (folder / str(number)).mkdir()
                nic = section(folder / str(number), grants=(QueueGrant(device="lo", users=users, jobs=(job,)),))
                servers.append(await stack.enter_async_context(serving(nic)))
            code = ("-c", _AS_NOBODY, *(str(server.path) for server in servers))
            process = await asyncio.create_subprocess_exec(sys.executable, *code, stdout=subprocess.PIPE)
            output, _ = await process.communicate()
        for line, (_, _, said) in zip(output.decode().splitlines(), cases, strict=True):
            assert said in line

    with tempfile.TemporaryDirectory() as folder:  # pytest's are closed to other users
        Path(folder).chmod(0o755)
        asyncio.run(act(Path(folder)))


@pytest.mark.root
def test_queues_go_with_a_process_that_is_killed(tmp_path: Path) -> None:
    async def act(namespace: str) -> None:
        nic = section(tmp_path)
        path = nic.socket or ""
        async with serving(nic, namespace) as server, polling(namespace, path, "a1", "2") as process:
            queues = await queues_when(server, lambda queues: len(queues) == 2)
            assert {queue.is_confirmed for queue in queues} == {True}
            process.kill()
            await queues_when(server, lambda queues: not queues)

    with network_namespace(("a1", "b1")) as namespace:
        asyncio.run(act(namespace))


def test_managers_that_are_none_are_named_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LinkError, match=r"missing: no manager runs; .*file: it is not a socket"):
        connect("worker", [tmp_path / "missing", tmp_path / "file"])
    with pytest.raises(LinkError, match="no node's manager runs here"):
        claim_queues("worker", "lo", 1, paths=[])
