"""The decider that keeps trees and flags between rounds, against one that judges every flow anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from ipaddress import IPv4Address
from itertools import combinations, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.state.link_states import LinkStates
from collectors.values import DelaySource, LinkState, Snapshot
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment, flow_order
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.flow_table import FlowTable
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import DecideSettings, Mode
from dataplane.topology.values import Endpoint, HostNode, Link, LinkKey, Topology
from tests.controller.network.algorithms.graphs import fabric
from tests.controller.network.paths.deciding.plain_decider import PlainDecider

RATE_BPS = 1000
MODES = st.sampled_from([Mode.LEAST_DELAY, Mode.LEAST_DELAY, Mode.MOST_BANDWIDTH, Mode.BOTH])


def with_hosts(plain: Topology) -> Topology:
    """Return a fabric with a host hN at each switch sN."""
    hosts = tuple(
        HostNode(f"h{number}", number + 1, IPv4Address(f"10.0.{number}.1")) for number in range(len(plain.switches))
    )
    access = tuple(
        Link(Endpoint(host.name, 0), Endpoint(f"s{number}", 99), RATE_BPS, 1, 9) for number, host in enumerate(hosts)
    )
    return Topology("random", plain.switches, hosts, plain.links + access)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw a connected fabric of four or five switches with a ring and some chords."""
    size = draw(st.integers(4, 5))
    ring = {(number, number + 1) for number in range(size - 1)} | {(0, size - 1)}
    chords = draw(st.sets(st.sampled_from(sorted(set(combinations(range(size), 2)) - ring)), max_size=4))
    cables = [(a, b, draw(st.integers(1, 9))) for a, b in sorted(ring | chords)]
    return Network(with_hosts(fabric(size, cables, RATE_BPS)))


@st.composite
def snapshots(draw: st.DrawFn, network: Network) -> Snapshot:
    """Draw the states of some links, some dead, some with stale telemetry."""
    states: dict[LinkKey, LinkState] = {}
    for key in network.table.links:
        link = network.topology.directed_links[key]
        if draw(st.integers(0, 5)) == 0:
            continue
        delay_ns = link.delay_ns + draw(st.sampled_from([0, 1, 5, 40]))
        used = draw(st.sampled_from([0, 300, 700, 950]))
        loss = 1.0 if draw(st.integers(0, 9)) == 0 else None
        age_ns = draw(st.sampled_from([0, 0, 0, 5000, None]))
        figures = (link.rate_bps, delay_ns, delay_ns, delay_ns, 0.0, used / RATE_BPS, RATE_BPS - used)
        states[key] = LinkState(key, *figures, loss, age_ns, 1, DelaySource.STAMPS)
    return Snapshot(0, states, {}, {})


@st.composite
def assignments(draw: st.DrawFn, network: Network) -> dict[FlowSpec, Assignment]:
    """Draw flows on random simple paths, with and without rates and earlier moves."""
    pairs = list(permutations(range(len(network.table.switches)), 2))
    drawn = {}
    for number, (a, b) in enumerate(draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=6))):
        paths = network.candidates(f"s{a}", f"s{b}", 9)
        rate_bps = draw(st.sampled_from([None, 0, 100, 250, 700]))
        since_ns = draw(st.sampled_from([None, None, 100, 950]))
        drawn[FlowSpec(f"h{a}", f"h{b}", 17, number)] = Assignment(draw(st.sampled_from(paths)), since_ns, rate_bps)
    return drawn


@settings(max_examples=80)
@given(data=st.data(), mode=MODES, network=networks())
def test_incremental_rounds_decide_as_the_plain_decider(data: st.DataObject, mode: Mode, network: Network) -> None:
    how = DecideSettings(
        mode=mode, min_gain_ns=2, min_gain_bps=50, hold_down_ns=100, settle_ns=20, stale_after_ns=1000, candidates=4
    )
    decider, current = Decider(network, how), data.draw(assignments(network))
    for _ in range(data.draw(st.integers(1, 4))):
        taken = data.draw(snapshots(network))
        if data.draw(st.booleans()):
            current = data.draw(assignments(network))
        decider.observe(taken)
        decider.locate(current)
        plain = PlainDecider(network, taken, current, how)
        wanted = decider.wishes(1000)
        assert wanted == plain.wishes(1000)
        decisions = decider.decide(1000, wanted)
        moves = [(decision.flow, decision.old_path) for decision in decisions]
        assert moves == [(flow, current[flow].path) for flow, _ in plain.decide(1000, wanted)]
        current |= {d.flow: dataclasses.replace(current[d.flow], path=d.new_path) for d in decisions}


