"""A reduction tree's time over real paths: shared links, free bandwidth, delays; the twin; invalid input."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.timing import (
    LEAST_FREE,
    Crossings,
    TimedTree,
    fair_bps,
    finishing_s,
    timed,
    tree_over,
)
from controller.acceleration.network.trees import Aggregators, Transfer, reduction_tree
from controller.cluster.cost_map import Basis, CostMap, HostLinkState, Load
from controller.common.errors import PathError
from dataplane.topology.families import from_text
from dataplane.topology.file import loads
from dataplane.topology.values import LinkKey, Topology
from tests.controller.cluster.cost_map.fabrics import FABRICS, fabric, host_links, snapshot
from tests.reference import link_times as reference

GBIT = 1_000_000_000
ONE_RACK = "leaf-spine:spines=1,leaves=1,hosts=4,rate=1 Gbit/s,delay=1 us"
RACKS = "leaf-spine:spines=1,leaves=2,hosts=4,rate=1 Gbit/s,delay=1 us"


def _thousand() -> str:
    """Return a fabric of 1000 hosts on links of 1 Gbit/s, with ample capacity between the switches."""
    leaves = [f"s{number}" for number in range(1, 6)]
    hosts = [f"{{name: h{number}, switch: {leaves[number % 5]}}}" for number in range(1, 1001)]
    links = [f"{{a: s0, b: {leaf}, rate: 1 Tbit/s, delay: 1 us}}" for leaf in leaves]
    switches = [f"{{name: {name}}}" for name in ("s0", *leaves)]
    return (
        "millrace: 1\nname: thousand\ndefaults: {access: {rate: 1 Gbit/s, delay: 1 us}}\n"
        f"switches: [{', '.join(switches)}]\nhosts: [{', '.join(hosts)}]\nlinks: [{', '.join(links)}]\n"
    )


def quiet(topology: Topology) -> CostMap:
    return CostMap.of(topology, Snapshot(0, {}, {}, {}))


def workers(topology: Topology) -> list[str]:
    return [node.name for node in topology.hosts if topology.collector is None or node.name != topology.collector.host]


def over(costs: CostMap, machines: Sequence[str], fan_in: int, *, member: bool = False) -> TimedTree:
    return timed(costs, tree_over(costs, machines, fan_in, Aggregators.MEMBER if member else Aggregators.APART))


def test_specified_tree_takes_24_s_without_shared_links() -> None:
    topology = loads(_thousand())
    costs, machines = quiet(topology), workers(topology)
    counted = over(costs, machines, 10)
    assert [len(part.transfers) for part in counted.rounds] == [1000, 100, 10]
    assert counted.transfer_s(0.1) == pytest.approx(24, abs=1e-4)
    assert counted.rate_gbit_per_s == pytest.approx(1)
    # The specification's sum over the rate that the paths have: 888.9 s by its limit, 888 s by the tree's transfers.
    assert 1.0 * 1000 / 9 / (counted.rate_gbit_per_s / 8) == pytest.approx(888.9, abs=0.05)
    assert 0.1 * 1110 / (counted.rate_gbit_per_s / 8) == pytest.approx(888)
    assert over(costs, machines, 10, member=True).transfer_s(0.1) == pytest.approx(21.6, abs=1e-4)


def test_flows_of_a_round_share_their_common_links() -> None:
    topology = from_text(RACKS)
    costs = quiet(topology)
    tree = reduction_tree(("h1", "h5", "h2", "h6", "h3", "h7"), 2, Aggregators.MEMBER)
    first = timed(costs, tree).rounds[0]
    # h5, h6 and h7 all send over the one link between spine and the other rack.
    assert first.s_per_gb == pytest.approx(3 * 8)
    assert first.busiest in {LinkKey("leaf2", "spine1"), LinkKey("spine1", "leaf1")}
    assert (first.busiest_flows, first.busiest_bps) == (3, GBIT)
    # Alone, each would get the whole rate: the specification's node-to-node speed ignores contention.
    assert timed(costs, tree).rate_gbit_per_s == pytest.approx(1)


def test_flow_gets_the_rate_of_ended_flows() -> None:
    # Flows 0 and 1 share link 0 (1 bit/s); flow 1 also crosses link 1, where it gets only a quarter.
    crossings = Crossings(2, np.array([0, 1, 1]), np.array([0, 0, 1]), np.ones(3))
    free = np.array([1.0, 0.25])
    assert fair_bps(crossings, free, np.ones(2, np.bool_)).tolist() == [0.75, 0.25]
    assert finishing_s(crossings, free, 1.0).tolist() == pytest.approx([4 / 3, 4])
    # Both cross link 0 only: half each, and both end together.
    assert finishing_s(Crossings(2, np.array([0, 1]), np.zeros(2, np.intp), np.ones(2)), free, 1.0).tolist() == [2, 2]


@pytest.mark.parametrize("seed", range(12))
def test_fair_sharing_is_that_of_its_reference(seed: int) -> None:
    rng = random.Random(seed)
    links = {row: Fraction(rng.randrange(1, 40)) for row in range(rng.randrange(1, 9))}
    flows = [
        {row: Fraction(rng.randrange(1, 5), 4) for row in rng.sample(sorted(links), rng.randrange(len(links) + 1))}
        for _ in range(rng.randrange(1, 14))
    ]
    rows = [(number, row, float(share)) for number, flow in enumerate(flows) for row, share in flow.items()]
    flow, link, share = (np.array(column) for column in zip(*rows, strict=True)) if rows else ((), (), ())
    crossings = Crossings(len(flows), np.array(flow, np.intp), np.array(link, np.intp), np.array(share, np.float64))
    free = np.array([float(rate) for rate in links.values()])
    sizes = [Fraction(rng.randrange(8)) for _ in flows]
    expected = reference.finishing_s(flows, links, sizes)
    assert finishing_s(crossings, free, np.array([float(size) for size in sizes])).tolist() == pytest.approx(
        [float(end) for end in expected]
    )


@pytest.mark.parametrize("name", FABRICS)
def test_round_time_lies_between_busiest_link_and_serial_flows(name: str) -> None:
    topology, rng = fabric(name), random.Random(5)
    costs = CostMap.of(topology, snapshot(topology, rng))
    machines = rng.sample(workers(topology), 6)
    try:
        timing = over(costs, machines, 3)
    except AccelerationError as error:
        pytest.fail(str(error))
    for part in timing.rounds:
        # The fullest link's time up to rounding.
        assert part.s_per_gb >= 8e9 * part.busiest_flows / part.busiest_bps * (1 - 1e-9)
    one_by_one = 8 * sum(len(part.transfers) for part in timing.rounds) / timing.rate_gbit_per_s
    assert sum(part.s_per_gb for part in timing.rounds) <= one_by_one * (1 + 1e-9)


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("aggregators", Aggregators)
def test_rounds_over_cost_map_paths_match_the_reference(name: str, aggregators: Aggregators) -> None:
    topology, rng = fabric(name), random.Random(9)
    costs = CostMap.of(topology, snapshot(topology, rng), host_links=host_links(topology, rng))
    links = costs.links
    free = {
        row: max(Fraction(int(links.available_bps[row])), Fraction(1, 20) * int(links.rate_bps[row]))
        for row in links.numbers.values()
    }
    timing = timed(costs, tree_over(costs, rng.sample(workers(topology), 6), 3, aggregators))
    for part, shares in zip(timing.rounds, timing.tree.shares, strict=True):
        flows = [_shares_by_paths(costs, transfer) for transfer in part.transfers]
        size = Fraction(8_000_000_000)
        expected = max(reference.finishing_s(flows, free, [size] * len(flows)))
        assert part.s_per_gb == pytest.approx(float(expected))
        grown = max(reference.finishing_s(flows, free, [size * share for share in shares]))
        assert part.grown_s_per_gb == pytest.approx(float(grown))


def _shares_by_paths(costs: CostMap, transfer: Transfer) -> dict[int, Fraction]:
    """Return the share of a transfer that each link carries, path by path as the cost map lists them."""
    shares: dict[int, Fraction] = {}
    for path in costs.cost(transfer.src, transfer.dst).paths:
        for pair in pairwise((transfer.src, *path.switches, transfer.dst)):
            row = costs.links.numbers[LinkKey(*pair)]
            shares[row] = shares.get(row, Fraction(0)) + Fraction(path.share).limit_denominator(1000)
    return shares


def test_load_lengthens_rounds_and_a_full_link_keeps_a_twentieth() -> None:
    topology = from_text(RACKS)
    machines = [f"h{number}" for number in range(1, 9)]
    calm = over(quiet(topology), machines, 8, member=True)
    half = quiet(topology).with_loads([Load("h5", "h1", GBIT // 2)])
    assert over(half, machines, 8, member=True).transfer_s(1) > calm.transfer_s(1)
    full = quiet(topology).with_loads([Load("h6", "h1", 2 * GBIT)])
    part = over(full, ["h5", "h1"], 2, member=True).rounds[0]
    assert set(part.full) == {LinkKey("leaf2", "spine1"), LinkKey("spine1", "leaf1"), LinkKey("leaf1", "h1")}
    assert part.s_per_gb == pytest.approx(8 / LEAST_FREE)


def test_round_has_the_longest_delay_and_its_figures_basis() -> None:
    topology = from_text("leaf-spine:spines=1,leaves=2,hosts=2,rate=1 Gbit/s,delay=3 ms")
    costs = quiet(topology)
    machines = workers(topology)
    part = over(costs, machines, 4, member=True).rounds[0]
    assert part.delay_s == costs.cost("h3", "h1").delay_ns / 1e9
    assert part.basis is Basis.NOMINAL
    seen = CostMap.of(topology, snapshot(topology, random.Random(1)))
    assert over(seen, machines, 4).rounds[0].basis is Basis.PARTLY_MEASURED


def test_link_measured_by_its_host_counts() -> None:
    topology = from_text(ONE_RACK)
    costs = quiet(topology).with_host_links([HostLinkState("h2", GBIT // 10, 0)])
    assert over(costs, ["h1", "h2"], 2, member=True).rounds[0].s_per_gb == pytest.approx(80)


def test_efficiency_is_the_share_of_a_rate_that_data_gets() -> None:
    costs = quiet(from_text(ONE_RACK))
    tree = tree_over(costs, ["h1", "h2"], 2, Aggregators.MEMBER)
    assert timed(costs, tree, efficiency=0.1).rounds[0].s_per_gb == pytest.approx(80)
    for wrong in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(AccelerationError, match="efficiency"):
            timed(costs, tree, efficiency=wrong)


def test_rounds_are_bounded_by_the_processors_receive_rate() -> None:
    costs, machines = quiet(from_text(ONE_RACK)), ["h1", "h2", "h3"]
    tree = tree_over(costs, machines, 3, Aggregators.MEMBER)
    # Two send 8 Gbit each to the third over a link of 1 Gbit/s.
    for host_bps, seconds in ((math.inf, 16), (2e9, 16), (0.5e9, 32)):
        assert timed(costs, tree, host_bps=host_bps).rounds[0].s_per_gb == pytest.approx(seconds)
    with pytest.raises(AccelerationError, match="cannot send or receive"):
        timed(costs, tree, host_bps=0)


def test_one_machine_sends_nothing() -> None:
    timing = over(quiet(from_text(ONE_RACK)), ["h3"], 10)
    assert (timing.rounds, timing.transfer_s(5), timing.rate_gbit_per_s, timing.tree.root) == ((), 0, math.inf, "h3")


def test_a_fan_in_above_the_number_of_machines_is_one_round() -> None:
    timing = over(quiet(from_text(ONE_RACK)), ["h1", "h2", "h3"], 10)
    assert [len(part.transfers) for part in timing.rounds] == [2]


def test_absent_or_unreachable_machines_are_named() -> None:
    topology = from_text(RACKS)
    with pytest.raises(PathError, match="has no host 'h99'"):
        over(quiet(topology), ["h1", "h99"], 2)
    down = {key: LinkStatus(LinkCondition.DOWN, 0) for key in (LinkKey("leaf2", "spine1"), LinkKey("spine1", "leaf2"))}
    cut = CostMap.of(topology, Snapshot(0, {}, {}, {}, statuses=down))
    with pytest.raises(AccelerationError, match="machines h5 and h1: no path between them"):
        over(cut, ["h1", "h5"], 2)
    unplugged = {LinkKey("leaf1", "h1"): LinkStatus(LinkCondition.DOWN, 0)}
    with pytest.raises(AccelerationError, match="machines h2 and h1: link leaf1->h1 between them is down"):
        over(CostMap.of(topology, Snapshot(0, {}, {}, {}, statuses=unplugged)), ["h1", "h2"], 2)
