"""Filters of options for tasks."""

from __future__ import annotations

import numpy as np

from controller.apiserver.resources.task import UnitChoice
from controller.cluster.estimates import Basis
from controller.cluster.estimates.values import FIRMNESS
from controller.scheduling.framework.policies import Flags, Longs, NoSettings
from controller.scheduling.tasks.values import Offer, PendingTask, Read, TimedOptions
from dataplane.config import Strict


def of_offers(timed: TimedOptions, passes: list[bool]) -> Flags:
    """Expand values by offer to values by option."""
    flags: Flags = np.array(passes, np.bool_)[timed.options.offer]
    return flags


class CentreReady:
    """Refuses centres that are not ready, silent, disabled or being deleted."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:  # noqa: ARG002
        """Return whether each option's centre has no problem."""
        flags: Flags = timed.view.takes_tasks[timed.options.offer]
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002
        """Return the problem."""
        return timed.view.centres[timed.offer(row).centre].problem


class Stated:
    """Refuses centres, unit types and counts other than those that the user stated."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each option matches the stated values; None if nothing was stated."""
        if task.centre is None and task.unit is None and not task.units:
            return None
        flags = of_offers(timed, [not _not_stated(task, offer) for offer in timed.view.offers])
        return flags & np.isin(timed.options.units, task.units) if task.units else flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return the stated value."""
        if why := _not_stated(task, timed.offer(row)):
            return why
        return f"its user stated {' or '.join(map(str, task.units))} units, not {timed.options.units[row]}"


def _not_stated(task: PendingTask, offer: Offer) -> str:
    if task.centre is not None and offer.centre != task.centre:
        return f"its user stated centre {task.centre}"
    if task.unit is not None and offer.unit != task.unit:
        return f"its user stated unit {task.unit}"
    return ""


class Operators:
    """Refuses unit types that lack a kernel of the task's probe (way a), unless the user or the centre chooses."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each offer supports all kernels; the choice of a user or a centre is accepted."""
        kernels, choice = task.kernels, task.choice
        if task.unit is not None or choice is not UnitChoice.CONFIGURATION or not kernels:
            return None
        flags: Flags = timed.view.supports(kernels)[timed.options.offer]
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return the unsupported kernels."""
        offer = timed.offer(row)
        lacking = sorted(task.kernels - offer.operators)
        return f"unit {offer.unit} does not support {', '.join(lacking)}"


class UnitsExist:
    """Refuses more units than exist."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:  # noqa: ARG002
        """Return whether each offer has that many units at all."""
        flags: Flags = timed.options.units <= timed.view.counts[timed.options.offer]
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002
        """Return the existing number of units."""
        offer = timed.offer(row)
        return f"{timed.options.units[row]} units wanted, {offer.count} of {offer.unit or 'any type'} exist"


class Probed:
    """Refuses centres that no probe has measured yet: each is probed before it gets work.

    A task of a type without a possible probe would wait for ever, so it may go to any centre.
    """

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each option's centre has been probed; None for a task that measures itself."""
        if task.measures_itself:
            return None
        flags: Flags = timed.view.is_probed[timed.options.offer]
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002 - the same for all
        """Return a constant reason."""
        return "no probe has measured it yet"


class FirmEstimate:
    """Refuses weak estimates: data-sheet figures and untrusted centres never compete.

    Estimates up to `weakest` compete. Only if no option that the task may take has one, those down to `else_weakest`
    compete among themselves (null: none do); if there are none of these either, the task waits for a probe. A task
    whose user states centre and unit needs no estimate, nor does one of a type that cannot be probed: its run measures.
    """

    class Settings(Strict, frozen=True):
        """Weakest bases of estimates for dispatching tasks."""

        weakest: Basis = Basis.HISTORY
        else_weakest: Basis | None = Basis.MODELLED

        def __post_init__(self) -> None:
            if Basis.NONE in {self.weakest, self.else_weakest}:
                raise ValueError("with `none` tasks would be dispatched without any estimate")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each estimate is firm enough."""
        firmness = timed.options.firmness
        if task.centre is not None and task.unit is not None:
            return None
        takes_tasks = self._takes_tasks(task, timed)
        flags: Flags = firmness <= FIRMNESS.index(self._settings.weakest)
        if self._settings.else_weakest is not None and not (flags & takes_tasks).any():
            flags = firmness <= FIRMNESS.index(self._settings.else_weakest)
        if task.measures_itself:
            possible = np.flatnonzero(flags & takes_tasks & np.isfinite(timed.start_s))
            if len({timed.offer(row).centre for row in possible.tolist()}) < task.centres:
                return None
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002
        """Return the weaker basis."""
        estimate = timed.options.items[row].estimate
        if not estimate.is_known:
            return f"its run time there is unknown: {'; '.join(estimate.reasons)}"
        why = f": {'; '.join(estimate.reasons)}" if estimate.reasons else ""
        return f"{estimate} is too weak an estimate{why}"

    @staticmethod
    def _takes_tasks(task: PendingTask, timed: TimedOptions) -> Flags:
        """Return the options that a task may take, for example only those of the stated number of units."""
        flags: Flags = timed.view.takes_tasks[timed.options.offer]
        stated = Stated(NoSettings()).passes(task, timed)
        return flags if stated is None else flags & stated


class Efficient:
    """Refuses more units than help: beyond the threshold of the probe's efficiency over unit count."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each option stays within its threshold; None if the user states the count."""
        if task.units:
            return None
        flags: Flags = ~timed.options.is_above
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002
        """Return the threshold."""
        return timed.options.items[row].above


class AllUnits:
    """Refuses fewer units than the largest known count of an offer: the behaviour without thresholds."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each option has the most units of its offer; None if the user states the count."""
        if task.units:
            return None
        flags: Flags = timed.options.units >= self._most(timed)[timed.options.offer]
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002
        """Return that largest count."""
        most = self._most(timed)[timed.options.offer[row]]
        return f"{timed.options.units[row]} units are fewer than all {most}"

    @staticmethod
    def _most(timed: TimedOptions) -> Longs:
        most = np.zeros(len(timed.view.offers), np.int64)
        known = np.isfinite(timed.options.seconds)
        np.maximum.at(most, timed.options.offer[known], timed.options.units[known])
        return most


class Reachable:
    """Refuses centres that the task's data cannot reach."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:
        """Return whether each option's centre is reachable from each host."""
        if not task.reads:
            return None
        flags: Flags = np.isfinite(timed.transfer_s)
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return the host with no path to the centre."""
        centre = timed.offer(row).centre
        sources = (read.source for read in task.reads if not _leads(timed, read, centre))
        return f"no path there from {next(sources, 'its data')}"


def _leads(timed: TimedOptions, read: Read, centre: str) -> bool:
    way = timed.view.way(read, centre)
    return way is None or bool(np.isfinite(way[0]))


class UnitsFree:
    """Refuses options whose units are held for an unknown time; the last filter of each profile."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, task: PendingTask, timed: TimedOptions) -> Flags | None:  # noqa: ARG002 - the same for all
        """Return whether each option's start is known."""
        flags: Flags = np.isfinite(timed.start_s)
        return flags

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:  # noqa: ARG002 - the same for all
        """Return the units that are held."""
        option = timed.options.items[row]
        return f"{option.units} of {option.offer[1] or 'its units'} are not free, and it is unknown when they will be"
