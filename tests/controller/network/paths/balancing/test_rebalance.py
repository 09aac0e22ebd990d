"""Weights chosen for a crowded link, by their predicted effect."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.network.base_paths import next_hops
from controller.network.intents import WeightedRoute
from controller.network.paths.balancing.group_traffic import weight_options
from controller.network.paths.balancing.rebalance import Change
from controller.network.paths.balancing.values import MeasuredFlow
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import BalanceSettings
from controller.network.tables.routing import MAX_GROUP_SIZE
from controller.network.tables.weighted_routes import spreads_of
from tests.controller.network.paths.balancing.small_fabrics import (
    MBPS,
    fabric,
    forwarding_of,
    loads,
    make_flow,
    make_flows,
    rebalancing,
    relieved,
    row,
)


def by_neighbour(network: Network, change: Change) -> dict[str, int]:
    """Return a change's weights by neighbour."""
    return {network.table.links[index].dst: weight for index, weight in change.new}


def group(network: Network, switch: str, destination: str) -> tuple[int, int]:
    return network.table.switch_number[switch], network.table.switch_number[destination]


def test_unevenly_hashed_flows_are_rebalanced_as_predicted() -> None:
    network = Network(fabric())
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 18, "spine2": 4}, 0.5 * MBPS)
    round_ = rebalancing(network, flows, loads(network, flows), [("leaf1", "spine1"), ("spine1", "leaf2")])
    [change] = relieved(round_)
    assert change.group == group(network, "leaf1", "leaf2")
    assert (change.before, change.after <= 0.8) == (0.9, True)
    after = forwarding_of(network, {change.group: change.new})
    moved = [after.path(flow.hashed, flow.source, flow.destination) for flow in flows]
    carried = sum(flow.rate_bps for flow, path in zip(flows, moved, strict=True) if path and change.row in path)
    assert change.after == pytest.approx(carried / (10 * MBPS))


def test_a_slower_link_further_down_gets_its_part() -> None:
    """spine2->leaf2 has half the rate of the others: it must carry at most 4 of 9 Mbit/s."""
    network = Network(fabric(slow=[("spine2", "leaf2")]))
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 9, "spine2": 9}, 0.5 * MBPS)
    [change] = relieved(rebalancing(network, flows, loads(network, flows), [("spine2", "leaf2")]))
    weights = by_neighbour(network, change)
    assert change.group == group(network, "leaf1", "leaf2")  # spine2 has no other path, but its leaf has
    assert change.after <= 0.8
    assert weights["spine1"] > weights["spine2"]


def test_other_load_on_a_parallel_link_is_left_room_for() -> None:
    network = Network(fabric(spines=3))
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 12, "spine2": 4, "spine3": 4}, 0.5 * MBPS)
    other = {("leaf1", "spine1"): 4 * MBPS, ("leaf1", "spine2"): 5.4 * MBPS}
    round_ = rebalancing(network, flows, loads(network, flows, other), [("leaf1", "spine1")])
    [change] = relieved(round_)
    weights = by_neighbour(network, change)
    assert change.after <= 0.8
    assert weights["spine3"] > weights.get("spine2", 0)
    assert round_.load[row(network, "leaf1", "spine2")] <= 8 * MBPS


def test_nothing_changes_if_nothing_fits() -> None:
    network = Network(fabric())
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 20, "spine2": 16}, 0.5 * MBPS)
    crowded = [("leaf1", "spine1"), ("spine1", "leaf2")]
    assert relieved(rebalancing(network, flows, loads(network, flows), crowded)) == []


def test_one_large_flow_is_not_moved_between_full_links() -> None:
    network = Network(fabric())
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 1}, 9.5 * MBPS)
    assert relieved(rebalancing(network, flows, loads(network, flows), [("leaf1", "spine1")])) == []


def test_partial_relief_is_taken_if_the_gain_is_worth_it() -> None:
    network = Network(fabric())
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 20}, 0.5 * MBPS)
    other = {("leaf1", "spine1"): 2 * MBPS, ("leaf1", "spine2"): 5 * MBPS}
    round_ = rebalancing(network, flows, loads(network, flows, other), [("leaf1", "spine1")])
    [change] = relieved(round_)
    assert 0.8 < change.after < change.before - 0.05
    assert round_.load[row(network, "leaf1", "spine2")] <= 8 * MBPS
    strict = BalanceSettings(min_gain=0.9)
    again = rebalancing(network, flows, loads(network, flows, other), [("leaf1", "spine1")])
    assert again.relieve(lambda _: True, strict) == []


def test_largest_contribution_changes_first_and_alone() -> None:
    network = Network(fabric())
    large = make_flows(network, "leaf1", "leaf2", {"spine1": 12}, 0.5 * MBPS)
    small = make_flows(network, "leaf1", "leaf3", {"spine1": 6}, 0.5 * MBPS, start=7)
    flows = [*small, *large]
    [change] = relieved(rebalancing(network, flows, loads(network, flows), [("leaf1", "spine1")]))
    assert change.group == group(network, "leaf1", "leaf2")


