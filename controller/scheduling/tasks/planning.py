"""The plan of all waiting tasks: where and when each begins, decided one after the other, the highest priority first.

If a task would end sooner by waiting for units than by starting on free ones, it waits: the plan's books keep the units
for it. Only tasks that begin now are dispatched; all others are planned again next time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from controller.scheduling.framework.policies import Flags, Floats
from controller.scheduling.tasks.deciding import Verdict, decide
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.values import CentresView, Options, PendingTask, TimedOptions, Window
from dataplane.clock import NS_PER_S


def order_of(tasks: Iterable[PendingTask]) -> list[PendingTask]:
    """Return tasks in the order of decisions: the highest priority first, then first come, first served."""
    return sorted(tasks, key=lambda task: (-task.priority, task.since_ns, task.name))


class Plan:
    """A plan over a view, whose slots are its books. `decide` plans one more task."""

    def __init__(self, view: CentresView) -> None:
        self.view = view
        self._starts: dict[int, _Starts] = {}
        self._taken: list[int] = []
        self._open = {position for position, slots in enumerate(view.slots) if slots.free}
        self._transfers: dict[tuple[object, int], tuple[Floats, Flags]] = {}

    def decide(self, profile: TaskProfile, task: PendingTask, options: Options) -> Verdict:
        """Return the decision about a task, and reserve its units in the books."""
        verdict = decide(profile, task, self.timed(task, options))
        if (option := verdict.option) is not None and verdict.row is not None:
            held_s = float(verdict.timed.transfer_s[verdict.row] + options.high[verdict.row])
            held_s = held_s if math.isfinite(held_s) else math.inf
            position = self.view.place[option.offer]
            self.view.slots[position].take(option.units, held_s, verdict.start_s)
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
        start_s = self._start_s(options)
        is_good = np.ones(len(options), np.bool_)
        if task.reads:
            start_s, is_good = self._in_good_hours(task, options, start_s, transfer_s)
        if task.not_before_ns is not None and task.not_before_ns > self.view.now_ns:
            start_s = np.maximum(start_s, (task.not_before_ns - self.view.now_ns) / NS_PER_S)
        return TimedOptions(self.view, options, start_s, transfer_s, is_measured, is_good)

    def _start_s(self, options: Options) -> Floats:
        starts = self._starts.get(id(options))
        if starts is None or starts.options is not options:
            starts = self._starts[id(options)] = _Starts(self.view, options)
        return starts.now(self._taken)

    def _transfer_s(self, task: PendingTask, options: Options) -> tuple[Floats, Flags]:
        """Return the transfer time of the task's data to each option's centre, and whether it is measured."""
        key = (task.reads, id(options))
        if (times := self._transfers.get(key)) is None:
            times = self._transfers[key] = _transfer_times(task, options, self.view)
        return times

    def _in_good_hours(
        self, task: PendingTask, options: Options, start_s: Floats, transfer_s: Floats
    ) -> tuple[Floats, Flags]:
        """Return start times that wait for good hours as far as the deadline allows, and which options reach them."""
        start_s, is_good = start_s.copy(), np.ones(len(options), np.bool_)
        needed_s = transfer_s + options.high
        for position, rows in options.rows_of.items():
            windows = self.view.good.get((task.main_host, self.view.offers[position].centre))
            if windows is None:
                continue
            for row in rows.tolist():
                if not math.isfinite(start_s[row]):
                    continue
                at_s = _good_start_s(windows, self.view.now_ns, float(start_s[row]))
                is_good[row] = at_s is not None and (
                    at_s <= start_s[row] or _fits(task, self.view.now_ns, at_s, float(needed_s[row]))
                )
                if is_good[row] and at_s is not None:
                    start_s[row] = at_s
        return start_s, is_good


class _Starts:
    """Start times of options as columns that follow the books; only offers whose units were taken are recomputed."""

    def __init__(self, view: CentresView, options: Options) -> None:
        self.options, self._view, self._seen = options, view, 0
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
            self._start_s[row] = slots.start_s(units, high if math.isfinite(high) else math.inf)


def _transfer_times(task: PendingTask, options: Options, view: CentresView) -> tuple[Floats, Flags]:
    seconds, is_measured = np.zeros(len(view.offers)), np.ones(len(view.offers), np.bool_)
    for position, offer in enumerate(view.offers):
        rates = [view.transfer_s.get((read.host, offer.centre)) for read in task.reads]
        for read, rate in zip(task.reads, rates, strict=True):
            if rate is not None:
                seconds[position] += read.nbytes * rate[0] if read.nbytes else 0.0
        is_measured[position] = all(rate is not None and rate[1] for rate in rates)
    return seconds[options.offer], is_measured[options.offer]


def _good_start_s(windows: Sequence[Window], now_ns: int, start_s: float) -> float | None:
    """Return the first time from the given one on when the network is forecast good; None if there is none."""
    at_ns = now_ns + round(start_s * NS_PER_S)
    starts = (max(window.begin_ns, at_ns) for window in windows if window.end_ns > at_ns)
    begin_ns = min(starts, default=None)
    return None if begin_ns is None else (begin_ns - now_ns) / NS_PER_S


def _fits(task: PendingTask, now_ns: int, start_s: float, needed_s: float) -> bool:
    """Return whether a task that waits this long still meets its deadline; one without a deadline does not wait."""
    return task.deadline_ns is not None and now_ns + (start_s + needed_s) * NS_PER_S <= task.deadline_ns
