"""A network in the page: a real collector's feed and a real path server, through the API server."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from msgspec.structs import replace

from collectors.collector import Collector
from collectors.events.rules import Rule, RuleSettings
from collectors.events.service import EventService
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.values import LinkCondition, LinkStatus
from controller.apiserver.settings import ViewSettings
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.network.paths.service.process import serve as serve_paths
from controller.network.paths.settings import ManagedFlow, PathServerSettings, RecordSettings
from dataplane.clock import MonotonicClock, UtcClock
from dataplane.local.deadline import local_timeout
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey
from tests.collectors.reports import Hop, Reporter
from tests.controller.apiserver.api_server import WAIT_S, Served, serving, settings_in
from tests.controller.apiserver.view.test_browsers import browser, signed_in

MS, S_NS = 1_000_000, 1_000_000_000
TOPOLOGY = """
millrace: 1
name: triangle
collector: {host: h3}
synchronised_clocks: true
defaults: {link: {rate: 1 Gbit/s, delay: 5 us}, access: {rate: 10 Gbit/s, delay: 1 us}}
switches: [{name: s1, id: 11}, {name: s2, id: 12}, {name: s3, id: 13}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: h3, switch: s3}]
links: [{a: s1, b: s2}, {a: s1, b: s3}, {a: s3, b: s2}]
"""


async def frames_of(client: httpx.AsyncClient) -> AsyncIterator[tuple[int, bytes]]:
    async with client.stream("GET", "/v1/view/stream") as answer:
        data = b""
        async for part in answer.aiter_bytes():
            data += part
            while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack_from(">I", data)[0]):
                yield data[4], data[5 : 4 + size]
                data = data[4 + size :]


async def frame_when(client: httpx.AsyncClient, kind: int, holds: Callable[[Any], bool]) -> Any:
    """Return the first frame of a type, decoded from JSON, for which a condition holds."""
    async for found, payload in frames_of(client):
        if found == kind and holds(value := json.loads(payload)):
            return value
    raise AssertionError("the stream ended")


@asynccontextmanager
async def network(folder: Path, collector: Collector) -> AsyncIterator[NetworkStateSettings]:
    """Run a feed of a collector, and a path server that manages h1 to h2."""
    settings = NetworkStateSettings(feed=f"unix:{folder}/feed", path_server=f"unix:{folder}/paths", interval_ns=20 * MS)
    events = EventService(collector, RuleSettings(rules=(Rule(name="slow", figure="delay_mean_ns", above=1000.0),)))
    feed, stop = FeedServer(collector, FeedSettings(address=settings.feed), events), asyncio.Event()
    await feed.start()
    judging = asyncio.create_task(events.run())
    paths = PathServerSettings(
        topology="unused",
        feed="unused",
        interval_ns=10 * MS,
        listen=f"unix:{folder}/paths",
        flows=(ManagedFlow(src="h1", dst="h2", rate_bps=1_000_000),),
        records=RecordSettings(database=str(folder / "paths.db")),
    )
    async with FeedClient(FeedClientSettings(address=settings.feed)) as client:
        topology = load_topology(folder / "triangle.yaml")
        task = asyncio.create_task(serve_paths(paths, topology, client, UtcClock(), stop))
        try:
            yield settings
        finally:
            stop.set()
            await task
            judging.cancel()
            await feed.stop()


def test_reports_become_links_flows_and_the_reason_of_a_move() -> None:
    async def act(served: Served, client: httpx.AsyncClient, collector: Collector) -> None:
        topology = await frame_when(client, 2, lambda _: True)
        assert [switch["name"] for switch in topology["switches"]] == ["s1", "s2", "s3"]
        assert [(cable["a"], cable["b"]) for cable in topology["cables"][:3]] == [(0, 1), (0, 2), (2, 1)]
        await frame_when(client, 6, lambda beat: beat["flows"]["of"] == 1)
        (flow,) = (await client.get("/v1/view/flows")).json()["flows"]
        assert (flow["src"], flow["dst"], flow["path"]) == ("h1", "h2", ["s1", "s2"])
        link = (await client.get("/v1/view/links/s1/s2")).json()
        assert [flow["text"] for flow in link["flows"]] == ["h1:5000 -> h2:6001"]
        figures = {figure["name"]: figure["value"] for figure in link["figures"]}
        assert figures["propagation"] == 5_000
        assert 6_000 <= figures["mean delay"] <= 8_000
        missing = (await client.get("/v1/view/links/s1/nowhere")).json()["detail"]
        assert missing == "topology triangle has no link s1->nowhere between switches"
        told = await frame_when(client, 5, lambda events: any(event["link"] == 0 for event in events))
        (event,) = (event for event in told if event["link"] == 0)
        assert (event["rule"], event["subject"]) == ("slow", "link s1->s2")
        # It is opened at a time of day, whatever clock the collector has.
        assert 0 <= time.time_ns() - event["opened_ns"] < WAIT_S * S_NS
        # The cable fails: the flow is moved, and the page is told of the move and its reason.
        both = LinkKey("s1", "s2"), LinkKey("s2", "s1")
        collector.note_links(dict.fromkeys(both, LinkStatus(LinkCondition.DOWN, 0, "no hello")))
        (move, *_) = await frame_when(client, 7, bool)
        assert (move["old"], move["new"]) == (["s1", "s2"], ["s1", "s3", "s2"])
        why = (await client.get("/v1/view/why", params={"src": "h1", "dst": "h2"})).json()
        assert why["path"] == ["s1", "s3", "s2"]
        assert why["decision"]["id"] == move["id"]
        assert {tuple(path["path"]): path["verdict"] for path in why["alternatives"]}["s1", "s2"].startswith("dead: ")
        elsewhere = (await client.get("/v1/view/why", params={"src": "h2", "dst": "h1"})).json()
        assert (elsewhere["path"], elsewhere["alternatives"]) == (None, [])
        assert "is not managed" in elsewhere["words"][0]
        unknown = await client.get("/v1/view/why", params={"src": "h9", "dst": "h2"})
        assert (unknown.status_code, unknown.json()["detail"]) == (404, "topology triangle has no host h9")

    run(act)


def test_silent_collector_is_said_with_its_age() -> None:
    async def act(served: Served, client: httpx.AsyncClient, collector: Collector) -> None:
        def problem(beat: Any) -> bool:
            (source,) = (source for source in beat["sources"] if source["name"] == "collector")
            return source["problem"] is not None and source["age_ns"] is None

        beat = await frame_when(client, 6, problem)
        assert "/nowhere" in str(beat["sources"])

    run(act, feed="unix:/nowhere/feed")


def run(act: Callable[[Served, httpx.AsyncClient, Collector], Any], feed: str | None = None) -> None:
    async def main(folder: Path) -> None:
        file = folder / "triangle.yaml"
        file.write_text(TOPOLOGY, "utf-8")
        topology = load_topology(file)
        collector = Collector(topology, MonotonicClock())
        ports = {pair: port for link in topology.links for pair, port in _ports(link)}

        async def report() -> None:
            reporter = Reporter(str(topology.host["h1"].ipv4), str(topology.host["h2"].ipv4))
            while True:
                now_ns = UtcClock().now_ns()
                hops = [
                    Hop(11, now_ns, now_ns + 2_000, ports["s1", "h1"], ports["s1", "s2"]),
                    Hop(12, now_ns + 7_000, now_ns + 9_000, ports["s2", "s1"], ports["s2", "h2"]),
                ]
                collector.receive(reporter.stacked(hops))
                await asyncio.sleep(0.01)

        async with local_timeout(WAIT_S, "a test"), network(folder, collector) as real:
            reports = asyncio.create_task(report())
            state = real if feed is None else replace(real, feed=feed)
            settings = replace(settings_in(folder), view=ViewSettings(topology=str(file), network_state=state))
            async with serving(settings, folder) as served, browser(served) as client:
                await signed_in(served, client)
                await act(served, client, collector)
            reports.cancel()

    with TemporaryDirectory(prefix="page") as name:
        asyncio.run(main(Path(name)))


def _ports(link: Any) -> tuple[tuple[tuple[str, str], int], ...]:
    a, b = link.a, link.b
    return ((a.node, b.node), a.port), ((b.node, a.node), b.port)
