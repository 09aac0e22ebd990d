"""Operations of the API server for a principal, independent of transport: checks rights, reads, writes, watches.

While the storage is down, reads are answered from memory and state their age, and writes fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from controller.apiserver import access
from controller.apiserver.leases import Leases
from controller.apiserver.quotas import Quotas
from controller.apiserver.registry import actions, batch_actions, task_actions
from controller.apiserver.registry.batches import BindingBatch, DispatchBatch
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.completions import CompletionRequest
from controller.apiserver.registry.dispatches import DispatchRequest, Pick
from controller.apiserver.registry.encoding import check_plain, key_of
from controller.apiserver.registry.evictions import EvictionRequest
from controller.apiserver.registry.placements import BindingRequest, PlacementAnswer, ReleaseRequest, State
from controller.apiserver.registry.pools.reports import PoolReports
from controller.apiserver.registry.pools.shares import UnitShares
from controller.apiserver.registry.registry import Listing, Registry
from controller.apiserver.registry.selection import How, Selection, Term
from controller.apiserver.registry.task_state import DispatchAnswer, TaskState
from controller.apiserver.registry.tenancy import tenants
from controller.apiserver.resources import KINDS, Kind, Metadata, Resource, UnitPool
from controller.apiserver.resources.base import R
from controller.apiserver.resources.kind import Verb
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.resources.project import Quota
from controller.apiserver.resources.task_rules import TASK
from controller.apiserver.resources.unit_pool import HolderStatus
from controller.apiserver.watching import WatchCounters, Watching, WatchLimits
from controller.common.errors import (
    ApiError,
    GoneError,
    InvalidError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from dataplane.rpc.access import Principal, Role

_AWAY_TIMEOUT_S = 6.0
_PAGE = 500


class Health:
    """Result of the last storage check."""

    def __init__(self) -> None:
        self.problem: str | None = None

    @property
    def is_away(self) -> bool:
        """True if the storage does not answer."""
        return self.problem is not None

    def check(self) -> None:
        """Raise UnavailableError while the storage does not answer."""
        if self.problem is not None:
            raise UnavailableError(f"the storage does not answer, writes are refused: {self.problem}")


class _Server:
    """The part of the server that strategies see, as in `controller.apiserver.resources.kind.Server`."""

    def __init__(self, registry: Registry, cache: ResourceCache, quotas: Quotas) -> None:
        self._registry, self._cache = registry, cache
        leases = Leases()
        self.begin_lease, self.is_lease_over, self.used = leases.see, leases.is_over, quotas.used

    def now_ns(self) -> int:
        """Return the server's time since 1970."""
        return self._registry.now_ns()

    def subject(self, kind: str, name: str) -> Metadata | None:
        """Return the metadata of a decision's subject, by its kind in lower case; None if it is not in memory."""
        subject_kind = KINDS.of_word(kind)
        if subject_kind is None or not subject_kind.is_subject:
            return None
        try:
            resource: Resource = self._cache.get(subject_kind, name)
        except NotFoundError:
            return None
        return resource.metadata

    async def selected(self, kind: Kind[R], field: str, value: str) -> Sequence[R]:
        """Return all resources of a kind with this value of a field."""
        selection, resources, after = Selection(fields=(Term(field, How.EQUAL, value),)), list[R](), ""
        while True:
            page = await self._registry.list(kind, selection, after=after, limit=_PAGE)
            resources += page.items
            if page.after is None:
                return resources
            after = page.after

    async def find_all(self, kind: Kind[R], names: Sequence[str]) -> Mapping[str, R]:
        """Return those of some resources that exist, by name."""
        existing = await self._registry.find_all([key_of(kind, name) for name in names])
        return {resource.metadata.name: resource for resource in existing.values()}

    def cached(self, kind: Kind[R], name: str) -> R | None:
        """Return a resource from memory, which may lag behind the storage; None if it is not there."""
        try:
            return self._cache.get(kind, name)
        except NotFoundError:
            return None


