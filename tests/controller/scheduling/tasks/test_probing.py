"""Probe triggers: a new type, a period, a finished task, a centre's request; bounded, and never twice."""

from __future__ import annotations

from dataclasses import replace as changed

from msgspec.structs import replace

from controller.scheduling.tasks.probing import Known, Need, Order, Place, ProbingSettings, Reason, probes_due
from controller.scheduling.tasks.values import CentreState, Offer

NOW_NS = 1_900_000_000_000_000_000
S = 1_000_000_000
SETTINGS = ProbingSettings(counts=(1, 2, 4))
NEED = Need("solve", {"of-solve": frozenset({"dgemm"})}, waiting=1, used_ns=NOW_NS)


def place(centre: str, free: int = 4, unit: str = "cpu", **more: object) -> Place:
    return Place(Offer(centre, unit, 4, frozenset({"dgemm", "fft"})), free, **more)  # type: ignore[arg-type]


def due(
    *places: Place,
    needs: tuple[Need, ...] = (NEED,),
    known: dict[tuple[str, str, str], Known] | None = None,
    settings: ProbingSettings = SETTINGS,
    problem: str = "",
) -> tuple[Order, ...]:
    centres = {candidate.offer.centre: CentreState(candidate.offer.centre, problem) for candidate in places}
    return probes_due(needs, places, centres, known or {}, settings=settings, now_ns=NOW_NS)


def measured(age_s: float, *counts: int) -> Known:
    return Known(dict.fromkeys(counts or (1, 2, 4), NOW_NS - int(age_s * S)), number=1)


def test_a_type_never_seen_is_probed_on_all_counts_that_are_free() -> None:
    orders = due(place("a"), place("b", 3), place("c", 0))
    assert [(order.centre, order.counts, order.reason) for order in orders] == [
        ("a", (1, 2, 4), Reason.FIRST_SEEN),
        ("b", (1, 2), Reason.FIRST_SEEN),
    ]
    assert {order.number for order in orders} == {1}


def test_only_missing_stated_counts_are_probed() -> None:
    need = changed(NEED, counts=(3,))
    (order,) = due(place("a"), needs=(need,), known={("of-solve", "a", "cpu"): measured(10)})
    assert (order.counts, order.number) == ((3,), 2)


def test_unit_qualifies_only_if_it_supports_every_kernel() -> None:
    need = changed(NEED, probes={"of-solve": frozenset({"dgemm", "spmv"})})
    assert due(place("a"), needs=(need,)) == ()


def test_a_centre_runs_one_probe_at_a_time_and_never_twice() -> None:
    under_way = {("of-solve", "a", "cpu"): Known(is_underway=True)}
    assert due(place("a"), place("a", unit="gpu"), known=under_way) == ()
    assert len(due(place("a"), place("a", unit="gpu"))) == 1


def test_no_more_of_a_type_and_in_all_than_the_settings_say() -> None:
    places = [place(f"c{number}") for number in range(20)]
    assert len(due(*places)) == SETTINGS.most_of_type
    others = tuple(
        changed(NEED, task_type=f"t{number}", probes={f"p{number}": frozenset({"dgemm"})}) for number in range(9)
    )
    assert len(due(*places, needs=others)) == SETTINGS.most_at_once


def test_probes_cost_at_most_their_share_of_known_work() -> None:
    known = {("of-solve", f"c{number}", "cpu"): measured(1) for number in range(3)}
    places = [place(f"c{number}") for number in range(6)]
    cheap = changed(NEED, work_unit_s=1000.0, spent_unit_s=12.0)
    # 2 % of 1000 is 20; a probe takes 4: 16 after one more is below, 20 after two is not.
    assert len(due(*places, needs=(cheap,), known=known)) == 1
    assert due(*places, needs=(changed(cheap, spent_unit_s=19.0),), known=known) == ()
    # The first centres are probed before the tasks are known.
    assert len(due(*places, needs=(changed(NEED, spent_unit_s=50.0),), known={})) == SETTINGS.most_of_type


def test_types_in_use_are_measured_again_periodically() -> None:
    idle = changed(NEED, waiting=0, work_unit_s=1e6)
    old = {("of-solve", "a", "cpu"): measured(30_000, 1, 2, 4)}
    (order,) = due(place("a"), needs=(idle,), known=old)
    assert (order.reason, order.counts) == (Reason.PERIOD, (1, 2, 4))
    assert due(place("a"), needs=(idle,), known={("of-solve", "a", "cpu"): measured(3600)}) == ()
    unused = changed(idle, used_ns=NOW_NS - 100_000 * S)
    assert due(place("a"), needs=(unused,), known=old) == ()
    assert due(place("a"), needs=(idle,), known=old, settings=replace(SETTINGS, period_s=None)) == ()


def test_networks_are_checked_hourly_without_tasks() -> None:
    check = Need("network-check", {"network-check": frozenset({"network-pull"})}, checks_network=True)

    def at(centre: str, unit: str, free: int = 1, operator: str = "network-pull") -> Place:
        return Place(Offer(centre, unit, 4, frozenset({operator})), free)

    def checked(*places: Place, known: dict[tuple[str, str, str], Known], **more: float | None) -> list[str]:
        orders = due(*places, needs=(check,), known=known, settings=replace(SETTINGS, **more))
        assert {(order.reason, order.counts) for order in orders} <= {(Reason.NETWORK, (1,))}
        return [f"{order.centre}/{order.unit}" for order in orders]

    places = (at("a", "cpu"), at("a", "gpu", free=2), at("b", "cpu"), at("c", "cpu", operator="fft"), at("d", "cpu", 0))
    assert checked(*places, known={}) == ["a/gpu", "b/cpu"]
    # One unit type's result speaks for the whole centre.
    known = {("network-check", "a", "cpu"): measured(3500, 1), ("network-check", "b", "cpu"): measured(3601, 1)}
    assert checked(*places, known=known) == ["b/cpu"]
    assert checked(*places, known={}, network_period_s=None) == []
    failed = {("network-check", "a", "gpu"): Known(failures=1, tried_ns=NOW_NS)}
    assert checked(at("a", "gpu"), known=failed) == []


def test_place_of_a_finished_task_is_probed() -> None:
    done = changed(NEED, waiting=0, finished_at=frozenset({("b", "cpu")}))
    (order,) = due(place("a"), place("b"), needs=(done,))
    assert (order.centre, order.reason) == ("b", Reason.FINISHED)


def test_a_centre_that_asks_is_probed_though_its_results_are_new() -> None:
    idle = changed(NEED, waiting=0, work_unit_s=1e6)
    known = {("of-solve", "a", "cpu"): measured(5)}
    (order,) = due(place("a", wants_probe=True), needs=(idle,), known=known)
    assert (order.reason, order.counts) == (Reason.GAINED, (1, 2, 4))


def test_failed_probes_back_off_and_then_pause_for_a_period() -> None:
    def after(failures: int, age_s: float) -> int:
        tried_ns = NOW_NS - int(age_s * S)
        return len(due(place("a"), known={("of-solve", "a", "cpu"): Known(failures=failures, tried_ns=tried_ns)}))

    assert [after(1, 9), after(1, 10), after(2, 19), after(2, 20)] == [0, 1, 0, 1]
    assert [after(3, 20_000), after(3, 21_600)] == [0, 1]


def test_a_centre_with_a_problem_is_not_probed() -> None:
    assert due(place("a"), problem="it is silent") == ()
