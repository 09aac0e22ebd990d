"""The model applied to a run: rows that grow between rounds, the processor's share of the network, workers' hosts."""

from __future__ import annotations

import math
from dataclasses import astuple

import pytest

from collectors.values import Snapshot
from controller.acceleration.model import Works, times
from controller.acceleration.network.hardware import Hardware
from controller.acceleration.running.comparing import (
    Processing,
    members,
    predicted,
    processed,
    processing_of,
)
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.hosts import hosts_of, machines_between
from controller.acceleration.running.operators import plan_of_operator
from controller.acceleration.running.values import Engine, Operator, OperatorKind, Sample, Trial
from controller.acceleration.values import Growth, Work
from controller.cluster.cost_map import CostMap
from dataplane.topology.families import from_text
from dataplane.topology.file import loads
from tests.controller.acceleration.running.tables import numbers, small_tables

RACKS = """
millrace: 1
name: racks
defaults: {access: {rate: 80 Mbit/s, delay: 10 us}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: h3, switch: s1}, {name: h4, switch: s2}]
links: [{a: s1, b: s2, rate: 8 Mbit/s, delay: 1 ms}]
"""
ROWS = Work("rows", Growth.LINEAR, 0.0, 1.0, output_gb=0.1, grows=True)
SUMS = Work("sums", Growth.LINEAR, 0.0, 1.0, output_gb=0.1)


def costs() -> CostMap:
    return CostMap.of(loads(RACKS), Snapshot(0, {}, {}, {}))


def test_rows_that_are_only_put_together_all_come_to_the_root() -> None:
    # Eight machines, fan-in 2: rounds of 1, 2 and 4 outputs, of 0.1 GB each, at 0.8 s for each of them.
    rows, sums = times(Works.of([ROWS, SUMS]), members(8, 2, 1.0))
    assert rows.transfer_s == pytest.approx(0.8 * (1 + 2 + 4))
    assert sums.transfer_s == pytest.approx(0.8 * 3)
    # Seven: the last round sends its smaller half.
    (rows,) = times(Works.of([ROWS]), members(7, 2, 1.0))
    assert rows.transfer_s == pytest.approx(0.8 * (1 + 2 + 3))


def test_merge_time_counts_all_rows_that_a_merge_holds() -> None:
    tables = numbers(small_tables())
    trial = Trial(1_000_000_000, 0, 100_000_000, 2, 1.0, 0.2, 1.0)
    rows, sums = (Operator(kind=OperatorKind.FILTER, column="value"), Operator(kind=OperatorKind.AGGREGATE))
    timed = [
        predicted(plan_of_operator(operator, tables, Engine.NUMPY), [trial], 1.0, members(8, 2, math.inf))[1]
        for operator in (rows, sums)
    ]
    # A merge of two outputs takes 0.2 s: of two, four and eight; of two sums thrice.
    assert timed[0].aggregation_s == pytest.approx(0.2 * (1 + 2 + 4))
    assert timed[1].aggregation_s == pytest.approx(0.2 * 3)


def test_round_takes_the_processing_time_if_it_is_longer() -> None:
    quick, slow = members(8, 8, 100.0), members(8, 8, 1.0)
    processing = Processing(receive_s_per_gb=2.0, send_s_per_gb=5.0, receive_s=0.001, send_s=0.002)
    (on_quick,), (on_slow,) = (times(Works.of([SUMS]), processed(machines, processing)) for machines in (quick, slow))
    assert on_quick.transfer_s == pytest.approx(7 * 0.1 * 2 + 7 * 0.001 + 0.002)
    assert on_slow.transfer_s == pytest.approx(7 * 0.1 * 8 + 7 * 0.001 + 0.002)
    (rows,) = times(Works.of([ROWS]), processed(members(8, 2, 100.0), processing))
    # With a fan-in of 2, one sends as much as the other receives, and sending takes longer.
    assert rows.transfer_s == pytest.approx(0.1 * 5 * (1 + 2 + 4) + 3 * 0.003)


def test_processing_is_derived_from_two_sizes_and_the_slowdown() -> None:
    derived = processing_of(Sample(1_000, 0.001, 0.002), Sample(1_000_001_000, 1.001, 3.002), slower=5.0)
    assert astuple(derived) == pytest.approx((15.0, 5.0, 0.01, 0.005))
    with pytest.raises(RunError, match="the second must be larger"):
        processing_of(Sample(1, 0, 0), Sample(1, 0, 0), 1.0)


def test_workers_are_hosts_by_name_or_address_in_their_order() -> None:
    topology = costs().model.topology
    addresses = ("h3:7700", f"{topology.host['h1'].ipv4}:7700")
    assert hosts_of(addresses, Hardware(), costs()) == (("h3", "h1"), ())
    assert hosts_of(("10.99.0.1:1", "10.99.0.2:1"), Hardware(machines=("h2", "h1")), costs()) == (("h2", "h1"), ())
    # Local workers stand for hosts; neighbours are near each other.
    hosts, notes = hosts_of(("unix:/a", "unix:/b", "unix:/c"), Hardware(), costs())
    assert hosts == ("h1", "h3", "h2")
    assert "represent h1, h3, h2" in notes[0]


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        (("h9:1",), "worker h9:1: topology racks has no host of that name or address"),
        (("h1:1", "h1:2"), "worker h1:2: host h1 has another worker"),
        (("h1:1", "unix:/a"), "worker unix:/a: topology racks has no host"),
        (("unix:/a", "unix:/b", "unix:/c", "unix:/d", "unix:/e"), "5 workers: topology racks has 4 machines"),
    ],
)
def test_workers_that_are_no_hosts_are_named(addresses: tuple[str, ...], problem: str) -> None:
    with pytest.raises(RunError, match=problem):
        hosts_of(addresses, Hardware(), costs())


def test_the_tree_of_a_run_is_over_the_paths_between_its_workers() -> None:
    near, notes = machines_between(costs(), ("h1", "h3", "h2", "h4"), 2)
    far, _ = machines_between(costs(), ("h1", "h2", "h3", "h4"), 2)
    assert notes == ("free bandwidth between machines is nominal",)
    # 0.1 GB at 10 MB/s inside a rack, then at 1 MB/s between racks; if separated, both share the one cable first.
    sums, rows = (times(Works.of([work]), near)[0].transfer_s for work in (SUMS, ROWS))
    assert sums == pytest.approx(10 + 100, rel=1e-3)
    assert rows == pytest.approx(10 + 200, rel=1e-3)
    assert times(Works.of([SUMS]), far)[0].transfer_s > 200


@pytest.mark.parametrize(("count", "fan_in"), [(1, 2), (2, 8), (5, 2), (7, 3), (8, 2), (8, 8)])
def test_over_a_switch_of_equal_links_paths_are_one_rate(count: int, fan_in: int) -> None:
    star = CostMap.of(
        from_text(f"leaf-spine:spines=1,leaves=1,hosts={count},rate=1 Gbit/s,delay=0 ns"), Snapshot(0, {}, {}, {})
    )
    hosts = tuple(f"h{number + 1}" for number in range(count))
    machines, _ = machines_between(star, hosts, fan_in, efficiency=0.5)
    for work in (SUMS, ROWS):
        by_paths, by_rate = (times(Works.of([work]), each)[0] for each in (machines, members(count, fan_in, 0.5)))
        assert by_paths.transfer_s == pytest.approx(by_rate.transfer_s, abs=1e-4)
        assert by_paths.aggregation_s == by_rate.aggregation_s
