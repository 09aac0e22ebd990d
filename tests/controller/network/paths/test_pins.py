"""Pinned flows stay on their path, whatever moves others, until it dies or they are released."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from collectors.values import DelaySource, FlowKey, LinkState, PathState, Snapshot
from controller.common.errors import DeadPathError, NoSuchPathError, PathError
from controller.network.intents import FlowSpec, Route
from controller.network.paths.core import PathServerCore
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import HistoryQuery
from controller.network.paths.settings import DecideSettings, ManagedFlow
from dataplane.database import Database
from dataplane.topology.values import LinkKey, Topology

MakeTopology = Callable[..., Topology]
OpenDatabase = Callable[[str], Database]

MS = 1_000_000
AD, BD = FlowSpec("ha", "hd"), FlowSpec("hb", "hd")
ABD, ACD = ("a", "b", "d"), ("a", "c", "d")
SETTINGS = DecideSettings(
    hold_down_ns=10_000 * MS, settle_ns=0, min_gain_ns=MS, confirm_rounds=1, return_after_ns=100 * MS
)
MANAGED = (ManagedFlow(src="ha", dst="hd", rate_bps=1_000_000),)


@pytest.fixture(scope="module")
def topology(diamond_of: MakeTopology) -> Topology:
    """Return the diamond where a-b-d with 12 ms is the only base path from a to d; a-c-d has 14."""
    return diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS))


def snapshot(topology: Topology, queue: str = "", path: tuple[str, ...] = (), rate_bps: int = 1_000_000) -> Snapshot:
    """Return a snapshot with a 40 ms queue on a link such as 'ab', and two 5-tuples from ha to hd on a path."""
    links, seen = {}, {}
    if queue:
        link = topology.directed_links[LinkKey(*queue)]
        delay = link.delay_ns + 40 * MS
        links[link.key] = LinkState(
            link.key, link.rate_bps, delay, delay, delay, 0.0, 0.5, link.rate_bps // 2, None, 0, 9, DelaySource.STAMPS
        )
    for port in (1, 2) if path else ():
        key = FlowKey(IPv4Address("10.0.1.1"), IPv4Address("10.0.4.1"), 17, port, 4000)
        seen[key] = PathState(key, path, 1, 1, port, rate_bps=rate_bps)
    return Snapshot(0, links, seen, {})


def managed(topology: Topology, store: PathStore | None = None) -> PathServerCore:
    return PathServerCore(topology, SETTINGS, flows=MANAGED, store=store)


def test_pinned_flow_stays_until_it_is_released(topology: Topology) -> None:
    core, congested = managed(topology), snapshot(topology, queue="ac")
    core.step(snapshot(topology), 0)
    pinned = core.pin(AD, ACD, 10 * MS)
    assert pinned is not None
    assert (pinned.routes.routes, pinned.routes.pins) == ((Route(AD, ACD),), (Route(AD, ACD),))
    for now_ms in (100, 200, 300):
        assert core.step(congested, now_ms * MS) is None
    told = core.why(AD, 300 * MS)
    assert (told.present.switches, told.pinned) == (ACD, ACD)
    assert told.reason.startswith("pinned, although a-b-d (14.922 ms")
    released = core.release(AD, 310 * MS)
    assert (released.routes.routes, released.routes.pins) == ((Route(AD, ACD),), ())
    moved = core.step(congested, 400 * MS)
    assert moved is not None
    assert (moved.routes.routes, core.why(AD, 400 * MS).pinned) == ((), ())
    assert [(decision.old_path, decision.new_path) for decision in core.decisions] == [
        (ABD, ACD),
        (ACD, ACD),
        (ACD, ABD),
    ]
    assert core.counters["moves"] == 2  # a release moves nothing


def test_a_flow_can_be_pinned_to_the_path_that_it_is_on(topology: Topology) -> None:
    """The decider would not touch the best path anyway: the explicit route fixes it."""
    core = managed(topology)
    assert core.step(snapshot(topology), 0) is None
    pinned = core.pin(AD, ABD, MS)
    assert pinned is not None
    assert pinned.routes.routes == (Route(AD, ABD),)
    assert core.pin(AD, ABD, 2 * MS) is None
    assert core.step(snapshot(topology, queue="ab"), 100 * MS) is None
    released = core.release(AD, 200 * MS)
    assert (released.routes.routes, released.moves[0].reason) == ((), "released: no longer pinned to a-b-d")


def test_pinned_flow_leaves_a_dead_link_and_returns(topology: Topology) -> None:
    core = managed(topology)
    core.step(snapshot(topology), 0)
    core.pin(AD, ACD, MS)
    left = core.link_changed(LinkKey("c", "d"), 2 * MS, up=False)
    assert left is not None
    assert (left.routes.routes, left.routes.pins) == ((), (Route(AD, ACD),))
    assert left.moves[0].reason == (
        "link c->d of a-c-d is dead; a-b-d is its backup; pinned to a-c-d, it returns when that path can be used"
    )
    assert core.step(snapshot(topology), 3 * MS) is None
    told = core.why(AD, 3 * MS)
    assert (told.present.switches, told.pinned) == (ABD, ACD)
    assert told.reason.endswith("; pinned to a-c-d, it returns when that path can be used")
    core.link_changed(LinkKey("c", "d"), 10 * MS, up=True)
    assert core.step(snapshot(topology), 11 * MS) is None  # alive, but for less than the hold time
    assert core.step(snapshot(topology), 110 * MS) is None
    back = core.step(snapshot(topology), 112 * MS)
    assert back is not None
    assert back.routes.routes == (Route(AD, ACD),)
    assert back.moves[0].reason == "a-c-d, the pinned path, can be used again"


def test_waiting_flow_returns_only_to_its_pinned_path(topology: Topology) -> None:
    core = managed(topology)
    core.step(snapshot(topology), 0)
    core.link_changed(LinkKey("a", "b"), MS, up=False)
    assert core.routes.routes == (Route(AD, ACD),)
    core.pin(AD, ACD, 2 * MS)
    core.link_changed(LinkKey("a", "b"), 3 * MS, up=True)
    for now_ms in (100, 200, 300):
        assert core.step(snapshot(topology), now_ms * MS) is None
    assert core.routes.routes == (Route(AD, ACD),)


def test_impossible_pin_is_refused_in_one_line(topology: Topology) -> None:
    core = managed(topology)
    core.link_changed(LinkKey("c", "d"), 0, up=False)
    refused: tuple[tuple[FlowSpec, tuple[str, ...], type[PathError], str], ...] = (
        (FlowSpec("ha", "hx"), ABD, PathError, "topology diamond has no host 'hx'"),
        (FlowSpec("ha", "ha"), ("a",), PathError, "flow ha->ha stays within switch a: there is no path to choose"),
        (BD, ("b", "d"), PathError, "flow hb->hd is not managed: it is not listed in the settings"),
        (AD, ("a", "d"), NoSuchPathError, "route ha->hd via a-d: there is no link a->d"),
        (AD, ("a", "x", "d"), NoSuchPathError, "route ha->hd via a-x-d: there is no link a->x"),
        (AD, ("a", "b"), NoSuchPathError, "route ha->hd via a-b: the path must run from a to d, the hosts' switches"),
        (AD, (), NoSuchPathError, "route ha->hd via nothing: the path must run from a to d, the hosts' switches"),
        (AD, ("a", "b", "a", "b", "d"), NoSuchPathError, "route ha->hd via a-b-a-b-d: the path crosses a switch twice"),
        (AD, ACD, DeadPathError, "flow ha->hd cannot be pinned to a-c-d: link c->d is dead"),
    )
    for flow, path, kind, text in refused:
        with pytest.raises(PathError) as caught:
            core.pin(flow, path, MS)
        assert (type(caught.value), str(caught.value)) == (kind, text)
    with pytest.raises(PathError, match=r"^flow ha->hd is not pinned$"):
        core.release(AD, MS)
    assert (core.routes.version, len(core.decisions)) == (0, 0)
    full = PathServerCore(topology, SETTINGS, max_flows=0)
    with pytest.raises(PathError, match=r"^the limit of 0 managed flows is reached$"):
        full.pin(AD, ACD, 0)


def test_pins_survive_a_restart_also_while_their_path_is_dead(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    core = managed(topology, store)
    core.pin(AD, ACD, 10 * MS)
    again = managed(topology, store)
    assert again.routes == core.routes
    assert again.step(snapshot(topology, queue="ac"), 100 * MS) is None  # still pinned
    again.link_changed(LinkKey("a", "c"), 200 * MS, up=False)
    third = managed(topology, store)
    assert third.routes == again.routes
    assert (third.routes.routes, third.routes.pins) == ((), (Route(AD, ACD),))
    back = third.step(snapshot(topology), 300 * MS)
    assert back is not None
    assert back.routes.routes == (Route(AD, ACD),)
    reasons = [decision.reason for decision in third.history(HistoryQuery()).decisions]
    assert reasons[-1] == "pinned to a-c-d until it is released"
    third.release(AD, 400 * MS)
    assert managed(topology, store).routes.pins == ()


def test_pin_of_a_lost_path_or_flow_is_dropped_and_counted(
    topology: Topology, tmp_path: Path, open_database: OpenDatabase
) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    managed(topology, store).pin(AD, ACD, 0)
    links = tuple(link for link in topology.links if {link.a.node, link.b.node} != {"c", "d"})
    smaller = PathServerCore(dataclasses.replace(topology, links=links), SETTINGS, flows=MANAGED, store=store)
    other = PathServerCore(topology, SETTINGS, flows=(ManagedFlow(src="hb", dst="hd"),), store=store)
    for core in (smaller, other):
        assert (core.routes.routes, core.routes.pins, core.counters["saved_routes_dropped"]) == ((), (), 2)


def test_flow_unseen_by_telemetry_can_be_pinned_and_is_kept(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, forget_after_ns=500 * MS)
    core.pin(BD, ("b", "c", "d"), 0)
    for now_ms in (100, 1000, 5000):
        assert core.step(snapshot(topology), now_ms * MS) is None
    assert core.routes.routes == (Route(BD, ("b", "c", "d")),)
    core.release(BD, 5000 * MS)
    gone = core.step(snapshot(topology), 5600 * MS)
    assert gone is not None
    assert (gone.routes.routes, core.flows) == ((), 0)


def test_one_of_several_flows_between_two_hosts_is_pinned_alone(topology: Topology) -> None:
    """Its rate no longer counts for the pair; after the release it does again."""
    core = PathServerCore(topology, SETTINGS)
    seen = snapshot(topology, path=ABD, rate_bps=3_000_000)
    core.step(seen, 0)
    single = dataclasses.replace(AD, protocol=17, src_port=2)
    core.pin(single, ACD, MS)
    core.step(seen, 100 * MS)
    now = core.positions.current(seen, 100 * MS)
    assert {flow: (assignment.path, assignment.rate_bps) for flow, assignment in now.items()} == {
        AD: (ABD, 3_000_000),
        single: (ACD, 3_000_000),
    }
    released = core.release(single, 200 * MS)
    core.step(seen, 300 * MS)
    assert released.routes.routes == ()
    assert core.positions.current(seen, 300 * MS)[AD].rate_bps == 6_000_000
    assert core.flows == 1


def test_engineering_keeps_pinned_flows_and_counts_their_load(topology: Topology) -> None:
    """6 of 10 Mbit/s are pinned to a-c-d: other traffic to d stays via b instead of being split."""
    settings = EngineeringSettings(interval_ns=100 * MS, enough=0.0, smoothing=0.0)
    free = PathServerCore(topology, SETTINGS, engineering=settings)
    held = PathServerCore(topology, SETTINGS, engineering=settings)
    held.pin(dataclasses.replace(AD, protocol=17, src_port=2), ACD, 0)
    seen = snapshot(topology, path=ABD, rate_bps=6_000_000)
    for core in (free, held):
        core.step(seen, MS)
    assert [route.switch for route in free.routes.weighted] == ["a"]
    assert held.routes.weighted == ()
    left = held.link_changed(LinkKey("c", "d"), 2 * MS, up=False)
    assert left is not None
    assert [move.new_path for move in left.moves] == [ABD]
    held.link_changed(LinkKey("c", "d"), 3 * MS, up=True)
    held.step(seen, 4 * MS)
    back = held.step(seen, 200 * MS)
    assert back is not None
    assert [route.switches for route in back.routes.routes] == [ACD]
    assert held.release(held.routes.pins[0].flow, 300 * MS).routes.routes == ()


def test_pinned_flow_is_explained_under_traffic_engineering(topology: Topology) -> None:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED, engineering=EngineeringSettings())
    core.pin(AD, ACD, 0)
    core.step(snapshot(topology), MS)
    assert core.why(AD, MS).reason.startswith("pinned, although a-b-d")
    core.release(AD, 2 * MS)
    assert core.why(AD, 2 * MS).reason.startswith("managed by traffic engineering: to d by base routes only")
