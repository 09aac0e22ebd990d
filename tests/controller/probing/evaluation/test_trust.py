"""A lying, slow or lost centre lowers the basis of its estimates, with the reason, but never a figure."""

from __future__ import annotations

import pytest

from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.cluster.estimates import Basis, Estimate
from controller.probing.evaluation import Evidence, Trust, estimate_of, lowered, trust_of
from controller.probing.evaluation.checks import UseWork, limits_of, work_by_use
from controller.probing.values import Implementation, KernelUse, Library, ProbeKernel, ProbeTask
from dataplane.topology.values import DeviceKind, NumberFormat
from tests.controller.probing.evaluation.results import HOUR_NS, NOW_NS, S, centre, ended, result

SOUND = (1.0, 1.02, 0.99)


def trust(*results: ProbeResult, **evidence: object) -> Trust:
    return trust_of(Evidence(results, **evidence), NOW_NS)  # type: ignore[arg-type]


def test_a_centre_that_gives_no_cause_is_believed() -> None:
    verdict = trust(result("a", SOUND, age_h=2), result("b", SOUND), centre=centre(5))
    assert verdict == Trust()


def test_repeats_without_any_variance_are_a_lie() -> None:
    verdict = trust(result("a", (1.0, 1.0, 1.0)))
    assert verdict.basis is Basis.NOMINAL
    assert verdict.reasons == ("a: 3 repetitions on 1 units take the same 1 s: implausible for a clock",)


def test_rates_beyond_the_hardware_are_rejected_as_false() -> None:
    core = limits_of(UnitType(name="small", count=4, unit=Request(cpu_milli=1000)))
    dgemm = UseWork(repetitions=3, number_format=NumberFormat.FP64, flop=2.0 * 1000**3)
    for seconds, basis in ((0.05, Basis.MEASURED), (0.001, Basis.NOMINAL)):
        probe_result = result("a", (0.2, 0.21, 0.22), kernels_s={"gemm": (seconds, seconds * 1.01, seconds * 1.02)})
        verdict = trust(probe_result, limits={"small": core}, work={"p": {"gemm": dgemm}})
        assert verdict.basis is basis
    assert verdict.reasons == ("a: gemm: 2000 Gflop/s in fp64 on 1 units, whose hardware does 256 at most",)


def test_a_run_that_is_shorter_than_its_kernels_is_a_lie() -> None:
    probe_result = result("a", (0.2, 0.21), kernels_s={"gemm": (0.1, 0.1)})
    assert trust(probe_result).basis is Basis.MEASURED
    verdict = trust(probe_result, work={"p": {"gemm": UseWork(repetitions=3)}})
    assert verdict.basis is Basis.NOMINAL
    assert verdict.reasons == ("a: repetition 1 on 1 units takes 0.2 s, its kernels 0.3 s",)


def test_three_false_results_end_trust_and_three_good_restore_it() -> None:
    lies = [result(f"l{age}", (1.0, 1.0, 1.0), age_h=age) for age in (9, 8, 7)]
    good = [result(f"g{age}", SOUND, age_h=age) for age in (3, 2, 1)]
    assert trust(*lies[:2]).basis is Basis.NOMINAL
    assert trust(*lies).basis is Basis.NONE
    assert trust(*lies, *good[:2]).basis is Basis.NONE
    assert trust(*lies, *good).basis is Basis.MEASURED


def test_contradicting_result_is_trusted_once_confirmed() -> None:
    before = [result(f"b{age}", SOUND, age_h=age) for age in (9, 8)]
    verdict = trust(*before, result("n", (2.0, 2.02, 1.99)))
    assert verdict.basis is Basis.HISTORY
    assert verdict.reasons == ("p on 1 units of small took 2.003 s, before 1.003 s: not yet confirmed",)
    assert trust(*before, result("n", (2.0, 2.02, 1.99), age_h=1), result("o", (2.1, 2.0))).basis is Basis.MEASURED
    assert trust(*before, result("n", (2.0, 2.02), units=2)).basis is Basis.MEASURED


def test_a_newest_result_that_failed_lowers_and_three_lower_more() -> None:
    failed = [
        result(f"f{age}", (), age_h=age, outcome="wrong-value", problem="gemm: error 0.5") for age in (0.3, 0.2, 0.1)
    ]
    verdict = trust(result("a", SOUND, age_h=1), failed[0])
    assert verdict == Trust(Basis.HISTORY, ("f0.3 failed on 1 units: wrong-value: gemm: error 0.5",))
    assert trust(*failed).basis is Basis.NOMINAL
    assert trust(*failed, result("a", SOUND)).basis is Basis.MEASURED


