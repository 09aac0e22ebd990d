"""Drained links and switches: traffic leaves them, nothing new is placed there, and all of it can be put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from ipaddress import IPv4Address
from itertools import combinations, pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.values import FlowKey, PathState, Snapshot
from controller.common.errors import DeadPathError, NoSuchPathError, PathError, StaleDrainsError
from controller.network.base_paths import base_paths, next_hops
from controller.network.intents import FlowSpec, Route
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.backups import links_of
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import DrainChange, DrainEffect
from controller.network.paths.round_result import RoundResult
from controller.network.paths.settings import DecideSettings, ManagedFlow
from dataplane.database import Database
from dataplane.topology.file import loads
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
EMPTY = Snapshot(0, {}, {}, {})


@pytest.fixture(scope="module")
def topology(diamond_of: MakeTopology) -> Topology:
    """Return the diamond where a-b-d with 12 ms is the only base path from a to d; a-c-d has 14."""
    return diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS))


def core_of(topology: Topology, store: PathStore | None = None, **more: object) -> PathServerCore:
    core = PathServerCore(topology, SETTINGS, flows=MANAGED, store=store, **more)  # type: ignore[arg-type]
    core.step(EMPTY, 0)
    return core


def drain(core: PathServerCore, element: str, now_ns: int = MS) -> tuple[DrainEffect, RoundResult | None]:
    return core.drain(DrainChange(element, drained=True, by="kim", note="new optics"), now_ns)


def undrain(core: PathServerCore, element: str, now_ns: int) -> tuple[DrainEffect, RoundResult | None]:
    return core.drain(DrainChange(element, drained=False, by="kim"), now_ns)


@pytest.mark.parametrize("element", ["a->b", "a<->b", "b<->a", "b"])
def test_drained_element_is_left_until_it_is_put_back(topology: Topology, element: str) -> None:
    core = core_of(topology)
    foreseen = core.foresee_drain(DrainChange(element, drained=True), MS)
    assert (core.routes.version, core.step(EMPTY, MS)) == (0, None)
    effect, result = drain(core, element)
    assert result is not None
    assert effect == dataclasses.replace(foreseen, drain=effect.drain, revision=effect.revision)
    [move] = effect.moves
    assert (move.flow, move.old_path, move.new_path) == (AD, ABD, ACD)
    assert move.reason.startswith("link a->b of a-b-d is drained; a-c-d (14.000 ms")
    assert result.routes.routes == (Route(AD, ACD),)
    assert LinkKey("a", "b") in result.routes.drained
    for now_ms in (200, 20_000, 40_000):
        assert core.step(EMPTY, now_ms * MS) is None
    assert core.foresee_drain(DrainChange(element, drained=False), 50_000 * MS).moves[0].new_path == ABD
    back, again = undrain(core, element, 50_000 * MS)
    assert again is not None
    assert ([move.new_path for move in back.moves], again.routes.routes, again.routes.drained) == ([ABD], (), ())
    assert core.step(EMPTY, 60_000 * MS) is None


def test_drain_survives_a_restart(topology: Topology, tmp_path: Path, open_database: OpenDatabase) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    effect, _ = drain(core_of(topology, store), "b")
    again = core_of(topology, store)
    assert (again.routes.routes, again.drained) == ((Route(AD, ACD),), 1)
    assert again.drains(2 * MS).drains == (effect.drain,)
    assert again.drains(2 * MS).revision == effect.revision
    assert again.step(EMPTY, 3 * MS) is None
    undrain(again, "b", 4 * MS)
    assert (core_of(topology, store).routes.routes, core_of(topology, store).drained) == ((), 0)


def test_drain_of_a_lost_element_is_dropped(topology: Topology, tmp_path: Path, open_database: OpenDatabase) -> None:
    store = PathStore(open_database(str(tmp_path / "paths.db")), max_decisions=9)
    drain(core_of(topology, store), "b<->d")
    links = tuple(link for link in topology.links if {link.a.node, link.b.node} != {"b", "d"})
    smaller = PathServerCore(dataclasses.replace(topology, links=links), SETTINGS, store=store)
    assert (smaller.routes.drained, smaller.drained) == ((), 0)
    assert smaller.counters["saved_routes_dropped"] == 1


def test_impossible_drain_is_refused_in_one_line(topology: Topology) -> None:
    core = core_of(topology)
    for element in ("x", "a->d", "a->ha", "a<->d", "a->b->d", "a<->b<->d", "", "->", "<->"):
        with pytest.raises(NoSuchPathError, match=r"^topology diamond has no link between switches and no switch '"):
            drain(core, element)
    with pytest.raises(PathError, match=r"^a->b is not drained$"):
        undrain(core, "a->b", MS)
    drain(core, "a<->b")
    with pytest.raises(PathError, match=r"^a->b is not drained itself: a<->b is$"):
        undrain(core, "a->b", MS)
    with pytest.raises(DeadPathError, match=r"^flow ha->hd cannot be pinned to a-b-d: link a->b is drained$"):
        core.pin(AD, ABD, 2 * MS)


def test_draining_twice_changes_nothing(topology: Topology) -> None:
    core = core_of(topology)
    first, _ = drain(core, "a->b")
    second, result = drain(core, "a->b", 9 * MS)
    assert (second.is_change, second.drain, second.moves, result) == (False, first.drain, (), None)


def test_two_clients_cannot_overwrite_each_other(topology: Topology) -> None:
    core = core_of(topology)
    shown = core.drains(0).revision
    core.drain(DrainChange("a->b", drained=True, revision=shown), MS)
    with pytest.raises(StaleDrainsError, match=r"^the drains have changed since this was shown: look again$"):
        core.drain(DrainChange("a->c", drained=True, revision=shown), 2 * MS)
    core.drain(DrainChange("a->b", drained=False, revision=core.drains(2 * MS).revision), 3 * MS)
    assert core.drains(3 * MS).revision == shown


def test_traffic_without_another_path_stays_and_is_named(topology: Topology) -> None:
    """Switch d is the only one of host hd: its own traffic stays, and it carries nothing else."""
    core = core_of(topology)
    effect, _ = drain(core, "d")
    assert (effect.moves, effect.hosts) == ((), ("hd",))
    [stay] = effect.stays
    assert (stay.flow, stay.path, stay.reason) == (AD, ABD, "d, which is drained, is its host's only switch")
    assert core.drains(2 * MS).stays == effect.stays
    assert core.step(EMPTY, 3 * MS) is None
    assert core.why(AD, 3 * MS).reason == "link b->d of a-b-d is drained and no other path may be used"
    # Of two drained switches on its path it can still leave one.
    [move] = drain(core, "b", 4 * MS)[0].moves
    assert move.new_path == ACD


def test_drained_link_is_the_last_resort_for_a_dead_one(topology: Topology) -> None:
    core = core_of(topology)
    drain(core, "b->d")
    result = core.link_changed(LinkKey("c", "d"), 2 * MS, up=False)
    assert result is not None
    [move] = result.moves
    assert (move.new_path, move.dead_link) == (ABD, LinkKey("c", "d"))
    assert move.reason.endswith("is the shortest path that is alive, over drained links: there is no other")
    assert [stay.flow for stay in core.drains(3 * MS).stays] == [AD]
    core.link_changed(LinkKey("c", "d"), 4 * MS, up=True)
    later = [core.step(EMPTY, now_ms * MS) for now_ms in (5, 150, 300)]
    assert [result.routes.routes for result in later if result is not None] == [(Route(AD, ACD),)]


def test_dead_link_that_is_drained_is_not_used_when_it_returns(topology: Topology) -> None:
    core = core_of(topology)
    core.link_changed(LinkKey("a", "b"), MS, up=False)
    drain(core, "a->b", 2 * MS)
    core.link_changed(LinkKey("a", "b"), 3 * MS, up=True)
    for now_ms in (200, 400, 20_000):
        assert core.step(EMPTY, now_ms * MS) is None
    undrain(core, "a->b", 30_000 * MS)
    assert core.routes.routes == ()


def test_pinned_flow_leaves_a_drained_link_and_returns(topology: Topology) -> None:
    core = core_of(topology)
    core.pin(AD, ACD, MS)
    effect, result = drain(core, "c", 2 * MS)
    assert result is not None
    assert (result.routes.routes, result.routes.pins) == ((), (Route(AD, ACD),))
    assert effect.moves[0].reason.endswith("; pinned to a-c-d, it returns when that path can be used")
    back, again = undrain(core, "c", 3 * MS)
    assert again is not None
    assert (back.moves[0].reason, again.routes.routes) == (
        "a-c-d, the pinned path, can be used again",
        (Route(AD, ACD),),
    )


def seen(path: tuple[str, ...], rate_bps: int = 1_000_000, src: str = "10.0.1.1", ports: int = 1) -> Snapshot:
    """Return a snapshot with 5-tuples to hd on a path."""
    paths = {}
    for port in range(1, ports + 1):
        key = FlowKey(IPv4Address(src), IPv4Address("10.0.4.1"), 17, port, 4000)
        paths[key] = PathState(key, path, 1, 1, port, rate_bps=rate_bps)
    return Snapshot(0, {}, paths, {})


def test_measured_traffic_that_nobody_manages_is_counted(topology: Topology) -> None:
    core = core_of(topology)
    core.step(seen(("b", "d"), src="10.0.2.1", ports=3), MS)
    effect = core.foresee_drain(DrainChange("b->d", drained=True), MS)
    assert ([move.flow for move in effect.moves], effect.others) == ([AD], 3)


def test_effect_foresees_the_fullest_link(topology: Topology) -> None:
    """The prediction counts both flows on the link that takes them."""
    flows = tuple(ManagedFlow(src="ha", dst="hd", protocol=17, src_port=n, rate_bps=4_500_000) for n in (1, 2))
    core = PathServerCore(topology, SETTINGS, flows=flows)
    core.step(EMPTY, 0)
    before = core.foresee_drain(DrainChange("c->d", drained=True), MS)
    assert (before.moves, before.utilisation_after) == ((), before.utilisation_before)
    effect, _ = drain(core, "b->d", MS)
    assert sorted(move.new_path for move in effect.moves) == [ACD, ACD]
    assert (effect.fullest_before, effect.fullest_after) == (LinkKey("a", "b"), LinkKey("a", "c"))
    assert effect.utilisation_after == pytest.approx(0.9)


def test_engineered_traffic_leaves_a_drained_link(topology: Topology) -> None:
    engineering = EngineeringSettings(interval_ns=100 * MS, smoothing=0.0)
    core = PathServerCore(topology, SETTINGS, engineering=engineering)
    core.step(seen(ABD, 6_000_000), MS)
    effect, result = drain(core, "b->d", 2 * MS)
    assert result is not None
    assert effect.utilisation_after == pytest.approx(0.6)
    assert effect.others == 1
    assert {(route.switch, route.destination): route.next_hops for route in result.routes.weighted} == {
        ("a", "d"): (("c", 1),),
        ("b", "d"): (("a", 1),),
        ("b", "c"): (("a", 1),),
    }
    for now_ms in (200, 400):
        core.step(seen(ACD, 6_000_000), now_ms * MS)
        assert not any(route.switch == "b" and "d" in dict(route.next_hops) for route in core.routes.weighted)
    undrain(core, "b->d", 500 * MS)
    for now_ms in (600, 800):
        core.step(seen(ACD, 6_000_000), now_ms * MS)
    assert {peer for route in core.routes.weighted if route.switch == "a" for peer, _ in route.next_hops} == {"b", "c"}


def test_base_routes_use_drained_links_only_at_need(topology: Topology) -> None:
    around = next_hops(topology, drained={LinkKey("a", "b")})
    assert list(base_paths(around, "a", "d")) == [ACD]
    assert list(base_paths(around, "b", "a")) == [("b", "a")]
    into_d = {LinkKey("b", "d"), LinkKey("c", "d"), LinkKey("d", "b"), LinkKey("d", "c")}
    assert list(base_paths(next_hops(topology, drained=into_d), "a", "d")) == [ABD]
    assert list(base_paths(next_hops(topology, {LinkKey("b", "d")}, into_d), "a", "d")) == [ACD]
    without = next_hops(topology, {LinkKey("a", "b"), LinkKey("c", "b")}, {LinkKey("a", "c")})
    assert list(base_paths(without, "a", "d")) == [ACD]


NAMES = ("s0", "s1", "s2", "s3", "s4")


@st.composite
def fabrics(draw: st.DrawFn) -> Topology:
    """Draw five switches in a row, each with a host, and further cables between them."""
    row = list(pairwise(NAMES))
    others = [pair for pair in combinations(NAMES, 2) if pair not in row]
    cables = row + draw(st.lists(st.sampled_from(others), max_size=5, unique=True))
    delays = [draw(st.integers(1, 9)) for _ in cables]
    links = "\n".join(
        f"  - {{a: {a}, b: {b}, delay: {delay} ms}}" for (a, b), delay in zip(cables, delays, strict=True)
    )
    return loads(f"""
