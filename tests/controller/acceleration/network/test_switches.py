"""The switch as a third choice: operators that are sums of fixed width, where they are added up, and their time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collectors.values import Snapshot
from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Works, decide
from controller.acceleration.network.grounds import ground_by_rate, ground_over
from controller.acceleration.network.hardware import Hardware, SwitchSpec
from controller.acceleration.network.switches import Sums, SwitchTree, sums_of, switch_choice, switch_tree
from controller.acceleration.values import (
    SWITCH,
    Accelerator,
    Compression,
    Growth,
    Machines,
    Network,
    Work,
)
from controller.cluster.cost_map import CostMap
from controller.common.errors import PathError
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind, LinkKey

SWITCHES = SwitchSpec()
RACKS = "leaf-spine:spines=1,leaves=2,hosts=4,rate=1 Gbit/s,delay=1 us"
ONE_SWITCH = "leaf-spine:spines=1,leaves=1,hosts=8,rate=50 Mbit/s,delay=1 us"


def quiet(name: str) -> CostMap:
    return CostMap.of(from_text(name), Snapshot(0, {}, {}, {}))


def hosts(count: int) -> list[str]:
    return [f"h{number}" for number in range(1, count + 1)]


def tree_of(name: str, count: int, costs: CostMap | None = None) -> SwitchTree:
    tree = switch_tree(costs or quiet(name), hosts(count), SWITCHES)
    assert isinstance(tree, SwitchTree), tree
    return tree


@pytest.mark.parametrize(("machines", "measured_s"), [(2, 11.645), (4, 11.646)])
def test_the_time_is_that_of_measured_all_reduces(machines: int, measured_s: float) -> None:
    # docs/results/benchmarks.md: 2^26 bytes of float32 over cables of 50 Mbit/s.
    predicted_s = tree_of(ONE_SWITCH, machines).transfer_s(Sums(groups=1 << 24, is_float=True))
    assert predicted_s == pytest.approx(measured_s, rel=0.03)
    # A packet has 1,024 bytes of values and 78 of Ethernet, IPv4, UDP, our header and the checksum.
    assert predicted_s == pytest.approx((1 << 29) * (1024 + 78) / 1024 / 50e6, rel=1e-3)


def test_tree_links_carry_the_sums_once_for_any_machine_count() -> None:
    few, many = tree_of(RACKS, 2), tree_of(RACKS, 8)
    sums = Sums(groups=1000)
    assert many.transfer_s(sums) == pytest.approx(few.transfer_s(sums), rel=0.05)
    # Each rack adds up at its leaf, so the cable between them carries one vector, not four.
    assert many.s_per_gb == pytest.approx(8)


def test_a_loaded_link_of_the_tree_holds_all_back() -> None:
    costs = quiet(ONE_SWITCH).with_load("h3", "h2", 40_000_000)
    tree = tree_of(ONE_SWITCH, 4, costs)
    assert tree.s_per_gb == pytest.approx(5 * tree_of(ONE_SWITCH, 4).s_per_gb)
    assert tree.busiest in {LinkKey("h3", "leaf1"), LinkKey("leaf1", "h2")}


@pytest.mark.parametrize("bits", [8, 31, 32, 64])
@pytest.mark.parametrize("machines", [2, 3, 64, 4096])
def test_as_many_lanes_as_a_sum_takes_hold_it_exactly(bits: int, machines: int) -> None:
    lanes = Sums(groups=1, bits=bits).lanes(machines)
    room = 31 - (machines - 1).bit_length()
    assert lanes * room >= bits > (lanes - 1) * room
    # The maximum values of all machines in one lane must fit in int32.
    assert machines * ((1 << room) - 1) <= np.iinfo(np.int32).max


@pytest.mark.parametrize(
    ("aggregates", "columns"),
    [(["count_star()"], 1), (["sum(#0)", "count(#1)"], 2), (["avg(#2)"], 2), (["sum_no_overflow(#0)"], 1)],
)
def test_sums_counts_and_means_are_sums(aggregates: list[str], columns: int) -> None:
    assert sums_of(aggregates, groups=7) == Sums(7, columns)


@pytest.mark.parametrize(
    ("aggregates", "why"),
    [
        (["sum(#0)", "min(#1)"], "min(#1) is not a sum of fixed width"),
        (["count(DISTINCT #0)"], "count(DISTINCT #0) is not a sum: a value on several machines counts once"),
        (["l_orderkey"], "l_orderkey is not a sum of fixed width"),
        ([], "it adds up nothing"),
    ],
)
def test_other_aggregates_are_excluded_with_a_reason(aggregates: list[str], why: str) -> None:
    assert sums_of(aggregates, groups=7) == why


AGGREGATE = Work("sum", Growth.GROUPED, cpu_s_per_100mb=1, input_gb=1, output_gb=0.1)
GPU = Accelerator(DeviceKind.GPU, parallelism=64)


def test_switch_is_chosen_if_reduction_rounds_dominate() -> None:
    hardware = Hardware(fan_in=2, accelerators=(GPU,), switch=SWITCHES)
    ground = ground_over(hardware, quiet(ONE_SWITCH))
    works = Works.of([AGGREGATE, Work("filter", Growth.LINEAR, cpu_s_per_100mb=1, input_gb=1)])
    others = ground.others(works, [Sums(1000), "a filter adds up nothing"])
    first, second = decide(works, ground.machines, (), 1.0, others[:1])
    assert first.device == SWITCH
    times = first.times[SWITCH]
    assert (times.compute_s, times.aggregation_s, times.bus_s) == (first.times["cpu"].compute_s, 0, 0)
    assert times.transfer_s == pytest.approx(tree_of(ONE_SWITCH, 8).transfer_s(Sums(1000)))
    assert second.device == "cpu"
    assert "switch: a filter adds up nothing" in second.reasons
    both, by_gpu = decide(works, ground.machines, ground.accelerators, 1.0, others)
    assert (both.device, by_gpu.device) == ("gpu+switch", "gpu")


def test_accelerators_may_compute_for_switches() -> None:
    packed = replace(GPU, compression=Compression(0.3, 0.1), bus_gb_per_s=11.0)
    ground = ground_over(Hardware(fan_in=2, accelerators=(packed,), switch=SWITCHES), quiet(ONE_SWITCH))
    small = Work("small", Growth.GROUPED, cpu_s_per_100mb=1e-6, input_gb=1, output_gb=0.1)
    works = Works.of([AGGREGATE, small, Work("filter", Growth.LINEAR, cpu_s_per_100mb=1, input_gb=1)])
    others = ground.others(works, [Sums(1000), Sums(1000), "a filter adds up nothing"])
    assert [other.label for other in others] == [SWITCH, "gpu+switch"]
    first, second, third = decide(works, ground.machines, ground.accelerators, 1.0, others)
    assert (first.device, second.device, third.device) == ("gpu+switch", SWITCH, "gpu")
    times, on_cpu = first.times["gpu+switch"], first.times[SWITCH]
    assert times.compute_s == pytest.approx(on_cpu.compute_s / 64)
    assert times.bus_s == pytest.approx(0.1)
    assert (times.transfer_s, times.aggregation_s, times.compression_s) == (on_cpu.transfer_s, 0, 0)
    assert "gpu+switch: a filter adds up nothing" in third.reasons
    (alone,) = ground.others(works, ["nothing"] * 3)
    assert alone.label == SWITCH


def test_accelerator_computes_only_its_kinds_for_switches() -> None:
    sorter = replace(GPU, runs=frozenset({"sort"}))
    tree, machines = tree_of(ONE_SWITCH, 4), Machines(Network(0.05), 4)
    choice = switch_choice(Works.of([AGGREGATE]), machines, [Sums(10)], tree, sorter)
    assert choice.refusals == ("it does not run operators without a kind",)
    (decision,) = decide(Works.of([AGGREGATE]), machines, (), others=[choice])
    assert decision.device == "cpu"


def test_sums_that_do_not_fit_its_slots_are_refused() -> None:
    tree = switch_tree(quiet(ONE_SWITCH), hosts(4), SwitchSpec(cells=64))
    assert isinstance(tree, SwitchTree)
    works, machines = Works.of([AGGREGATE]), Machines(Network(0.05), 4)
    assert switch_choice(works, machines, [Sums(4096, bits=29)], tree).refusals == ("",)
    assert tree.slots == 32 * 256
    refused = switch_choice(works, machines, [Sums(8193, bits=29)], tree)
    assert refused.refusals == ("8193 lanes of sums do not fit in the switch's 8192 slots",)
    (decision,) = decide(works, machines, (), others=[refused])
    assert (decision.device, decision.reasons) == (
        "cpu",
        ("switch: 8193 lanes of sums do not fit in the switch's 8192 slots",),
    )


def test_reason_is_given_if_no_switch_can_add_up() -> None:
    assert switch_tree(quiet(RACKS), ["h1"], SWITCHES) == "one machine has nothing to add up"
    with pytest.raises((PathError, AccelerationError), match="h99"):
        ground_over(Hardware(machines=("h1", "h99"), switch=SWITCHES), quiet(RACKS))
    many = switch_tree(quiet("leaf-spine:spines=1,leaves=1,hosts=70"), hosts(70), SWITCHES)
    assert isinstance(many, str)
    assert "no switch can be a root" in many
    by_rate = ground_by_rate(Hardware(machines=4, switch=SWITCHES), 1e9)
    works = Works.of([AGGREGATE])
    (choice,) = by_rate.others(works, [Sums(1)])
    assert choice.refusals == ("sums in switches need a topology and its paths",)
    assert ground_by_rate(Hardware(machines=4), 1e9).others(works, [Sums(1)]) == ()
