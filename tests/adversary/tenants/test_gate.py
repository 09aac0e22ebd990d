"""An API server's gate under load: strangers with half requests, users with watches, lists and floods."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.server import gate
from controller.apiserver.settings import ApiSettings, TlsSettings
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import UnauthorizedError
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from tests.certificates import DAY, Authority
from tests.controller.apiserver.api_server import WAIT_S, Served, serving, settings_in
from tests.controller.apiserver.session_node import answering, bound_pod
from tests.controller.apiserver.test_session_attacks import greeting
from tests.waiting import until

HALF = b"GET /v1/pods HTTP/1.1\r\nHost: x\r\n"
MANY = 40


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have refusals come soon."""
    monkeypatch.setattr(gate, "_DAMPED_S", (0.0, 0.1))


Act = Callable[[Served], Awaitable[None]]


def attacked(folder: Path, act: Act, settings: ApiSettings | None = None, **limits: float) -> None:
    """Run an attack on a server with limits."""

    async def main() -> None:
        asked = settings or settings_in(folder, None, **limits)
        async with local_timeout(WAIT_S, "an attack"), serving(asked, folder) as served:
            await act(served)

    asyncio.run(main())


def place_of(served: Served) -> tuple[str, int]:
    host, _, port = served.url.partition("://")[2].rpartition(":")
    return host, int(port)


@asynccontextmanager
async def half_requests(served: Served, count: int, request: bytes = HALF) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open this many connections that never finish their first request."""
    opened = []
    try:
        for _ in range(count):
            opened.append(await asyncio.open_connection(*place_of(served)))
            opened[-1][1].write(request)
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def ended(readers: list[asyncio.StreamReader], least: int) -> None:
    """Wait until the server has closed this many connections."""
    gone = 0

    async def end(reader: asyncio.StreamReader) -> None:
        nonlocal gone
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        gone += 1

    tasks = [asyncio.create_task(end(reader)) for reader in readers]
    await until(lambda: gone >= least, lambda: f"{gone} of {least} are closed")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def make_node(served: Served, name: str = "h1") -> ApiClient:
    await served.client.of(Node).create(Node(metadata=Metadata(name=name)))
    return await served.client_of(Role.NODE, name)


async def report(node: ApiClient, name: str = "h1") -> None:
    """Report a node's status, as its manager does at each heartbeat."""
    stored = await node.of(Node).get(name)
    await node.of(Node).replace_status(replace(stored, status=NodeStatus(ready=True)))


def test_half_requests_keep_no_node_out(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with half_requests(served, MANY) as readers, await make_node(served) as node:
            await report(node)
            await ended(readers, MANY - 8)

    attacked(tmp_path, act, connections=8, strangers=8, strangers_of_one=8)


@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01"])
def test_half_handshakes_keep_no_node_out(tmp_path: Path, data: bytes) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", 3 * DAY)
    settings = settings_in(tmp_path, None, connections=8, strangers=8, strangers_of_one=8)
    tls = TlsSettings(certificate=str(certificate), private_key=str(key))

    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.SERVICE))
        async with half_requests(served, MANY, data) as readers:
            async with ApiClient(Place(served.url, made.token, authority.file), tries=1) as client:
                assert (await client.of(Pod).list()).items == ()
            await ended(readers, MANY - 8)

    attacked(tmp_path, act, replace(settings, tls=tls))


def test_strangers_do_not_take_all_files(tmp_path: Path) -> None:
    """A shell's soft limit of open files is below what a server may have of connections."""
    settings = tmp_path / "api.yaml"
    settings.write_text(
        f"storage: {{sqlite: {tmp_path}/storage}}\nlisten: ['unix:{tmp_path}/api.sock', '127.0.0.1:0']\n"
    )
    command = f"ulimit -Sn 128 && exec {sys.executable} -m controller.apps.cli api serve --settings {settings}"

    async def main() -> None:
        server = await asyncio.create_subprocess_exec("bash", "-c", command, stderr=asyncio.subprocess.PIPE)
        assert server.stderr is not None
        try:
            ready = b""
            while b"ready: " not in ready:
                ready = await server.stderr.readline()
                assert ready
            host, _, port = ready.decode().rpartition("//")[2].strip().rpartition(":")
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
            async with ApiClient(Place(f"unix:{tmp_path}/api.sock"), tries=1) as client:
                await client.of(Pod).create(pod("a"))
            for _, writer in opened:
                writer.close()
        finally:
            server.terminate()
            await server.communicate()

    async def in_time() -> None:
        async with local_timeout(WAIT_S, "an attack"):
            await main()

    asyncio.run(in_time())


