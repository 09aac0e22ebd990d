"""Batches of bindings and dispatches: each request succeeds or fails as if sent alone; no storage access.

A later request of a batch sees the effects of the earlier ones, yet names the shares version from before the batch: so
the refusal of one does not cause that of another. A request whose decision has already placed its pods is answered as
it was the first time, so that a batch whose answer was lost can be resent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from controller.apiserver.registry import dispatches, placements
from controller.apiserver.registry.dispatches import DispatchRequest
from controller.apiserver.registry.placements import BindingRequest, NewDecision, PlacementAnswer, State
from controller.apiserver.registry.task_state import DispatchAnswer, TaskState
from controller.apiserver.resources.base import Count, Line
from controller.common.errors import ApiError, StaleError
from dataplane.config import Strict

MOST_REQUESTS: Final = 64


class BindingBatch(Strict, frozen=True):
    """Requests that are sent together; each places its pods all or none."""

    requests: Annotated[tuple[BindingRequest, ...], Meta(min_length=1, max_length=MOST_REQUESTS)]


class DispatchBatch(Strict, frozen=True):
    """Requests that are sent together; each dispatches its tasks all or none."""

    requests: Annotated[tuple[DispatchRequest, ...], Meta(min_length=1, max_length=MOST_REQUESTS)]


class BindingOutcome(Strict, frozen=True):
    """The answer to one request of a batch, or the status and message of its refusal."""

    answer: PlacementAnswer | None = None
    status: Count = 200
    detail: Line = ""


class DispatchOutcome(Strict, frozen=True):
    """The answer to one request of a batch, or the status and message of its refusal."""

    answer: DispatchAnswer | None = None
    status: Count = 200
    detail: Line = ""


class BindingOutcomes(Strict, frozen=True):
    """One outcome per request of a batch, in order."""

    outcomes: tuple[BindingOutcome, ...]


class DispatchOutcomes(Strict, frozen=True):
    """One outcome per request of a batch, in order."""

    outcomes: tuple[DispatchOutcome, ...]


def bind_each(
    state: State, requests: Sequence[BindingRequest], decisions: set[str], now_ns: int, moved: Counter[str]
) -> list[State | PlacementAnswer | ApiError]:
    """Return per request the new state of pods, nodes and groups, the earlier answer if done before, or the refusal.

    `decisions` are those of the requests that exist already. `moved` counts how often the batch has written each node's
    shares so far, and is updated.
    """
    current = State(dict(state.pods), dict(state.nodes), dict(state.groups))
    written, taken = set[str](), set(decisions)
    outcomes: list[State | PlacementAnswer | ApiError] = []
    for request in requests:
        if (done := bound_before(current, request)) is not None:
            outcomes.append(done)
            continue
        try:
            _check_decision(request.decision, taken)
            for binding in request.bindings:
                if binding.node_revision is not None and binding.node in written:
                    raise StaleError(f"an earlier request of the batch writes Node {binding.node}")
            made = placements.bind(current, request, now_ns, moved)
        except ApiError as error:
            outcomes.append(error)
            continue
        current.pods.update(made.pods)
        current.nodes.update(made.nodes)
        current.groups.update(made.groups)
        written.update(made.nodes)
        moved.update(made.nodes.keys())
        outcomes.append(made)
    return outcomes


def bound_before(state: State, request: BindingRequest) -> PlacementAnswer | None:
    """Return the answer to a request that was carried out already, judging by the decision in all of its pods."""
    if request.decision is None:
        return None
    revision = 0
    for binding in request.bindings:
        pod = state.pods.get(binding.pod)
        if pod is None or pod.status.node != binding.node or pod.status.decision != request.decision.name:
            return None
        revision = max(revision, pod.metadata.revision)
    nodes = tuple(dict.fromkeys(binding.node for binding in request.bindings))
    return PlacementAnswer(revision=revision, pods=tuple(binding.pod for binding in request.bindings), nodes=nodes)


def dispatch_each(
    state: TaskState, requests: Sequence[DispatchRequest], decisions: set[str], now_ns: int, moved: Counter[str]
) -> list[TaskState | DispatchAnswer | ApiError]:
    """Return per request the new state of tasks and centres, the earlier answer if done before, or the refusal.

    `moved` counts how often the batch has written each centre's shares so far, and is updated.
    """
    current, taken = TaskState(dict(state.tasks), dict(state.centres), predecessors=state.predecessors), set(decisions)
    outcomes: list[TaskState | DispatchAnswer | ApiError] = []
    for request in requests:
        if (done := dispatched_before(current, request)) is not None:
            outcomes.append(done)
            continue
        try:
            _check_decision(request.decision, taken)
            made = dispatches.dispatch(current, request, now_ns, moved)
        except ApiError as error:
            outcomes.append(error)
            continue
        current.tasks.update(made.tasks)
        current.centres.update(made.centres)
        moved.update(made.centres.keys())
        outcomes.append(made)
    return outcomes


def dispatched_before(state: TaskState, request: DispatchRequest) -> DispatchAnswer | None:
    """Return the answer to a request that was carried out already, judging by the decision in all of its tasks."""
    if request.decision is None:
        return None
    revision = 0
    for item in request.dispatches:
        task = state.tasks.get(item.task)
        if task is None or task.status.centre != item.centre or task.status.decision != request.decision.name:
            return None
        revision = max(revision, task.metadata.revision)
    centres = tuple(dict.fromkeys(centre for item in request.dispatches for centre in item.centres))
    return DispatchAnswer(revision=revision, tasks=tuple(item.task for item in request.dispatches), centres=centres)


def _check_decision(decision: NewDecision | None, taken: set[str]) -> None:
    """Raise StaleError if a decision's name is taken; otherwise take it."""
    if decision is None:
        return
    if decision.name in taken:
        raise StaleError(f"Decision {decision.name} already exists")
    taken.add(decision.name)
