"""The ALTO server over real sockets, on a collector's feed: media types, versions, refusals, settings."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import httpx
import msgspec
import pytest

from collectors.collector import Collector
from collectors.feed.server import FeedServer, FeedSettings
from controller.cluster.alto.process import listen, load_settings, serve
from controller.cluster.alto.settings import AltoSettings
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.errors import ControllerError
from dataplane.clock import MonotonicClock
from dataplane.errors import ConfigError
from tests.controller.cluster.cost_map.fabrics import fabric
from tests.waiting import finish_within, until

T = TypeVar("T")
TOPOLOGY = fabric("ring:switches=3,hosts=2")
FILTER = {"content-type": "application/alto-costmapfilter+json"}


def run(scenario: Callable[[Path], Awaitable[T]]) -> T:
    async def bounded() -> T:
        # A unix socket's path has about 100 bytes; pytest's own folders may be longer.
        with TemporaryDirectory(prefix="alto") as folder:
            return await finish_within(scenario(Path(folder)), 20)

    return asyncio.run(bounded())


@asynccontextmanager
async def collecting(folder: Path) -> AsyncIterator[None]:
    server = FeedServer(Collector(TOPOLOGY, MonotonicClock()), FeedSettings(address=f"unix:{folder}/feed"))
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def serving(folder: Path, **more: object) -> AsyncIterator[httpx.AsyncClient]:
    """Serve at a UNIX socket, or at `listen`; return a client."""
    state = NetworkStateSettings(feed=f"unix:{folder}/feed", path_server=None, interval_ns=10_000_000)
    fields = {"topology": "unused", "listen": f"unix:{folder}/alto", "network_state": state, **more}
    settings = AltoSettings(**fields)  # type: ignore[arg-type]
    stop, lines = asyncio.Event(), asyncio.Queue[str]()
    task = asyncio.create_task(serve(settings, TOPOLOGY, MonotonicClock(), stop, on_ready=lines.put_nowait))
    ready = asyncio.create_task(lines.get())
    await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    line = await ready
    try:
        if settings.listen.startswith("unix:"):
            transport = httpx.AsyncHTTPTransport(uds=settings.listen.removeprefix("unix:"))
            client = httpx.AsyncClient(transport=transport, base_url="http://alto")
        else:
            client = httpx.AsyncClient(base_url=line.removeprefix("ALTO directory at ").removesuffix("/directory"))
        async with client:
            yield client
    finally:
        stop.set()
        await task


def test_ready_means_that_costs_are_known() -> None:
    async def scenario(folder: Path) -> None:
        state = NetworkStateSettings(feed=f"unix:{folder}/feed", path_server=None, interval_ns=10_000_000)
        settings = AltoSettings(topology="unused", listen=f"unix:{folder}/alto", network_state=state)
        stop, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(serve(settings, TOPOLOGY, MonotonicClock(), stop, on_ready=lambda _: ready.set()))
        transport = httpx.AsyncHTTPTransport(uds=f"{folder}/alto", retries=10)
        async with httpx.AsyncClient(transport=transport, base_url="http://alto") as client:
            await until((folder / "alto").exists)
            assert (await client.get("/networkmap/hosts")).status_code == 200
            early = await client.get("/costmap/hosts/delay-ow-num")
            assert (early.status_code, early.headers["retry-after"], ready.is_set()) == (503, "5", False)
            assert "the collector has sent nothing yet" in early.text
            async with collecting(folder):
                await ready.wait()
                assert (await client.get("/costmap/hosts/delay-ow-num")).status_code == 200
        stop.set()
        await task
        ready.clear()
        await serve(settings, TOPOLOGY, MonotonicClock(), stop, on_ready=lambda _: ready.set())
        assert not ready.is_set(), "it was stopped before"

    run(scenario)


def test_a_client_finds_its_way_from_the_directory() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder) as client:
            directory = (await client.get("/directory")).json()
            for name, resource in directory["resources"].items():
                if "accepts" not in resource:
                    answer = await client.get(resource["uri"], headers={"accept": resource["media-type"]})
                    assert (answer.status_code, answer.headers["content-type"]) == (200, resource["media-type"]), name
            body = {"cost-type": {"cost-mode": "numerical", "cost-metric": "delay-ow"}, "pids": {"srcs": ["h1"]}}
            answer = await client.post("/costmap/hosts/filtered", json=body, headers=FILTER)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "application/alto-costmap+json"
            assert list(answer.json()["cost-map"]) == ["h1"]

    run(scenario)


def test_head_is_answered_as_get_without_the_body() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder) as client:
            for path in ("/directory", "/networkmap/hosts", "/costmap/hosts/delay-ow-num"):
                full, head = await client.get(path), await client.head(path)
                # Costs change while the collector's knowledge ages: ask until the answers around the head are as long.
                while len((after := await client.get(path)).content) != len(full.content):
                    full, head = after, await client.head(path)
                assert (head.status_code, head.content) == (200, b"")
                names = ("content-type", "content-length", "etag", "cache-control")
                assert [head.headers.get(name) for name in names] == [full.headers.get(name) for name in names], path
                if tag := full.headers.get("etag"):
                    assert (await client.head(path, headers={"if-none-match": tag})).status_code == 304
            assert (await client.head("/nothing")).status_code == 404
            assert (await client.head("/costmap/hosts/nothing")).status_code == (
                await client.get("/costmap/hosts/nothing")
            ).status_code

    run(scenario)


def test_loopback_uris_are_absolute_and_the_source_is_optional() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder, listen="127.0.0.1:0") as client:
            directory = (await client.get("/directory")).json()
            uri = directory["resources"]["endpoint-cost"]["uri"]
            assert uri == f"{client.base_url}/endpointcost/lookup".replace("//endpoint", "/endpoint")
            body = {
                "cost-type": {"cost-mode": "numerical", "cost-metric": "delay-ow"},
                "endpoints": {"dsts": [f"ipv4:{TOPOLOGY.hosts[0].ipv4}"]},
            }
            answer = await client.post(
                uri, json=body, headers={"content-type": "application/alto-endpointcostparams+json"}
            )
            # A client at 127.0.0.1 is not a host of the fabric.
            assert answer.json()["endpoint-cost-map"] == {}

    run(scenario)


def test_unchanged_content_is_not_sent_again() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder) as client:
            first = await client.get("/costmap/hosts/delay-ow-num")
            again = await client.get("/costmap/hosts/delay-ow-num", headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert int(again.headers["age"]) >= 0
            other = await client.get("/costmap/hosts/delay-ow-num", headers={"if-none-match": '"other"'})
            assert other.status_code == 200

    run(scenario)


def test_refusals() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder, request_bytes=1000) as client:
            bad = await client.post("/costmap/hosts/filtered", content=b"{}", headers=FILTER)
            assert (bad.status_code, bad.headers["content-type"]) == (400, "application/alto-error+json")
            assert bad.json() == {"meta": {"code": "E_MISSING_FIELD", "field": "cost-type"}}
            for answer, status, text in (
                (await client.post("/costmap/hosts/filtered", json={}), 415, "alto-costmapfilter+json"),
                (await client.get("/directory", headers={"accept": "text/html"}), 406, "alto-directory+json"),
                (await client.get("/costmap/hosts/hops"), 404, "no such resource"),
                (await client.get("/networkmap/racks"), 404, "no such resource"),
                (await client.get("/nowhere"), 404, ""),
                (await client.put("/directory"), 405, ""),
                (await client.post("/costmap/hosts/filtered", content=b" " * 1001, headers=FILTER), 413, ""),
            ):
                assert answer.status_code == status
                assert text in answer.text
                assert "Traceback" not in answer.text

    run(scenario)


def test_a_body_that_does_not_come_ends_the_request() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder, request_timeout_ns=50_000_000):
            reader, writer = await asyncio.open_unix_connection(f"{folder}/alto")
            head = "POST /costmap/hosts/filtered HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
            writer.write(f"{head}Content-Type: {FILTER['content-type']}\r\n\r\n".encode())
            assert b" 408 " in await reader.readline()
            writer.close()

    run(scenario)


def test_a_head_that_does_not_come_ends_the_connection() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder, request_timeout_ns=50_000_000):
            reader, writer = await asyncio.open_unix_connection(f"{folder}/alto")
            writer.write(b"GET /directory HT")
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_a_reader_that_takes_nothing_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "millrace.alto")

    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder, request_timeout_ns=100_000_000) as client:
            with socket.socket(socket.AF_UNIX) as reader:
                reader.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(reader, f"{folder}/alto")
                with suppress(ConnectionResetError, BrokenPipeError):  # once it is disconnected
                    while True:
                        await loop.sock_sendall(reader, b"GET /directory HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
            assert (await client.get("/directory")).status_code == 200

    run(scenario)
    assert "the client was too slow" in caplog.text


def test_socket_is_private_and_other_addresses_are_refused() -> None:
    async def scenario(folder: Path) -> None:
        async with collecting(folder), serving(folder):
            assert stat.S_IMODE((folder / "alto").stat().st_mode) == 0o600
            with pytest.raises(ControllerError, match="another process listens there"), listen(f"unix:{folder}/alto"):
                pass
        assert not (folder / "alto").exists()
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(folder / "alto"))
        with listen(f"unix:{folder}/alto"):  # a killed server's socket is taken over
            pass

    run(scenario)
    with pytest.raises(ControllerError, match="nothing authenticates them"), listen("0.0.0.0:0"):
        pass
    with pytest.raises(ControllerError, match="is neither unix:PATH nor HOST:PORT"), listen("here"):
        pass


def test_settings_are_strict(tmp_path: Path) -> None:
    path = tmp_path / "alto.yaml"
    path.write_text("topology: abilene\nnetwork_state: {path_server: null}\n")
    assert load_settings(path).network_state.path_server is None
    path.write_text("topology: abilene\nlisten_at: 127.0.0.1:80\n")
    with pytest.raises(ConfigError, match="listen_at"):
        load_settings(path)
    assert json.loads(msgspec.json.encode(AltoSettings(topology="abilene")))["most_pairs"] == 4_000_000
