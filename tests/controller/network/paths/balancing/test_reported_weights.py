"""Reports of weight changes: routes, reasons, history, a restart, all over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from collectors.values import DelaySource, FlowKey, LinkState, LinkStatus, PathState, Snapshot
from collectors.values import LinkCondition as Condition
from controller.apps.cli.network.paths import _history_cells
from controller.network.intents import FlowSpec, WeightedRoute
from controller.network.paths.core import PathServerCore
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import HistoryQuery
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.service.process import serve
from controller.network.paths.settings import BalanceSettings, DecideSettings, PathServerSettings, RecordSettings
from controller.network.tables.path_choice import chosen, digest, flow_hash
from dataplane.clock import VirtualClock
from dataplane.database import Database
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP
from tests.controller.network.paths.balancing.small_fabrics import MBPS, fabric
from tests.controller.network.paths.service.test_server import FakeFeed, play
from tests.waiting import until

OpenDatabase = Callable[[str], Database]

MS = 1_000_000
CROWDED = LinkKey("leaf1", "spine1")
DECIDE = DecideSettings(balance=BalanceSettings(confirm_rounds=2))
PAIRS = (("h1", "h3"), ("h2", "h4"))


def keys(topology: Topology, counts: dict[str, int]) -> list[tuple[FlowKey, str]]:
    """Return 5-tuples of two pairs of hosts from leaf1 to leaf2, with this many hashed to each spine."""
    keyed, left, port = [], dict(counts), 4000
    while any(left.values()):
        port += 1
        src, dst = (topology.host[name].ipv4 for name in PAIRS[port % 2])
        key = FlowKey(src, dst, PROTOCOL_UDP, port, 4000)
        spine = ("spine1", "spine2")[chosen((1, 1), digest(flow_hash(key), topology.switch["leaf1"].node_id))]
        if left[spine]:
            left[spine] -= 1
            keyed.append((key, spine))
    return keyed


def crowded(topology: Topology) -> Snapshot:
    """Return a snapshot with 18 of 23 flows of 0.5 Mbit/s on one uplink of 10 Mbit/s, which has a queue."""
    paths = {
        key: PathState(key, ("leaf1", spine, "leaf2"), MS, 0, 0, MBPS // 2, measured_bytes=10**6)
        for key, spine in keys(topology, {"spine1": 18, "spine2": 5})
    }
    links = {
        key: LinkState(key, 10 * MBPS, delay, delay, delay, 0.0, used, int((1 - used) * 10 * MBPS), None, 0, 9, source)
        for key, delay, used, source in (
            (CROWDED, 30 * MS, 0.95, DelaySource.STAMPS),
            (LinkKey("leaf1", "spine2"), 1000, 0.25, DelaySource.STAMPS),
        )
    }
    return Snapshot(0, links, paths, {})


def test_weights_are_reported_recorded_and_restored(tmp_path: Path, open_database: OpenDatabase) -> None:
    topology = fabric()
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=100)
    core = PathServerCore(topology, DECIDE, store=store)
    assert core.step(crowded(topology), 100 * MS) is None
    result = core.step(crowded(topology), 200 * MS)
    assert result is not None
    routes = result.routes
    [route] = routes.weighted
    assert routes.routes == ()
    assert (route.switch, route.destination) == ("leaf1", "leaf2")
    told = core.why(FlowSpec("h1", "h3"), 200 * MS).reason
    assert f"weights along its path: at leaf1 by spine1 ({dict(route.next_hops)['spine1']})" in told
    [change] = core.history(HistoryQuery(dst="h4")).rebalances
    assert change.new_weights == route.next_hops
    assert core.history(HistoryQuery(dst="h1")).rebalances == ()
    assert core.history(HistoryQuery(src="h1")).rebalances == ()
    assert core.history(HistoryQuery(end_ns=200 * MS)).rebalances == ()
    again = PathServerCore(topology, DECIDE, store=store)
    assert again.routes == routes
    assert again.counters["saved_routes_dropped"] == 0
    cells = _history_cells(change)
    assert cells[1] == "all to leaf2 at leaf1"
    assert "leaf1->spine1 is overloaded" in str(cells[3])


def test_without_the_setting_nothing_changes() -> None:
    topology = fabric()
    core = PathServerCore(topology, DecideSettings(balance=BalanceSettings(enabled=False)))
    assert [core.step(crowded(topology), number * 100 * MS) for number in range(10)] == [None] * 10


@pytest.mark.parametrize("told", ["controller", "hand"])
def test_link_down_removes_weights_over_it_at_once(told: str) -> None:
    topology = fabric()
    core = PathServerCore(topology, DECIDE)
    for number in range(2):
        core.step(crowded(topology), number * 100 * MS)
    assert core.routes.weighted
    dead = LinkKey("leaf1", "spine2")
    if told == "hand":
        result = core.link_changed(dead, 250 * MS, up=False)
    else:
        result = core.links_noted({dead: LinkStatus(Condition.DOWN, 0, "no carrier")}, 250 * MS)
    assert result is not None
    assert result.routes.weighted == ()
    assert core.rebalances[-1].link == dead


async def has_stepped(client: RouteClient, before_ns: int | None) -> bool:
    return (await client.status()).last_step_ns != before_ns


def test_changes_reach_a_client(tmp_path: Path) -> None:
    topology = fabric()

    async def scene() -> None:
        settings = PathServerSettings(
            topology="unused",
            feed="unused",
            listen=f"unix:{tmp_path}/paths.sock",
            decide=DECIDE,
            records=RecordSettings(database=str(tmp_path / "paths.db")),
        )
        feed, clock, stop, ready = FakeFeed(), VirtualClock(), asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(serve(settings, topology, feed, clock, stop, on_ready=lambda _line: ready.set()))
        await ready.wait()
        async with RouteClient(RouteClientSettings(address=settings.listen)) as client:
            async with aclosing(client.rebalances()) as changes:  # type: ignore[type-var]
                for number in range(1, 3):
                    before = (await client.status()).last_step_ns
                    clock.advance_to(number * 100 * MS)
                    feed.waiting.put_nowait(crowded(topology))
                    await until(partial(has_stepped, client, before), "the snapshot is not taken")
                change = await anext(changes)
            [route] = (await client.current_routes()).weighted
            assert route == WeightedRoute(change.switch, change.destination, change.new_weights)
            assert (await client.history(HistoryQuery())).rebalances == (change,)
            assert (await client.status()).counters["rebalances"] == 1
        stop.set()
        await task

    play(scene())