millrace: 1
name: drawn
defaults: {{link: {{rate: 10 Mbit/s, delay: 1 ms}}, access: {{rate: 10 Mbit/s, delay: 1 ms}}}}
switches: [{", ".join(f"{{name: {name}}}" for name in NAMES)}]
hosts: [{", ".join(f"{{name: h{name}, switch: {name}}}" for name in NAMES)}]
links:
{links}
""")


@settings(max_examples=12)
@given(fabrics(), st.data())
def test_no_decided_path_crosses_a_drained_link_unstated(drawn: Topology, data: st.DataObject) -> None:
    """Elements are drained and put back, and links die and return, in any order."""
    flows = tuple(ManagedFlow(src=f"h{a}", dst=f"h{b}", rate_bps=500_000) for a, b in permutations(NAMES, 2))
    core = PathServerCore(drawn, SETTINGS, flows=flows)
    core.step(EMPTY, 0)
    cables = [(link.a.node, link.b.node) for link in drawn.links if {link.a.node, link.b.node} <= set(NAMES)]
    elements = [*NAMES, *(f"{a}->{b}" for a, b in cables), *(f"{b}<->{a}" for a, b in cables)]
    now_ns, down = 0, set[LinkKey]()
    for _ in range(data.draw(st.integers(1, 6))):
        now_ns += 1000 * MS
        if data.draw(st.booleans()):
            change = DrainChange(data.draw(st.sampled_from(elements)), drained=data.draw(st.booleans()))
            try:
                foreseen = core.foresee_drain(change, now_ns)
                effect, _ = core.drain(change, now_ns)
            except PathError:
                assert not change.drained
                continue
            assert effect.moves == foreseen.moves
            moved = {move.flow: move.new_path for move in effect.moves}
            assert all(core.positions.current(EMPTY, now_ns)[flow].path == path for flow, path in moved.items())
        else:
            link = LinkKey(*data.draw(st.sampled_from(cables)))
            down ^= {link}
            core.link_changed(link, now_ns, up=link not in down)
        core.step(EMPTY, now_ns + MS)
        drained = set(core.routes.drained)
        stated = {stay.flow for stay in core.drains(now_ns + MS).stays}
        on_them = {
            flow
            for flow, assignment in core.positions.current(EMPTY, now_ns + MS).items()
            if drained & set(links_of(assignment.path))
        }
        assert on_them == stated
        free = next_hops(drawn, {*down, *drained})
        for flow in stated:
            ends = core.network.ends(flow.src_host, flow.dst_host)
            assert next(base_paths(free, *ends), None) is None, flow
