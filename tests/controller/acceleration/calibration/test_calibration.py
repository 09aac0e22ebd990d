"""Estimates of a calibration for operators, measured and unmeasured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from controller.acceleration.calibration import (
    DEFAULT,
    Calibration,
    CalibrationError,
    Figure,
    Rates,
    Run,
    Side,
)
from controller.acceleration.calibration.features import features_of
from controller.acceleration.calibration.fitting import fit, intervals
from controller.acceleration.values import Growth
from controller.cluster.estimates import Basis
from controller.cluster.operators import Operator
from dataplane.topology.values import DeviceKind, NumberFormat

SIZES = [(rows, width, rows // part) for rows in (1000, 30_000, 1_000_000) for width in (16, 64) for part in (2, 16)]


def filter_of(rows: int, row_bytes: int, kept_rows: int) -> Operator:
    return Operator.of("f", "filter", {"rows": rows, "row_bytes": row_bytes, "kept_rows": kept_rows})


def runs(noise: float = 0.0, seed: int = 1) -> list[Run]:
    """Return runs of a filter that takes 1 ms, 2 ns a row and 1 ns an output byte, with a relative error."""
    generator = np.random.default_rng(seed)
    samples = []
    for size in SIZES:
        features = features_of(filter_of(*size))
        seconds = 1e-3 + 2e-9 * features["rows"] + 1e-9 * features["output_bytes"]
        samples.append(Run(features, seconds * (1 + noise * generator.standard_normal())))
    return samples


def test_least_squares_recover_the_coefficients() -> None:
    assert fit("filter", runs()).coefficients == pytest.approx((1e-3, 2e-9, 1e-9))


def test_confidence_intervals_cover_the_truth_as_stated() -> None:
    truth, held, of_runs = (1e-3, 2e-9, 1e-9), 0, 0
    for seed in range(200):
        fitted = fit("filter", runs(0.05, seed))
        held += sum(low <= true <= high for true, (low, _, high) in zip(truth, intervals(fitted), strict=True))
        new = filter_of(500_000, 32, 100_000)
        low, _, high = Calibration("m", 1, fits=(fitted,)).time_of(new).times
        seconds = (1e-3 + 1e-3 + 3.2e-3) * (1 + 0.05 * np.random.default_rng(seed + 1000).standard_normal())
        of_runs += low <= seconds <= high
    assert 0.93 <= held / 600 <= 0.97
    assert 0.91 <= of_runs / 200 <= 0.99


def test_runs_that_scatter_widely_do_not_pull_the_fit_down() -> None:
    errors = np.random.default_rng(1).lognormal(0, 0.6, 20_000)
    rows = np.random.default_rng(2).integers(10**5, 10**7, errors.size)
    fitted = fit(
        "table-scan",
        [Run({"constant": 1.0, "input_bytes": float(n)}, 1e-9 * n * e) for n, e in zip(rows, errors, strict=True)],
    )
    assert fitted.coefficients[1] == pytest.approx(1e-9 * math.exp(0.18), rel=0.03)  # the mean of the runs


def test_t_gives_the_time_back_by_the_growth_of_the_class() -> None:
    calibration = Calibration("m", 1, fits=(fit("filter", runs()),))
    operator = filter_of(1_000_000, 64, 500_000)
    d = 0.064
    seconds = calibration.time_of(operator).seconds
    assert seconds == pytest.approx(1e-3 + 2e-3 + 32e-3)
    assert 10 * (calibration.t_of(operator).seconds or 0) * d == pytest.approx(seconds)
    square = calibration.t_of(operator, growth=Growth.SQUARE).seconds or 0
    assert 100 * square**2 * d == pytest.approx(seconds)
    sort = Operator.of("s", "sort", {"rows": 12_500_000, "row_bytes": 8})
    linear, deep = (DEFAULT.t_of(sort, growth=growth).seconds for growth in (Growth.LINEAR, Growth.SORT))
    assert deep == pytest.approx(linear)  # 100 MB: here n log n equals the linear time
    half = Operator.of("s", "sort", {"rows": 6_250_000, "row_bytes": 8})
    t, time = DEFAULT.t_of(half, growth=Growth.SORT).seconds or 0, DEFAULT.time_of(half).seconds
    assert 10 * t * 0.05 * math.log1p(6_250_000) / math.log1p(12_500_000) == pytest.approx(time)


def test_sides_of_a_join_add_up() -> None:
    sizes = {"left_rows": 10**6, "left_row_bytes": 16, "right_rows": 10**5, "right_row_bytes": 16}
    join = Operator.of("j", "join", sizes | {"out_rows": 10**6, "out_row_bytes": 24})
    both, probe, build = (DEFAULT.time_of(join, side=side).seconds or 0 for side in (Side.BOTH, Side.PROBE, Side.BUILD))
    assert probe > 0
    assert build > 0
    assert probe + build == pytest.approx(both)


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (Operator.of("w", "sql-window", {}), "sql-window on cpu: never measured, and its work is unknown"),
        (Operator.of("q", "quantum", {"qubits": 4}), "quantum on cpu: never measured"),
        (Operator.of("s", "svd", {"m": 10, "n": 10}, NumberFormat.INT4), None),
        (Operator.of("g", "gemm", {"m": 8, "n": 8, "k": 8}, NumberFormat.FP8), "no rate of memory or of fp8 is known"),
        (Operator.of("g", "gemm", {"m": 8}, NumberFormat.FP64), "g: gemm without n, k"),
    ],
)
def test_unknown_operator_has_a_reason_instead_of_a_figure(operator: Operator, reason: str | None) -> None:
    estimate = DEFAULT.time_of(operator)
    if reason is None:
        assert estimate.is_known  # by its bytes only, and says so
        assert "its operations not counted" in estimate.reasons[0]
        return
    assert not estimate.is_known
    assert reason in estimate.reasons[0]
    assert not DEFAULT.t_of(operator).is_known


def test_unmeasured_operator_is_timed_by_the_roofline() -> None:
    rates = Rates(
        DeviceKind.CPU,
        memory_bytes_per_s=Figure.exactly(10e9, Basis.MEASURED),
        operations_per_s={NumberFormat.FP64: Figure.exactly(50e9, Basis.MEASURED)},
        attained=Figure(0.5, 0.25, 1.0, Basis.MEASURED),
    )
    calibration = Calibration("m", 1, rates=(rates,))
    axpy = Operator.of("a", "axpy", {"n": 10**6}, NumberFormat.FP64)
    assert calibration.time_of(axpy).times == pytest.approx((2.4e-3, 4.8e-3, 9.6e-3))
    gemm = Operator.of("g", "gemm", dict.fromkeys("mnk", 1000), NumberFormat.FP64)
    assert calibration.time_of(gemm).times == pytest.approx((0.04, 0.08, 0.16))
    assert "bounded by arithmetic" in calibration.time_of(gemm).reasons[0]
    assert not calibration.time_of(gemm, DeviceKind.GPU).is_known


def test_zero_rows_cost_the_start_and_have_no_t() -> None:
    calibration = Calibration("m", 1, fits=(fit("filter", runs()),))
    none = filter_of(0, 16, 0)
    assert calibration.time_of(none).seconds == pytest.approx(1e-3)
    assert "reads nothing" in calibration.t_of(none).reasons[0]


def test_sizes_beyond_the_measured_ones_are_reported() -> None:
    calibration = Calibration("m", 1, fits=(fit("filter", runs()),))
    assert any("beyond measured sizes" in reason for reason in calibration.time_of(filter_of(10**7, 16, 10**6)).reasons)
    assert not any("measured sizes" in reason for reason in calibration.time_of(filter_of(10**6, 16, 10**5)).reasons)


def test_kinds_measured_on_both_devices_have_their_own_speed_up() -> None:
    slow = fit("filter", runs())
    quick = fit("filter", [Run(run.features, run.seconds / 20) for run in runs()], device=DeviceKind.GPU)
    bus, parallelism = Figure.exactly(25e9, Basis.MEASURED), Figure.exactly(64, Basis.NOMINAL)
    gpu = Rates(DeviceKind.GPU, bus_bytes_per_s=bus, parallelism=parallelism)
    calibration = Calibration("m", 1, (gpu,), (slow, quick))
    accelerator = calibration.accelerator_of()
    assert accelerator is not None
    assert accelerator.bus_gb_per_s == 25
    assert dict(accelerator.speed_up) == pytest.approx({"filter": 20})
    assert Calibration("m", 1).accelerator_of() is None


def test_defaults_are_nominal_and_name_their_source() -> None:
    estimate = DEFAULT.t_of(filter_of(10**6, 32, 10**5))
    assert estimate.basis is Basis.NOMINAL
    assert "AMD EPYC" in estimate.reasons[0]
    accelerator = DEFAULT.accelerator_of()
    assert accelerator is not None
    assert (accelerator.bus_gb_per_s, accelerator.parallelism) == (12.8, 64)


def test_too_few_sizes_are_an_error() -> None:
    with pytest.raises(CalibrationError, match="3 sizes do not determine 3 coefficients"):
        fit("filter", [runs()[index] for index in (0, 5, 10)])
    with pytest.raises(CalibrationError, match="no measured runs"):
        fit("filter", [])
    with pytest.raises(CalibrationError, match="invalid run time"):
        fit("filter", [replace(run, seconds=0.0) for run in runs()])


def test_algorithms_on_tables_move_more_than_they_read() -> None:
    memory = Figure.exactly(1e9, Basis.NOMINAL)
    calibration = Calibration("m", 1, (Rates(DeviceKind.GPU, memory_bytes_per_s=memory),))

    def bytes_of(kind: str, **sizes: int) -> float:
        return (calibration.time_of(Operator.of(kind, kind, sizes), DeviceKind.GPU).seconds or 0) * 1e9

    assert bytes_of("sort", rows=1000, row_bytes=8) == pytest.approx(1000 * (8 * (3 * 8 + 2 * 4) + 32 + 8))
    assert bytes_of("filter", rows=1000, row_bytes=8, kept_rows=500) == pytest.approx(12_000)
    few = bytes_of("aggregate", rows=10**6, row_bytes=16, groups=10, group_bytes=16)
    many = bytes_of("aggregate", rows=10**6, row_bytes=16, groups=10**6, group_bytes=16)
    assert few == pytest.approx(16e6 + 160)
    assert many == pytest.approx(32e6 + 64e6)
