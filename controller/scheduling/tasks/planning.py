"""The plan of all waiting tasks: where and when each begins, decided one after the other, the highest priority first.

If a task would end sooner by waiting for units than by starting on free ones, it waits: the plan's books keep the units
for it. So does a task whose deadline leaves it time for a better network, if that saves more than it costs. Only tasks
that begin now are dispatched; all others are planned again next time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from controller.scheduling.framework.policies import Flags, Floats
from controller.scheduling.tasks.deciding import Verdict, decide
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.values import CentresView, Options, PendingTask, TimedOptions
from controller.scheduling.tasks.waiting import WAIT_COST, Outlook
from dataplane.clock import NS_PER_S


def order_of(tasks: Iterable[PendingTask]) -> list[PendingTask]:
    """Return tasks in the order of decisions: the highest priority first, then first come, first served.

    Tasks of a graph come together, the one with the most work after it first.
    """
    return sorted(tasks, key=_order)


def _order(task: PendingTask) -> tuple[int, int, float, int, str]:
    first_ns = task.since_ns if task.graph_since_ns is None else task.graph_since_ns
    return (-task.priority, first_ns, -task.rank_s, task.since_ns, task.name)


class Plan:
    """A plan over a view, whose slots are its books. `decide` plans one more task."""

    def __init__(self, view: CentresView, wait_cost: float = WAIT_COST) -> None:
        self.view, self._wait_cost = view, wait_cost
        self._outlooks = {pair: Outlook(windows, view.now_ns) for pair, windows in view.network.items()}
        self._starts: dict[tuple[int, bool], _Starts] = {}
        self._taken: list[int] = []
        self._open = {position for position, slots in enumerate(view.slots) if slots.free}
        self._transfers: dict[tuple[object, int], tuple[Floats, Flags]] = {}

    def decide(self, profile: TaskProfile, task: PendingTask, options: Options) -> Verdict:
        """Return the decision about a task, and reserve its units in the books."""
        verdict = decide(profile, task, self.timed(task, options))
        start_s = verdict.start_s
        held_s = verdict.finish_s - start_s
        held_s = held_s if math.isfinite(held_s) else math.inf
        for row in verdict.rows:
            option = verdict.timed.options.items[row]
            position = self.view.place[option.offer]
            self.view.slots[position].take(option.units, held_s, start_s)
            self._taken.append(position)
            if not self.view.slots[position].free:
                self._open.discard(position)
        return verdict

    @property
    def is_full(self) -> bool:
        """True if no unit is free now, so that nothing more can begin."""
        return not self._open

    def timed(self, task: PendingTask, options: Options) -> TimedOptions:
        """Return the options of a task with their start and transfer times."""
        transfer_s, is_measured = self._transfer_s(task, options)
        start_s = self._start_s(options, later=task.ready_s > 0)
        if task.ready_s > 0:
            start_s = np.maximum(start_s, task.ready_s)
        if task.not_before_ns is not None and task.not_before_ns > self.view.now_ns:
            start_s = np.maximum(start_s, (task.not_before_ns - self.view.now_ns) / NS_PER_S)
        slowdown, waits_s = np.ones(len(options)), np.zeros(len(options))
        if task.reads and self._outlooks:
            transfer_s = transfer_s.copy()
            self._await_network(task, options, start_s, (transfer_s, slowdown, waits_s))
            start_s = start_s + waits_s
        return TimedOptions(self.view, options, start_s, transfer_s, is_measured, slowdown, waits_s)

    def _start_s(self, options: Options, *, later: bool) -> Floats:
        key = (id(options), later)
        starts = self._starts.get(key)
        if starts is None or starts.options is not options:
            starts = self._starts[key] = _Starts(self.view, options, later=later)
        return starts.now(self._taken)

    def _transfer_s(self, task: PendingTask, options: Options) -> tuple[Floats, Flags]:
        """Return the transfer time of the task's data to each option's centre, and whether it is measured."""
        key = (task.reads, id(options))
        if (times := self._transfers.get(key)) is None:
            times = self._transfers[key] = _transfer_times(task, options, self.view)
        return times

    def _await_network(
        self, task: PendingTask, options: Options, start_s: Floats, columns: tuple[Floats, Floats, Floats]
    ) -> None:
        """Write the columns of options with a forecast: the transfer's time and slowdown, and how long it waits."""
        transfer_s, slowdown, waits_s = columns
        latest_s = -math.inf if task.deadline_ns is None else (task.deadline_ns - self.view.now_ns) / NS_PER_S
        for position, rows in options.rows_of.items():
            outlook = self._outlooks.get((task.main_host, self.view.offers[position].centre))
            if outlook is None:
                continue
            # The cost map's times hold for the present network.
            now = outlook.slowdown(0.0)
            for row in rows.tolist():
                if not (math.isfinite(start_s[row]) and math.isfinite(transfer_s[row])):
                    continue
                free_s, good_s = float(start_s[row]), float(transfer_s[row]) / now
                begin_s = outlook.best_start_s(
                    free_s,
                    good_s,
                    units=int(options.units[row]),
                    run_s=float(options.high[row]),
                    latest_s=latest_s,
                    wait_cost=self._wait_cost,
                )
                waits_s[row] = begin_s - free_s
                transfer_s[row] = outlook.transfer_s(begin_s, good_s)
                slowdown[row] = outlook.slowdown(begin_s)


class _Starts:
    """Start times of options as columns that follow the books; only offers whose units were taken are recomputed.

    A task that begins `later` borrows no units: loans begin now.
    """

    def __init__(self, view: CentresView, options: Options, *, later: bool) -> None:
        self.options, self._view, self._later, self._seen = options, view, later, 0
        self._start_s = np.full(len(options), math.inf)
        for position in options.rows_of:
            self._read(position)

    def now(self, taken: Sequence[int]) -> Floats:
        """Return the column; `taken` lists every place that units were taken from in this plan, in order."""
        for position in set(taken[self._seen :]):
            self._read(position)
        self._seen = len(taken)
        return self._start_s.copy()

    def _read(self, position: int) -> None:
        slots = self._view.slots[position]
        for row in self.options.rows_of.get(position, ()):
            high = float(self.options.high[row])
            units = int(self.options.units[row])
            borrows_s = high if math.isfinite(high) else math.inf
            self._start_s[row] = slots.own_s(units) if self._later else slots.start_s(units, borrows_s)


def _transfer_times(task: PendingTask, options: Options, view: CentresView) -> tuple[Floats, Flags]:
    seconds, is_measured = np.zeros(len(view.offers)), np.ones(len(view.offers), np.bool_)
    for position, offer in enumerate(view.offers):
        rates = [view.way(read, offer.centre) for read in task.reads]
        for read, rate in zip(task.reads, rates, strict=True):
            if rate is not None:
                seconds[position] += read.nbytes * rate[0] if read.nbytes else 0.0
        is_measured[position] = all(rate is not None and rate[1] for rate in rates)
    return seconds[options.offer], is_measured[options.offer]
