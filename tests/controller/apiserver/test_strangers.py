"""Clients without rights, with too many requests, or that never finish: one line each, and no effect on others."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.evictions import Eviction, EvictionRequest
from controller.apiserver.registry.placements import Binding, BindingRequest, Release, ReleaseRequest
from controller.apiserver.resources import Decision, Metadata, Node, Pod, PodGroup, Task
from controller.apiserver.resources.node import Image, NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import (
    ForbiddenError,
    InvalidError,
    StaleError,
    TooManyError,
    UnauthorizedError,
)
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served
from tests.controller.apiserver.test_resources_over_http import node, pod
from tests.waiting import until


async def answer_of(served: Served, **options: object) -> httpx.Response:
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, verify=False) as http:
        return await http.request(**({"method": "GET", "url": "/v1/pods"} | options))  # type: ignore[arg-type]


def detail_of(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.text.count("\n") == 1
    assert answer.json()["status"] == answer.status_code
    return str(answer.json()["detail"])


def test_an_address_of_the_network_wants_a_token_that_counts(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
        for header, problem in (
            (None, "a bearer token or a certificate"),
            ("Basic x", "no bearer token"),
            ("Bearer x", "unknown, or was revoked"),
            (f"Bearer {made.token[:-1]}{'A' if made.token[-1] != 'A' else 'B'}", "unknown, or was revoked"),
        ):
            answer = await answer_of(served, headers={} if header is None else {"Authorization": header})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="millrace"')
            assert problem in detail_of(answer)
        async with ApiClient(Place(served.url, made.token), tries=1) as client:
            assert (await client.of(Pod).list()).items == ()
            await served.client.revoke_token(made.shown.id)
            with pytest.raises(UnauthorizedError, match="unknown, or was revoked"):
                await client.of(Pod).list()

    play(act)


def test_a_token_expires(play: Play) -> None:
    async def act(served: Served) -> None:
        async with await served.client_of(Role.USER, lasts_s=1e-6) as client:
            with pytest.raises(UnauthorizedError, match="of user has expired"):
                await client.of(Pod).list()
        assert [token.name for token in await served.client.tokens()] == ["user"]

    play(act)


@pytest.mark.root
def test_another_user_at_the_socket_gets_no_answer(play: Play) -> None:
    async def act(served: Served) -> None:
        path = served.socket.removeprefix("unix:")
        for folder in (served.folder, *served.folder.parents[:-2]):
            folder.chmod(0o755)
        Path(path).chmod(0o666)
        answers = []
        for user in (0, 12345):
            with socket.socket(socket.AF_UNIX) as client:
                os.seteuid(user)
                try:
                    client.connect(path)
                finally:
                    os.seteuid(0)
                reader, writer = await asyncio.open_unix_connection(sock=client)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                try:
                    answers.append(await reader.read(12))
                except ConnectionError:
                    answers.append(b"")
        assert answers == [b"HTTP/1.1 200", b""]

    play(act)


def test_revisions_are_hidden_without_write_permission(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client.of(Node).create(node("h1"))
        revision = made.metadata.revision + 7
        async with await served.client_of(Role.USER) as client:
            with pytest.raises(ForbiddenError, match="may not replace a Node"):
                await client.of(Node).replace(replace(made, metadata=replace(made.metadata, revision=revision)))
            with pytest.raises(ForbiddenError, match="may not write the status of a Node"):
                await client.of(Node).replace_status(replace(made, metadata=replace(made.metadata, revision=revision)))
            with pytest.raises(ForbiddenError, match="may not delete a Node"):
                await client.of(Node).delete("h1", expected=revision)
            mine = await served.client.of(Pod).create(pod("a"))
            with pytest.raises(ForbiddenError, match="may not replace"):
                await client.of(Pod).replace(replace(mine, metadata=replace(mine.metadata, revision=revision)))
            with pytest.raises(StaleError, match=r"Pod a already exists$"):
                await client.of(Pod).create(pod("a"))
            with pytest.raises(ForbiddenError, match="may not share"):
                await client.share_units("gpus", (), expected=revision)
        with pytest.raises(StaleError, match="no longer at"):
            await served.client.of(Node).replace(replace(made, metadata=replace(made.metadata, revision=revision)))

    play(act)


def test_workers_of_jobs_have_nothing_to_do_here(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(Pod).create(pod("a"))
        async with await served.client_of(Role.WORKER, "h1") as client:
            for call in (client.of(Pod).get("a"), client.of(Pod).list(), client.of(Pod).create(pod("b"))):
                with pytest.raises(ForbiddenError, match="h1"):
                    await call

    play(act)


@pytest.mark.parametrize(
    ("role", "subject"), [(Role.NODE, None), (Role.USER, "h1"), (Role.CENTRE, None), (Role.ADMIN, "x")]
)
def test_only_tokens_of_nodes_and_centres_are_of_one(play: Play, role: Role, subject: str | None) -> None:
    async def act(served: Served) -> None:
        with pytest.raises(InvalidError, match=f"role {role.value} names"):
            await served.client.create_token(TokenRequest(name="x", role=role, subject=subject))

    play(act)


def test_the_storage_and_the_log_hold_no_token(play: Play, tmp_path: Path) -> None:
    made: list[str] = []

    async def act(served: Served) -> None:
        request = TokenRequest(name="h1", role=Role.NODE, subject="h1")
        made.append((await served.client.create_token(request)).token)
        await answer_of(served, headers={"Authorization": f"Bearer {made[0]}"})
        await answer_of(served, headers={"Authorization": "Bearer nothing"})

    play(act)
    secret = made[0].split("_", 2)[2].encode()
    for file in tmp_path.iterdir():
        assert secret not in file.read_bytes()
    audit = tmp_path / "audit"
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(record["who"], record["method"], record["path"], record["status"]) for record in records] == [
        ("local", "POST", "/v1/tokens", 201),
        ("h1", "GET", "/v1/pods", 403),
        ("unknown", "GET", "/v1/pods", 401),
    ]


async def refused(*asked: Awaitable[object]) -> None:
    for request in asked:
        with pytest.raises(ForbiddenError, match="may not"):
            await request


def test_a_node_touches_its_own_node_and_the_pods_on_it(play: Play) -> None:
    async def act(served: Served) -> None:
        admin = served.client
        for name in ("h1", "h2"):
            await admin.of(Node).create(node(name))
            await admin.of(Pod).create(pod(f"on-{name}"))
            await admin.bind(BindingRequest(bindings=(Binding(pod=f"on-{name}", node=name),)))
        async with await served.client_of(Role.NODE, "h1") as mine:
            nodes, pods = mine.of(Node), mine.of(Pod)
            own = await nodes.get("h1")
            await nodes.replace_status(replace(own, status=NodeStatus(ready=True)))
            placed = (await pods.list(fields="node=h1")).items
            assert [pod.metadata.name for pod in placed] == ["on-h1"]
            running = replace(placed[0], status=replace(placed[0].status, phase=Phase.RUNNING, node="h2"))
            assert (await pods.replace_status(running)).status.node == "h1"
            other = await admin.of(Node).get("h2")
            theirs = await admin.of(Pod).get("on-h2")
            await refused(
                nodes.get("h2"),
                nodes.list(),
                nodes.replace_status(replace(other, status=NodeStatus(ready=True))),
                nodes.replace(replace(own, metadata=Metadata(name="h1"), spec=NodeSpec(unschedulable=True))),
                nodes.create(node("h3")),
                nodes.delete("h1"),
                pods.get("on-h2"),
                pods.list(),
                pods.list(fields="node=h2"),
                anext(pods.watch()),
                pods.replace_status(theirs),
                pods.create(pod("c")),
                pods.delete("on-h1"),
                mine.bind(BindingRequest(bindings=(Binding(pod="on-h1", node="h1"),))),
                mine.release(ReleaseRequest(releases=(Release(pod="on-h2"),))),
                mine.evict(EvictionRequest(evictions=(Eviction(pod="on-h1", epoch=1),))),
                mine.of(Decision).list(),
                mine.tokens(),
                mine.create_token(TokenRequest(name="x", role=Role.ADMIN)),
            )
            await mine.release(ReleaseRequest(releases=(Release(pod="on-h1", phase=Phase.SUCCEEDED),)))
            await refused(pods.get("on-h1"))  # no longer on it

    play(act)


def test_workload_controller_changes_pods_nodes_and_group_status(play: Play) -> None:
    async def act(served: Served) -> None:
        admin = served.client
        await admin.of(Node).create(node("h1"))
        await admin.of(Pod).create(pod("a"))
        await admin.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        group = await admin.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=1)))
        async with await served.client_of(Role.PLACEMENT) as mine:
            assert len((await mine.of(Pod).list()).items) == 1
            current = await mine.of(Node).get("h1")
            current = await mine.of(Node).replace(replace(current, spec=replace(current.spec, unschedulable=True)))
            await mine.of(Node).replace_status(replace(current, status=NodeStatus(reason="silent")))
            await mine.of(PodGroup).replace_status(replace(group, status=replace(group.status, reasons=("why",))))
            await mine.release(ReleaseRequest(releases=(Release(pod="a", epoch=1),)))
            await mine.of(Pod).delete("a")
            await mine.of(Pod).create(pod("b"))
            await refused(
                mine.of(Node).create(node("h2")),
                mine.of(Node).delete("h1"),
                mine.of(PodGroup).delete("g"),
                mine.of(PodGroup).replace(replace(group, metadata=Metadata(name="g"))),
                mine.of(Task).list(),
                mine.bind(BindingRequest(bindings=(Binding(pod="b", node="h1"),))),
                mine.tokens(),
            )

    play(act)


def test_a_user_reads_everything_and_writes_work(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(Node).create(node("h1"))
        async with await served.client_of(Role.USER) as mine:
            assert len((await mine.of(Node).list()).items) == 1
            forged = pod("a")
            made = await mine.of(Pod).create(replace(forged, status=replace(forged.status, node="h1")))
            assert made.status.node is None
            await refused(
                mine.of(Pod).replace_status(made),
                mine.of(Node).create(node("h2")),
                mine.of(Node).delete("h1"),
                mine.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),))),
                mine.release(ReleaseRequest(releases=(Release(pod="a"),))),
                mine.evict(EvictionRequest(evictions=(Eviction(pod="a", epoch=1),))),
                mine.release(ReleaseRequest(releases=(Release(pod="none", node="none"),))),
                mine.share_units("gpus", (), expected=1),
                mine.tokens(),
            )
            await mine.of(Pod).delete("a")
        async with await served.client_of(Role.SERVICE) as ours:
            await refused(ours.tokens())

    play(act)


def test_a_pod_of_an_older_epoch_is_fenced(play: Play) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        await served.client.of(Node).create(node("h1"))
        await pods.create(pod("a"))
        await served.client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        before = await pods.get("a")
        await served.client.release(ReleaseRequest(releases=(Release(pod="a"),)))
        await served.client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        with pytest.raises(StaleError, match="Pod a is in epoch 2, no longer in 1"):
            await pods.replace_status(replace(before, metadata=Metadata(name="a")))

    play(act)


BODIES = [
    ("{", 400, "truncated"),
    ('{"metadata":{"name":"a"},"spec":{"containers":[{"name":"m","image":"x","colour":1}]}}', 400,
     "spec.containers[0]: unknown key `colour`"),
    ('{"metadata":{"name":"A b"},"spec":{"containers":[{"name":"m","image":"x"}]}}', 400, "metadata.name: Expected"),
    ('{"metadata":{"name":"a\\n"},"spec":{"containers":[{"name":"m","image":"x"}]}}', 400, "metadata.name: Expected"),
    ('{"metadata":{"name":"a","revision":4},"spec":{"containers":[{"name":"m","image":"x"}]}}', 400, "server sets uid"),
    ('{"metadata":{"name":"a"},"spec":{"containers":[{"name":"m"}]}}', 400, "either an image or a bundle"),
    ('{"metadata":{"name":"a"},"spec":{"containers":[]}}', 400, "spec.containers: Expected"),
    ('{"metadata":{"name":"a"},"spec":{"containers":[{"name":"m","image":"x"}],"request":{"cpu_milli":-1}}}', 400,
     "spec.request.cpu_milli: Expected"),
    ('{"kind":"Node","metadata":{"name":"a"},"spec":{"containers":[{"name":"m","image":"x"}]}}', 400, "kind: Invalid"),
    ("[" * 20_000, 400, "too deeply"),
]  # fmt: skip


def test_invalid_body_is_refused_by_its_key(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
        headers = {"Authorization": f"Bearer {made.token}", "Content-Type": "application/json"}
        for body, status, problem in BODIES:
            answer = await answer_of(served, method="POST", content=body, headers=headers)
            assert answer.status_code == status, body[:90]
            assert problem in detail_of(answer), body[:90]
        for method, url, status in (
            ("GET", "/v1/nothing", 404), ("PATCH", "/v1/pods", 405), ("GET", "/v1/pods?limit=0", 400),
            ("GET", "/v1/pods?after=-1&watch=1", 400), ("PUT", "/v1/pods/a", 400),
        ):  # fmt: skip
            answer = await answer_of(served, method=method, url=url, headers=headers)
            assert answer.status_code == status, (method, url)
            detail_of(answer)
        assert (await served.client.of(Pod).list()).items == ()

    play(act)


def test_too_large_a_body_is_not_read(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
        headers = {"Authorization": f"Bearer {made.token}"}
        announced = await answer_of(served, method="POST", content=b" " * 4001, headers=headers)
        assert (announced.status_code, detail_of(announced)) == (
            413,
            "the body has 4001 bytes; at most 4000 are accepted",
        )

        async def chunks() -> object:
            for _ in range(5):
                yield b" " * 1000

        chunked = await answer_of(served, method="POST", content=chunks(), headers=headers)
        assert (chunked.status_code, detail_of(chunked)) == (413, "the body has more than 4000 bytes")

    play(act, request_bytes=4000)


async def answer_to(served: Served, *parts: bytes) -> bytes:
    """Return the server's answer to a client that sends this and then waits."""
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def said_after_an_answer(served: Served, head: bytes, part: bytes) -> bytes:
    """Return the server's answer to half a request after a complete one on the same connection."""
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + b"\r\n")
    assert (await reader.readuntil(b'"continue":null}')).startswith(b"HTTP/1.1 200")
    writer.write(part)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_request_that_never_ends_is_dropped(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
        head = f"POST /v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {made.token}\r\n".encode()
        nothing, half, body = await asyncio.gather(
            answer_to(served), answer_to(served, head), answer_to(served, head, b"Content-Length: 10\r\n\r\n{")
        )
        assert (nothing, half) == (b"", b"")
        assert b"400 Bad Request" in body
        assert b"the body did not arrive within 0.2 s" in body
        assert await said_after_an_answer(served, head.replace(b"POST", b"GET"), b"GET /v1/po") == b""
        assert b"millrace_api_slow_requests_total 4" in await metrics_of(served)

    play(act, head_s=0.2, body_s=0.2)


def test_a_head_is_bounded(play: Play) -> None:
    async def act(served: Served) -> None:
        answer = await answer_to(served, b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 40_000)
        assert b"200 OK" not in answer

    play(act)


async def metrics_of(served: Served) -> bytes:
    transport = httpx.AsyncHTTPTransport(uds=served.socket.removeprefix("unix:"), verify=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        return (await http.get("/metrics")).content


def test_a_principal_has_its_rate_and_wrong_tokens_have_less(play: Play) -> None:
    async def act(served: Served) -> None:
        async with await served.client_of(Role.USER) as mine:
            outcomes = await asyncio.gather(*(mine.of(Pod).list() for _ in range(60)), return_exceptions=True)
            refusals = [answer for answer in outcomes if isinstance(answer, TooManyError)]
            assert len(refusals) >= 20
            assert str(refusals[0]) == "user exceeds 20 requests per second"
            assert refusals[0].wait_s >= 1
        assert (await served.client.of(Pod).list()).items == ()  # other users have their own rates
        answers = await asyncio.gather(*(answer_of(served) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {401, 429}

    play(act, user_requests_per_s=20, refusals_per_s=5)


async def watching(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection that watches nodes, with only the first line read."""
    path = served.socket.removeprefix("unix:")
    reader, writer = await asyncio.open_unix_connection(path, limit=1024)
    writer.write(b"GET /v1/nodes?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"BOOKMARK")
    return reader, writer


async def write_much(served: Served) -> None:
    """Write more than a connection's buffers hold."""
    nodes = served.client.of(Node)
    made = await nodes.create(node("h1"))
    for number in range(60):
        images = tuple(Image(digest=f"{number:01000}{image}") for image in range(16))
        await nodes.replace_status(Node(metadata=Metadata(name="h1"), spec=made.spec, status=NodeStatus(images=images)))


def test_slow_watcher_gets_its_last_revision(play: Play) -> None:
    async def act(served: Served) -> None:
        reader, writer = await watching(served)
        await write_much(served)
        rest = b""
        while b'"type":"ERROR"' not in rest:
            part = await reader.read(1 << 16)
            assert part
            rest = rest[-64:] + part
        assert b"this watch is too slow: it ends after revision" in rest
        assert b"millrace_api_watches_too_slow_total 1" in await metrics_of(served)
        writer.close()

    play(act, watch_events=16)


def test_a_watcher_that_takes_nothing_is_left(play: Play) -> None:
    async def act(served: Served) -> None:
        _, writer = await watching(served)
        await write_much(served)

        async def is_counted() -> bool:
            return b"millrace_api_slow_readers_total 1" in await metrics_of(served)

        await until(is_counted, "no slow reader is counted", poll_s=0.01)
        assert b"millrace_api_watches 0" in await metrics_of(served)
        writer.close()

    play(act, send_s=0.2)