@given(data=st.data(), network=networks())
def test_states_of_some_links_are_as_good_as_a_snapshot_of_all(data: st.DataObject, network: Network) -> None:
    first, second = data.draw(snapshots(network)), data.draw(snapshots(network))
    how = DecideSettings(min_gain_ns=2)
    whole, parts = Decider(network, how), Decider(network, how)
    whole.observe(Snapshot(0, {**first.links, **second.links}, {}, {}))
    parts.observe(first)
    parts.observe_some(second.links.values())
    assert (whole.trees.distance == parts.trees.distance).all()
    assert (whole.beliefs.load_bps == parts.beliefs.load_bps).all()


@given(data=st.data(), network=networks())
def test_columns_of_the_feed_are_as_good_as_single_states(data: st.DataObject, network: Network) -> None:
    how = DecideSettings(min_gain_ns=2, dead_after_ns=data.draw(st.sampled_from([None, 100])))
    single, side_by_side = Decider(network, how), Decider(network, how)
    for _ in range(2):
        taken = data.draw(snapshots(network))
        single.observe(taken)
        links = snapshot_of(snapshot_message(taken)).links
        assert isinstance(links, LinkStates)
        side_by_side.observe(dataclasses.replace(taken, links=links))
        assert links._all is None, "no state of a single link is made"
        assert (single.trees.distance == side_by_side.trees.distance).all()
        for name in ("known", "load_bps", "crowded", "nominal_ns"):
            assert (getattr(single.beliefs, name) == getattr(side_by_side.beliefs, name)).all()
        assert single.dead_links() == side_by_side.dead_links()


@given(data=st.data(), network=networks())
def test_changes_below_the_ignore_threshold_are_ignored(data: st.DataObject, network: Network) -> None:
    first = data.draw(snapshots(network))
    decider = Decider(network, DecideSettings(min_gain_ns=2, ignore_change=0.25))
    decider.observe(first)
    before = decider.beliefs.table.delay_ns.copy()
    factor = data.draw(st.sampled_from([0.5, 0.9, 1.1, 2.0]))
    states = {k: dataclasses.replace(s, delay_mean_ns=round(s.delay_mean_ns * factor)) for k, s in first.links.items()}
    decider.observe(dataclasses.replace(first, links=states))
    exact = Decider(network, DecideSettings(min_gain_ns=2))
    exact.observe(dataclasses.replace(first, links=states))
    believed, told = decider.beliefs.table.delay_ns, exact.beliefs.table.delay_ns
    small = abs(told - before) < 0.25 * before
    assert (believed == np.where(small, before, told)).all()


class Placed:
    """A table of flows, and the plain mapping of names to paths that it should equal."""

    def __init__(self, network: Network, current: Mapping[FlowSpec, Assignment]) -> None:
        self.network, self.flows = network, FlowTable.of(network, current)
        self.paths = {flow: network.rows(current[flow].path) for flow in sorted(current, key=flow_order)}

    def check(self) -> None:
        table = self.network.table
        rows = range(len(self.paths))
        assert [self.flows.rows(row) for row in rows] == list(self.paths.values())
        for link in range(len(table.links)):
            on_link = {row for row, path in enumerate(self.paths.values()) if link in path}
            assert on_link <= set(self.flows.on_links(np.array([link], np.uint32)).tolist())
            assert self.flows.crossing[link] == len(on_link)
        for row, path in enumerate(self.paths.values()):
            pair = np.array([table.head[path[-1]]]), np.array([table.tail[path[0]]])
            assert row in self.flows.between(*pair).tolist()


@given(data=st.data(), network=networks())
def test_flows_that_are_put_on_other_paths_are_found_there(data: st.DataObject, network: Network) -> None:
    placed = Placed(network, data.draw(assignments(network)))
    placed.check()
    assert placed.flows.least(network.table.propagation_ns).tolist() == [
        min(int(network.table.propagation_ns[link]) for link in path) for path in placed.paths.values()
    ]
    for row in data.draw(st.lists(st.integers(0, len(placed.paths) - 1), max_size=12)):
        path = placed.flows.path(row)
        other = data.draw(st.sampled_from(network.candidates(path[0], path[-1], 9)))
        placed.flows.put(row, network.rows(other))
        placed.paths[placed.flows.names[row]] = network.rows(other)
    placed.check()
