"""The four ways to choose the unit of a probe, and invalid choices."""

from __future__ import annotations

import pytest

from controller.apiserver.resources.task import UnitChoice
from controller.scheduling.tasks.probing import Place
from controller.scheduling.tasks.units import Step, WaitingProbe, choose_unit
from controller.scheduling.tasks.values import Offer

PLACES = (
    Place(Offer("c", "unit-1", 10, frozenset({"k1", "k3", "k4"})), 10),
    Place(Offer("c", "unit-2", 20, frozenset({"k1", "k2", "k3", "k5"})), 3),
    Place(Offer("c", "unit-3", 5, frozenset({"k1", "k2", "k5"})), 5),
)
"""The specification's example of a resource configuration."""


def wanted(
    *kernels: str,
    choice: UnitChoice = UnitChoice.CONFIGURATION,
    unit: str | None = None,
    units: int = 1,
    answered: tuple[str, ...] | None = None,
) -> WaitingProbe:
    return WaitingProbe("c", frozenset(kernels), choice, unit, units, answered)


def test_unit_must_support_every_kernel_of_the_configuration() -> None:
    assert choose_unit(wanted("k1", "k4"), PLACES).unit == "unit-1"
    assert choose_unit(wanted("k2", "k3"), PLACES).unit == "unit-2"
    # Among several, the one with the most free units.
    assert choose_unit(wanted("k1", "k2"), PLACES).unit == "unit-3"
    nobody = choose_unit(wanted("k4", "k5"), PLACES)
    assert nobody.step is Step.FAIL
    assert "unit-1 lacks k5; unit-2 lacks k4; unit-3 lacks k4" in nobody.reason


def test_by_asking_the_centre_answers_and_the_scheduler_picks() -> None:
    asked = wanted("k9", choice=UnitChoice.ASKED)
    assert choose_unit(asked, PLACES).step is Step.ASK
    answer = choose_unit(wanted("k9", choice=UnitChoice.ASKED, answered=("unit-2", "unit-3")), PLACES)
    assert (answer.step, answer.unit) == (Step.DISPATCH, "unit-3")
    none = choose_unit(wanted("k9", choice=UnitChoice.ASKED, answered=()), PLACES)
    assert (none.step, none.reason) == (Step.FAIL, "centre c answers that none of its units could run it")


def test_users_unit_is_taken_whatever_it_supports() -> None:
    assert choose_unit(wanted("k9", choice=UnitChoice.USER, unit="unit-1"), PLACES).unit == "unit-1"
    assert choose_unit(wanted("k1", choice=UnitChoice.USER, unit="unit-9"), PLACES).reason == (
        "centre c has no unit unit-9: unit-1, unit-2, unit-3"
    )
    assert choose_unit(wanted("k1", choice=UnitChoice.USER), PLACES).step is Step.FAIL


def test_by_the_centre_no_unit_is_named() -> None:
    choice = choose_unit(wanted("k1", choice=UnitChoice.CENTRE, units=8), PLACES)
    assert (choice.step, choice.unit, choice.units) == (Step.DISPATCH, None, 8)


def test_count_left_to_the_centre_holds_one_unit_until_picked() -> None:
    left = wanted("k1", choice=UnitChoice.CENTRE, units=0)
    choice = choose_unit(left, PLACES)
    assert (choice.step, choice.unit, choice.units) == (Step.DISPATCH, None, 1)
    assert choice.reason == "the centre picks the unit type and number of units"
    typed = choose_unit(wanted("k1", choice=UnitChoice.CENTRE, unit="unit-2", units=0), PLACES)
    assert (typed.step, typed.unit, typed.units) == (Step.DISPATCH, None, 1)
    assert typed.reason == "the centre picks the number of units of unit-2"
    absent = choose_unit(wanted("k1", choice=UnitChoice.CENTRE, unit="unit-9", units=0), PLACES)
    assert (absent.step, absent.reason) == (Step.FAIL, "centre c has no unit unit-9: unit-1, unit-2, unit-3")
    busy = choose_unit(left, (Place(PLACES[0].offer, 0),))
    assert (busy.step, busy.reason) == (Step.WAIT, "1 units of unit-1 wanted, 0 are free")


@pytest.mark.parametrize(
    ("units", "step", "reason"),
    [
        (3, Step.DISPATCH, "3 of unit-2: as its user stated"),
        (4, Step.WAIT, "4 units of unit-2 wanted, 3 are free"),
        (21, Step.FAIL, "21 units wanted, centre c has 20 of unit unit-2"),
    ],
)
def test_busy_units_are_waited_for_and_missing_ones_refused(units: int, step: Step, reason: str) -> None:
    choice = choose_unit(wanted("k1", unit="unit-2", units=units), PLACES)
    assert (choice.step, choice.reason) == (step, reason)


def test_a_centre_without_units_is_waited_for() -> None:
    assert choose_unit(wanted("k1"), ()).step is Step.WAIT
