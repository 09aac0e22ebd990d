"""Classes of operators beyond the specification's two, skew, and what kinds of devices do differently."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from controller.acceleration.model import Works, times
from controller.acceleration.values import (
    Accelerator,
    Compression,
    Growth,
    Machines,
    Network,
    Times,
    TransferModel,
    Work,
)
from dataplane.topology.values import DeviceKind

ALONE = Machines(Network(1.0), 1)
TREE = Machines(Network(1.0), 100, transfer=TransferModel.PER_PATH)
GPU = Accelerator(DeviceKind.GPU, 64)


def time_of(work: Work, machines: Machines = ALONE, accelerator: Accelerator | None = None) -> Times:
    return times(Works.of([work]), machines, accelerator)[0]


@pytest.mark.parametrize("growth", [growth for growth in Growth if growth is not Growth.SQUARE])
def test_each_class_takes_t_seconds_for_100_mb(growth: Growth) -> None:
    assert time_of(Work("any", growth, 0.7, 0.1)).compute_s == pytest.approx(0.7)


def test_square_is_100_t_squared_d_as_the_formula_has_it() -> None:
    assert time_of(Work("join", Growth.SQUARE, 0.2, 3.0)).compute_s == pytest.approx(100 * 0.2**2 * 3)


def test_a_sort_grows_as_n_log_n_in_rows() -> None:
    rows_of_100_mb = 1e6
    (less, more) = (time_of(Work("sort", Growth.SORT, 1.0, d, row_bytes=100)).compute_s for d in (0.1, 10.0))
    assert more / less == pytest.approx(100 * math.log(100 * rows_of_100_mb) / math.log(rows_of_100_mb), rel=1e-6)


def test_a_hash_join_is_linear_in_both_sides_each_with_its_own_t() -> None:
    join = Work("join", Growth.HASH_JOIN, 0.2, 2.0, other_gb=0.5, other_s_per_100mb=0.8)
    assert time_of(join).compute_s == pytest.approx(10 * (0.2 * 2 + 0.8 * 0.5))
    assert time_of(replace(join, other_s_per_100mb=None)).compute_s == pytest.approx(10 * 0.2 * 2.5)
    assert time_of(join, accelerator=GPU).bus_s == pytest.approx(1.1 * 2.5 / 12.8)


def test_only_a_hash_join_has_another_side() -> None:
    assert time_of(Work("filter", Growth.LINEAR, 0.2, 2.0, other_gb=5.0)) == time_of(
        Work("filter", Growth.LINEAR, 0.2, 2.0)
    )


def test_grouped_output_is_its_groups_and_at_most_one_per_row() -> None:
    grouped = Work("sum", Growth.GROUPED, 0.1, 1.0, groups=1e6, group_bytes=16, row_bytes=100)
    assert Works.of([grouped]).output[0] == pytest.approx(0.016)
    assert Works.of([replace(grouped, groups=1e12)]).output[0] == pytest.approx(1e7 * 16 / 1e9)
    assert Works.of([replace(grouped, groups=None)]).output[0] == pytest.approx(0.1)


def test_skew_stretches_the_fullest_machine_and_first_round() -> None:
    even, skewed = Work("any", Growth.LINEAR, 0.1, 1.0), Work("any", Growth.LINEAR, 0.1, 1.0, skew=3.0)
    assert time_of(skewed).compute_s == pytest.approx(3 * time_of(even).compute_s)
    plain, stretched = time_of(even, TREE), time_of(skewed, TREE)
    assert plain.transfer_s == pytest.approx(16)
    assert stretched.transfer_s == pytest.approx((12 + 10) * 0.8)
    assert stretched.aggregation_s == pytest.approx(10 * 0.1 * (1.2 + 1.0))


def test_skew_changes_neither_total_data_nor_group_sizes() -> None:
    even, skewed = (Work("any", Growth.GROUPED, 0.1, 1.0, groups=100, skew=skew) for skew in (1.0, 3.0))
    assert time_of(even, TREE).transfer_s == time_of(skewed, TREE).transfer_s
    summed = replace(TREE, transfer=TransferModel.SUM)
    assert time_of(even, summed).transfer_s == time_of(skewed, summed).transfer_s


def test_putting_outputs_together_has_its_own_t_in_the_tree() -> None:
    merged = Work("sort", Growth.LINEAR, 0.5, 1.0, merge_s_per_100mb=0.1)
    assert time_of(merged, TREE).aggregation_s == pytest.approx(2 * 10 * 0.1 * 1.0)


def test_a_core_s_relative_speed_divides_the_parallelism() -> None:
    work = Work("any", Growth.LINEAR, 0.5, 1.0)
    assert time_of(work, accelerator=Accelerator(DeviceKind.NPU, 64, 2.0)).compute_s == pytest.approx(5 * 2 / 64)


def test_measured_speed_up_replaces_parallelism() -> None:
    device = Accelerator(DeviceKind.GPU, 64, speed_up=(("sort", 6.0),))
    parts = [time_of(Work("any", Growth.LINEAR, 1, 1, kind=kind), accelerator=device) for kind in ("sort", "filter")]
    assert [part.compute_s for part in parts] == pytest.approx([10 / 6, 10 / 64])


def test_device_on_the_way_takes_network_input_without_its_bus() -> None:
    dpu = Accelerator(DeviceKind.DPU, 16, is_on_the_way=True)
    work = Work("any", Growth.LINEAR, 0.5, 1.0)
    assert time_of(work, TREE, dpu).bus_s == pytest.approx(1.1 / 12.8)
    assert time_of(work, TREE, GPU).bus_s == pytest.approx(3 * 1.1 / 12.8)


def test_one_memory_for_both_has_no_bus() -> None:
    npu = Accelerator(DeviceKind.NPU, 64, bus_gb_per_s=math.inf)
    assert time_of(Work("any", Growth.LINEAR, 0.5, 1.0), TREE, npu).bus_s == 0


def test_compression_costs_once_and_shrinks_transfers() -> None:
    packing = replace(GPU, compression=Compression(0.3, 0.1))
    work = Work("any", Growth.LINEAR, 0.5, 1.0)
    assert time_of(work, TREE, packing).compression_s == pytest.approx(11)
    assert time_of(work, TREE, packing).transfer_s == pytest.approx(0.3 * time_of(work, TREE, GPU).transfer_s)
