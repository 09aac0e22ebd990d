"""Addresses to listen at: those that gRPC would share, steal or explain badly are refused in one line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.errors import CollectorError, FeedError
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from dataplane.clock import VirtualClock
from dataplane.rpc.addresses import exposed, is_loopback, malformed, unavailable
from tests.collectors.reports import build_topology
from tests.waiting import finish_within


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a short name: a unix socket's path has about 100 bytes."""
    with TemporaryDirectory(prefix="at") as name:
        yield Path(name)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "x",
        "127.0.0.1",
        ":5",
        "h:",
        "h:x",
        "h:65536",
        "h:-1",
        "h:²",
        "unix:",
        "unix:a\0",
        "unix-abstract:x",
        "1:2:3",
        "[h]:1",
        "a b:1",
        "a\n:1",
        "h/x:1",
        "h:" + "9" * 5000,
    ],
)
def test_what_is_no_address(address: str) -> None:
    assert malformed(address) is not None
    assert unavailable(address) is not None


@pytest.mark.parametrize(
    "address", ["localhost:1", "[::1]:65535", "::1:5", "h-1.x:1", "unix:x", "unix:///tmp/x", "plain:h:1"]
)
def test_what_is_one(address: str) -> None:
    assert malformed(address) is None


def test_a_path_is_as_long_as_a_socket_allows() -> None:
    assert malformed("unix:" + "x" * 107) is None
    assert malformed("unix:" + "x" * 108) == "the path has 108 bytes, a socket's at most 107"


def test_what_is_taken_is_not_available(folder: Path) -> None:
    assert unavailable(f"unix:{folder}/none/s") == f"there is no folder {folder}/none"
    (folder / "file").write_text("", encoding="utf-8")
    assert unavailable(f"unix:{folder}/file") == "something other than a socket is there"
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(folder / "s"))
        server.listen()
        assert unavailable(f"unix:{folder}/s") == "another process listens there"
    assert unavailable(f"unix:{folder}/s") is None  # left behind, to be removed
    with closing(socket.create_server(("127.0.0.1", 0))) as tcp:
        port = tcp.getsockname()[1]
        assert unavailable(f"127.0.0.1:{port}") == "Address already in use"
    assert unavailable("no.such.host.invalid:1") is not None
    assert unavailable("127.0.0.1:0") is None


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_second_server_is_refused_and_the_first_one_goes_on(folder: Path, kind: str) -> None:
    async def scene() -> None:
        collector = Collector(build_topology(), VirtualClock())
        first = FeedServer(collector, FeedSettings(address=f"unix:{folder}/s" if kind == "unix" else "127.0.0.1:0"))
        await first.start()
        with pytest.raises(CollectorError, match=r"cannot serve the feed at .*: (another process|Address already)"):
            FeedServer(collector, FeedSettings(address=first.address))
        async with FeedClient(FeedClientSettings(address=first.address)) as client:
            assert (await client.status()).counters == {}
        await first.stop()

    asyncio.run(finish_within(scene(), 20))


@pytest.mark.parametrize("address", ["192.0.2.1:9", "[2001:db8::1]:9", "collector.example:9", "0.0.0.0:9"])
def test_a_client_calls_nothing_in_the_open_beyond_loopback(address: str) -> None:
    async def scene() -> None:
        with pytest.raises(FeedError, match=r"it is not loopback, and there is no tls; .* write plain:"):
            async with FeedClient(FeedClientSettings(address=address)):
                pass
        async with FeedClient(FeedClientSettings(address=f"plain:{address}")):
            pass

    asyncio.run(scene())


@pytest.mark.parametrize("address", ["127.0.0.1:9", "127.1.2.3:9", "[::1]:9", "localhost:9", "plain:localhost:9"])
def test_what_is_loopback(address: str) -> None:
    assert is_loopback(address)
    assert exposed(address, has_tls=False) is None


def test_a_client_is_told_at_once() -> None:
    async def scene() -> None:
        with pytest.raises(FeedError, match=r"collector at 'nowhere': is neither unix:PATH nor HOST:PORT"):
            async with FeedClient(FeedClientSettings(address="nowhere")):
                pass

    asyncio.run(scene())