class Service:
    """See the module; not thread-safe: use it from one event loop."""

    def __init__(
        self,
        registry: Registry,
        cache: ResourceCache,
        limits: WatchLimits | None = None,
        quota: Quota | None = None,
    ) -> None:
        """`quota` applies to users without a project, and to projects without a Project resource."""
        self.registry, self.cache, self.health = registry, cache, Health()
        self._quotas = Quotas(cache, quota or Quota())
        self._reports, self._hooks = PoolReports(registry), _Server(registry, cache, self._quotas)
        self._watching = Watching(registry.storage, cache, limits or WatchLimits())

    async def run(self) -> None:
        """Maintain the cache and check the storage until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cache.run())
            group.create_task(self._look_after())

    async def get(self, principal: Principal, kind: Kind[R], name: str) -> tuple[R, int | None]:
        """Return a resource, and its age in ns while the storage is down."""
        resource, age_ns = await self._get(kind, name)
        access.check(principal, Verb.READ, kind, resource)
        return kind.strategy.shown(resource, self._hooks), age_ns

    async def list(
        self, principal: Principal, kind: Kind[R], selection: Selection, *, revision: int | None, after: str, limit: int
    ) -> tuple[Listing[R], int | None]:
        """Return resources, and their age in ns while the storage is down."""
        access.check_list(principal, kind, selection)
        selection = access.bounded(principal, kind, selection)
        if not self.health.is_away:
            try:
                listing = await self.registry.list(kind, selection, revision=revision, after=after, limit=limit)
            except UnavailableError as error:
                self._lost(error)
            else:
                return self._shown(kind, listing), None
        self._check_loaded()
        listing = self.cache.list(kind, selection, revision=revision, after=after, limit=limit)
        return self._shown(kind, listing), self.cache.age_ns

    async def create(self, principal: Principal, kind: Kind[R], resource: R) -> R:
        """Create a resource."""
        access.check(principal, Verb.CREATE, kind, resource)
        self.health.check()
        if principal.role is Role.USER:
            resource = replace(resource, status=kind.default("status"))
        resource = replace(resource, metadata=tenants.owned(principal, resource.metadata))
        resource = kind.strategy.prepare(resource, principal, self._hooks)
        tenants.check_labels(principal, None, resource.metadata)
        kind.strategy.validate(None, resource)
        await kind.strategy.check_references(resource, principal, self._hooks)
        if principal.role is Role.USER:
            check_plain(kind, resource)
        with self._quotas.room(principal, kind, resource) as written:
            made = await self.registry.create(kind, resource)
            written(made.metadata.revision)
        kind.strategy.after_write(made, self._hooks)
        return made

    async def replace(self, principal: Principal, kind: Kind[R], name: str, resource: R, *, expected: int | None) -> R:
        """Write labels and spec; everything else stays as it is."""
        expected = _expected(name, resource, expected)
        self.health.check()

        def replaced(current: R) -> R:
            tenants.check_labels(principal, current.metadata, resource.metadata)
            metadata = replace(current.metadata, labels=resource.metadata.labels)
            made = replace(current, metadata=metadata, spec=resource.spec)
            kind.strategy.validate(current, made)
            if principal.role is Role.USER:
                check_plain(kind, made)
            self._quotas.check_change(principal, kind, current, made)
            return made

        return await self._changed(principal, Verb.REPLACE, kind, name, replaced, expected=expected)

    async def replace_status(
        self, principal: Principal, kind: Kind[R], name: str, resource: R, *, expected: int | None
    ) -> R:
        """Write the status, except for what bindings write."""
        expected = _expected(name, resource, expected)
        self.health.check()

        def replaced(current: R) -> R:
            return kind.strategy.prepare_status(
                current, replace(current, status=resource.status), principal, self._hooks
            )

        return await self._changed(principal, Verb.STATUS, kind, name, replaced, expected=expected)

    async def delete(self, principal: Principal, kind: Kind[R], name: str, *, expected: int | None) -> R:
        """Delete a resource."""
        self.health.check()
        resource = await self.registry.get(kind, name)
        access.check(principal, Verb.DELETE, kind, resource)
        await kind.strategy.check_unused(resource, self._hooks)
        # Check again when deleting: meanwhile it may be another resource of that name.
        return await self.registry.delete(kind, name, expected=expected, allow=_allowing(principal, Verb.DELETE, kind))

    async def bind(self, principal: Principal, request: BindingRequest) -> PlacementAnswer:
        """Place pods, all or none."""
        access.check_bind(principal)
        self.health.check()
        return await actions.bind(self.registry, request)

    async def bind_each(self, principal: Principal, batch: BindingBatch) -> Sequence[PlacementAnswer | ApiError]:
        """Place the pods of each request of a batch, all or none; one refusal does not affect the others."""
        access.check_bind(principal)
        self.health.check()
        return await batch_actions.bind_each(self.registry, batch)

    async def dispatch_each(self, principal: Principal, batch: DispatchBatch) -> Sequence[DispatchAnswer | ApiError]:
        """Dispatch the tasks of each request of a batch, all or none; one refusal does not affect the others."""
        access.check_dispatch(principal)
        self.health.check()
        return await batch_actions.dispatch_each(self.registry, batch)

    async def evict(self, principal: Principal, request: EvictionRequest) -> PlacementAnswer:
        """Evict pods, all or none."""
        access.check_evict(principal)
        self.health.check()
        return await actions.evict(self.registry, request)

    async def release(self, principal: Principal, request: ReleaseRequest) -> PlacementAnswer:
        """Release the resources that pods hold, all or none."""
        access.check_decision(principal, request.decision)
        self.health.check()

        def check(state: State) -> None:
            for item in request.releases:
                pod = state.pods.get(item.pod)
                # Check both if both are named: what a pod holds elsewhere is for that node to release.
                if pod is not None:
                    access.check(principal, Verb.RELEASE, POD, pod)
                if item.node in state.nodes:
                    access.check(principal, Verb.STATUS, NODE, state.nodes[item.node])
                elif pod is None:
                    access.check_bind(principal)

        return await actions.release(self.registry, request, check)

    async def dispatch(self, principal: Principal, request: DispatchRequest) -> DispatchAnswer:
        """Dispatch tasks to centres, all or none."""
        access.check_dispatch(principal)
        self.health.check()
        return await task_actions.dispatch(self.registry, request)

    async def pick(self, principal: Principal, request: Pick) -> DispatchAnswer:
        """Give a task the units that its centre picked."""
        self.health.check()
        return await task_actions.pick(self.registry, request, _completing(principal))

    async def complete(self, principal: Principal, request: CompletionRequest) -> DispatchAnswer:
        """Complete tasks and release their units, all or none."""
        access.check_decision(principal, request.decision)
        for item in request.completions:
            access.check_member(principal, item.task, item.centre)
        self.health.check()
        return await task_actions.complete(self.registry, request, _completing(principal))

    async def share_units(
        self, principal: Principal, name: str, request: UnitShares, *, expected: int | None
    ) -> UnitPool:
        """Set the holders of a pool's units."""
        access.check_share(principal)
        self.health.check()
        return await actions.share_units(self.registry, name, request, expected=expected)

    async def report_units(self, principal: Principal, name: str, status: HolderStatus) -> UnitPool:
        """Accept a holder's report on its units of a pool."""
        self.health.check()

        def check(pool: UnitPool) -> None:
            access.check_report(principal, pool, status.holder)

        return await self._reports.report(name, status, check)

    async def watch(
        self, principal: Principal, kind: Kind[Any], selection: Selection, after: int | None
    ) -> AsyncIterator[bytes]:
        """Return the lines of events after a revision, None: from now on; raise GoneError for a compacted one."""
        access.check_list(principal, kind, selection)
        selection = access.bounded(principal, kind, selection)
        self._watching.check_room()
        self._check_loaded()
        if after is not None and not self._watching.has(after):
            if selection.tenant is not None:
                # The storage does not tell the owner of a deleted resource.
                raise GoneError(f"revision {after} is too old for a watch of one's own resources: list again")
            self.health.check()
            await self._watching.check_known(kind, after)
        return self._watching.lines(kind, selection, self.cache.ring.revision if after is None else after)

    @property
    def watches(self) -> WatchCounters:
        """Counters of watches."""
        return self._watching.counters

    @property
    def stopping(self) -> asyncio.Event:
        """Set when all watches are to end."""
        return self._watching.stopping

    def stop(self) -> None:
        """End all watches."""
        self._watching.stop()

    async def _get(self, kind: Kind[R], name: str) -> tuple[R, int | None]:
        if not self.health.is_away:
            try:
                return await self.registry.get(kind, name), None
            except UnavailableError as error:
                self._lost(error)
        self._check_loaded()
        return self.cache.get(kind, name), self.cache.age_ns

    async def _changed(
        self,
        principal: Principal,
        verb: Verb,
        kind: Kind[R],
        name: str,
        make: Callable[[R], R],
        *,
        expected: int | None,
    ) -> R:
        allow = _allowing(principal, verb, kind)
        made = await self.registry.change(kind, name, make, expected=expected, allow=allow)
        kind.strategy.after_write(made, self._hooks)
        return made

    def _shown(self, kind: Kind[R], listing: Listing[R]) -> Listing[R]:
        show = kind.strategy.shown
        return Listing(
            tuple(show(resource, self._hooks) for resource in listing.items), listing.revision, listing.after
        )

    def _check_loaded(self) -> None:
        if not self.cache.loaded.is_set():
            raise UnavailableError(f"the storage has not answered yet: {self.health.problem or 'it is being read'}")

    def _lost(self, error: UnavailableError) -> None:
        if self.health.problem is None:
            self.health.problem = str(error).removeprefix("the storage does not answer: ")

    async def _look_after(self, every_s: float = 1.0) -> None:
        """Poll the storage's revision, to notice an outage before a request does."""
        while True:
            try:
                async with asyncio.timeout(_AWAY_TIMEOUT_S):
                    await self.registry.storage.revision()
            except (StorageError, TimeoutError) as error:
                self._lost(UnavailableError(str(error) or "no answer"))
            else:
                self.health.problem = None
                self.cache.seen()
            await asyncio.sleep(every_s)


def _expected(name: str, resource: Resource, expected: int | None) -> int | None:
    """Return the revision expected by the header or the resource; raise InvalidError."""
    metadata = resource.metadata
    if metadata.name != name:
        raise InvalidError(f"metadata.name: {metadata.name} is written to {name}")
    if expected is not None and metadata.revision not in {0, expected}:
        raise InvalidError(f"metadata.revision: {metadata.revision}, but If-Match says {expected}")
    return expected if expected is not None else metadata.revision or None


def _allowing(principal: Principal, verb: Verb, kind: Kind[R]) -> Callable[[R], None]:
    """Return a check that raises ForbiddenError if the principal may not do this with the resource."""
    return lambda current: access.check(principal, verb, kind, current)


def _completing(principal: Principal) -> Callable[[TaskState], None]:
    """Return a check that raises ForbiddenError for a task that the principal may not complete."""

    def check(state: TaskState) -> None:
        for task in state.tasks.values():
            if task is not None:
                access.check(principal, Verb.COMPLETE, TASK, task)
            else:
                access.check_dispatch(principal)

    return check
