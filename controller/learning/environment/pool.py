"""The pool in machine code: as tests.reference.pool defines it, fast enough to learn from."""

from __future__ import annotations

import numpy as np

from controller.learning.environment.kernels.compiled import compiled
from controller.learning.environment.kernels.planning import plan
from controller.learning.environment.kernels.playing import Play, play
from controller.learning.environment.kernels.stepping import AT_END, NEXT, NO_TIME, advance, step
from controller.learning.environment.layout import Layout, Saved, initial
from controller.learning.environment.model import Model
from controller.learning.environment.rewarding import reward
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import System, Workload
from controller.learning.environment.view import (
    Forecast,
    Refusal,
    no_time,
    nothing_runs,
    wrong_action,
)
from controller.learning.values import Observation, Step


class Pool:
    """Tasks on nodes with engines that share one pool of memory, decision by decision: an action is a node.

    Tasks are decided on in the order in which they become ready; tasks that no node can run are refused.
    """

    def __init__(self, system: System, workload: Workload, settings: PoolSettings | None = None) -> None:
        self.model = Model.of(system, workload, settings or PoolSettings())
        self._cores = self.model.cores
        self._layout = Layout.of(self.model)
        self._address = self._layout.state.address
        self._begun = (0, initial(self.model, 0, self._layout))
        self._layout.restore(self._begun[1])
        self._step, self._advance, self._plan = compiled(step), compiled(advance), compiled(plan)
        self._play = compiled(play)
        self.task, self.now_ns = -1, 0

    @property
    def actions(self) -> int:
        """Number of nodes with engines."""
        return self.model.system.actions

    @property
    def view(self) -> Pool:
        """State for heuristics: the pool itself."""
        return self

    def start(self, seed: int) -> Observation:
        """Restart with homes drawn by the seed; raise LearningError if no task can run at all."""
        if self._begun[0] != seed:
            self._begun = (seed, initial(self.model, seed, self._layout))
        self._layout.restore(self._begun[1])
        outcome = self._advance(self._address)
        self._note()
        if outcome == AT_END:
            raise nothing_runs(self.refusals)
        return self._observed()

    def step(self, action: int) -> Step:
        """Run the task on a node; raise LearningError for one that is not a candidate, or after the end."""
        task, ready_ns = self.task, self.now_ns
        outcome = self._step(self._address, int(action))
        if outcome == NO_TIME:
            raise no_time(task)
        if outcome not in {NEXT, AT_END}:
            raise wrong_action(action, task)
        self._note()
        start_ns, served_ns, end_ns, evicted_bytes, eviction_ns, running, *waits = self._layout.result.tolist()
        latency_ns, response_ns = served_ns - ready_ns, end_ns - ready_ns
        penalty_ns = eviction_ns if evicted_bytes else None
        utilisation, (left, held) = running / self._cores, waits
        return Step(
            observation=self._observed() if outcome == NEXT else None,
            reward=reward(
                self.model.settings,
                utilisation,
                latency_ns,
                response_ns,
                eviction_ns=penalty_ns,
                left=left,
                held=held,
            ),
            task=task,
            wait_ns=start_ns - ready_ns,
            latency_ns=latency_ns,
            response_ns=response_ns,
            evicted_bytes=evicted_bytes,
            eviction_ns=eviction_ns,
            elapsed_ns=self.now_ns - ready_ns,
            submitted_ns=ready_ns,
        )

    def predict(self, action: int) -> Forecast:
        """Return how the task would run on a candidate."""
        if self.task < 0 or not 0 <= action < self.actions or not self._layout.candidates[action]:
            raise wrong_action(action, self.task)
        self._plan(self._address, int(action))
        return Forecast(*self._layout.plan[:3].tolist())

    def local_bytes(self, action: int) -> int:
        """Return how much of the task's data is local to a node."""
        workload = self.model.workload
        start, end = workload.access_start[self.task : self.task + 2]
        numbers = workload.access_object[start:end]
        places = self._layout.changing["place"][numbers]
        is_local = (places >= 0) & (self._layout.constants["node"][places] == action)
        return int(workload.object_bytes[numbers[is_local]].sum())

    def queued(self, action: int) -> int:
        """Return how many tasks are assigned to a node and have not ended."""
        start, end = self._layout.constants["engine_start"][action : action + 2]
        return int(self._layout.changing["assigned"][start:end].sum())

    def slots(self, action: int) -> int:
        """Return how many tasks a node runs at a time."""
        return sum(engine.slots for engine in self.model.system.nodes[action].engines)

    def fast_bytes(self, action: int) -> int:
        """Return the capacity of a node's fast memory."""
        return self.model.system.nodes[action].memories[0].capacity_bytes

    @property
    def needed_bytes(self) -> int:
        """Size of all data of the task to decide on."""
        return int(self.model.data_bytes[self.task])

    @property
    def candidates(self) -> tuple[bool, ...]:
        """Nodes that can run the task."""
        return tuple(self._layout.candidates.tolist())

    @property
    def refusals(self) -> dict[int, Refusal]:
        """Tasks that no node could run, and why."""
        reasons = self._layout.changing["refusal"]
        return {task: Refusal(int(reasons[task])) for task in np.flatnonzero(reasons).tolist()}

    def play(self, told: Play, seed: int) -> bool:
        """Play the whole run as ordered, from the beginning; return whether that is possible.

        Nothing can be decided on then; `start` begins anew.
        """
        self.start(seed)
        outcome = self._play(self._address, told)
        self._note()
        return bool(outcome == AT_END)

    def save(self) -> Saved:
        """Return the current state, to go back to: oracles try all alternatives."""
        return self._layout.save()

    def restore(self, saved: Saved) -> Observation | None:
        """Restore a saved state, and return its observation; None at the end."""
        self._layout.restore(saved)
        self._note()
        return None if self.task < 0 else self._observed()

    def _note(self) -> None:
        self.task, self.now_ns = int(self._layout.state.task), int(self._layout.state.now_ns)

    def _observed(self) -> Observation:
        return Observation(self._layout.row.copy(), self._layout.candidates.copy())
