"""Choice of the units for a probe: from the configuration, by asking, by the user, or by the centre; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.apiserver.resources.task import UnitChoice
from controller.scheduling.tasks.probing import Place
from controller.scheduling.tasks.values import Offer


class Step(StrEnum):
    """Next step for a waiting probe."""

    DISPATCH = "dispatch"
    ASK = "ask"
    """Ask its centre first which of its units could run it."""
    WAIT = "wait"
    FAIL = "fail"
    """It can never run as requested."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The next step, the unit type and the reason; `unit` is None if the centre picks one."""

    step: Step
    reason: str
    unit: str | None = None
    units: int = 0


@dataclass(frozen=True, slots=True)
class WaitingProbe:
    """A probe at a centre: its kernels, the unit type that its user states, and the most units that it runs on.

    `units` is 0 if the centre picks the number. `answered` are the unit types that the centre has reported suitable,
    None before it has answered.
    """

    centre: str
    kernels: frozenset[str]
    choice: UnitChoice
    unit: str | None
    units: int
    answered: tuple[str, ...] | None = None


def choose_unit(probe: WaitingProbe, places: Sequence[Place]) -> Chosen:
    """Return the unit type of its centre for a probe; `places` are those of that centre."""
    if not places:
        return Chosen(Step.WAIT, f"centre {probe.centre} has reported no units")
    if not probe.units:
        return _count_left_to_centre(probe, places)
    if probe.unit is not None or probe.choice is UnitChoice.USER:
        return _stated(probe, places)
    if probe.choice is UnitChoice.CENTRE:
        return _left_to_centre(probe, places)
    if probe.choice is UnitChoice.ASKED and probe.answered is None:
        return Chosen(Step.ASK, f"centre {probe.centre} is asked which of its units could run it")
    return _of_fitting(probe, places)


def lacking(offer: Offer, kernels: frozenset[str]) -> tuple[str, ...]:
    """Return the kernels that an offer does not support; it qualifies if this is empty."""
    return tuple(sorted(kernels - offer.operators))


def _stated(probe: WaitingProbe, places: Sequence[Place]) -> Chosen:
    names = ", ".join(place.offer.unit for place in places)
    if probe.unit is None:
        return Chosen(Step.FAIL, f"its user must choose a unit of centre {probe.centre}: {names}")
    place = next((candidate for candidate in places if candidate.offer.unit == probe.unit), None)
    if place is None:
        return Chosen(Step.FAIL, f"centre {probe.centre} has no unit {probe.unit}: {names}")
    return _on(probe, place, "as its user stated")


def _of_fitting(probe: WaitingProbe, places: Sequence[Place]) -> Chosen:
    """Choose among the types that support every kernel or that the centre has answered: the one with the most free."""
    if probe.answered is None:
        fitting = [place for place in places if not lacking(place.offer, probe.kernels)]
        how = "by its configuration"
    else:
        fitting = [place for place in places if place.offer.unit in probe.answered]
        how = "as the centre has answered"
    if not fitting:
        return Chosen(Step.FAIL, _no_unit(probe, places))
    return _on(probe, max(fitting, key=lambda place: (place.free, place.offer.count, place.offer.unit)), how)


def _left_to_centre(probe: WaitingProbe, places: Sequence[Place]) -> Chosen:
    most = max(places, key=lambda place: (place.free, place.offer.count))
    chosen = _on(probe, most, "the centre picks")
    return Chosen(chosen.step, chosen.reason, None, chosen.units)


def _count_left_to_centre(probe: WaitingProbe, places: Sequence[Place]) -> Chosen:
    """Hold one unit, which the centre's pick replaces."""
    what = "unit type and number of units" if probe.unit is None else f"number of units of {probe.unit}"
    one = replace(probe, units=1)
    chosen = _left_to_centre(one, places) if probe.unit is None else _stated(one, places)
    reason = f"the centre picks the {what}" if chosen.step is Step.DISPATCH else chosen.reason
    return Chosen(chosen.step, reason, None, chosen.units)


def _on(probe: WaitingProbe, place: Place, how: str) -> Chosen:
    offer = place.offer
    if probe.units > offer.count:
        return Chosen(
            Step.FAIL, f"{probe.units} units wanted, centre {probe.centre} has {offer.count} of unit {offer.unit}"
        )
    if probe.units > place.free:
        return Chosen(Step.WAIT, f"{probe.units} units of {offer.unit} wanted, {place.free} are free")
    return Chosen(Step.DISPATCH, f"{probe.units} of {offer.unit}: {how}", offer.unit, probe.units)


def _no_unit(probe: WaitingProbe, places: Sequence[Place]) -> str:
    if probe.answered is not None:
        return f"centre {probe.centre} answers that none of its units could run it"
    lacks = "; ".join(f"{place.offer.unit} lacks {', '.join(lacking(place.offer, probe.kernels))}" for place in places)
    return f"no unit of centre {probe.centre} supports every kernel: {lacks}"
