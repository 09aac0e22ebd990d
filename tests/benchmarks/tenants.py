"""Nodes under a flood of users: how long reports and lists take while others ask for all that there is.

An API server of its own process holds 3,000 pods of one user and 20 nodes. That user asks for lists over 400
connections, three others over 100 each, as fast as they are answered; a stranger holds 500 half requests. Meanwhile
each node reports its status every half second, and a scheduler lists all pods. Times are from the call to the whole
answer, over TCP on loopback with a token; a call that fails has taken the whole run. Whoever floods is elsewhere: its
processes have the lowest priority, so that they do not take the server's processors.

Usage: python -m tests.benchmarks.tenants [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.process import serve
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.resources.project import Quota
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import ApiError
from dataplane.rpc.access import Role
from tests.adversary.tenants.besieged import besieged
from tests.benchmarks.placing.fair_shares import fair_share_error

PODS: Final = 3000
NODES: Final = 20
SECONDS: Final = 30.0
_CONNECTIONS: Final = (400, 100, 100, 100)
"""Connections of each user; the first has all pods."""
_HALF: Final = 500
_LOWEST: Final = 19
_INTERVAL_S: Final = 0.5
_AT_ONCE: Final = 32
NAMES: Final = ("node_report_p99_ms_under_flood", "list_p99_ms_under_flood", "attacks", "effects", "fair_share_error")


@dataclass(frozen=True, slots=True)
class _Served:
    """Address of a server, and tokens for it."""

    url: str
    admin: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]


def figures(pods: int = PODS, seconds: float = SECONDS) -> dict[str, float]:
    """Return the figures, by name, for this many pods and this flood duration."""
    with tempfile.TemporaryDirectory(prefix="tenants") as folder:
        return asyncio.run(_measured(Path(folder), pods, seconds))


async def _measured(folder: Path, pods: int, seconds: float) -> dict[str, float]:
    async with _serving(folder) as url:
        served = await _filled(folder, url, pods)
        context = multiprocessing.get_context("spawn")
        floods = [context.Process(target=_flood, args=(served, user, seconds)) for user in range(len(_CONNECTIONS))]
        floods.append(context.Process(target=_hold_half_requests, args=(served, seconds)))
        for process in floods:
            process.start()
        try:
            await asyncio.sleep(1.0)  # until they have begun
            return await _looked_at(served, seconds - 2.0)
        finally:
            for process in floods:
                process.terminate()
                process.join()


@contextlib.asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[str]:
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    process = context.Process(target=_serve, args=(folder, ready))
    process.start()
    try:
        yield str(await asyncio.to_thread(ready.get)).rpartition(" ")[2]
    finally:
        process.terminate()
        process.join()


def _serve(folder: Path, ready: multiprocessing.Queue[str]) -> None:
    settings = ApiSettings(
        storage=StoragePlace(sqlite=str(folder / "api")),
        listen=(f"unix:{folder}/api.sock", "127.0.0.1:0"),
        quota=Quota(pods=None),
    )
    asyncio.run(serve(settings, asyncio.Event(), ready.put))


async def _filled(folder: Path, url: str, pods: int) -> _Served:
    """Make pods, nodes and tokens."""
    async with ApiClient(Place(f"unix:{folder}/api.sock")) as client:

        async def token(role: Role, name: str, subject: str | None = None) -> str:
            return (await client.create_token(TokenRequest(name=name, role=role, subject=subject))).token

        users = [await token(Role.USER, f"u{number}") for number in range(len(_CONNECTIONS))]
        nodes = []
        for number in range(NODES):
            await client.of(Node).create(Node(metadata=Metadata(name=f"h{number}")))
            nodes.append(await token(Role.NODE, f"h{number}", f"h{number}"))

        async def create(first: int) -> None:
            for number in range(first, pods, _AT_ONCE):
                spec = PodSpec(containers=(Container(name="main", image="busybox", command=("sleep", "1")),))
                metadata = Metadata(name=f"p{number}", owner="u0")
                await client.of(Pod).create(Pod(metadata=metadata, spec=spec))

        await asyncio.gather(*(create(first) for first in range(_AT_ONCE)))
        return _Served(url, await token(Role.SERVICE, "scheduler"), tuple(nodes), tuple(users))


def _flood(served: _Served, user: int, seconds: float) -> None:
    """List pods over many connections, as fast as answers come."""
    os.nice(_LOWEST)
    head = f"GET /v1/pods HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.users[user]}\r\n\r\n".encode()

    async def one(until_s: float) -> None:
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError, EOFError, ValueError):
                reader, writer = await asyncio.open_connection(*_place(served))
                try:
                    while time.monotonic() < until_s:
                        writer.write(head)
                        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                        size = answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                        await reader.readexactly(int(size))
                        if b"connection: close" in answer:
                            break
                finally:
                    writer.close()

    async def run() -> None:
        await asyncio.gather(*(one(time.monotonic() + seconds) for _ in range(_CONNECTIONS[user])))

    asyncio.run(run())


def _place(served: _Served) -> tuple[str, int]:
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def _hold_half_requests(served: _Served, seconds: float) -> None:
    """Keep connections open that never end their first request."""
    os.nice(_LOWEST)

    async def one(until_s: float) -> None:
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*_place(served))
                writer.write(b"GET /v1/pods HTTP/1.1\r\nHost: x\r\n")
                await reader.read()
                writer.close()
            await asyncio.sleep(0.1)

    async def run() -> None:
        await asyncio.gather(*(one(time.monotonic() + seconds) for _ in range(_HALF)))

    asyncio.run(run())


async def _looked_at(served: _Served, seconds: float) -> dict[str, float]:
    """Report and list while the flood goes on."""
    reports, lists = list[float](), list[float]()
    until_s = time.monotonic() + seconds

    async def report(number: int) -> None:
        async with ApiClient(Place(served.url, served.nodes[number]), tries=1) as client:
            node = await client.of(Node).get(f"h{number}")
            while time.monotonic() < until_s:
                node = replace(node, metadata=replace(node.metadata, revision=0), status=NodeStatus(ready=True))
                reports.append(await _timed(client.of(Node).replace_status(node), seconds))
                await asyncio.sleep(_INTERVAL_S)

    async def look() -> None:
        async with ApiClient(Place(served.url, served.admin), tries=1) as client:
            while time.monotonic() < until_s:
                lists.append(await _timed(client.of(Pod).list(), seconds))
                await asyncio.sleep(_INTERVAL_S)

    await asyncio.gather(look(), *(report(number) for number in range(NODES)))
    return {"node_report_p99_ms_under_flood": _p99_ms(reports), "list_p99_ms_under_flood": _p99_ms(lists)}


async def _timed(call: object, failed_s: float) -> float:
    """Return how long a call takes; one that fails has taken all the time there is."""
    begun_s = time.perf_counter()
    try:
        await call  # type: ignore[misc]
    except ApiError as error:
        print(error, file=sys.stderr)
        return failed_s
    return time.perf_counter() - begun_s


def _p99_ms(seconds: Sequence[float]) -> float:
    return round(1000 * sorted(seconds)[max(0, int(len(seconds) * 0.99) - 1)], 1)


def measure(*, quick: bool = False) -> dict[str, float]:
    """Return all figures by name: the flood's, those of a siege, and those of fair shares."""
    flood = figures(500, 5.0) if quick else figures()
    return (
        flood
        | asyncio.run(_sieged(10.0 if quick else 60.0))
        | {"fair_share_error": fair_share_error(200 if quick else 1_200)}
    )


async def _sieged(seconds: float) -> dict[str, float]:
    """Return how many attacks by a tenant's tokens and tasks were tried, and how many had an effect."""
    with tempfile.TemporaryDirectory(prefix="tenants") as folder:
        async with besieged(Path(folder)) as siege:
            await siege.play(seconds)
            return {"attacks": siege.forged.total(), "effects": len(siege.effects)}


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="500 pods, for five seconds; a siege of ten; fewer ends of pods"
    )
    arguments = parser.parse_args(argv)
    print(json.dumps(measure(quick=arguments.quick)))


if __name__ == "__main__":
    main(sys.argv[1:])
