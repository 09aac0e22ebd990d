"""What the meta-scheduler writes: dispatches, completions of silent centres' tasks, why a task waits."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from controller.api.client import ApiClient
from controller.api.registry import dispatches
from controller.api.registry.dispatches import Completion, CompletionRequest, Dispatch, DispatchRequest, TaskState
from controller.api.registry.placements import NewDecision
from controller.api.resources import Decision, Metadata, Task
from controller.api.resources.base import Resource
from controller.api.resources.decision import DecisionSpec
from controller.api.resources.task import TaskPhase
from controller.errors import NotFoundError, StaleError
from controller.schedulers.serving.decisions import decision_name
from controller.schedulers.serving.tasks.metrics import TaskMetrics
from controller.schedulers.serving.tasks.view import TasksView
from dataplane.clock import Clock

LOGGER: Final = logging.getLogger("millrace.scheduler")
AT_ONCE: Final = 16
"""Requests that are under way at a time."""
R = TypeVar("R", bound=Resource)


class Writer:
    """Writes, and knows at once what it has written: the watch says it later."""

    def __init__(
        self,
        client: ApiClient,
        view: TasksView,
        metrics: TaskMetrics,
        *,
        name: str,
        clock: Clock,
        now_ns: Callable[[], int],
    ) -> None:
        self.name, self.now_ns = name, now_ns
        self._client, self._view, self._metrics, self._clock = client, view, metrics, clock

    async def dispatch(self, task: Task, item: Dispatch, spec: DecisionSpec) -> bool:
        """Have a task go to a centre; return whether it does: what came too late is read and decided again."""
        centre = self._view.centres.get(item.centre)
        if centre is None:
            return False
        decision = NewDecision(name=decision_name(item.task, secrets.token_hex(5)), spec=spec)
        item = replace(item, task_revision=task.metadata.revision, shares_version=centre.shares_version)
        request = DispatchRequest(dispatches=(item,), decision=decision)
        try:
            state = TaskState({item.task: task}, {item.centre: centre})
            expected = dispatches.dispatch(state, request, max(self.now_ns(), centre.status.heartbeat_ns or 0))
            answer = await self._client.dispatch(request)
        except (StaleError, NotFoundError) as error:
            await self._came_too_late(item, error)
            return False
        self._assume(expected, answer.revision)
        self._metrics.dispatched.labels("probe" if task.spec.is_probe else "task").inc()
        LOGGER.info("task %s: %s", item.task, spec.reason)
        return True

    async def complete(self, item: Completion) -> bool:
        """Take a task from a silent centre; return whether it is taken."""
        task = self._view.tasks[item.task]
        centres = {name: one for name, one in self._view.centres.items() if name == task.status.centre}
        request = CompletionRequest(completions=(item,))
        try:
            answer = await self._client.complete(request)
        except (StaleError, NotFoundError) as error:
            LOGGER.info("task %s stays: %s", item.task, error)
            await self.read_again(Task, item.task)
            return False
        self._assume(
            dispatches.complete(TaskState({item.task: task}, centres), request, self.now_ns()), answer.revision
        )
        return True

    async def status(self, task: Task, **parts: Any) -> bool:  # noqa: ANN401 - parts of a status
        """Write parts of a task's status; return whether they stand."""
        return await self._replace_status(replace(task, status=replace(task.status, **parts)))

    async def tell(self, task: Task, phase: TaskPhase, reason: str) -> None:
        """Have a task say why it waits, unless it says so already."""
        if task.status.phase is not phase or task.status.reasons != (reason,):
            await self.status(task, phase=phase, reasons=(reason,))

    async def keep(self, subject: str, spec: DecisionSpec) -> None:
        """Keep a decision that has led to nothing yet."""
        name = decision_name(subject, secrets.token_hex(5))
        await self._client.of(Decision).create(Decision(metadata=Metadata(name=name), spec=spec))

    async def result_status(self, result: R) -> bool:
        """Write a result's status."""
        return await self._replace_status(result)

    async def create(self, resource: R) -> bool:
        """Make a resource; return whether it is new: another scheduler may have been first."""
        kind = type(resource)
        try:
            made = await self._client.of(kind).create(resource)
        except StaleError:
            await self.read_again(kind, resource.metadata.name)
            return False
        self._view.take(made, self._clock.now_ns())
        return True

    async def read_again(self, kind: type[R], name: str) -> None:
        """Read a resource as it is now, without waiting for the watch."""
        try:
            self._view.take(await self._client.of(kind).get(name), self._clock.now_ns())
        except NotFoundError:
            self._view.remove(kind, name)

    async def _replace_status(self, resource: R) -> bool:
        kind, name = type(resource), resource.metadata.name
        try:
            self._view.take(await self._client.of(kind).replace_status(resource), self._clock.now_ns())
        except NotFoundError:
            self._view.remove(kind, name)
            return False
        except StaleError:
            self._metrics.conflicts.inc()
            await self.read_again(kind, name)
            return False
        return True

    async def _came_too_late(self, item: Dispatch, error: Exception) -> None:
        self._metrics.conflicts.inc()
        LOGGER.info("task %s: decided again: %s", item.task, error)
        await self.read_again(Task, item.task)
        centre = self._view.centres.get(item.centre)
        if centre is not None:
            await self.read_again(type(centre), item.centre)

    def _assume(self, made: TaskState, revision: int) -> None:
        """Know what was written before the watch says so: the next decision is about what is left."""
        now_ns = self._clock.now_ns()
        for name, task in made.tasks.items():
            if task is None:
                self._view.remove(Task, name)
            else:
                self._view.take(replace(task, metadata=replace(task.metadata, revision=revision)), now_ns)
        for centre in made.centres.values():
            self._view.assume_shares(centre)


async def few_at_once(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of it, `AT_ONCE` at a time; raise what the first one raises that fails, once all have ended."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(work: Coroutine[Any, Any, None]) -> None:
        async with gate:
            await work

    found = await asyncio.gather(*(one(work) for work in works), return_exceptions=True)
    for problem in found:
        if isinstance(problem, BaseException):
            raise problem
