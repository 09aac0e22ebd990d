"""The task scheduler: dispatches waiting tasks at the API server to compute centres, by measurements.

A round does everything that is due: results get their scores and tasks their costs, tasks of silent centres wait
again, new types get probes, probes go to free units, and tasks to where they end first. All state that a
round depends on is kept at the API server; a killed scheduler has dispatched a task whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Task
from controller.apiserver.resources.base import Resource
from controller.common.errors import ApiError, ControllerError, SchedulerError
from controller.common.standby.pair import MayDecide, at_once
from controller.probing.evaluation import Policy
from controller.scheduling.costs import Costs
from controller.scheduling.framework.lessons import learners_of
from controller.scheduling.serving.learning_metrics import LearningMetrics
from controller.scheduling.serving.lessons import Lessons
from controller.scheduling.serving.projects import follow_weights
from controller.scheduling.serving.tasks.accounts import Accounts
from controller.scheduling.serving.tasks.dispatching import Dispatching
from controller.scheduling.serving.tasks.hours import Hours
from controller.scheduling.serving.tasks.knowledge import Knowledge
from controller.scheduling.serving.tasks.lessons import TaskLessons, utilisation_of
from controller.scheduling.serving.tasks.metrics import TaskMetrics
from controller.scheduling.serving.tasks.probes import Probes
from controller.scheduling.serving.tasks.silence import Silence
from controller.scheduling.serving.tasks.view import KINDS, TasksView
from controller.scheduling.serving.tasks.writing import Writer
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.clock import NS_PER_S, Clock
from dataplane.topology.file import load_topology

LOGGER: Final = logging.getLogger("millrace.scheduler")
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
        may_decide: MayDecide = at_once,
    ) -> None:
        """`now_ns` is the wall clock used in decisions; leases and waits use `clock`.

        Nothing is decided before `may_decide` returns.
        """
        self._may_decide = may_decide
        self.view, self.metrics = TasksView(), TaskMetrics(registry)
        self.knowledge = Knowledge(self.view, settings, _hours(self.view, settings, topology))
        self._client, self._clock, self._now_ns = client, clock, now_ns
        self._changed = asyncio.Event()
        self.last_round_ns = 0
        """Duration of the last round."""
        self._listed: set[type[Resource]] = set()
        writer = Writer(client, self.view, self.metrics, name=name, clock=clock, now_ns=now_ns)
        self._profiles = profiles = TaskProfile.by_name(settings.profiles)
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

    def take_scoring(self, policy: Policy) -> str:
        """Score results by another policy of the settings; return the policy in force and its source."""
        self._accounts.take_policy(policy)
        self._changed.set()
        return self._accounts.about_policy

    async def run(self) -> None:
        """Follow and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._follow(kind))
            group.create_task(follow_weights(self._client, self.view.weights))
            group.create_task(self._decide_forever())
            group.create_task(self.lessons.run())

    async def _follow(self, kind: type[Resource]) -> None:
        async for event in self._client.of(kind).follow():
            now_ns = self._clock.now_ns()
            if hasattr(event, "items"):
                self.view.take_all(kind, event.items, now_ns)
                if kind is Task:
                    self._task_lessons.read_outcomes()
                self._listed.add(kind)
                self._changed.set()
            elif event.name and event.resource is not None and event.type != "DELETE":
                self.take(event.resource)
            elif event.name and event.type == "DELETE":
                self.view.remove(kind, event.name)
                if kind is Task:
                    self.lessons.gone(event.name)
                self._changed.set()

    def take(self, resource: Resource) -> None:
        """Take a resource's current state, as a watch delivers it."""
        if self.view.take(resource, self._clock.now_ns()):
            if isinstance(resource, Task):
                self._task_lessons.read_outcome(resource)
            self._changed.set()

    async def _decide_forever(self) -> None:
        await self._may_decide()
        while True:
            try:
                async with asyncio.timeout(_LONGEST_S):
                    await self._changed.wait()
                await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                pass
            # Clear before the round, so that a change during it starts another one.
            self._changed.clear()
            if len(self._listed) == len(KINDS):
                await self.run_round()

    async def run_round(self) -> None:
        """Do everything that is due once; whatever fails is tried again in the next round."""
        begun_ns = self._clock.now_ns()
        try:
            await self._accounts.settle()
            await self._silence.release(begun_ns)
            await self._probes.build(self._now_ns())
            await self._probes.build_benchmarks(self._profiles)
            await self._probes.build_network_check()
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
        self.metrics.seconds.observe(self.last_round_ns / NS_PER_S)


def _hours(view: TasksView, settings: TaskSettings, topology: str | None) -> Hours:
    if settings.history is None:
        return Hours(view)
    if topology is None:
        raise SchedulerError("tasks.history: a history needs a topology")
    return Hours(view, Path(settings.history), load_topology(topology))
