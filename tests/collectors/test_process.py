"""The collector process: settings file, sockets, orderly end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from collectors.errors import CollectorError
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedSettings
from collectors.ingest.receiver import ReceiverSettings
from collectors.process import CollectorProcessSettings, load_settings, serve
from collectors.settings import CollectorSettings, StateSettings
from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import finish_within

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
