"""Choice of a task's option: by filters, upper bounds, free units and good network hours."""

from __future__ import annotations

from dataclasses import replace as replaced

import numpy as np
import pytest
from msgspec.structs import replace

from controller.cluster.estimates import Basis, Estimate
from controller.common.errors import SchedulerError
from controller.probing.hours import NetworkWindow
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.tasks.deciding import Verdict
from controller.scheduling.tasks.explaining import explained
from controller.scheduling.tasks.planning import Plan, order_of
from controller.scheduling.tasks.profiles import MEASURED, NO_UNITS, TaskProfile, TaskProfileSettings
from controller.scheduling.tasks.slots import NEVER_S, Slots
from controller.scheduling.tasks.values import (
    CentreState,
    CentresView,
    Offer,
    Option,
    Options,
    PendingTask,
    Read,
)
from controller.scheduling.tasks.waiting import Outlook
from dataplane.clock import NS_PER_S

NOW_NS = 1_900_000_000_000_000_000
H = 3_600_000_000_000
PROFILE = TaskProfile.of(MEASURED)
MEASURED_10 = Estimate(10.0, 9.0, 11.0, Basis.MEASURED)


def view(*names: str, held: dict[str, list[tuple[int, float]]] | None = None, **more: object) -> CentresView:
    offers = tuple(Offer(name, "cpu", 4, frozenset({"dgemm"})) for name in names)
    slots = tuple(Slots(4, (held or {}).get(name, [])) for name in names)
    centres = {name: CentreState(name, is_probed=True) for name in names}
    return CentresView(NOW_NS, offers, centres, slots, **more)  # type: ignore[arg-type]


def options(seen: CentresView, **estimates: Estimate) -> Options:
    items = tuple(Option((name, "cpu"), 1, estimate) for name, estimate in estimates.items())
    return Options.of(items, seen.place)


def decided(seen: CentresView, task: PendingTask, **estimates: Estimate) -> Verdict:
    return Plan(seen).decide(PROFILE, task, options(seen, **estimates))


def centre_of(verdict: Verdict) -> str | None:
    return None if verdict.option is None else verdict.option.offer[0]


TASK = PendingTask("t", "solve")


def test_options_compete_by_their_upper_bounds() -> None:
    wide = Estimate(8.0, 1.0, 30.0, Basis.MEASURED)
    assert centre_of(decided(view("a", "b"), TASK, a=wide, b=MEASURED_10)) == "b"


@pytest.mark.parametrize("weak", [Basis.MODELLED, Basis.NOMINAL])
def test_a_weak_figure_never_competes_with_a_firm_one(weak: Basis) -> None:
    short = Estimate.exactly(0.1, weak)
    verdict = decided(view("a", "b"), TASK, a=short, b=MEASURED_10)
    assert centre_of(verdict) == "b"
    (refused,) = explained(PROFILE, verdict).refused
    assert (refused.name, refused.policy) == ("a", "firm-estimate")


def test_models_compete_only_without_firm_estimates() -> None:
    model, nominal = Estimate.exactly(5.0, Basis.MODELLED), Estimate.exactly(0.1, Basis.NOMINAL)
    assert centre_of(decided(view("a", "b"), TASK, a=model, b=nominal)) == "a"
    assert centre_of(decided(view("a"), TASK, a=nominal)) is None
    assert centre_of(decided(view("a"), TASK, a=Estimate.unknown("never probed"))) is None
    verdict = decided(view("a"), TASK, a=Estimate.unknown("never probed"))
    why = explained(PROFILE, verdict)
    assert "never probed" in why.refused[0].reason
    assert why.summary == "none of 1 centres: 1 by firm-estimate"


def test_firm_figure_of_a_silent_centre_does_not_exclude_models() -> None:
    seen = view("a", "b")
    seen = CentresView(
        NOW_NS, seen.offers, {**seen.centres, "a": CentreState("a", "it is silent", is_probed=True)}, seen.slots
    )
    assert centre_of(decided(seen, TASK, a=MEASURED_10, b=Estimate.exactly(5.0, Basis.MODELLED))) == "b"


def test_firm_figure_of_other_units_does_not_exclude_models() -> None:
    seen, one = view("a"), PendingTask("t", "solve", units=(1,))
    estimates = ((1, Estimate.exactly(5.0, Basis.MODELLED)), (2, MEASURED_10))
    items = tuple(Option(("a", "cpu"), units, estimate) for units, estimate in estimates)
    verdict = Plan(seen).decide(PROFILE, one, Options.of(items, seen.place))
    assert verdict.option is not None
    assert verdict.option.units == 1


