"""Bad input: zero rows, one machine, k larger than n, infinite or negative rates: clear errors, or the right limit."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Works, decide, exact_times, rounds_of, senders_of, times
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
from controller.cluster.estimates import Basis
from dataplane.topology.values import DeviceKind

FILTER = Work("filter", Growth.LINEAR, 0.005, 1.0, kind="filter")
GPU = Accelerator(DeviceKind.GPU, 64)
TEN = Machines(Network(1.0), 10)
MODELS = pytest.mark.parametrize("transfer", TransferModel)


@pytest.mark.parametrize("growth", Growth)
@MODELS
def test_zero_rows_take_no_time_and_stay_on_the_cpu(growth: Growth, transfer: TransferModel) -> None:
    nothing = Work("empty", growth, 1.0, 0.0, groups=0)
    (decision,) = decide(Works.of([nothing]), replace(TEN, transfer=transfer), [GPU])
    assert {name: time.total_s for name, time in decision.times.items()} == {"cpu": 0, "gpu": 0}
    assert (decision.device, decision.ratio) == ("cpu", None)
    assert decision.reasons == ("gpu: nothing to compute or to move, so nothing to gain",)


@MODELS
def test_one_machine_moves_nothing(transfer: TransferModel) -> None:
    alone = Machines(Network(1.0), 1, transfer=transfer)
    (timed,) = times(Works.of([FILTER]), alone)
    assert timed == Times(0.05, 0, 0)
    (on_gpu,) = times(Works.of([FILTER]), alone, GPU)
    assert on_gpu.total_s == pytest.approx(1.1 / 12.8 + 0.05 / 64)


def test_fan_in_above_the_machine_count_is_one_round() -> None:
    five, exactly = Machines(Network(1.0), 5, 10), Machines(Network(1.0), 5, 5)
    assert rounds_of(five) == 1
    for has_finite_sum in (False, True):
        wide, fitting = (replace(machines, has_finite_sum=has_finite_sum) for machines in (five, exactly))
        assert exact_times(FILTER, wide) == exact_times(FILTER, fitting)
    assert senders_of(replace(five, has_finite_sum=True)) == 5
    tree = exact_times(FILTER, replace(five, transfer=TransferModel.PER_PATH))
    assert tree.transfer_s == 5 * Fraction(8, 10)


def test_the_data_moved_is_n_k_over_k_minus_1_for_another_fan_in() -> None:
    """The table's d n / 9 equals the number of sending nodes only for a fan-in of 10."""
    moved = exact_times(Work("any", Growth.LINEAR, 0, 1.0), Machines(Network(8.0), 1024, 4)).transfer_s
    assert moved == Fraction(1024, 10) * Fraction(4, 3)
    assert moved != Fraction(1024, 9)


@MODELS
def test_infinite_network_leaves_only_computing(transfer: TransferModel) -> None:
    (timed,) = times(Works.of([FILTER]), Machines(Network(math.inf), 1000, transfer=transfer))
    assert timed.transfer_s == 0
    assert timed.total_s == pytest.approx(4 * 0.05)


def test_infinite_parallelism_and_bus_leave_only_the_network() -> None:
    dream = Accelerator(DeviceKind.GPU, math.inf, bus_gb_per_s=math.inf)
    (timed,) = times(Works.of([FILTER]), TEN, dream)
    assert timed.transfer_s == timed.total_s == pytest.approx(8 * 10 / 9)
    (decision,) = decide(Works.of([FILTER]), Machines(Network(1.0), 1), [dream])
    assert (decision.device, decision.ratio) == ("gpu", math.inf)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, -math.inf])
def test_rates_of_zero_or_less_are_errors_that_name_the_figure(rate: float) -> None:
    with pytest.raises(AccelerationError, match=r"network: rate_gbit_per_s: .* is not above 0"):
        Network(rate)
    for name in ("parallelism", "bus_gb_per_s", "relative_speed", "memory_gb"):
        figures: dict[str, Any] = {"parallelism": 64.0, name: rate}
        with pytest.raises(AccelerationError, match=f"gpu: {name}: .* is not above 0"):
            Accelerator(DeviceKind.GPU, **figures)
    with pytest.raises(AccelerationError, match="compression: gb_per_s"):
        Compression(0.3, rate)
    with pytest.raises(AccelerationError, match=r"gpu: speed_up\.join"):
        Accelerator(DeviceKind.GPU, 64, speed_up=(("join", rate),))


@pytest.mark.parametrize(
    "name", ["cpu_s_per_100mb", "input_gb", "output_gb", "other_gb", "merge_s_per_100mb", "groups"]
)
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_negative_or_infinite_amount_names_operator_and_figure(name: str, value: float) -> None:
    figures: dict[str, Any] = {"cpu_s_per_100mb": 1.0, "input_gb": 1.0, name: value}
    with pytest.raises(AccelerationError, match=f"scan: {name}: .* is not finite and >= 0"):
        Work("scan", Growth.LINEAR, **figures)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Machines(Network(1), 0), "0 machines"),
        (lambda: Machines(Network(1), 10, 1), "a fan-in of 1 is below 2"),
        (lambda: Machines(Network(1), 1 << 40), "machines, not 1 to 10000000"),
        (lambda: Work("w", Growth.SORT, 1, 1, skew=0.5), "w: a skew of 0.5"),
        (lambda: Work("w", Growth.SORT, 1, 1, skew=math.inf), "w: a skew of inf"),
        (lambda: Work("w", Growth.SORT, 1, 1, row_bytes=0), "w: row_bytes: a row of 0 bytes"),
        (lambda: Work("w", Growth.SORT, 0, 0, basis=Basis.NONE), "no reason given"),
        (lambda: Compression(1.5, 1), "a compression ratio of 1.5"),
        (lambda: Compression(0, 1), "a compression ratio of 0"),
        (lambda: Round(-1.0), "a round: s_per_gb: -1.0"),
        (lambda: Accelerator(DeviceKind.CPU, 64), "a CPU is not an accelerator"),
        (lambda: Accelerator(DeviceKind.GPU, 64, math.inf), "relative_speed"),
        (lambda: Accelerator(DeviceKind.GPU, 64, name="switch"), "cannot have the name switch"),
    ],
)
def test_impossible_input_is_one_clear_line(make: Any, message: str) -> None:
    with pytest.raises(AccelerationError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_rounds_by_paths_are_as_many_as_the_tree_has() -> None:
    with pytest.raises(AccelerationError, match="2 rounds by paths, but 1000 machines with a fan-in of 10 have 3"):
        Machines(Network(1, (Round(1), Round(1))), 1000, transfer=TransferModel.PER_PATH)


@pytest.mark.parametrize("preset", [0.5, 0.0, -1.0, math.nan, math.inf])
def test_a_preset_below_1_is_an_error(preset: float) -> None:
    with pytest.raises(AccelerationError, match="preset"):
        decide(Works.of([FILTER]), TEN, [GPU], preset)


def test_times_that_no_number_holds_name_the_operator() -> None:
    with pytest.raises(AccelerationError, match="join: t = 1e"):
        times(Works.of([FILTER, Work("join", Growth.SQUARE, 1e200, 1.0)]), TEN)


def test_no_operators_are_no_decisions() -> None:
    assert decide(Works.of([]), TEN, [GPU]) == ()
