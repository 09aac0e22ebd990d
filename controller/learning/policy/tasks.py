"""The policy `learned` of tasks: a network ranks compute centres; which units of one, the other scores say."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from controller.common.errors import SchedulerError
from controller.learning.agent.purpose import MadeFor
from controller.learning.policy.centres import Centres, observe
from controller.learning.policy.learning import LearningPolicy
from controller.learning.policy.live import Answer, LiveSettings
from controller.learning.policy.ranking import points_of, reasons_of, usual_of
from controller.learning.values import Observation
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