def test_task_waits_for_units_if_it_ends_sooner_there() -> None:
    seen = view("fast", "slow", held={"fast": [(4, 5.0)]})
    verdict = decided(seen, TASK, fast=MEASURED_10, slow=Estimate.exactly(100.0, Basis.MEASURED))
    assert (centre_of(verdict), verdict.start_s) == ("fast", 5.0)
    seen = view("fast", "slow", held={"fast": [(4, 500.0)]})
    assert centre_of(decided(seen, TASK, fast=MEASURED_10, slow=Estimate.exactly(100.0, Basis.MEASURED))) == "slow"


def test_units_held_indefinitely_are_not_waited_for() -> None:
    verdict = decided(view("a", held={"a": [(4, NEVER_S)]}), TASK, a=MEASURED_10)
    assert verdict.option is None
    assert explained(PROFILE, verdict).refused[0].policy == NO_UNITS


def test_tasks_planned_in_turn_share_the_units() -> None:
    seen = view("a", "b")
    plan, choices = Plan(seen), options(seen, a=MEASURED_10, b=Estimate.exactly(15.0, Basis.MEASURED))
    tasks = order_of(PendingTask(f"t{number}", "solve", priority=number == 9, since_ns=number) for number in range(10))
    assert tasks[0].name == "t9"
    where = [centre_of(plan.decide(PROFILE, task, choices)) for task in tasks]
    assert where == ["a"] * 4 + ["b"] * 4 + ["a"] * 2
    assert plan.is_full


def test_data_counts_by_the_way_that_it_takes() -> None:
    seen = view("far", "near", transfer_s={("store", "far"): (1e-6, True), ("store", "near"): (1e-9, False)})
    task = PendingTask("t", "solve", reads=(Read("store", 100_000_000),))
    verdict = decided(seen, task, far=MEASURED_10, near=Estimate.exactly(20.0, Basis.MEASURED))
    assert centre_of(verdict) == "near"
    reasons = {candidate.name: candidate.scores[0].reason for candidate in explained(PROFILE, verdict).candidates}
    assert "its 100000000 bytes arrive in 0.1 s (nominal)" in reasons["near"]
    assert "in 100 s (measured)" in reasons["far"]
    cut = view("far", transfer_s={("store", "far"): (np.inf, True)})
    assert explained(PROFILE, decided(cut, task, far=MEASURED_10)).refused[0].reason == "no path there from store"


def test_patient_task_waits_for_a_better_network() -> None:
    # Its 10 s of transfer take 100 s now, and 10 s in two hours: that saves 90 s of its unit.
    network = {
        ("store", "a"): (NetworkWindow(NOW_NS, NOW_NS + 2 * H, 10.0), NetworkWindow(NOW_NS + 2 * H, NOW_NS + 24 * H))
    }
    seen = view("a", network=network, transfer_s={("store", "a"): (1.0, True)})
    reads = (Read("store", 100),)

    def planned(task: PendingTask, wait_cost: float) -> Verdict:
        return Plan(seen, wait_cost).decide(PROFILE, task, options(seen, a=MEASURED_10))

    def reason(verdict: Verdict) -> str:
        return {score.policy: score.reason for score in explained(PROFILE, verdict).candidates[0].scores}["good-hours"]

    patient = PendingTask("t", "solve", reads=reads, deadline_ns=NOW_NS + 3 * H)
    waited = planned(patient, 0.01)
    assert (waited.start_s, waited.timed.transfer_s[0]) == (7200.0, pytest.approx(10.0))
    forecast = "waits until 19:46 UTC, when its data is forecast to arrive as in good hours"
    assert reason(waited) == f"{forecast}; the network is known for 100% of the next day"
    too_dear = planned(patient, 0.1)
    assert (too_dear.start_s, too_dear.timed.transfer_s[0]) == (0.0, pytest.approx(100.0))
    forecast = "its data is forecast to arrive in 10.0 times the time of good hours"
    assert reason(too_dear).startswith(f"{forecast}, but waiting would cost more than it saves;")
    assert planned(replaced(patient, deadline_ns=NOW_NS + 2 * H), 0.01).start_s == 0.0
    without_deadline = planned(replaced(patient, deadline_ns=None), 0.01)
    assert without_deadline.start_s == 0.0
    assert "it has no deadline to wait for" in reason(without_deadline)
    assert planned(replaced(patient, reads=()), 0.01).start_s == 0.0