@pytest.mark.parametrize(("factor", "basis"), [(1.1, Basis.MEASURED), (2.0, Basis.MODELLED), (4.0, Basis.NOMINAL)])
def test_real_tasks_that_take_longer_than_expected_lower(factor: float, basis: Basis) -> None:
    tasks = [ended(f"t{age}", 10, 10 * factor, age_h=age) for age in (3, 2, 1)]
    verdict = trust(result("a", SOUND), tasks=tasks)
    assert verdict.basis is basis
    assert all("real tasks took" in reason for reason in verdict.reasons)
    assert trust(result("a", SOUND), tasks=tasks[:2]).basis is Basis.MEASURED
    assert trust(result("a", SOUND), tasks=[*tasks, ended("u", 10, 9), ended("v", 10, 10)]).basis is basis
    sound = [ended(f"s{age}", 10, 10, age_h=age) for age in (0.3, 0.2, 0.1)]
    assert trust(result("a", SOUND), tasks=[*tasks, *sound]).basis is Basis.MEASURED


def test_a_result_that_comes_late_is_of_a_slow_centre() -> None:
    probe = ended("probe", 1, 1)
    for wait_s, basis in ((60, Basis.MEASURED), (600, Basis.HISTORY)):
        dispatched_ns = (probe.status.finished_ns or 0) - wait_s * S
        status = type(probe.status)(result="a", dispatched_ns=dispatched_ns, finished_ns=probe.status.finished_ns)
        task = type(probe)(metadata=probe.metadata, spec=probe.spec, status=status)
        assert trust(result("a", SOUND), tasks=[task]).basis is basis


@pytest.mark.parametrize(
    ("silent_s", "basis"), [(59, Basis.MEASURED), (61, Basis.HISTORY), (601, Basis.NONE), (None, Basis.NONE)]
)
def test_a_centre_that_is_gone_is_believed_less_and_less(silent_s: float | None, basis: Basis) -> None:
    assert trust(result("a", SOUND), centre=centre(silent_s)).basis is basis


def test_the_basis_is_lowered_and_no_figure() -> None:
    results = [result("a", SOUND, age_h=1)]
    sound = estimate_of(results, NOW_NS, units=1)
    assert (sound.low, sound.high, sound.basis) == (0.99, 1.02, Basis.MEASURED)
    for basis in (Basis.HISTORY, Basis.MODELLED, Basis.NOMINAL):
        less = estimate_of(results, NOW_NS, units=1, trust=Trust(basis, ("because",)))
        assert (less.times, less.basis) == (sound.times, basis)
        assert less.reasons[-1] == "because"
    assert estimate_of(results, NOW_NS, units=1, trust=Trust(Basis.NONE, ("gone",))) == Estimate.unknown("gone")
    assert lowered(Estimate.exactly(1.0, Basis.NOMINAL), Trust(Basis.HISTORY, ("x",))).basis is Basis.NOMINAL


def test_old_result_is_history_and_other_unit_counts_are_unknown() -> None:
    results = [result("a", SOUND, age_h=30)]
    assert estimate_of(results, NOW_NS, units=1).basis is Basis.HISTORY
    assert estimate_of(results, NOW_NS, units=2) == Estimate.unknown("no result of this probe on 2 units")
    assert estimate_of([], NOW_NS, units=1).basis is Basis.NONE
    failed = result("f", (1.0,), outcome="wrong-value")
    assert estimate_of([*results, failed], NOW_NS, units=1).seconds == pytest.approx(1.00333, rel=1e-3)


def test_results_beyond_the_window_do_not_count() -> None:
    assert trust(result("a", (1.0, 1.0, 1.0), age_h=8 * 24)).basis is Basis.MEASURED
    assert HOUR_NS == 3600 * S


def test_the_work_of_a_probe_is_known_by_its_kernels() -> None:
    numpy = Implementation(DeviceKind.CPU, Library.NUMPY, "m:f")
    sizes = (("k", 10), ("m", 10), ("n", 10))
    kernel = ProbeKernel("dgemm", 1, "hpc", "gemm", NumberFormat.FP64, sizes, (numpy,), 1e-9)
    uses = tuple(
        KernelUse(name, kernel, 1, sizes, 3, 3000, numpy, 1e-9) for name, kernel in (("a", "dgemm"), ("b", "x"))
    )
    work = work_by_use(ProbeTask("p", "hpc", uses), {"dgemm": kernel})
    assert work == {"a": UseWork(3, NumberFormat.FP64, 2000.0), "b": UseWork(3)}


def test_unit_without_stated_hardware_is_bounded_too() -> None:
    dgemm = {"p": {"gemm": UseWork(repetitions=1, number_format=NumberFormat.FP64, flop=2.0 * 1000**3)}}
    silent = {"small": limits_of(UnitType(name="small", count=1))}
    for seconds, basis in ((1e-3, Basis.MEASURED), (1e-12, Basis.NOMINAL)):
        probe_result = result("a", (0.2, 0.21), kernels_s={"gemm": (seconds, seconds * 1.1)})
        assert trust(probe_result, work=dgemm, limits=silent).basis is basis
        assert trust(probe_result, work=dgemm).basis is basis
    gpus = UnitType(name="g", count=1, unit=Request(devices=(DeviceNeed(kind=DeviceKind.GPU, count=4),)))
    assert limits_of(gpus).flop_per_s[NumberFormat.FP64] == 4 * limits_of(None).flop_per_s[NumberFormat.FP64]
