"""Dispatches, picks and completions in a storage: tasks, centres and results in one transaction each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from controller.apiserver.registry import completions, dispatches
from controller.apiserver.registry.actions import Written, find, write_together
from controller.apiserver.registry.completions import CompletionRequest
from controller.apiserver.registry.dispatches import DispatchRequest, Pick
from controller.apiserver.registry.encoding import key_of
from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.registry.registry import Registry, retried
from controller.apiserver.registry.task_state import DispatchAnswer, TaskState
from controller.apiserver.resources.centre import CENTRE
from controller.apiserver.resources.probe_result import PROBE_RESULT
from controller.apiserver.resources.task import Task
from controller.apiserver.resources.task_rules import TASK

Check = Callable[[TaskState], None]


async def dispatch(registry: Registry, request: DispatchRequest) -> DispatchAnswer:
    """Dispatch tasks to centres, all or none; raise StaleError if something has changed or does not fit."""

    async def once() -> DispatchAnswer:
        state = await _state(
            registry,
            {item.task for item in request.dispatches},
            {centre for item in request.dispatches for centre in item.centres},
        )
        made = dispatches.dispatch(state, request, registry.now_ns())
        return await _write(registry, state, made, request.decision)

    return await retried(once, "dispatch")


async def pick(registry: Registry, request: Pick, check: Check) -> DispatchAnswer:
    """Give a task the units that its centre picked; `check` may refuse, given the state."""

    async def once() -> DispatchAnswer:
        state = await _state(registry, {request.task})
        check(state)
        return await _write(registry, state, dispatches.pick(state, request), None)

    return await retried(once, "pick")


async def complete(registry: Registry, request: CompletionRequest, check: Check) -> DispatchAnswer:
    """Complete tasks and release their units, all or none; `check` may refuse, given the state."""

    async def once() -> DispatchAnswer:
        state = await _state(registry, {item.task for item in request.completions})
        check(state)
        made = completions.complete(state, request, registry.now_ns())
        return await _write(registry, state, made, request.decision)

    return await retried(once, "completion")


async def _state(registry: Registry, tasks: set[str], centres: set[str] | None = None) -> TaskState:
    """Read the state for a request; adds the tasks' current centres."""
    state = TaskState({name: await find(registry, TASK, name) for name in sorted(tasks)})
    held = {centre for task in state.tasks.values() if task is not None for centre in _centres_of(task)}
    for name in sorted(held | (centres or set())):
        centre = await find(registry, CENTRE, name)
        if centre is not None:
            state.centres[name] = centre
    state.predecessors = await predecessors_of(registry, state.tasks.values())
    return state


def _centres_of(task: Task) -> set[str]:
    status = task.status
    return {member.centre for member in status.members} | ({status.centre} if status.centre is not None else set())


async def predecessors_of(registry: Registry, tasks: Iterable[Task | None]) -> dict[str, Task]:
    """Return the existing predecessors of tasks, by name."""
    names = {name for task in tasks if task is not None for name in task.spec.predecessors}
    existing = await registry.find_all([key_of(TASK, name) for name in sorted(names)]) if names else {}
    return {task.metadata.name: task for task in existing.values()}


def dispatch_written(registry: Registry, state: TaskState, made: TaskState) -> list[Written]:
    """Return the writes that turn the old tasks, centres and results into the new ones."""
    written = [Written(TASK, name, task, state.tasks[name]) for name, task in made.tasks.items()]
    written += [Written(CENTRE, name, centre, state.centres[name]) for name, centre in made.centres.items()]
    for name, result in made.results.items():
        metadata = replace(result.metadata, uid=secrets.token_hex(8), created_ns=registry.now_ns())
        written.append(Written(PROBE_RESULT, name, replace(result, metadata=metadata), None))
    return written


def dispatch_answer(made: TaskState, revision: int) -> DispatchAnswer:
    """Return the answer to a request that was written at a revision."""
    return DispatchAnswer(
        revision=revision, tasks=tuple(made.tasks), centres=tuple(made.centres), results=tuple(made.results)
    )


async def _write(registry: Registry, state: TaskState, made: TaskState, decision: NewDecision | None) -> DispatchAnswer:
    return dispatch_answer(made, await write_together(registry, dispatch_written(registry, state, made), decision))
