"""The task scheduler: dispatches waiting tasks at the API server to compute centres, by measurements.

A round looks at everything and does what is due: results get their scores and tasks their costs, tasks of silent
centres wait again, new types get probes, probes go to free units, and tasks to where they end first. All state that a
round depends on is kept at the API server; a killed scheduler has dispatched a task whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.dispatches import Completion
from controller.apiserver.resources import ProbeResult, Task
from controller.apiserver.resources.base import Resource
from controller.apiserver.resources.task import TaskPhase
from controller.common.errors import ApiError, ControllerError, SchedulerError
from controller.probing.evaluation import scored
from controller.scheduling.costs import Costs
from controller.scheduling.dispatch.prices import cost_of
from controller.scheduling.dispatch.profiles import task_profiles_of
from controller.scheduling.dispatch.settings import TaskSettings
from controller.scheduling.serving.learning_metrics import LearningMetrics
from controller.scheduling.serving.lessons import Lessons
from controller.scheduling.serving.projects import follow_weights
from controller.scheduling.serving.tasks.dispatching import Dispatching
from controller.scheduling.serving.tasks.hours import Hours
from controller.scheduling.serving.tasks.knowledge import Knowledge
from controller.scheduling.serving.tasks.lessons import TaskLessons, learners_of, utilisation_of
from controller.scheduling.serving.tasks.metrics import TaskMetrics
from controller.scheduling.serving.tasks.probes import Probes
from controller.scheduling.serving.tasks.view import KINDS, TasksView, has_ended
from controller.scheduling.serving.tasks.writing import Writer, few_at_once
from dataplane.clock import Clock
from dataplane.topology.file import load_topology


class Silence:
    """Takes tasks from silent centres, unless these have reported meanwhile: the server checks their last report."""

    def __init__(self, view: TasksView, settings: TaskSettings, writer: Writer, metrics: TaskMetrics) -> None:
        self._view, self._settings, self._writer, self._metrics = view, settings, writer, metrics

    async def release(self, now_ns: int) -> None:
        """Release the tasks of centres whose lease has expired, and of deleted centres."""
        for name, tasks in self._view.held_by().items():
            centre = self._view.centres.get(name)
            if centre is not None and not self._view.is_silent(centre, now_ns):
                continue
            heartbeat_ns = None if centre is None else centre.status.heartbeat_ns or 0
            await few_at_once(self._take(task, name, heartbeat_ns) for task in tasks)

    async def _take(self, task: Task, centre: str, heartbeat_ns: int | None) -> None:
        status, most = task.status, self._settings.retries + 1
        again = status.epoch < most and not task.spec.is_probe
        why = f"centre {centre} is gone" if heartbeat_ns is None else f"centre {centre} has fallen silent"
        reason = why if again else f"{why}, and it was dispatched {status.epoch} times: it is not tried again"
        item = Completion(
            task=task.metadata.name,
            epoch=status.epoch,
            phase=TaskPhase.PENDING if again else TaskPhase.FAILED,
            heartbeat_ns=heartbeat_ns,
            reasons=(reason,),
        )
        if await self._writer.complete(item):
            self._metrics.silent.inc()


_NS = 1_000_000_000
_MOST = 256
"""Writes per round; the rest follows in the next."""


class Accounts:
    """Writes each score and cost once."""

    def __init__(self, view: TasksView, settings: TaskSettings, writer: Writer) -> None:
        self._view, self._settings, self._writer = view, settings, writer

    async def settle(self) -> None:
        """Write missing scores of results, then the costs of ended tasks."""
        unscored = [one for one in self._view.results.values() if not one.status.policy and one.status.runs]
        await few_at_once(self._score(one) for one in unscored[:_MOST])
        unpaid = [one for one in self._view.tasks.values() if has_ended(one) and one.status.cost is None]
        ran = [one for one in unpaid if one.status.dispatched_ns and one.status.finished_ns and one.status.units]
        await few_at_once(self._charge(one) for one in ran[:_MOST])

    async def _score(self, result: ProbeResult) -> None:
        status = scored(self._settings.scoring, result.status)
        await self._writer.result_status(replace(result, status=status))

    async def _charge(self, task: Task) -> None:
        status = task.status
        held_s = max((status.finished_ns or 0) - (status.started_ns or status.dispatched_ns or 0), 0) / _NS
        seconds = held_s if status.run_time_s is None else min(status.run_time_s, held_s)
        cost = cost_of(self._settings.prices, status.units or 0, seconds, self._score_at(task))
        reasons = (*status.reasons, f"cost {cost.amount:.4g}: {cost.reason}")
        await self._writer.status(task, cost=cost.amount, reasons=reasons)

    def _score_at(self, task: Task) -> float | None:
        """Return the newest score of the task's type where it ran, else the newest of any probe there.

        A score comes from the type's own probe if possible: how good a centre is depends on the work.
        """
        name, place = self._view.type_of(task), (task.status.centre, task.status.unit)
        there = [
            one
            for one in self._view.results.values()
            if (one.spec.centre, one.status.unit or one.spec.unit) == place and one.status.score is not None
        ]
        own = [one for one in there if one.spec.task_type == name]
        newest = max(own or there, key=lambda one: one.metadata.created_ns, default=None)
        return None if newest is None else newest.status.score


LOGGER: Final = logging.getLogger("millrace.scheduler")
_NS_PER_S: Final = 1_000_000_000
_GATHER_S: Final = 0.02
"""Time for which a round waits for more changes after the first one."""
_LONGEST_S: Final = 1.0
"""Longest time between rounds: leases, deadlines and periods end without a notification."""


class TaskScheduler:
    """Dispatches tasks of its profiles. `run` follows the API server and decides, until it is cancelled."""

    def __init__(
        self,
        client: ApiClient,
        settings: TaskSettings,
        *,
        name: str,
        costs: Costs,
        clock: Clock,
        now_ns: Callable[[], int],
        registry: CollectorRegistry,
        topology: str | None = None,
        learning: LearningMetrics | None = None,
    ) -> None:
        """`now_ns` is the wall clock used in decisions; leases and waits use `clock`."""
        self.view, self.metrics = TasksView(), TaskMetrics(registry)
        self.knowledge = Knowledge(self.view, settings, _hours(self.view, settings, topology))
        self._client, self._clock, self._now_ns = client, clock, now_ns
        self._changed = asyncio.Event()
        self.last_round_ns = 0
        """Duration of the last round."""
        self._listed: set[type[Resource]] = set()
        writer = Writer(client, self.view, self.metrics, name=name, clock=clock, now_ns=now_ns)
        self._profiles = profiles = task_profiles_of(settings.profiles)
        self.lessons = Lessons(clock, learners_of(profiles), lambda: utilisation_of(self.view))
        self._task_lessons = TaskLessons(self.lessons, self.view)
        if learning is not None:
            learning.ask("tasks", lambda: self.lessons.learners)
        self._accounts = Accounts(self.view, settings, writer)
        self._silence = Silence(self.view, settings, writer, self.metrics)
        self._probes = Probes(self.view, self.knowledge, settings, writer)
        self._dispatching = Dispatching(
            self.view,
            self.knowledge,
            settings,
            profiles=profiles,
            writer=writer,
            costs=costs,
            lessons=self._task_lessons,
        )

    async def run(self) -> None:
        """Follow and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._follow(kind))
            group.create_task(follow_weights(self._client, self.view.weights))
            group.create_task(self._decide_for_ever())
            group.create_task(self.lessons.run())

    async def _follow(self, kind: type[Resource]) -> None:
        async for told in self._client.of(kind).follow():
            now_ns = self._clock.now_ns()
            if hasattr(told, "items"):
                self.view.take_all(kind, told.items, now_ns)
                if kind is Task:
                    self._task_lessons.look_at_all()
                self._listed.add(kind)
                self._changed.set()
            elif told.name and told.resource is not None and told.type != "DELETE":
                if self.view.take(told.resource, now_ns):
                    if isinstance(told.resource, Task):
                        self._task_lessons.look_at(told.resource)
                    self._changed.set()
            elif told.name and told.type == "DELETE":
                self.view.remove(kind, told.name)
                if kind is Task:
                    self.lessons.gone(told.name)
                self._changed.set()

    async def _decide_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LONGEST_S):
                    await self._changed.wait()
                await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                pass
            self._changed.clear()
            if len(self._listed) == len(KINDS):
                await self._round()

    async def _round(self) -> None:
        """Look at everything once; what cannot be done now is tried again in the next round."""
        begun_ns = self._clock.now_ns()
        try:
            await self._accounts.settle()
            await self._silence.release(begun_ns)
            await self._probes.build()
            await self._probes.build_benchmarks(self._profiles)
            await self._probes.order(begun_ns, self._now_ns())
            await self._probes.send(begun_ns)
            if await self._dispatching.dispatch(begun_ns, self._now_ns()):
                self._changed.set()
        except ApiError as error:
            self.metrics.failures.inc()
            LOGGER.warning("%s", error)
            await asyncio.sleep(_LONGEST_S)
        except ControllerError as error:
            self.metrics.failures.inc()
            LOGGER.warning("%s", error)
        self.metrics.waiting.set(sum(1 for _ in self.view.waiting()))
        self.last_round_ns = self._clock.now_ns() - begun_ns
        self.metrics.seconds.observe(self.last_round_ns / _NS_PER_S)


def _hours(view: TasksView, settings: TaskSettings, topology: str | None) -> Hours:
    if settings.history is None:
        return Hours(view)
    if topology is None:
        raise SchedulerError("tasks.history: without a topology nothing can be made of a history")
    return Hours(view, Path(settings.history), load_topology(topology))
