"""The path server's core: managed flows, memory and explanations."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from msgspec.structs import replace

from collectors.values import DelaySource, FlowKey, LinkState, PathState, Snapshot
from controller.common.errors import PathError
from controller.network.intents import PROBE_UDP_PORT, FlowSpec, Route, WeightedRoute
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.graph import Network
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import HistoryQuery
from controller.network.paths.settings import DecideSettings, ManagedFlow
from dataplane.database import Database
from dataplane.topology.values import LinkKey, Topology

MakeTopology = Callable[..., Topology]
OpenDatabase = Callable[[str], Database]

MS = 1_000_000
AD = FlowSpec("ha", "hd")
SETTINGS = DecideSettings(hold_down_ns=1000 * MS, settle_ns=0, min_gain_ns=MS, confirm_rounds=1)
MANAGED = (ManagedFlow(src="ha", dst="hd", rate_bps=1_000_000),)


@pytest.fixture(scope="module")
def topology(diamond_of: MakeTopology) -> Topology:
    """Return the diamond where a-b-d is the only base path from a to d."""
    return diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS))


def snapshot(
    topology: Topology, *, queues: dict[str, int] | None = None, paths: tuple[str, ...] = (), dst_port: int = 4000
) -> Snapshot:
    """Return a snapshot with queues (ms) on links such as 'ab' and flows from ha to hd on paths such as 'abd'."""
    links = {}
    for name, queue_ms in (queues or {}).items():
        link = topology.directed_links[LinkKey(*name)]
        delay = link.delay_ns + queue_ms * MS
        links[link.key] = LinkState(
            link.key, link.rate_bps, delay, delay, delay, 0.0, 0.5, link.rate_bps // 2, None, 0, 9, DelaySource.STAMPS
        )
    seen = {}
    for port, path in enumerate(paths, 1):
        key = FlowKey(IPv4Address("10.0.1.1"), IPv4Address("10.0.4.1"), 17, port, dst_port)
        seen[key] = PathState(key, tuple(path), 1, 1, port)
    return Snapshot(0, links, seen, {})


def test_a_move_and_the_way_back_are_versions_of_the_route_set(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED)
    assert core.step(snapshot(topology), 0) is None
    moved = core.step(snapshot(topology, queues={"ab": 40}), 100 * MS)
    assert moved is not None
    assert (moved.routes.version, moved.routes.routes) == (1, (Route(AD, ("a", "c", "d")),))
    assert core.step(snapshot(topology), 200 * MS) is None
    back = core.step(snapshot(topology), 1100 * MS)
    assert back is not None
    assert (back.routes.version, back.routes.routes) == (2, ())
    assert [decision.new_path for decision in core.decisions] == [("a", "c", "d"), ("a", "b", "d")]
    assert core.step(snapshot(topology, queues={"ab": 40}), 1200 * MS) is None  # held down on the base path, too


def test_probes_of_links_are_no_flows_that_could_be_moved(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS)
    for now_ms in range(5):
        probes = snapshot(topology, queues={"ab": 40}, paths=("abd",), dst_port=PROBE_UDP_PORT)
        assert core.step(probes, now_ms * MS) is None
    assert core.flows == 0


def test_rounds_are_prepared_until_it_is_enough(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED)
    core.decide(snapshot(topology), 0)
    asked: list[bool] = []

    def is_enough() -> bool:
        asked.append(True)
        return len(asked) > 1

    core.prepare(is_enough)
    assert len(asked) == 2
    core.prepare(lambda: False)
    core.prepare(is_enough)
    assert len(asked) == 2, "nothing is left to prepare"


def test_flows_are_discovered_from_telemetry_and_forgotten(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, forget_after_ns=500 * MS)
    assert core.step(snapshot(topology, queues={"ab": 40}), 0) is None
    assert core.step(snapshot(topology, queues={"ab": 40}, paths=("abd",)), 1 * MS) is not None
    assert core.flows == 1
    assert core.step(snapshot(topology), 501 * MS) is None
    gone = core.step(snapshot(topology), 502 * MS)
    assert gone is not None
    assert (gone.routes.version, gone.routes.routes, core.flows) == (2, (), 0)


def test_telemetry_shows_the_used_equal_base_path(diamond_of: MakeTopology) -> None:
    topology = diamond_of((5 * MS, 5 * MS, 5 * MS, 5 * MS, 20 * MS))
    core = PathServerCore(topology, SETTINGS)
    core.step(snapshot(topology, paths=("acd",)), 0)
    assert core.positions.current(snapshot(topology, paths=("acd", "abd")), 0)[AD].path == ("a", "c", "d")
    assert core.positions.current(snapshot(topology, paths=("abd", "acd")), 0)[AD].path == ("a", "b", "d")
    assert core.positions.current(snapshot(topology, paths=("ab",)), 0)[AD].path == ("a", "b", "d")


def test_more_flows_than_allowed_are_counted_and_left_alone(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, max_flows=0)
    assert core.step(snapshot(topology, queues={"ab": 40}, paths=("abd",)), 0) is None
    assert core.counters["flows_over_limit"] == 1


def test_heavy_newcomer_takes_the_place_of_a_light_flow(topology: Topology) -> None:
    hosts = [f"10.0.{number}.1" for number in range(1, 5)]
    keys = [FlowKey(IPv4Address(src), IPv4Address("10.0.4.1"), 17, 1, 4000) for src in hosts[:3]]

    def sending(*rates_bps: int | None) -> Snapshot:
        paths = {key: PathState(key, ("a", "b"), 1, 1, 0, rate) for key, rate in zip(keys, rates_bps, strict=False)}
        return Snapshot(0, {}, paths, {})

    core = PathServerCore(topology, SETTINGS, max_flows=2)
    core.step(sending(1000, 100), 0)
    core.step(sending(1000, 100, 150), 1000 * MS)
    assert core.counters["flows_over_limit"] == 1
    core.step(sending(1000, 100, 900), 1500 * MS)
    assert core.counters["flows_replaced"] == 0, "flows are replaced once a second at most"
    core.step(sending(1000, 100, 900), 2000 * MS)
    assert set(core.positions.current(Snapshot(0, {}, {}, {}), 0)) == {FlowSpec("ha", "hd"), FlowSpec("hc", "hd")}
    assert (core.flows, core.counters["flows_replaced"]) == (2, 1)


def test_flows_over_the_limit_are_counted_and_the_first_kept(topology: Topology) -> None:
    hosts = [f"10.0.{number}.1" for number in range(1, 5)]
    pairs = [(src, dst) for src in hosts for dst in hosts if src != dst]
    keys = [FlowKey(IPv4Address(src), IPv4Address(dst), 17, 1, 4000) for src, dst in pairs]
    seen = {key: PathState(key, ("a", "b"), 1, 1, 0) for key in keys}
    core = PathServerCore(topology, SETTINGS, max_flows=2)
    core.step(Snapshot(0, {}, seen, {}), 0)
    assert set(core.positions.current(Snapshot(0, {}, {}, {}), 0)) == {FlowSpec("ha", "hb"), FlowSpec("ha", "hc")}
    assert core.counters["flows_over_limit"] == 10


def test_round_returns_its_moves_without_decision_history(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED)
    core.decisions = deque(maxlen=0)
    result = core.step(snapshot(topology, queues={"ab": 40}), 0)
    assert result is not None
    assert [(move.flow, move.new_path) for move in result.moves] == [(AD, ("a", "c", "d"))]
    assert result.routes == core.routes
    assert not core.decisions


def test_routes_and_decisions_survive_a_restart(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    path = str(tmp_path / "paths.db")
    database = open_database(path)
    core = PathServerCore(topology, SETTINGS, flows=MANAGED, store=PathStore(database, max_decisions=9))
    core.step(snapshot(topology, queues={"ab": 40}), 100 * MS)
    database.close()
    again = PathServerCore(topology, SETTINGS, flows=MANAGED, store=PathStore(open_database(path), max_decisions=9))
    assert again.routes == core.routes
    assert list(again.decisions) == list(core.decisions)
    assert again.step(snapshot(topology), 1000 * MS) is None  # still held down
    assert again.step(snapshot(topology), 1100 * MS) is not None


def test_saved_route_that_the_topology_lost_is_dropped(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    core = PathServerCore(topology, SETTINGS, flows=MANAGED, store=store)
    core.step(snapshot(topology, queues={"ab": 40}), 0)
    smaller = Topology(
        "smaller",
        topology.switches,
        topology.hosts,
        tuple(link for link in topology.links if {link.a.node, link.b.node} != {"c", "d"}),
    )
    again = PathServerCore(smaller, SETTINGS, flows=MANAGED, store=store)
    assert (again.routes.version, again.routes.routes) == (2, ())
    assert again.counters["saved_routes_dropped"] == 1


def test_saved_explicit_paths_go_under_traffic_engineering(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    """They would be unmanaged: not even a dead link would move them."""
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    PathServerCore(topology, SETTINGS, flows=MANAGED, store=store).step(snapshot(topology, queues={"ab": 40}), 0)
    again = PathServerCore(topology, SETTINGS, flows=MANAGED, store=store, engineering=EngineeringSettings())
    assert (again.routes.version, again.routes.routes) == (2, ())
    assert again.counters["saved_routes_dropped"] == 1


def test_saved_weights_are_dropped_without_engineering(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    weighted = (WeightedRoute("a", "d", (("b", 1), ("c", 1))),)
    store.save(7, {}, (), weighted)
    settings = EngineeringSettings()
    kept = PathServerCore(topology, SETTINGS, flows=MANAGED, store=store, engineering=settings)
    assert (kept.routes.version, kept.routes.weighted) == (7, weighted)
    again = PathServerCore(topology, SETTINGS, flows=MANAGED, store=store)
    assert (again.routes.version, again.routes.weighted) == (8, ())
    assert again.counters["saved_routes_dropped"] == 1


def test_the_oldest_decisions_go(topology: Topology, open_database: OpenDatabase) -> None:
    store = PathStore(open_database(":memory:"), max_decisions=3)
    core = PathServerCore(topology, SETTINGS, flows=MANAGED, store=store)
    for turn in range(5):
        core.step(snapshot(topology, queues={"ab": 40} if turn % 2 == 0 else {}), turn * 1000 * MS)
    assert [decision.time_ns // MS for decision in store.decisions(HistoryQuery())] == [4000, 3000, 2000]
    assert store.decisions(HistoryQuery(src="hd", dst="ha")) == []
    assert len(store.decisions(HistoryQuery("ha", "hd", limit=2))) == 2
    span = HistoryQuery(start_ns=2000 * MS, end_ns=4000 * MS)
    assert [decision.time_ns // MS for decision in core.history(span).decisions] == [3000, 2000]
    with pytest.raises(PathError, match="not a valid time span"):
        core.history(HistoryQuery(start_ns=2, end_ns=1))


def test_traffic_is_moved_even_when_the_file_takes_nothing_more(
    topology: Topology, open_database: OpenDatabase
) -> None:
    database = open_database(":memory:")
    core = PathServerCore(topology, SETTINGS, flows=MANAGED, store=PathStore(database, max_decisions=3))
    database.close()
    assert core.step(snapshot(topology, queues={"ab": 40}), 0) is not None
    assert core.counters["saves_failed"] == 1
    assert core.last_problem is not None
    assert "closed database" in core.last_problem


def test_why_shows_the_present_state_and_the_last_moves(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED)
    with pytest.raises(PathError, match="before the first snapshot"):
        core.why(AD, 0)
    core.step(snapshot(topology, queues={"ab": 40}), 0)
    told = core.why(AD, 1 * MS)
    assert (told.present.switches, told.rate_bps) == (("a", "c", "d"), 1_000_000)
    assert told.reason.endswith("has the least delay")
    assert [decision.new_path for decision in told.moves] == [("a", "c", "d")]
    for src, dst, problem in (
        ("hd", "ha", "flow hd->ha is not managed: it is not listed in the settings"),
        ("ha", "hx", "topology diamond has no host 'hx'"),
        ("ha", "ha", "flow ha->ha stays within switch a: there is no path to choose"),
    ):
        with pytest.raises(PathError, match=problem):
            core.why(FlowSpec(src, dst), 0)


def test_settings_that_name_an_unknown_host_are_refused(topology: Topology) -> None:
    with pytest.raises(PathError, match="topology diamond has no host 'nobody'"):
        PathServerCore(topology, SETTINGS, flows=(ManagedFlow(src="nobody", dst="hd"),))


def test_a_gain_must_last_before_a_flow_moves(topology: Topology) -> None:
    core = PathServerCore(topology, replace(SETTINGS, confirm_rounds=3), flows=MANAGED)
    noisy, calm = snapshot(topology, queues={"ab": 40}), snapshot(topology)
    for number, taken in enumerate((noisy, noisy, calm, noisy, noisy)):
        assert core.step(taken, number * 100 * MS) is None
    assert "in 2 of the 3 rounds" in core.why(AD, 500 * MS).reason
    assert core.step(noisy, 500 * MS) is not None


def test_word_of_a_link_is_no_round_of_measurements(topology: Topology) -> None:
    """A gain must last over snapshots; a flapping port elsewhere does not count as one."""
    core = PathServerCore(topology, replace(SETTINGS, confirm_rounds=2), flows=MANAGED)
    assert core.step(snapshot(topology, queues={"ab": 40}), 0) is None
    for number in range(1, 4):
        assert core.link_changed(LinkKey("b", "c"), number * MS, up=False) is None
        core.link_changed(LinkKey("b", "c"), number * MS, up=True)
    assert core.step(snapshot(topology, queues={"ab": 40}), 100 * MS) is not None


def test_a_dead_path_is_left_at_once(topology: Topology) -> None:
    settings = replace(SETTINGS, confirm_rounds=9, dead_after_ns=10 * MS)
    core = PathServerCore(topology, settings, flows=MANAGED)
    taken = snapshot(topology, queues={"ab": 0})
    silent = {key: dataclasses.replace(state, age_ns=11 * MS) for key, state in taken.links.items()}
    assert core.step(dataclasses.replace(taken, links=silent), 0) is not None


def test_recovered_link_serves_at_once_when_another_dies(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED)
    core.step(snapshot(topology), 0)
    assert core.link_changed(LinkKey("a", "b"), MS, up=False) is not None
    assert core.link_changed(LinkKey("a", "b"), 2 * MS, up=True) is None
    back = core.link_changed(LinkKey("a", "c"), 3 * MS, up=False)
    assert back is not None
    assert [decision.new_path for decision in core.decisions] == [("a", "c", "d"), ("a", "b", "d")]


def test_restored_routes_wait_for_telemetry_before_expiry(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    """The time of a move is not when the flow was last seen; after a reboot it may even be in the future."""
    for moved_ns in (100 * MS, 10**15):
        store = PathStore(open_database(str(tmp_path / f"{moved_ns}.db")), max_decisions=9)
        core = PathServerCore(topology, SETTINGS, store=store)
        assert core.step(snapshot(topology, queues={"ab": 40}, paths=("abd",)), moved_ns) is not None
        again = PathServerCore(topology, SETTINGS, store=store, forget_after_ns=500 * MS)
        now_ns = 10_000 * MS
        still = snapshot(topology, queues={"ab": 40})
        assert again.step(still, now_ns) is None
        assert again.flows == 1
        gone = again.step(still, now_ns + 501 * MS)
        assert gone is not None
        assert gone.routes.routes == ()


def test_a_saved_route_of_a_flow_no_longer_listed_is_dropped(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    PathServerCore(topology, SETTINGS, flows=MANAGED, store=store).step(snapshot(topology, queues={"ab": 40}), 0)
    again = PathServerCore(topology, SETTINGS, flows=(ManagedFlow(src="hb", dst="hd"),), store=store)
    assert again.routes.routes == ()
    assert again.counters["saved_routes_dropped"] == 1


def test_largest_flow_between_two_hosts_sets_the_path(diamond_of: MakeTopology) -> None:
    topology = diamond_of((5 * MS, 5 * MS, 5 * MS, 5 * MS, 20 * MS))
    core = PathServerCore(topology, SETTINGS)
    taken = snapshot(topology, paths=("abd", "acd"))
    rates = dict(zip(taken.paths, (1_000, 900_000), strict=True))
    paths = {key: dataclasses.replace(state, rate_bps=rates[key]) for key, state in taken.paths.items()}
    taken = dataclasses.replace(taken, paths=paths)
    core.step(taken, 0)
    assert core.positions.current(taken, 0)[AD].path == ("a", "c", "d")


def test_calm_rounds_work_out_candidates_ahead_a_few_at_a_time(topology: Topology) -> None:
    network = Network(topology)
    pairs = [(a.name, b.name) for a in topology.switches for b in topology.switches if a is not b]
    for rounds in range(1, 3):
        network.prepare(iter(pairs), 8, 2)
        assert network.candidates.cache_info().currsize == 2 * rounds
    network.prepare(iter(pairs), 8, len(pairs))
    before = network.candidates.cache_info()
    for pair in pairs:
        network.candidates(*pair, 8)
    assert network.candidates.cache_info().misses == before.misses
