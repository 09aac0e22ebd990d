"""The policy `learned` of tasks: a network ranks compute centres; which units of one, the other scores say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.cluster.cost_map import UNREACHABLE_NS
from controller.common.errors import SchedulerError
from controller.learning.agent.purpose import MadeFor
from controller.learning.policy.learning import LearningPolicy
from controller.learning.policy.live import Answer, LiveSettings
from controller.learning.policy.observing import PAGE_BYTES, logarithmic, operations_of, shared, timed
from controller.learning.policy.ranking import points_of, reasons_of, usual_of
from controller.learning.values import Bools, Floats, Observation
from controller.scheduling.dispatch.policies import Question, TaskScore
from controller.scheduling.dispatch.slots import Slots
from controller.scheduling.dispatch.values import (
    MOST_POINTS,
    CentreState,
    CentresView,
    Longs,
    Offer,
    Options,
    PendingTask,
)
from controller.scheduling.framework.plugins import make_policy

Figures = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Centres:
    """The centres of a view, in order of name, and the place of each offer's centre among them."""

    names: tuple[str, ...]
    of_offer: Longs

    @classmethod
    def of(cls, view: CentresView) -> Centres:
        """Return the centres of a view."""
        names = tuple(sorted(view.centres))
        place = {name: number for number, name in enumerate(names)}
        return cls(names, np.array([place[one.centre] for one in view.offers], np.int64))