@asynccontextmanager
async def idle_connections(served: Served, token: str, count: int) -> AsyncIterator[list[int]]:
    """Keep connections open that have shown a token; yields the statuses of their answers."""
    async with half_requests(served, count, HALF + f"Authorization: Bearer {token}\r\n\r\n".encode()) as readers:
        yield [int((await reader.readline()).split()[1]) for reader in readers]


def test_connections_of_users_leave_room(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        tokens = [(await served.client.create_token(TokenRequest(name=name, role=Role.USER))).token for name in "abc"]
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(idle_connections(served, token, 6)) for token in tokens]
            assert [statuses.count(200) for statuses in connections] == [4, 4, 1]
            assert {status for statuses in connections for status in statuses} == {200, 503}
            async with await make_node(served) as node:
                await report(node)

    attacked(tmp_path, act, connections=12, connections_of_one=4)


@asynccontextmanager
async def watches_of(served: Served, name: str, count: int) -> AsyncIterator[list[int]]:
    """Have watches of a user open; yields the statuses of their answers."""
    made = await served.client.create_token(TokenRequest(name=name, role=Role.USER))
    head = f"GET /v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {made.token}\r\n\r\n"
    async with half_requests(served, count, head.encode()) as readers:
        yield sorted([int((await reader.readline()).split()[1]) for reader in readers])


def test_watches_of_users_leave_room(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with (
            watches_of(served, "ann", 4) as of_ann,
            watches_of(served, "bob", 4) as of_bob,
            watches_of(served, "cid", 1) as of_cid,
            await make_node(served) as node,
            aclosing(node.of(Pod).watch(fields="node=h1")) as mine,
        ):
            assert (of_ann, of_bob, of_cid) == ([200, 200, 200, 429], [200, 200, 200, 429], [503])
            assert (await anext(mine)).type is EventType.BOOKMARK
        statuses = [503]
        while statuses != [200]:  # the server hears of an end a moment later
            async with watches_of(served, "cid", 1) as statuses:
                pass

    attacked(tmp_path, act, watches=8, watches_of_one=3, heartbeat_s=0.2)


def test_a_revoked_token_ends_its_watch(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
        async with ApiClient(Place(served.url, made.token), tries=1) as user:
            watch = user.of(Pod).watch()
            assert (await anext(watch)).type is EventType.BOOKMARK
            await served.client.revoke_token(made.shown.id)
            await served.client.of(Pod).create(pod("secret"))
            told = list[str]()

            async def listen() -> None:
                async for event in watch:
                    told.append(event.name)

            with pytest.raises(UnauthorizedError, match="unknown, or was revoked"):
                await listen()
            assert "secret" not in told

    attacked(tmp_path, act, heartbeat_s=0.1)


def test_a_revoked_token_ends_its_logs(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        made = await served.client.create_token(TokenRequest(name="user", role=Role.USER))
        async with (
            await served.client_of(Role.NODE, "h1") as node,
            answering(node, "h1", greeting),
            ApiClient(Place(served.url, made.token), tries=1) as user,
        ):
            frames = user.logs("a", follow=True)
            await anext(frames)
            await served.client.revoke_token(made.shown.id)
            last = [frame async for frame in frames][-1]
            assert b"unknown, or was revoked" in last.payload

    attacked(tmp_path, act, heartbeat_s=0.1)


def test_strangers_do_not_fill_the_audit_log(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with httpx.AsyncClient(base_url=served.url, trust_env=False, verify=False) as http:
            for _ in range(30):
                assert (await http.get("/v1/pods/" + "x" * 400)).status_code == 401

    attacked(tmp_path, act, refusals_per_s=10_000)
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(line["who"], line["status"], line.get("more", 0)) for line in lines] == [
        ("unknown", 401, 0),
        ("unknown", 401, 29),
    ]


def test_the_audit_log_names_what_has_changed(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        made = await pods.create(pod("a", "PASSWORD=x"))
        await pods.replace(replace(made, metadata=replace(made.metadata, labels={"b": "c"})))
        await pods.delete("a")

    attacked(tmp_path, act)
    text = (tmp_path / "audit").read_text()
    changed = [json.loads(line)["changed"] for line in text.splitlines()]
    assert [(entry["kind"], entry["name"]) for entry in changed] == [("Pod", "a")] * 3
    assert len({entry["uid"] for entry in changed}) == 1
    assert len({entry["revision"] for entry in changed}) == 3
    assert changed[0]["digest"] != changed[1]["digest"] == changed[2]["digest"]
    assert "PASSWORD" not in text


def pod(name: str, *command: str) -> Pod:
    spec = PodSpec(containers=(Container(name="main", image="busybox", command=command),))
    return Pod(metadata=Metadata(name=name), spec=spec)
