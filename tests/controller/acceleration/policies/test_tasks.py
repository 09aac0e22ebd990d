"""Devices of a task's operators are chosen at placement: units are ranked by the operators' time there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from controller.acceleration.calibration import DEFAULT, Calibration, Figure, Rates, save
from controller.acceleration.model import Works, times
from controller.acceleration.network.hardware import load_hardware
from controller.acceleration.plans import explain, plan_of
from controller.acceleration.policies.choosing import MeasuredTimes
from controller.acceleration.policies.tasks import OperatorDevices
from controller.acceleration.values import Machines, Network
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.operator_graphs import operators_of
from controller.apiserver.resources.task import OperatorCount, UnitChoice
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Flow, Operator, OperatorGraph
from controller.common.errors import SchedulerError
from controller.scheduling.framework.plugins import TASKS, known_policies, make_policy
from controller.scheduling.framework.policies import MOST_POINTS
from controller.scheduling.framework.profiles import PolicySettings, WeightedScore
from controller.scheduling.tasks.deciding import Verdict, devices_of
from controller.scheduling.tasks.explaining import explained
from controller.scheduling.tasks.planning import Plan
from controller.scheduling.tasks.profiles import MEASURED, TaskProfile, TaskProfileSettings
from controller.scheduling.tasks.slots import Slots
from controller.scheduling.tasks.values import (
    CentreState,
    CentresView,
    Offer,
    Option,
    Options,
    PendingTask,
    TimedOptions,
)
from dataplane.topology.values import DeviceKind, NumberFormat

HARDWARE = "millrace: 1\naccelerators: [{kind: gpu, parallelism: 1000, bus: 1 GB/s}]\n"
GEMM = Operator.of("product", "gemm", {"m": 4096, "n": 4096, "k": 4096}, NumberFormat.FP32)
COPY = Operator.of("sum", "axpy", {"n": 1 << 20}, NumberFormat.FP32)
UNKNOWN = Operator.of("mystery", "never-heard-of", {"n": 10})
PLAIN, WITH_GPU = Offer("plain", "cpu", 4), Offer("fast", "gpu", 4, devices=frozenset({DeviceKind.GPU}))
MEASURED_S = {"product": 14.0, "sum": 2e-4}
NOW_NS = 1_900_000_000_000_000_000


@pytest.fixture
def policy(tmp_path: Path) -> PolicySettings:
    path = tmp_path / "hardware.yaml"
    path.write_text(HARDWARE)
    return PolicySettings(policy="operator-devices", settings={"hardware": str(path)})


def counts(*operators: Operator, flows: tuple[Flow, ...] = ()) -> tuple[OperatorCount, ...]:
    return operators_of(OperatorGraph("job", operators, flows), MEASURED_S)


class Asked(NamedTuple):
    """A task with its options."""

    task: PendingTask
    timed: TimedOptions


def asked(task: PendingTask, *offers: Offer, units: int = 1) -> Asked:
    view = CentresView(
        NOW_NS,
        offers,
        {offer.centre: CentreState(offer.centre, is_probed=True) for offer in offers},
        tuple(Slots(4, []) for _ in offers),
    )
    same = Estimate(10.0, 9.0, 11.0, Basis.MEASURED)
    options = Options.of(tuple(Option(offer.key, units, same) for offer in offers), view.place)
    zero = np.zeros(len(offers), np.float64)
    return Asked(task, TimedOptions(view, options, zero, zero, zero.astype(np.bool_), zero + 1, zero))


def made(settings: PolicySettings) -> OperatorDevices:
    policy = make_policy(TASKS, settings.policy, settings.settings, ("points", "reason"))
    assert isinstance(policy, OperatorDevices)
    return policy


def points(policy: OperatorDevices, question: Asked) -> list[int]:
    return [int(point) for point in policy.points(*question, np.arange(len(question.timed.options)))]


def test_task_that_gains_goes_to_units_with_the_device(policy: PolicySettings) -> None:
    question = asked(PendingTask("t", "train", operators=counts(GEMM)), PLAIN, WITH_GPU)
    on_plain, on_gpu = points(made(policy), question)
    assert on_gpu == MOST_POINTS
    assert on_plain < MOST_POINTS / 10
    assert "product on the gpu" in made(policy).reason(*question, 1)
    assert "product on the cpu" in made(policy).reason(*question, 0)


def test_devices_that_no_operator_would_use_are_left_to_others(policy: PolicySettings) -> None:
    question = asked(PendingTask("t", "copy", operators=counts(COPY)), WITH_GPU, PLAIN)
    assert points(made(policy), question) == [MOST_POINTS - 1, MOST_POINTS]
    assert "sum on the cpu" in made(policy).reason(*question, 0)


def test_operators_of_one_task_choose_each_their_own_device(policy: PolicySettings) -> None:
    both = counts(COPY, GEMM)
    question = asked(PendingTask("t", "mixed", operators=both), WITH_GPU)
    reason = made(policy).reason(*question, 0)
    assert "sum on the cpu" in reason
    assert "product on the gpu" in reason
    assert "s on CPUs alone" in reason


def test_tie_of_an_operator_stays_on_the_cpu_and_says_so(policy: PolicySettings, tmp_path: Path) -> None:
    def bus_s_of(seconds: float) -> float:
        known = MeasuredTimes(operators_of(OperatorGraph("job", (GEMM,)), {"product": seconds}))
        hardware = load_hardware(tmp_path / "hardware.yaml")
        plan = plan_of(known.graph, 1, known)
        return explain(plan, Machines(Network(1.0), 1), hardware.accelerators).operators[0].decision.times["gpu"].bus_s

    # A thousand times as fast as the CPU, after the bus: so that the CPU takes 1.01 times as long.
    seconds = 1.01 * bus_s_of(1.0) / (1 - 0.00101)
    task = PendingTask("t", "near", operators=operators_of(OperatorGraph("job", (GEMM,)), {"product": seconds}))
    question = asked(task, WITH_GPU)
    reason = made(policy).reason(*question, 0)
    assert "product on the cpu: " in reason
    assert "; without the tie band of 0.02: product on the gpu" in reason
    (tmp_path / "hardware.yaml").write_text(f"{HARDWARE}tie_band: 0\n")
    reason = made(policy).reason(*question, 0)
    assert "product on the gpu: " in reason
    assert "tie band" not in reason


def test_unknown_operator_stays_on_the_cpu_with_a_reason(policy: PolicySettings) -> None:
    question = asked(PendingTask("t", "odd", operators=counts(UNKNOWN)), WITH_GPU, PLAIN)
    reason = made(policy).reason(*question, 0)
    assert "mystery on the cpu" in reason
    assert "1 of unknown time stay on the cpu" in reason
    assert points(made(policy), question) == [MOST_POINTS - 1, MOST_POINTS]


SORT = Operator.of("any", "sort", {"rows": 1_000_000, "row_bytes": 32}, NumberFormat.FP64)
JOIN_SIZES = {"left_rows": 1000, "left_row_bytes": 16, "right_rows": 500, "right_row_bytes": 24, "out_rows": 9}
JOIN = Operator.of("any", "join", {**JOIN_SIZES, "out_row_bytes": 40})


@pytest.mark.parametrize("operator", [GEMM, SORT, JOIN], ids=lambda operator: operator.kind)
def test_operator_on_one_machine_takes_its_traced_time(operator: Operator) -> None:
    measured = MeasuredTimes(operators_of(OperatorGraph("job", (operator,)), {operator.name: 2.5}))
    works = Works.of(plan_of(measured.graph, 1, measured).works)
    assert times(works, Machines(Network(1.0), 1)).total_s[0] == pytest.approx(2.5)


@pytest.mark.parametrize("operator", [SORT, JOIN], ids=lambda operator: operator.kind)
def test_operator_on_one_machine_takes_its_calibrated_time(operator: Operator) -> None:
    measured = MeasuredTimes(operators_of(OperatorGraph("job", (operator,))), DEFAULT)
    works = Works.of(plan_of(measured.graph, 1, measured).works)
    assert times(works, Machines(Network(1.0), 1)).total_s[0] == pytest.approx(DEFAULT.time_of(operator).seconds)


def test_calibration_fills_gaps_of_a_trace(policy: PolicySettings, tmp_path: Path) -> None:
    rates = {NumberFormat.FP32: Figure.exactly(1e10, Basis.MEASURED)}
    cpu = Rates(DeviceKind.CPU, memory_bytes_per_s=Figure.exactly(1e10, Basis.MEASURED), operations_per_s=rates)
    save(Calibration("made up", 1, (cpu,)), tmp_path / "calibration.yaml")
    untimed = operators_of(OperatorGraph("job", (GEMM,)))
    question = asked(PendingTask("t", "train", operators=untimed), WITH_GPU)
    assert "of unknown time" in made(policy).reason(*question, 0)
    calibrated = PolicySettings(
        policy=policy.policy, settings={**policy.settings, "calibration": str(tmp_path / "calibration.yaml")}
    )
    assert "product on the gpu" in made(calibrated).reason(*question, 0)


def test_task_without_operators_is_unaffected(policy: PolicySettings) -> None:
    question = asked(PendingTask("t", "plain"), WITH_GPU, PLAIN)
    assert made(policy).reason(*question, 0) == "its operators are unknown"
    assert points(made(policy), question) == [MOST_POINTS, MOST_POINTS]


def test_nonsense_submissions_do_not_end_the_scheduler(policy: PolicySettings) -> None:
    circle = (
        OperatorCount(name="a", operator="gemm", feeds=("b",)),
        OperatorCount(name="b", operator="gemm", feeds=("a",)),
    )
    for operators in (
        circle,
        (OperatorCount(name="a", operator="NO KIND"),),
        (OperatorCount(name="a", operator="gemm"),),
    ):
        question = asked(PendingTask("t", "bad", operators=operators), WITH_GPU, PLAIN)
        assert len(points(made(policy), question)) == 2
        assert "\n" not in made(policy).reason(*question, 0)


def test_task_with_too_many_operators_is_left_alone(policy: PolicySettings) -> None:
    many = tuple(OperatorCount(name=f"o{number}", operator="gemm") for number in range(129))
    question = asked(PendingTask("t", "vast", operators=many), WITH_GPU, PLAIN)
    assert points(made(policy), question) == [MOST_POINTS, MOST_POINTS]
    assert made(policy).reason(*question, 0) == "129 operators, at most 128 can be placed"
    names = [operator.name for operator in many[:33]]
    dense = tuple(replace(operator, feeds=tuple(names[index + 1 :])) for index, operator in enumerate(many[:33]))
    question = asked(PendingTask("t", "dense", operators=dense), WITH_GPU, PLAIN)
    assert points(made(policy), question) == [MOST_POINTS, MOST_POINTS]
    assert made(policy).reason(*question, 0) == "528 flows between operators, at most 512 can be placed"


def test_profile_with_the_policy_dispatches_and_keeps_the_reason(policy: PolicySettings) -> None:
    profile = TaskProfile.of(TaskProfileSettings(name="accelerated", scores=(*MEASURED.scores, policy)))

    def decided(*operators: Operator) -> Verdict:
        question = asked(PendingTask("t", "any", operators=counts(*operators)), PLAIN, WITH_GPU)
        return Plan(question.timed.view).decide(profile, question.task, question.timed.options)

    trained, copied = decided(GEMM), decided(COPY)
    assert trained.option is not None
    assert trained.option.offer == WITH_GPU.key
    assert copied.option is not None
    assert copied.option.offer == PLAIN.key
    scores = explained(profile, trained).candidates[0].scores
    assert any(score.policy == "operator-devices" and "product on the gpu" in score.reason for score in scores)


def test_programs_get_only_known_devices(
    policy: PolicySettings,
) -> None:
    profile = TaskProfile.of(TaskProfileSettings(name="accelerated", scores=(*MEASURED.scores, policy)))

    def chosen_devices(task: PendingTask, *offers: Offer) -> dict[str, str]:
        question = asked(task, *offers)
        devices = devices_of(profile, Plan(question.timed.view).decide(profile, question.task, question.timed.options))
        return {choice.operator: choice.device.value for choice in devices}

    mixed = PendingTask("t", "any", operators=counts(COPY, GEMM, UNKNOWN))
    assert chosen_devices(mixed, WITH_GPU) == {"sum": "cpu", "product": "gpu", "mystery": "cpu"}
    assert chosen_devices(mixed, PLAIN) == {"sum": "cpu", "product": "cpu", "mystery": "cpu"}
    assert chosen_devices(dataclasses.replace(mixed, choice=UnitChoice.CENTRE), WITH_GPU) == {}
    assert chosen_devices(PendingTask("t", "plain"), WITH_GPU) == {}
    vast = tuple(
        replace(operator, name=f"{operator.name}{'x' * 200}{number}")
        for number in range(100)
        for operator in counts(GEMM)
    )
    assert chosen_devices(PendingTask("t", "vast", operators=vast), WITH_GPU) == {}
    without = TaskProfile.of(MEASURED)
    question = asked(mixed, WITH_GPU)
    assert devices_of(without, Plan(question.timed.view).decide(without, mixed, question.timed.options)) == ()


def test_policy_with_a_wrong_device_fails_its_own_task_alone(policy: PolicySettings) -> None:
    class Wild(OperatorDevices):
        def operator_devices(self, task: PendingTask, timed: TimedOptions, row: int) -> tuple[OperatorDevice, ...]:
            return (OperatorDevice(operator="product", device=DeviceKind.TPU),)

    scores = (WeightedScore("wild", 1, Wild(OperatorDevices.Settings(**policy.settings))),)
    profile = dataclasses.replace(TaskProfile.of(MEASURED), scores=scores)
    question = asked(PendingTask("t", "any", operators=counts(GEMM)), WITH_GPU)
    verdict = Plan(question.timed.view).decide(profile, question.task, question.timed.options)
    with pytest.raises(SchedulerError, match="policy wild: task t: operator 'product' should run on a tpu"):
        devices_of(profile, verdict)


def test_settings_that_cannot_be_are_one_line(policy: PolicySettings, tmp_path: Path) -> None:
    assert "operator-devices" in known_policies()
    for key, value, message in (
        ("hardware", str(tmp_path / "none.yaml"), "none.yaml"),
        ("rate", "fast", "fast"),
        ("calibration", str(tmp_path / "no-such.yaml"), "no-such.yaml"),
        ("rates", "fast", "rates"),
    ):
        with pytest.raises(SchedulerError, match=message) as raised:
            make_policy(TASKS, policy.policy, {**policy.settings, key: value}, ("points",))
        assert "\n" not in str(raised.value)