def test_a_group_that_is_held_down_leaves_it_to_others() -> None:
    network = Network(fabric())
    large = make_flows(network, "leaf1", "leaf2", {"spine1": 12}, 0.5 * MBPS)
    small = make_flows(network, "leaf1", "leaf3", {"spine1": 6}, 0.5 * MBPS, start=7)
    flows, held = [*small, *large], group(network, "leaf1", "leaf2")
    round_ = rebalancing(network, flows, loads(network, flows), [("leaf1", "spine1")])
    [change] = round_.relieve(lambda free: free != held, BalanceSettings())
    assert change.group == group(network, "leaf1", "leaf3")


def test_traffic_of_unknown_hash_counts_by_shares() -> None:
    """As from switches with another hash: all traffic is seen where the hash would not put it."""
    network = Network(fabric())
    forwarding = forwarding_of(network)
    hashed = make_flows(network, "leaf1", "leaf2", {"spine2": 18}, 0.5 * MBPS)
    flows = [
        make_flow(forwarding, network, flow.hashed, ("leaf1", "spine1", "leaf2"), flow.rate_bps) for flow in hashed
    ]
    [change] = relieved(rebalancing(network, flows, loads(network, flows), [("leaf1", "spine1")]))
    weights = by_neighbour(network, change)
    total = sum(weights.values())
    assert change.after == pytest.approx(0.9 * weights["spine1"] / total)
    assert change.after <= 0.8


def test_uncertain_rates_need_room_for_their_uncertainty() -> None:
    network = Network(fabric())
    flows = make_flows(network, "leaf1", "leaf2", {"spine1": 18}, 0.5 * MBPS)
    doubtful = [MeasuredFlow(f.hashed, f.rows, f.source, f.destination, f.rate_bps, 0.0, 0.2) for f in flows]
    other = {("leaf1", "spine2"): 5.6 * MBPS}
    crowded = [("leaf1", "spine1")]
    sure = rebalancing(network, flows, loads(network, flows, other), crowded)
    unsure = rebalancing(network, doubtful, loads(network, flows, other), crowded)
    assert relieved(sure)
    assert not relieved(unsure)


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, list[tuple[str, str, int, float]], dict[tuple[str, str], float]]:
    """Return spines, flows (source, destination, hash, Mbit/s) and other load by uplink."""
    spines = draw(st.integers(2, 4))
    ends = st.sampled_from([(a, b) for a in ("leaf1", "leaf2", "leaf3") for b in ("leaf1", "leaf2", "leaf3") if a != b])
    some = draw(st.lists(st.tuples(ends, st.integers(0, (1 << 32) - 1), st.floats(0.05, 3.0)), min_size=1, max_size=40))
    flows = [(*pair, hashed, mbps) for pair, hashed, mbps in some]
    uplinks = [(f"leaf{leaf}", f"spine{spine + 1}") for leaf in (1, 2, 3) for spine in range(spines)]
    other = {link: draw(st.floats(0.0, 8.0)) * MBPS for link in uplinks}
    return spines, flows, other


@given(situations())
def test_rebalance_keeps_headroom_without_loops_as_predicted(
    situation: tuple[int, list[tuple[str, str, int, float]], dict[tuple[str, str], float]],
) -> None:
    spines, wanted, other = situation
    network = Network(fabric(spines=spines))
    forwarding, table = forwarding_of(network), network.table
    flows = [make_flow(forwarding, network, hashed, (src, dst), mbps * MBPS) for src, dst, hashed, mbps in wanted]
    before = loads(network, flows, other)
    full = [table.links[index] for index in np.flatnonzero(before >= 9 * MBPS)]
    round_ = rebalancing(network, flows, before, [(key.src, key.dst) for key in full])
    changes = relieved(round_)
    assert (round_.load <= np.maximum(before, 8 * MBPS) + 1).all()
    assert len({change.group for change in changes}) == len(changes)
    routes = []
    for change in changes:
        assert change.after < change.before
        switch, destination = (table.switches[index] for index in change.group)
        routes.append(WeightedRoute(switch, destination, tuple(sorted(by_neighbour(network, change).items()))))
        assert sum(weight for _, weight in change.new) <= MAX_GROUP_SIZE
    spreads_of(network.topology, next_hops(network.topology), routes)
    # The prediction equals the hash's result.
    after = forwarding_of(network, {change.group: change.new for change in changes})
    laid = loads(network, [], other)
    for flow in flows:
        path = after.path(flow.hashed, flow.source, flow.destination)
        assert path is not None
        laid[list(path)] += flow.rate_bps
    assert np.allclose(laid, round_.load, atol=2.0)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_weight_options_are_few_and_closest_to_the_shares_first(count: int) -> None:
    wanted = [float(index + 1) for index in range(count)]
    for by_ratio in (False, True):
        options = weight_options(wanted, by_ratio=by_ratio, limit=200)
        assert 20 < len(options) == len(set(options)) <= 200
        assert all(len(weights) == count and 1 <= sum(weights) <= MAX_GROUP_SIZE for weights in options)
        assert all(weight >= 0 for weights in options for weight in weights)
    errors = [max(abs(w / sum(f) - s / sum(wanted)) for w, s in zip(f, wanted, strict=True)) for f in options]
    assert all(error <= other + 1e-5 for error, other in pairwise(errors))
