"""Run time of a target, predicted from runs of its probe."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from controller.apiserver.resources.probe_result import ProbeRun
from controller.cluster.estimates import Basis
from controller.probing.prediction import Reference, predicted
from controller.probing.values import Implementation, KernelUse, Library, ProbeTask, TargetRun
from dataplane.topology.values import DeviceKind

CODE = Implementation(DeviceKind.CPU, Library.NUMPY, "module:make")


def _use(name: str, executions: int, *, repetitions: int = 1, scale: float = 1.0) -> KernelUse:
    return KernelUse(name, "dgemm", 1, (), repetitions, executions, CODE, 1e-9, operator=name, scale=scale)


RIGHT = {"solve": 1e-15, "sum": 0.0}
PROBE = ProbeTask("solver", "hpc", (_use("solve", 3000, repetitions=3), _use("sum", 1000)), share_matched=1.0)


def _run(solve: tuple[float, ...] = (0.01,), total: tuple[float, ...] = (0.002,), units: int = 1) -> ProbeRun:
    times = {"solve": solve, "sum": total}
    return ProbeRun(units=units, run_times_s=(0.1,), kernels_s=times, kernel_accuracies=RIGHT, start_s=0.5)


def test_prediction_scales_execution_times_and_adds_one_start() -> None:
    prediction = predicted(PROBE, [_run()])
    assert prediction.seconds == pytest.approx(3000 * 0.01 + 1000 * 0.002 + 0.5)
    assert prediction.basis is Basis.MEASURED
    assert "1:1000" in prediction.reasons[0]


def test_seconds_of_a_long_run_count_if_known() -> None:
    run = ProbeRun(
        units=1,
        run_times_s=(0.1,),
        kernels_s={"solve": (0.01,), "sum": (0.002,)},
        steady_s={"solve": 0.02, "sum": 0.004},
        kernel_accuracies=RIGHT,
    )
    assert predicted(PROBE, [run]).seconds == pytest.approx(64.0)


def test_an_execution_that_was_cut_to_fit_counts_by_its_work() -> None:
    probe = ProbeTask("big", "hpc", (_use("solve", 10, scale=8.0),), share_matched=1.0)
    run = ProbeRun(units=1, run_times_s=(1.0,), kernels_s={"solve": (1.0,)}, kernel_accuracies=RIGHT)
    assert predicted(probe, [run]).seconds == pytest.approx(80.0)


def test_unmatched_share_adds_time_and_lowers_the_basis() -> None:
    prediction = predicted(replace(PROBE, share_matched=0.8, unmatched=("parse",)), [_run()])
    assert prediction.seconds == pytest.approx(32 / 0.8 + 0.5)
    assert prediction.basis is Basis.MODELLED
    assert any("80.0%" in reason and "parse" in reason for reason in prediction.reasons)


def test_unknown_share_is_reported() -> None:
    prediction = predicted(replace(PROBE, share_matched=None), [_run()])
    assert prediction.basis is Basis.MODELLED
    assert any("is unknown" in reason for reason in prediction.reasons)


def test_less_than_half_matched_gives_no_prediction() -> None:
    prediction = predicted(replace(PROBE, share_matched=0.3), [_run()])
    assert not prediction.is_known
    assert "30%" in prediction.reasons[0]


def test_bounds_are_as_wide_as_the_repetitions_scatter() -> None:
    calm = predicted(PROBE, [_run((0.01, 0.01, 0.01, 0.01), (0.002,) * 4)])
    wild = predicted(PROBE, [_run((0.005, 0.015, 0.005, 0.015), (0.002,) * 4)])
    assert calm.times[2] - calm.times[0] == pytest.approx(2 * 0.05 * 32)
    assert wild.times[2] - wild.times[0] > 5 * (calm.times[2] - calm.times[0])
    assert wild.times[0] >= 0


def test_reference_cancels_a_common_error_of_kernels() -> None:
    reference = Reference(65.0, (_run(),), "here")
    prediction = predicted(PROBE, [_run((0.02,), (0.004,))], reference=reference)
    assert prediction.seconds == pytest.approx(65.0 * (64.5 / 32.5))
    assert "here" in prediction.reasons[0]


def test_reference_run_scales_kernel_times_measured_elsewhere() -> None:
    built = replace(PROBE, reference=TargetRun(48.0, (("solve", 0.01), ("sum", 0.002))))
    prediction = predicted(built, [_run((0.02,), (0.004,))])
    assert prediction.seconds == pytest.approx(2 * 48.0 + 0.5)
    assert prediction.basis is Basis.MEASURED
    assert "1.50 of its kernels' time" in prediction.reasons[1]
    explicit = predicted(built, [_run((0.02,), (0.004,))], reference=Reference(65.0, (_run(),), "here"))
    assert explicit.seconds == pytest.approx(65.0 * (64.5 / 32.5))


@pytest.mark.parametrize("run_time_s", [32.0 / 3.1, 32.0 * 3.1])
def test_a_target_that_its_kernels_hardly_resemble_is_modelled(run_time_s: float) -> None:
    built = replace(PROBE, reference=TargetRun(run_time_s, (("solve", 0.01), ("sum", 0.002))))
    prediction = predicted(built, [_run()])
    assert prediction.basis is Basis.MODELLED
    assert any("only in part" in reason for reason in prediction.reasons)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (ProbeRun(units=1, run_times_s=(), outcome="crash", problem="use solve: SIGSEGV"), "SIGSEGV"),
        (
            ProbeRun(units=1, run_times_s=(1.0,), kernels_s={"solve": (0.01,)}, kernel_accuracies=RIGHT),
            "without times of sum",
        ),
        (_run((0.0,)), "invalid times"),
        (
            ProbeRun(
                units=1,
                run_times_s=(1.0,),
                kernels_s={"solve": (0.01,), "sum": (0.1,)},
                kernel_accuracies={"solve": 0.0, "sum": 0.5},
            ),
            "sum is wrong by 0.5",
        ),
        (msgspec.structs.replace(_run(), kernel_accuracies={"solve": 0.0}), "without the accuracy of sum"),
    ],
)
def test_invalid_run_is_ignored_with_its_reason(run: ProbeRun, reason: str) -> None:
    alone = predicted(PROBE, [run])
    assert not alone.is_known
    assert any(reason in line for line in alone.reasons)
    beside = predicted(PROBE, [run, _run()])
    assert beside.seconds == pytest.approx(32.5)
    assert any(reason in line for line in beside.reasons)


def test_no_runs_or_mixed_unit_counts_are_unknown() -> None:
    assert not predicted(PROBE, []).is_known
    mixed = predicted(PROBE, [_run(), _run(units=2)])
    assert "1, 2 units" in mixed.reasons[0]


def test_a_reference_without_a_good_run_is_unknown() -> None:
    assert not predicted(PROBE, [_run()], reference=Reference(60.0, ())).is_known
    assert not predicted(PROBE, [_run()], reference=Reference(float("nan"), (_run(),))).is_known
