"""Actions that write several resources in one transaction: bind, release, evict, share units."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from controller.apiserver.registry import evictions, placements
from controller.apiserver.registry.encoding import decode, key_of
from controller.apiserver.registry.evictions import EvictionRequest
from controller.apiserver.registry.placements import (
    BindingRequest,
    NewDecision,
    PlacementAnswer,
    ReleaseRequest,
    State,
)
from controller.apiserver.registry.pools import shares as pool_shares
from controller.apiserver.registry.pools.shares import UnitShares
from controller.apiserver.registry.registry import Registry, away, check_revision, of_revision, retried
from controller.apiserver.resources import Kind, Metadata, Pod, Resource, UnitPool
from controller.apiserver.resources.base import R
from controller.apiserver.resources.decision import DECISION, of_subjects
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.resources.pod_group import POD_GROUP
from controller.apiserver.resources.unit_pool import UNIT_POOL
from controller.apiserver.storage import Expected
from controller.apiserver.storage.values import ABSENT
from controller.common.errors import ConflictError, StaleError


@dataclass(frozen=True, slots=True)
class Written:
    """A resource to write together with others: the new state (None: delete) and the old one (None: create)."""

    kind: Kind[Any]
    name: str
    now: Resource | None
    before: Resource | None


async def bind(registry: Registry, request: BindingRequest) -> PlacementAnswer:
    """Place pods, all or none; raise StaleError if something has changed or does not fit."""

    async def once() -> PlacementAnswer:
        pods = {binding.pod: await find(registry, POD, binding.pod) for binding in request.bindings}
        nodes = {binding.node for binding in request.bindings}
        state = await _state(registry, pods, nodes)
        made = placements.bind(state, request, registry.now_ns())
        return await _write(registry, state, made, request.decision)

    return await retried(once, "binding")


async def release(
    registry: Registry, request: ReleaseRequest, check: Callable[[State], None] | None = None
) -> PlacementAnswer:
    """Release the resources that pods hold, all or none; `check` may refuse, given the state."""

    async def once() -> PlacementAnswer:
        pods = {item.pod: await find(registry, POD, item.pod) for item in request.releases}
        nodes = {item.node for item in request.releases if item.node is not None}
        state = await _state(registry, pods, nodes)
        if check is not None:
            check(state)
        made = placements.release(state, request, registry.now_ns())
        return await _write(registry, state, made, request.decision)

    return await retried(once, "release")


async def evict(registry: Registry, request: EvictionRequest) -> PlacementAnswer:
    """Evict pods, all or none; raise StaleError for a pod that was rebound."""

    async def once() -> PlacementAnswer:
        pods = {name: await find(registry, POD, name) for name in request.pods}
        state = await _state(registry, pods, {item.node for item in request.nominations})
        return await _write(registry, state, evictions.evict(state, request), request.decision)

    return await retried(once, "eviction")


async def share_units(registry: Registry, name: str, request: UnitShares, *, expected: int | None) -> UnitPool:
    """Set the holders of a pool's units; raise StaleError for more than there are, or if others wrote first."""

    async def once() -> UnitPool:
        pool = await registry.get(UNIT_POOL, name)
        check_revision(UNIT_POOL, pool, expected)
        node = None if pool.spec.node is None else await find(registry, NODE, pool.spec.node)
        made, on_node = pool_shares.share(pool, node, request, registry.now_ns())
        written = [Written(UNIT_POOL, name, made, pool)]
        if node is not None and on_node is not None and on_node != node:
            written.append(Written(NODE, node.metadata.name, on_node, node))
        return of_revision(made, await write_together(registry, written, request.decision))

    return await retried(once, f"UnitPool {name}")


async def _state(registry: Registry, pods: dict[str, Pod | None], nodes: set[str]) -> State:
    """Read the state for a request: adds the pods' current nodes and their groups."""
    existing = [pod for pod in pods.values() if pod is not None]
    names = nodes | {pod.status.node for pod in existing if pod.status.node is not None}
    groups = {pod.spec.group for pod in existing if pod.spec.group is not None}
    return State(
        pods,
        {name: node for name in sorted(names) if (node := await find(registry, NODE, name)) is not None},
        {name: group for name in sorted(groups) if (group := await find(registry, POD_GROUP, name)) is not None},
    )


async def find(registry: Registry, kind: Kind[R], name: str) -> R | None:
    """Return a resource from the storage; None if it does not exist."""
    with away():
        stored = await registry.storage.get(key_of(kind, name))
        return None if stored is None else decode(kind, stored)


async def write_together(registry: Registry, written: Sequence[Written], decision: NewDecision | None) -> int:
    """Write what has changed, unless any of it was written meanwhile, and the decision, which must be new."""
    try:
        return await write_each(registry, [(written, decision)])
    except ConflictError as error:
        if decision is not None and error.key == key_of(DECISION, decision.name):
            raise StaleError(f"Decision {decision.name} already exists") from None
        raise


async def write_each(registry: Registry, parts: Sequence[tuple[Sequence[Written], NewDecision | None]]) -> int:
    """Write the results of several successive requests, and their decisions, in one transaction.

    Raise ConflictError, with nothing written, if any of it was written meanwhile.
    """
    wanted: dict[str, Resource | None] = {}
    expected: dict[str, Expected] = {}
    for written, decision in parts:
        for change in written:
            key = key_of(change.kind, change.name)
            # If several requests change a change, the storage holds its state before the first of them.
            expected.setdefault(
                key, Expected(key, ABSENT if change.before is None else change.before.metadata.revision)
            )
            wanted[key] = change.now
        if decision is not None:
            metadata = Metadata(name=decision.name, uid=secrets.token_hex(8), created_ns=registry.now_ns())
            metadata = of_subjects(metadata, _subjects(decision, written))
            key = key_of(DECISION, decision.name)
            wanted[key] = placements.decision_of(decision, metadata)
            expected[key] = Expected(key, ABSENT)
    return await registry.write(wanted, tuple(expected.values()))


def _subjects(decision: NewDecision, written: Sequence[Written]) -> Iterator[Metadata]:
    """Yield the metadata of a decision's subjects among the written resources."""
    for change in written:
        resource = change.now or change.before
        if resource is not None and change.kind.is_subject and change.name in decision.spec.subjects:
            yield resource.metadata


def placement_written(state: State, made: State) -> list[Written]:
    """Return the writes that turn the old pods, nodes and groups into the new ones."""
    before: tuple[tuple[Kind[Any], dict[str, Any], dict[str, Any]], ...] = (
        (POD, state.pods, made.pods),
        (NODE, state.nodes, made.nodes),
        (POD_GROUP, state.groups, made.groups),
    )
    return [Written(kind, name, now, old[name]) for kind, old, new in before for name, now in new.items()]


def placement_answer(made: State, revision: int) -> PlacementAnswer:
    """Return the answer to a request that was written at a revision."""
    return PlacementAnswer(revision=revision, pods=tuple(made.pods), nodes=tuple(made.nodes))


async def _write(registry: Registry, state: State, made: State, decision: NewDecision | None) -> PlacementAnswer:
    return placement_answer(made, await write_together(registry, placement_written(state, made), decision))
