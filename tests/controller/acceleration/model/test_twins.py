"""The vectorised model equals the one in fractions for any input."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.acceleration.model import Works, exact_ratio, exact_times, rounds_of, times
from controller.acceleration.values import (
    Accelerator,
    Compression,
    Growth,
    Machines,
    Network,
    Round,
    Times,
    TransferModel,
    Work,
)
from dataplane.topology.values import DeviceKind

KINDS = ("filter", "join", "")


def amounts(least: float, most: float) -> st.SearchStrategy[float]:
    """Draw decimals as people write them, including zero if allowed."""
    return st.floats(least, most, allow_nan=False).map(lambda value: float(f"{value:.4g}")).filter(lambda v: v >= least)


def works() -> st.SearchStrategy[Work]:
    return st.builds(
        Work,
        name=st.just("any"),
        growth=st.sampled_from(Growth),
        cpu_s_per_100mb=amounts(0, 10),
        input_gb=amounts(0, 1000),
        output_gb=st.none() | amounts(0, 1000),
        other_gb=amounts(0, 100),
        other_s_per_100mb=st.none() | amounts(0, 10),
        merge_s_per_100mb=st.none() | amounts(0, 10),
        grows=st.booleans(),
        skew=amounts(1, 50),
        groups=st.none() | amounts(0, 1e9),
        row_bytes=amounts(1, 1000),
        kind=st.sampled_from(KINDS),
    )


@st.composite
def machines(draw: st.DrawFn) -> Machines:
    count, fan_in = draw(st.integers(1, 5000)), draw(st.integers(2, 64))
    rate = draw(amounts(0.001, 1000) | st.just(math.inf))
    transfer, finite = draw(st.sampled_from(TransferModel)), draw(st.booleans())
    plain = Machines(Network(rate), count, fan_in, transfer, finite)
    if draw(st.booleans()):
        return plain
    a_round = st.builds(Round, amounts(0, 100), amounts(0, 1), st.none() | amounts(0, 100))
    rounds = draw(st.lists(a_round, min_size=len(plain.groups), max_size=len(plain.groups)))
    return Machines(Network(rate, tuple(rounds)), count, fan_in, transfer, finite)


def accelerators() -> st.SearchStrategy[Accelerator]:
    return st.builds(
        Accelerator,
        kind=st.sampled_from([DeviceKind.GPU, DeviceKind.NPU, DeviceKind.DPU]),
        parallelism=amounts(1, 1024),
        relative_speed=amounts(0.1, 10),
        bus_gb_per_s=amounts(0.1, 100) | st.just(math.inf),
        compression=st.none() | st.builds(Compression, amounts(0.01, 1), amounts(0.01, 10)),
        is_on_the_way=st.booleans(),
        speed_up=st.just(()) | st.tuples(st.tuples(st.just("join"), amounts(0.1, 100))),
    )


@given(st.lists(works(), min_size=1, max_size=4), machines(), st.none() | accelerators())
def test_the_fast_path_and_its_twin_agree_part_by_part(
    items: list[Work], shared: Machines, accelerator: Accelerator | None
) -> None:
    timed = times(Works.of(items), shared, accelerator)
    for row, work in enumerate(items):
        expected = exact_times(work, shared, accelerator)
        for part in Times.__slots__:
            assert getattr(timed[row], part) == pytest.approx(float(getattr(expected, part)), rel=1e-11, abs=1e-15)
        assert timed.total_s[row] == pytest.approx(float(expected.total_s), rel=1e-11, abs=1e-15)


@given(st.sampled_from([Growth.LINEAR, Growth.SQUARE]), amounts(0.001, 10), machines(), accelerators())
def test_ratio_of_the_specified_classes_is_scale_invariant(
    growth: Growth, t: float, shared: Machines, accelerator: Accelerator
) -> None:
    if shared.transfer is TransferModel.PER_PATH and shared.network.rounds:
        return  # delays do not shrink with the data
    small, large = (exact_ratio(Work("any", growth, t, d), shared, accelerator) for d in (0.001, 500.0))
    assert small == large


@given(amounts(0, 10), amounts(0, 1000), amounts(0.001, 1000), st.integers(0, 6))
def test_transfer_models_compute_the_same_on_whole_trees(t: float, d: float, rate: float, height: int) -> None:
    """Ten outputs of a tenth add up to one input; only the transfers differ: the tree's groups send concurrently."""
    plain = Work("any", Growth.LINEAR, t, d)
    one_by_one, tree = (
        exact_times(plain, Machines(Network(rate), 10**height, transfer=model)) for model in TransferModel
    )
    assert one_by_one.compute_s == tree.compute_s
    assert one_by_one.aggregation_s == tree.aggregation_s
    assert one_by_one.transfer_s >= tree.transfer_s


@given(machines())
def test_a_tree_has_the_rounds_of_the_logarithm_rounded_up(shared: Machines) -> None:
    # Machines are whole: a logarithm just above an integer is that integer.
    assert len(shared.groups) == math.ceil(rounds_of(shared) - 1e-9)


@given(works(), machines(), accelerators(), amounts(1.1, 1000))
def test_a_slower_network_moves_the_ratio_towards_1(
    work: Work, shared: Machines, accelerator: Accelerator, slower: float
) -> None:
    """Common costs mask the difference: therefore a query leaves the GPU on a loaded network."""
    if math.isinf(shared.network.rate_gbit_per_s) or shared.network.rounds:
        return
    plain = replace(accelerator, compression=None)
    slow = replace(shared, network=Network(shared.network.rate_gbit_per_s / slower))
    before, after = exact_ratio(work, shared, plain), exact_ratio(work, slow, plain)
    if before is not None and after is not None:
        assert abs(after - 1) <= abs(before - 1)
        assert (after > 1) == (before > 1)