def test_network_that_was_never_bad_costs_no_waiting() -> None:
    known = NetworkWindow(NOW_NS, NOW_NS + H)
    network = {("store", "a"): (known, NetworkWindow(NOW_NS + H, NOW_NS + 24 * H, 1.0, is_known=False))}
    seen = view("a", network=network, transfer_s={("store", "a"): (1.0, True)})
    task = PendingTask("t", "solve", reads=(Read("store", 10_000),), deadline_ns=NOW_NS + 24 * H)
    verdict = Plan(seen, 0.0).decide(PROFILE, task, options(seen, a=MEASURED_10))
    assert verdict.start_s == 0.0
    reasons = {score.policy: score.reason for score in explained(PROFILE, verdict).candidates[0].scores}
    assert reasons["good-hours"].endswith("the network is known for 4% of the next day")


def test_transfer_spans_windows() -> None:
    outlook = Outlook(
        (
            NetworkWindow(0, 10 * NS_PER_S, 2.0),
            NetworkWindow(10 * NS_PER_S, 20 * NS_PER_S, 4.0),
            NetworkWindow(20 * NS_PER_S, 30 * NS_PER_S),
        ),
        0,
    )
    assert outlook.transfer_s(0.0, 4.0) == 8.0
    assert outlook.transfer_s(0.0, 6.0) == 14.0
    assert outlook.transfer_s(8.0, 10.0) == 2 + 10 + (10 - 1 - 2.5)
    assert outlook.transfer_s(100.0, 7.0) == 7.0


def test_nothing_begins_before_its_time() -> None:
    task = PendingTask("t", "solve", not_before_ns=NOW_NS + H)
    assert decided(view("a"), task, a=MEASURED_10).start_s == 3600.0


def test_no_more_units_than_help() -> None:
    seen = view("a")
    items = (
        Option(("a", "cpu"), 1, MEASURED_10),
        Option(("a", "cpu"), 2, Estimate.exactly(6.0, Basis.MEASURED)),
        Option(("a", "cpu"), 4, Estimate.exactly(5.9, Basis.MEASURED), above="4 units are more than the 2 that help"),
    )
    choices = Options.of(items, seen.place)
    verdict = Plan(seen).decide(PROFILE, TASK, choices)
    assert verdict.option is not None
    assert verdict.option.units == 2
    stated = Plan(view("a")).decide(PROFILE, PendingTask("t", "solve", units=(4,)), choices)
    assert stated.option is not None
    assert stated.option.units == 4


def test_a_kernel_that_no_unit_supports_refuses_with_its_name() -> None:
    verdict = decided(view("a"), PendingTask("t", "solve", kernels=frozenset({"spmv"})), a=MEASURED_10)
    assert explained(PROFILE, verdict).refused[0].reason == "unit cpu does not support spmv"


def test_an_unprobed_centre_gets_no_work() -> None:
    seen = view("a")
    seen = CentresView(NOW_NS, seen.offers, {"a": CentreState("a")}, seen.slots)
    assert explained(PROFILE, decided(seen, TASK, a=MEASURED_10)).refused[0].policy == "probed"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (replace(MEASURED, filters=(PolicySettings(policy="ready"),)), "policy ready is for pods; those for tasks are"),
        (replace(MEASURED, filters=(PolicySettings(policy="probed", weight=2),)), "a filter has no weight"),
        (replace(MEASURED, scores=(PolicySettings(policy="thrift", weight=0),)), "a weight of 0 is not between 1 and"),
        (replace(MEASURED, scores=(PolicySettings(policy="probed"),)), "has no points"),
        (replace(MEASURED, filters=(PolicySettings(policy="nope"),)), "unknown policy 'nope'"),
        (
            replace(MEASURED, filters=(PolicySettings(policy="firm-estimate", settings={"weakest": "none"}),)),
            "with `none` tasks would be dispatched without any",
        ),
    ],
)
def test_profiles_that_cannot_be_are_one_line_that_names_them(settings: TaskProfileSettings, problem: str) -> None:
    with pytest.raises(SchedulerError, match=problem) as caught:
        TaskProfile.of(settings)
    assert str(caught.value).startswith("task profile measured: ")


def test_two_profiles_of_one_name_are_refused() -> None:
    with pytest.raises(SchedulerError, match="duplicate task profile measured"):
        TaskProfile.by_name((MEASURED, MEASURED))
