"""Filters of options for tasks."""

from __future__ import annotations

import numpy as np

from controller.apiserver.resources.task import UnitChoice
from controller.cluster.estimates import Basis
from controller.cluster.estimates.values import FIRMNESS
from controller.scheduling.dispatch.policies import Question
from controller.scheduling.dispatch.values import Flags, Longs, Offer
from dataplane.config import Strict


class NoSettings(Strict, frozen=True):
    """A policy without settings."""


def of_offers(asked: Question, passes: list[bool]) -> Flags:
    """Expand values by offer to values by option."""
    flags: Flags = np.array(passes, np.bool_)[asked.options.offer]
    return flags


def offer_of(asked: Question, row: int) -> Offer:
    """Return the offer of an option."""
    return asked.view.offers[int(asked.options.offer[row])]


class CentreReady:
    """Refuses centres that are not ready, silent, disabled or being deleted."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option's centre has no problem."""
        flags: Flags = asked.view.takes_tasks[asked.options.offer]
        return flags

    def reason(self, asked: Question, row: int) -> str:
        """Return the problem."""
        return asked.view.centres[offer_of(asked, row).centre].problem


class Stated:
    """Refuses centres, unit types and counts other than those the user stated."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option matches the stated values; None if nothing was stated."""
        task = asked.task
        if task.centre is None and task.unit is None and not task.units:
            return None
        flags = of_offers(asked, [not _not_stated(asked, offer) for offer in asked.view.offers])
        return flags & np.isin(asked.options.units, task.units) if task.units else flags

    def reason(self, asked: Question, row: int) -> str:
        """Return the stated value."""
        if why := _not_stated(asked, offer_of(asked, row)):
            return why
        return f"its user states {' or '.join(map(str, asked.task.units))} units, not {asked.options.units[row]}"


def _not_stated(asked: Question, offer: Offer) -> str:
    task = asked.task
    if task.centre is not None and offer.centre != task.centre:
        return f"its user states centre {task.centre}"
    if task.unit is not None and offer.unit != task.unit:
        return f"its user states unit {task.unit}"
    return ""


class Operators:
    """Refuses unit types that lack a kernel of the task's probe (way a), unless the user or the centre chooses."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each offer supports all kernels; the choice of a user or a centre is accepted."""
        kernels, choice = asked.task.kernels, asked.task.choice
        if asked.task.unit is not None or choice is not UnitChoice.CONFIGURATION or not kernels:
            return None
        flags: Flags = asked.view.supports(kernels)[asked.options.offer]
        return flags

    def reason(self, asked: Question, row: int) -> str:
        """Return the unsupported kernels."""
        offer = offer_of(asked, row)
        lacking = sorted(asked.task.kernels - offer.operators)
        return f"unit {offer.unit} does not support {', '.join(lacking)}"


class UnitsExist:
    """Refuses more units than exist."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each offer has that many units at all."""
        flags: Flags = asked.options.units <= asked.view.counts[asked.options.offer]
        return flags

    def reason(self, asked: Question, row: int) -> str:
        """Return the existing number of units."""
        offer = offer_of(asked, row)
        return f"{asked.options.units[row]} units wanted, there are {offer.count} of {offer.unit or 'any type'}"


class Probed:
    """Refuses centres that no probe has measured yet: each is probed before it gets work."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option's centre has been probed."""
        flags: Flags = asked.view.is_probed[asked.options.offer]
        return flags

    def reason(self, asked: Question, row: int) -> str:  # noqa: ARG002 - the same for all
        """Return that the centre has not been probed."""
        return "no probe has measured it yet"


class FirmEstimate:
    """Refuses weak estimates: data-sheet figures and untrusted centres never compete.

    Estimates up to `weakest` compete. Only if no centre that takes tasks has one, those down to `else_weakest` compete
    among themselves (null: none do); if there are none of these either, the task waits for a probe. A task whose user
    states centre and unit needs no estimate.
    """

    class Settings(Strict, frozen=True):
        """Weakest bases of estimates for dispatching tasks."""

        weakest: Basis = Basis.HISTORY
        else_weakest: Basis | None = Basis.MODELLED

        def __post_init__(self) -> None:
            if Basis.NONE in {self.weakest, self.else_weakest}:
                raise ValueError("by `none` tasks would go where nothing is known of them")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each estimate is firm enough."""
        task, firmness = asked.task, asked.options.firmness
        if task.centre is not None and task.unit is not None:
            return None
        flags: Flags = firmness <= FIRMNESS.index(self._settings.weakest)
        if self._settings.else_weakest is None or (flags & self._takes_tasks(asked)).any():
            return flags
        weaker: Flags = firmness <= FIRMNESS.index(self._settings.else_weakest)
        return weaker

    def reason(self, asked: Question, row: int) -> str:
        """Return the weaker basis."""
        estimate = asked.options.items[row].estimate
        if not estimate.is_known:
            return f"how long it takes there is not known: {'; '.join(estimate.reasons)}"
        why = f": {'; '.join(estimate.reasons)}" if estimate.reasons else ""
        return f"{estimate} is too weak a figure beside others, or by itself{why}"

    @staticmethod
    def _takes_tasks(asked: Question) -> Flags:
        flags: Flags = asked.view.takes_tasks[asked.options.offer]
        if asked.task.centre is None:
            return flags
        return flags & of_offers(asked, [one.centre == asked.task.centre for one in asked.view.offers])


class Efficient:
    """Refuses more units than help: beyond the threshold of the probe's efficiency over unit count."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option stays within its threshold; None if the user states the count."""
        if asked.task.units:
            return None
        flags: Flags = ~asked.options.is_above
        return flags

    def reason(self, asked: Question, row: int) -> str:
        """Return the threshold."""
        return asked.options.items[row].above


class AllUnits:
    """Refuses fewer units than the largest known count of an offer: the behaviour without thresholds."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option has the most units of its offer; None if the user states the count."""
        if asked.task.units:
            return None
        flags: Flags = asked.options.units >= self._most(asked)[asked.options.offer]
        return flags

    def reason(self, asked: Question, row: int) -> str:
        """Return that largest count."""
        most = self._most(asked)[asked.options.offer[row]]
        return f"{asked.options.units[row]} are fewer than all {most} units"

    @staticmethod
    def _most(asked: Question) -> Longs:
        most = np.zeros(len(asked.view.offers), np.int64)
        known = np.isfinite(asked.options.seconds)
        np.maximum.at(most, asked.options.offer[known], asked.options.units[known])
        return most


class Reachable:
    """Refuses centres that the task's data cannot reach."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option's centre is reachable from each host."""
        if not asked.task.reads:
            return None
        flags: Flags = np.isfinite(asked.transfer_s)
        return flags

    def reason(self, asked: Question, row: int) -> str:
        """Return the host with no path to the centre."""
        centre = offer_of(asked, row).centre
        found = (one.host for one in asked.task.reads if not _leads(asked, one.host, centre))
        return f"nothing leads there from {next(found, 'its data')}"


def _leads(asked: Question, host: str, centre: str) -> bool:
    way = asked.view.transfer_s.get((host, centre))
    return way is None or bool(np.isfinite(way[0]))
