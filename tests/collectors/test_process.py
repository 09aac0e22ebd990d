"""The collector process: settings file, sockets, orderly end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from collectors.errors import CollectorError
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedSettings
from collectors.ingest.receiver import ReceiverSettings
from collectors.process import CollectorProcessSettings, load_settings, serve
from collectors.settings import CollectorSettings, StateSettings
from collectors.shards.membership import record_of
from collectors.shards.settings import CollectorLeases, ShardSettings
from collectors.shards.values import PREFIX, CollectorRecord
from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError
from dataplane.leases.sqlite import SqliteLeases
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import finish_within, until

SETTINGS = CollectorProcessSettings(
    topology="unused",
    receiver=ReceiverSettings(address="127.0.0.1", udp_port=0),
    feed=FeedSettings(address="127.0.0.1:0"),
    collector=CollectorSettings(relays=("127.0.0.1",)),
)


def test_a_settings_file_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(
        "topology: abilene\nfeed:\n  address: 127.0.0.1:0\ncollector:\n  state:\n    window: 1us\n", "utf-8"
    )
    assert load_settings(file) == CollectorProcessSettings(
        topology="abilene",
        feed=FeedSettings(address="127.0.0.1:0"),
        collector=CollectorSettings(state=StateSettings(window_ns=1000)),
    )
    file.write_text("topology: abilene\ncollector:\n  state:\n    window_ms: 1\n", "utf-8")
    with pytest.raises(ConfigError, match=r"collector.yaml:4: .*window_ms: unknown key"):
        load_settings(file)
    file.write_text("topology: abilene\ncollector:\n  relays: [here]\n", "utf-8")
    with pytest.raises(ConfigError, match=r"collector.yaml:2: .*'here' is not an IPv4 address"):
        load_settings(file)
    file.write_text("topology: abilene\nreceiver:\n  burst_reports: 0\n", "utf-8")
    with pytest.raises(ConfigError, match=r"collector.yaml:3: .*burst_reports"):
        load_settings(file)


def test_it_receives_serves_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        messages: list[str] = []

        def on_ready(line: str) -> None:
            messages.append(line)
            ready.set()

        process = asyncio.create_task(serve(SETTINGS, build_topology(), VirtualClock(), stop, on_ready))
        await ready.wait()
        port, address = messages[0].removeprefix("reports on UDP port ").split(", feed at ")
        async with FeedClient(FeedClientSettings(address=address)) as client:
            records = client.records()
            assert await anext(records) == ()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(Reporter().stacked(long_way()), ("127.0.0.1", int(port)))
            assert [record.node_id for record in await anext(records)] == [11, 12, 13]
            stop.set()
            await process
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", int(port)))

    asyncio.run(finish_within(scenario(), 20))


def test_a_feed_that_cannot_be_served_frees_the_report_port() -> None:
    async def scenario() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        settings = CollectorProcessSettings(
            topology="unused",
            receiver=ReceiverSettings(address="127.0.0.1", udp_port=port),
            feed=FeedSettings(address="unix:/no/such/folder/socket"),
        )
        with pytest.raises(CollectorError, match="cannot serve the feed"):
            await serve(settings, build_topology(), VirtualClock(), asyncio.Event())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", port))

    asyncio.run(scenario())


def test_one_of_several_has_its_lease_until_it_ends(tmp_path: Path) -> None:
    leases = CollectorLeases(sqlite=str(tmp_path / "leases"))

    async def scenario() -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        settings = msgspec.structs.replace(SETTINGS, shard=ShardSettings(leases, "h2", lease_ns=60_000_000_000))
        # Looks are 3 s apart with such a lease, which a slow machine does not lose.
        process = asyncio.create_task(serve(settings, build_topology(), VirtualClock(), stop, lambda _: ready.set()))
        await ready.wait()
        with SqliteLeases(str(tmp_path / "leases"), 10.0, CollectorError) as storage:

            def record() -> CollectorRecord:
                entry = storage.below(PREFIX).get(f"{PREFIX}h2")
                return CollectorRecord(0, 0, 0) if entry is None else record_of("h2", entry)

            await until(lambda: bool(record().feed))
            told = record()
            assert (told.generation, told.host) == (1, "h2")
            async with FeedClient(FeedClientSettings(address=told.feed)) as client:
                assert (await client.status()).counters == {}
            stop.set()
            await until(lambda: not record().feed)
            # It would receive for another lease.
            process.cancel()
            await asyncio.wait((process,))

    asyncio.run(finish_within(scenario(), 60))


def test_host_of_a_shard_must_be_one_of_the_topology(tmp_path: Path) -> None:
    leases = CollectorLeases(sqlite=str(tmp_path / "leases"))
    settings = msgspec.structs.replace(SETTINGS, shard=ShardSettings(leases, "h3"))
    with pytest.raises(CollectorError, match=r"^shard\.host: topology triangle has no host h3"):
        asyncio.run(serve(settings, build_topology(), VirtualClock(), asyncio.Event()))