def observe(
    asked: Question, rows: Longs, centres: Centres, *, has_network: bool, has_load: bool = False
) -> Observation:
    """Return what is seen of a task of which `rows` are the options that are possible; an action is a centre.

    Utilisation is the held share of all units; the size is what the task reads, free is a centre's free share of the
    units of its possible options, similarity the share of what is read that lies on one of the centre's hosts.
    Operations are those that the task states, as far as their kinds are known. Writes are not known of tasks: 0. Delay
    and bandwidth are the longest and the least from hosts that the task reads from elsewhere, the latter as a part of
    the fastest; nothing known of the network counts as nothing between.
    """
    view, count = asked.view, len(centres.names)
    offers = np.unique(asked.options.offer[rows])
    at = centres.of_offer[offers]
    candidates = np.zeros(count, np.bool_)
    candidates[at] = True
    free, units = np.zeros(count), np.zeros(count)
    np.add.at(free, at, [view.slots[offer].free for offer in offers.tolist()])
    np.add.at(units, at, view.counts[offers])
    nbytes = sum(one.nbytes for one in asked.task.reads)
    local = np.array([_local(asked, view.centres[name].hosts) for name in centres.names], np.float64)
    delay, bandwidth = _ways(asked, centres)
    return Observation.of(
        utilisation=1 - sum(one.free for one in view.slots) / max(int(view.counts.sum()), 1),
        operations=float(logarithmic(operations_of(asked.task.operators))),
        size=float(logarithmic(-(-nbytes // PAGE_BYTES))),
        is_write=0.0,
        free=free / np.maximum(units, 1),
        similarity=local / max(nbytes, 1),
        candidates=candidates,
        delay=delay if has_network else None,
        bandwidth=bandwidth if has_network else None,
        load=_loads(asked, rows, centres, candidates) if has_load else (),
    )


def _loads(asked: Question, rows: Longs, centres: Centres, candidates: Bools) -> Sequence[Floats]:
    """Return six figures of each centre's load, of its option that ends first; 1 for what is not possible or known.

    Queued are held units over all; it waits until its units are free; computing takes the estimate, at most; fetching
    takes what it reads. How long ports are taken is not known: 0.
    """
    view, count = asked.view, len(centres.names)
    held, units = np.zeros(count), np.zeros(count)
    np.add.at(held, centres.of_offer, view.counts - np.array([one.free for one in view.slots], np.int64))
    np.add.at(units, centres.of_offer, view.counts)
    seconds = np.full((3, count), np.inf)
    finish_s = np.nan_to_num(asked.finish_s, nan=np.inf)
    for row in rows[np.argsort(-finish_s[rows], kind="stable")].tolist():
        centre = centres.of_offer[asked.options.offer[row]]
        seconds[:, centre] = asked.start_s[row], asked.options.high[row], asked.transfer_s[row]
    is_known = candidates & np.isfinite(seconds)
    waits, takes, fetches = np.where(is_known, timed(1e9 * np.where(is_known, seconds, 0)), 1)
    none = np.zeros(count, np.float32)
    return shared(held / np.maximum(units, 1)), waits, takes, none, none, fetches


def _local(asked: Question, hosts: tuple[str, ...]) -> int:
    return sum(one.nbytes for one in asked.task.reads if one.host in hosts)


def _ways(asked: Question, centres: Centres) -> tuple[Figures, Figures]:
    """Return the longest delay and the least bandwidth from hosts elsewhere to each centre, as features."""
    view, count = asked.view, len(centres.names)
    delay, bandwidth = np.zeros(count), np.ones(count)
    known = [seconds for seconds, _ in view.transfer_s.values() if 0 < seconds < np.inf]
    fastest_s = min(known, default=0.0)
    for number, name in enumerate(centres.names):
        hosts = view.centres[name].hosts
        for read in asked.task.reads:
            if read.host in hosts:
                continue
            seconds = view.transfer_s.get((read.host, name), (0.0, False))[0]
            if seconds > 0:
                bandwidth[number] = min(bandwidth[number], fastest_s / seconds if np.isfinite(seconds) else 0.0)
            delay[number] = max(delay[number], _delay(view, read.host, hosts))
    return delay, bandwidth


def _delay(view: CentresView, host: str, hosts: tuple[str, ...]) -> float:
    """Return the shortest delay from a host to one of some, as a feature: 0 if not known, 1 where no way leads."""
    if view.costs is None or host not in view.costs.model.host_number:
        return 0.0
    number = view.costs.model.host_number
    found = [int(view.costs.pairs.delay_ns[number[host], number[one]]) for one in hosts if one in number]
    reached = [delay_ns for delay_ns in found if delay_ns != UNREACHABLE_NS]
    if not found:
        return 0.0
    return float(logarithmic(min(reached))) if reached else 1.0


class LearnedTasks(LearningPolicy):
    """Prefers centres by the values that a network gives them; the other scores, or the fallback, where it cannot say.

    As the policy of pods, but that an action is a centre: all its options get the same points.
    """

    def __init__(self, settings: LiveSettings, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(settings, "tasks", _example, clock_ns)
        self._fallback: TaskScore | None = None
        if settings.fallback:
            self._fallback = make_policy(settings.fallback, {}, ("points", "reason"), is_of_tasks=True)
        self._asked: tuple[Question, Centres, Answer] | None = None
        self._centres: tuple[CentresView, Centres] | None = None

    def points(self, asked: Question, rows: Longs) -> Longs:
        """Return `MOST_POINTS` for options of the centre of the highest value, 0 for the lowest; the same in shadow."""
        centres, answer = self._answer(asked, rows)
        if self.settings.shadow:
            return np.full(len(rows), MOST_POINTS, np.int64)
        if answer.values is None and answer.explored is None and self._fallback is not None:
            return self._fallback.points(asked, rows)
        return points_of(answer, centres.of_offer[asked.options.offer[rows]])

    def reason(self, asked: Question, row: int) -> str:
        """Return the value of an option's centre and its place among all centres, or why there is none."""
        if self._asked is None or self._asked[0] is not asked:
            raise SchedulerError("it is asked why before it was asked which")
        _, centres, answer = self._asked
        if answer.values is None and self._fallback is not None and not self.settings.shadow:
            said = f"the network is not asked: {self.network.why_not(answer)}"
            return f"{said}; {self.settings.fallback}: {self._fallback.reason(asked, row)}"
        return reasons_of(self.network, answer, centres.of_offer[asked.options.offer[[row]]])[0]

    def note(self, asked: Question, rows: Longs, row: int) -> Callable[[str], None]:
        """Return what takes note, by a key, that a task got one of some options."""
        centres, answer = self._answer(asked, rows)
        action = int(centres.of_offer[asked.options.offer[row]])
        return lambda key: self.network.decided(key, answer, action)

    def _answer(self, asked: Question, rows: Longs) -> tuple[Centres, Answer]:
        """Return the centres, and what the network says of them; asked once for the same question."""
        if self._asked is not None and self._asked[0] is asked:
            return self._asked[1:]
        if self._centres is None or self._centres[0] is not asked.view:
            self._centres = (asked.view, Centres.of(asked.view))
        centres, shown = self._centres[1], self.network.made_for
        seen = observe(asked, rows, centres, has_network=shown.network, has_load=shown.load)
        usual = None
        if self.network.asks_fallback and self._fallback is not None and len(rows):
            usual = usual_of(self._fallback.points(asked, rows), centres.of_offer[asked.options.offer[rows]])
        self._asked = (asked, centres, self.network.answer(seen, asked.task.name, usual))
        return self._asked[1:]


def _example(made_for: MadeFor) -> Observation:
    view = CentresView(0, (Offer("any", "unit", 1),), {"any": CentreState("any")}, (Slots(1),))
    none, never = np.zeros(0), np.zeros(0, np.bool_)
    asked = Question(PendingTask("any", "any"), view, Options.of((), {}), none, none, never, never)
    rows = np.zeros(0, np.int64)
    return observe(asked, rows, Centres.of(view), has_network=made_for.network, has_load=made_for.load)
