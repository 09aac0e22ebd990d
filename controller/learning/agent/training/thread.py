"""Training in a thread of the process that decides; the two share the interpreter's lock."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from controller.learning.agent.learner import Learner
from controller.learning.agent.records import LearnerRecord
from controller.learning.agent.resuming import learner_record
from controller.learning.agent.training.base import Prepare, Published, Status
from controller.learning.agent.training.inline import status_of
from controller.learning.agent.training.loop import Backlog, train
from controller.learning.agent.weights import WeightSet
from controller.learning.errors import LearningError
from controller.learning.values import Experience

_END_WITHIN_S: Final = 10.0


class ThreadTraining:
    """Trains in a thread; `give` puts an experience into a queue."""

    def __init__(self, learner: Learner, prepare: Prepare) -> None:
        self._learner = learner
        self._prepare = prepare
        self._published = Published(learner.published, prepare(learner.published))
        self._backlog = Backlog(learner.settings.training.backlog)
        self._problem = ""
        self._thread = Thread(target=self._train, name="training", daemon=True)
        self._thread.start()

    @property
    def published(self) -> Published:
        """The newest weights that are ready."""
        return self._published

    @property
    def status(self) -> Status:
        """Status of training."""
        return status_of(self._learner, dropped=self._backlog.dropped, problem=self._problem)

    def give(self, experience: Experience) -> None:
        """Queue an experience; never waits."""
        self._backlog.add(experience)

    def record(self, timeout_s: float, *, at_once: bool = False) -> tuple[WeightSet, LearnerRecord]:
        """Return the published weights and the learner's state, after everything given was learned, or `at_once`."""
        answer: SimpleQueue[tuple[WeightSet, LearnerRecord]] = SimpleQueue()
        self._backlog.ask(lambda learner: answer.put((learner.published, learner_record(learner))), at_once=at_once)
        try:
            return answer.get(timeout=timeout_s)
        except Empty:
            because = f": {self._problem}" if self._problem else ""
            raise LearningError(f"training reported no state within {timeout_s:g} s{because}") from None

    def close(self) -> None:
        """End training after its current batch."""
        self._learner.is_ending = True
        self._backlog.end()
        self._thread.join(_END_WITHIN_S)

    def _train(self) -> None:
        try:
            train(self._learner, self._backlog, self._publish)
        except (RuntimeError, LearningError) as error:
            # PyTorch raises RuntimeError if a device fails or runs out of memory: decisions go on.
            self._problem = str(error).splitlines()[0]

    def _publish(self, weights: WeightSet) -> None:
        self._published = Published(weights, self._prepare(weights))
