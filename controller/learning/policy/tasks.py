"""The policy `learned` of tasks: a network ranks compute centres; the other scores choose units within one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from controller.common.errors import SchedulerError
from controller.learning.agent.purpose import MadeFor
from controller.learning.policy.centres import Centres, observe
from controller.learning.policy.learning import LearningPolicy
from controller.learning.policy.live import Answer
from controller.learning.policy.ranking import points_of, reasons_of, usual_of
from controller.learning.policy.settings import LiveSettings
from controller.learning.values import Observation
from controller.scheduling.framework.plugins import TASKS, make_policy
from controller.scheduling.framework.policies import MOST_POINTS, Longs, Score
from controller.scheduling.tasks.slots import Slots
from controller.scheduling.tasks.values import CentreState, CentresView, Offer, Options, PendingTask, TimedOptions


class LearnedTasks(LearningPolicy):
    """Prefers centres by the values of a network; the other scores, or the fallback, decide if it has none.

    Like the policy of pods, except that an action is a centre: all its options get the same points.
    """

    def __init__(self, settings: LiveSettings, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(settings, "tasks", example, clock_ns)
        self._fallback: Score[PendingTask, TimedOptions] | None = None
        if settings.fallback:
            self._fallback = make_policy(TASKS, settings.fallback, {}, ("points", "reason"))
        self._asked: tuple[TimedOptions, Centres, Answer] | None = None
        self._centres: tuple[CentresView, Centres] | None = None

    def points(self, task: PendingTask, timed: TimedOptions, rows: Longs) -> Longs:
        """Return `MOST_POINTS` for options of the centre with the highest value, 0 for the lowest; equal in shadow."""
        centres, answer = self._answer(task, timed, rows)
        if self.settings.shadow:
            return np.full(len(rows), MOST_POINTS, np.int64)
        if answer.values is None and answer.explored is None and self._fallback is not None:
            return self._fallback.points(task, timed, rows)
        return points_of(answer, centres.of_offer[timed.options.offer[rows]])

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return the value and the rank of an option's centre, or why there is none."""
        if self._asked is None or self._asked[0] is not timed:
            raise SchedulerError("asked for a reason before points")
        _, centres, answer = self._asked
        if answer.values is None and self._fallback is not None and not self.settings.shadow:
            problem = f"the network is not used: {self.network.why_not(answer)}"
            return f"{problem}; {self.settings.fallback}: {self._fallback.reason(task, timed, row)}"
        return reasons_of(self.network, answer, centres.of_offer[timed.options.offer[[row]]])[0]

    def note(self, task: PendingTask, timed: TimedOptions, rows: Longs, row: int) -> Callable[[str], None]:
        """Return a callback that records, by a key, that a task got one of some options."""
        return self.note_set(task, timed, rows, (row,))

    def note_set(
        self, task: PendingTask, timed: TimedOptions, rows: Longs, chosen: Sequence[int]
    ) -> Callable[[str], None]:
        """Return a callback that records, by a key, that a task got several options, each of another centre."""
        centres, answer = self._answer(task, timed, rows)
        actions = [int(centres.of_offer[timed.options.offer[row]]) for row in chosen]
        return lambda key: self.network.decided(key, answer, *actions)

    def _answer(self, task: PendingTask, timed: TimedOptions, rows: Longs) -> tuple[Centres, Answer]:
        """Return the centres, and the network's answer about them; computed once for the same question."""
        if self._asked is not None and self._asked[0] is timed:
            return self._asked[1:]
        if self._centres is None or self._centres[0] is not timed.view:
            self._centres = (timed.view, Centres.of(timed.view))
        centres, shown = self._centres[1], self.network.made_for
        seen = observe(task, timed, rows, centres, has_network=shown.network, has_load=shown.load)
        usual = None
        if self.network.asks_fallback and self._fallback is not None and len(rows):
            usual = usual_of(self._fallback.points(task, timed, rows), centres.of_offer[timed.options.offer[rows]])
        self._asked = (timed, centres, self.network.answer(seen, task.name, usual))
        return self._asked[1:]


def example(made_for: MadeFor) -> Observation:
    """Return an observation like those that a network of tasks is made for: its features, and one centre."""
    view = CentresView(0, (Offer("any", "unit", 1),), {"any": CentreState("any")}, (Slots(1),))
    none, never = np.zeros(0), np.zeros(0, np.bool_)
    timed = TimedOptions(view, Options.of((), {}), none, none, never, none, none)
    rows = np.zeros(0, np.int64)
    return observe(
        PendingTask("any", "any"), timed, rows, Centres.of(view), has_network=made_for.network, has_load=made_for.load
    )
