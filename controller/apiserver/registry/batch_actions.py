"""Batches of bindings and dispatches in a storage: all requests that are not refused share one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from controller.apiserver.registry import batches
from controller.apiserver.registry.actions import Written, placement_answer, placement_written, write_each
from controller.apiserver.registry.batches import BindingBatch, DispatchBatch
from controller.apiserver.registry.dispatches import DispatchRequest
from controller.apiserver.registry.encoding import key_of
from controller.apiserver.registry.placements import BindingRequest, NewDecision, PlacementAnswer, State
from controller.apiserver.registry.registry import Registry, retried
from controller.apiserver.registry.task_actions import dispatch_answer, dispatch_written, predecessors_of
from controller.apiserver.registry.task_state import DispatchAnswer, TaskState
from controller.apiserver.resources.centre import CENTRE
from controller.apiserver.resources.decision import DECISION
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.resources.pod_group import POD_GROUP
from controller.apiserver.resources.task_rules import TASK
from controller.apiserver.storage.values import MAX_CHANGES
from controller.common.errors import ApiError, StaleError

Q = TypeVar("Q", BindingRequest, DispatchRequest)
A = TypeVar("A")
Once = Callable[[Sequence[Q]], Awaitable[list[A | ApiError]]]

_OTHER_KEYS: Final = 2
"""Besides two keys per placement: the decision's and, for pods, their group's."""


async def bind_each(registry: Registry, batch: BindingBatch) -> list[PlacementAnswer | ApiError]:
    """Place the pods of each request, all or none; return an answer or a refusal for each."""
    moved: Counter[str] = Counter()

    async def once(requests: Sequence[BindingRequest]) -> list[PlacementAnswer | ApiError]:
        state, decisions = await _pods_state(registry, requests)
        so_far = moved.copy()
        results = batches.bind_each(state, requests, decisions, registry.now_ns(), so_far)
        written = [placement_written(state, made) if isinstance(made, State) else [] for made in results]
        revision = await _write(registry, written, requests)
        moved.update(so_far - moved)
        return [placement_answer(made, revision) if isinstance(made, State) else made for made in results]

    return await _in_packs(batch.requests, lambda request: 2 * len(request.bindings), once)


async def dispatch_each(registry: Registry, batch: DispatchBatch) -> list[DispatchAnswer | ApiError]:
    """Dispatch the tasks of each request to centres, all or none; return an answer or a refusal for each."""
    moved: Counter[str] = Counter()

    async def once(requests: Sequence[DispatchRequest]) -> list[DispatchAnswer | ApiError]:
        state, decisions = await _tasks_state(registry, requests)
        so_far = moved.copy()
        results = batches.dispatch_each(state, requests, decisions, registry.now_ns(), so_far)
        written = [dispatch_written(registry, state, made) if isinstance(made, TaskState) else [] for made in results]
        revision = await _write(registry, written, requests)
        moved.update(so_far - moved)
        return [dispatch_answer(made, revision) if isinstance(made, TaskState) else made for made in results]

    return await _in_packs(batch.requests, _dispatch_keys, once)


async def _in_packs(requests: Sequence[Q], keys: Callable[[Q], int], once: Once[Q, A]) -> list[A | ApiError]:
    """Carry out requests in order, as many at once as fit into a transaction."""
    results: list[A | ApiError] = []
    for pack in _packs(requests, keys):
        results += await _carried_out(pack, once)
    return results


async def _carried_out(pack: Sequence[Q], once: Once[Q, A]) -> list[A | ApiError]:
    """Carry out requests together; if others keep writing one of their resources, carry them out one by one."""
    try:
        return await retried(lambda: once(pack), "placement")
    except StaleError as error:
        if len(pack) == 1:
            return [error]
        return [(await _carried_out([request], once))[0] for request in pack]


def _packs(requests: Sequence[Q], keys: Callable[[Q], int]) -> Iterator[Sequence[Q]]:
    pack: list[Q] = []
    left = MAX_CHANGES
    for request in requests:
        wanted = keys(request) + _OTHER_KEYS
        if pack and wanted > left:
            yield pack
            pack, left = [], MAX_CHANGES
        pack.append(request)
        left -= wanted
    yield pack


async def _write(registry: Registry, written: Sequence[Sequence[Written]], requests: Sequence[Any]) -> int:
    """Write the results of the requests that change anything, with their decisions."""
    some = [(parts, request.decision) for parts, request in zip(written, requests, strict=True) if parts]
    return await write_each(registry, some) if some else 0


async def _pods_state(registry: Registry, requests: Sequence[BindingRequest]) -> tuple[State, set[str]]:
    bindings = [binding for request in requests for binding in request.bindings]
    pod_keys = {binding.pod: key_of(POD, binding.pod) for binding in bindings}
    node_keys = {binding.node: key_of(NODE, binding.node) for binding in bindings}
    decisions = _decision_keys(request.decision for request in requests)
    existing = await registry.find_all([*pod_keys.values(), *node_keys.values(), *decisions.values()])
    pods = {name: existing.get(key) for name, key in pod_keys.items()}
    groups = {pod.spec.group: key_of(POD_GROUP, pod.spec.group) for pod in pods.values() if pod and pod.spec.group}
    more = await registry.find_all(list(groups.values())) if groups else {}
    state = State(
        pods,
        {name: existing[key] for name, key in node_keys.items() if key in existing},
        {name: more[key] for name, key in groups.items() if key in more},
    )
    return state, {name for name, key in decisions.items() if key in existing}


async def _tasks_state(registry: Registry, requests: Sequence[DispatchRequest]) -> tuple[TaskState, set[str]]:
    items = [item for request in requests for item in request.dispatches]
    task_keys = {item.task: key_of(TASK, item.task) for item in items}
    centre_keys = {centre: key_of(CENTRE, centre) for item in items for centre in item.centres}
    decisions = _decision_keys(request.decision for request in requests)
    existing = await registry.find_all([*task_keys.values(), *centre_keys.values(), *decisions.values()])
    tasks = {name: existing.get(key) for name, key in task_keys.items()}
    state = TaskState(tasks, {name: existing[key] for name, key in centre_keys.items() if key in existing})
    state.predecessors = await predecessors_of(registry, tasks.values())
    return state, {name for name, key in decisions.items() if key in existing}


def _dispatch_keys(request: DispatchRequest) -> int:
    return sum(1 + len(item.centres) for item in request.dispatches)


def _decision_keys(decisions: Iterator[NewDecision | None]) -> dict[str, str]:
    return {decision.name: key_of(DECISION, decision.name) for decision in decisions if decision is not None}
