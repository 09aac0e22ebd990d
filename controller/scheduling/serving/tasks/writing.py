"""Writes of the task scheduler: dispatches, completions of silent centres' tasks, reasons for waiting."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry import completions, dispatches
from controller.apiserver.registry.completions import Completion, CompletionRequest
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.registry.task_state import TaskState
from controller.apiserver.resources import Decision, Metadata, Task
from controller.apiserver.resources.base import Resource
from controller.apiserver.resources.decision import DecisionSpec
from controller.apiserver.resources.predecessors import PredecessorEnd
from controller.apiserver.resources.task import TaskPhase
from controller.common.errors import ApiError, NotFoundError, StaleError
from controller.scheduling.serving.decisions import decision_name
from controller.scheduling.serving.tasks.metrics import TaskMetrics
from controller.scheduling.serving.tasks.view import TasksView
from dataplane.clock import Clock

LOGGER: Final = logging.getLogger("millrace.scheduler")
AT_ONCE: Final = 16
"""Requests in flight at a time."""
MOST_IN_BATCH: Final = 32
"""Dispatches per request: as many as one transaction takes."""
MOST_BYTES: Final = 1 << 19
"""Bytes of decisions per request; servers accept requests of 1 MiB by default."""
R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Due:
    """A task to dispatch to a centre now, and the decision behind it."""

    task: Task
    item: Dispatch
    spec: DecisionSpec


class Writer:
    """Writes, and applies its own writes to the view at once, before the watch shows them."""

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
        """Dispatch a task to a centre; return whether that succeeded. On a conflict it is read and decided again."""
        return (await self.dispatch_each([Due(task, item, spec)]))[0]

    async def dispatch_each(self, due: Sequence[Due]) -> list[bool]:
        """Dispatch tasks to centres independently, in as few requests as possible; return the success of each.

        On a conflict a task is read and decided again.
        """
        done = []
        for batch in _batches(due):
            done += await self._dispatch_batch(batch)
        return done

    async def _dispatch_batch(self, batch: Sequence[Due]) -> list[bool]:
        state, sent, expected = TaskState(centres=dict(self._view.centres)), list[Due](), list[TaskState]()
        moved: Counter[str] = Counter()
        problems: list[tuple[Due, ApiError]] = []
        requests = []
        for due in batch:
            centres = {name: state.centres[name] for name in due.item.centres if name in state.centres}
            if len(centres) < len(due.item.centres):
                continue
            versions = {name: centre.shares_version - moved[name] for name, centre in centres.items()}
            item = replace(
                due.item,
                task_revision=due.task.metadata.revision,
                shares_version=versions[due.item.centre],
                others=tuple(replace(other, shares_version=versions[other.centre]) for other in due.item.others),
            )
            heard_ns = max(centre.status.heartbeat_ns or 0 for centre in centres.values())
            decision = NewDecision(name=decision_name(item.task, secrets.token_hex(5)), spec=due.spec)
            request = DispatchRequest(dispatches=(item,), decision=decision)
            state.tasks = {item.task: due.task}
            state.predecessors = self._view.tasks if due.task.spec.predecessors else {}
            try:
                outcome = dispatches.dispatch(state, request, max(self.now_ns(), heard_ns), moved)
            except (StaleError, NotFoundError) as error:
                problems.append((due, error))
                continue
            state.centres.update(outcome.centres)
            moved.update(outcome.centres.keys())
            sent.append(due)
            expected.append(outcome)
            requests.append(request)
        answers = await self._client.dispatch_each(requests) if requests else []
        dispatched = set()
        for due, outcome, answer in zip(sent, expected, answers, strict=True):
            if isinstance(answer, ApiError):
                problems.append((due, answer))
                continue
            self._assume(outcome, answer.revision)
            dispatched.add(due.item.task)
            self._metrics.dispatched.labels("probe" if due.task.spec.is_probe else "task").inc()
            LOGGER.info("task %s: %s", due.item.task, due.spec.reason)
        await self._handle_refusals(problems)
        return [due.item.task in dispatched for due in batch]

    async def complete(self, item: Completion) -> bool:
        """Take a task from a silent centre; return whether that succeeded."""
        task = self._view.tasks[item.task]
        centres = {name: centre for name, centre in self._view.centres.items() if name in task.held_units}
        request = CompletionRequest(completions=(item,))
        try:
            answer = await self._client.complete(request)
        except (StaleError, NotFoundError) as error:
            LOGGER.info("task %s is not released: %s", item.task, error)
            await self.read_again(Task, item.task)
            return False
        self._assume(
            completions.complete(TaskState({item.task: task}, centres), request, self.now_ns()), answer.revision
        )
        return True

    async def status(self, task: Task, **parts: Any) -> bool:  # noqa: ANN401 - parts of a status
        """Write parts of a task's status; return whether they were accepted."""
        return await self._replace_status(replace(task, status=replace(task.status, **parts)))

    async def tell(self, task: Task, phase: TaskPhase, reason: str, ends: tuple[PredecessorEnd, ...] = ()) -> None:
        """Write why a task waits, and which predecessors have ended, unless that is already written."""
        status = task.status
        if status.phase is not phase or status.reasons != (reason,) or status.predecessors != ends:
            await self.status(task, phase=phase, reasons=(reason,), predecessors=ends)

    async def keep(self, subject: str, spec: DecisionSpec) -> None:
        """Save a decision that has led to nothing yet."""
        name = decision_name(subject, secrets.token_hex(5))
        await self._client.of(Decision).create(Decision(metadata=Metadata(name=name), spec=spec))

    async def result_status(self, result: R) -> bool:
        """Write a result's status."""
        return await self._replace_status(result)

    async def create(self, resource: R) -> bool:
        """Create a resource; return whether it is new: another scheduler may have been first."""
        kind = type(resource)
        try:
            created = await self._client.of(kind).create(resource)
        except StaleError:
            await self.read_again(kind, resource.metadata.name)
            return False
        self._view.take(created, self._clock.now_ns())
        return True

    async def read_again(self, kind: type[R], name: str) -> None:
        """Read a resource's current state without waiting for the watch."""
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

    async def _handle_refusals(self, problems: Sequence[tuple[Due, ApiError]]) -> None:
        """Read the tasks and centres of refused dispatches again; raise errors other than conflicts."""
        for due, error in problems:
            if not isinstance(error, StaleError | NotFoundError):
                raise error
            self._metrics.conflicts.inc()
            LOGGER.info("task %s: decided again: %s", due.item.task, error)
            await self.read_again(Task, due.item.task)
        for name in dict.fromkeys(name for due, _ in problems for name in due.item.centres):
            if (centre := self._view.centres.get(name)) is not None:
                await self.read_again(type(centre), name)

    def _assume(self, state: TaskState, revision: int) -> None:
        """Apply a write before the watch shows it, so that the next decision sees what is left."""
        now_ns = self._clock.now_ns()
        for name, task in state.tasks.items():
            if task is None:
                self._view.remove(Task, name)
            else:
                self._view.take(replace(task, metadata=replace(task.metadata, revision=revision)), now_ns)
        for centre in state.centres.values():
            self._view.assume_shares(centre)


def _batches(due: Sequence[Due]) -> Iterator[Sequence[Due]]:
    """Yield parts that fit into one request, by number and by bytes."""
    batch: list[Due] = []
    nbytes = 0
    for entry in due:
        batch.append(entry)
        nbytes += len(msgspec.json.encode(entry.spec))
        if len(batch) >= MOST_IN_BATCH or nbytes >= MOST_BYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


async def gather_limited(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all calls, `AT_ONCE` at a time; raise the first error once all have ended."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def run_gated(work: Coroutine[Any, Any, None]) -> None:
        async with gate:
            await work

    results = await asyncio.gather(*(run_gated(work) for work in works), return_exceptions=True)
    for problem in results:
        if isinstance(problem, BaseException):
            raise problem
