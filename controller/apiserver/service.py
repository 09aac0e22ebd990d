"""Operations of the API server for a principal, independent of transport: checks rights, reads, writes, watches.

While the storage is down, reads are answered from memory and state their age, and writes fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from controller.apiserver import access
from controller.apiserver.access import Verb
from controller.apiserver.leases import Leases
from controller.apiserver.quotas import Quotas
from controller.apiserver.registry import actions, batch_actions, probe_kernels, task_actions, task_reports
from controller.apiserver.registry.batches import BindingBatch, DispatchBatch
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.changes import fixed_changes
from controller.apiserver.registry.dispatches import (
    CompletionRequest,
    DispatchAnswer,
    DispatchRequest,
    Pick,
    TaskState,
)
from controller.apiserver.registry.encoding import check_plain
from controller.apiserver.registry.evictions import EvictionRequest
from controller.apiserver.registry.placements import BindingRequest, PlacementAnswer, ReleaseRequest, State
from controller.apiserver.registry.pools.reports import PoolReports
from controller.apiserver.registry.pools.shares import UnitShares, check_spec
from controller.apiserver.registry.registry import Listing, Registry
from controller.apiserver.registry.selection import Selection
from controller.apiserver.registry.tenancy import tenants
from controller.apiserver.resources import (
    Centre,
    Decision,
    Kind,
    Metadata,
    Node,
    Pod,
    PodGroup,
    ProbeKernel,
    Project,
    Resource,
    Task,
    UnitPool,
)
from controller.apiserver.resources.base import R
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD, Phase, PodStatus
from controller.apiserver.resources.pod_group import POD_GROUP
from controller.apiserver.resources.project import Quota
from controller.apiserver.resources.task import TASK
from controller.apiserver.resources.unit_pool import HolderStatus
from controller.apiserver.watching import WatchCounters, Watching, WatchLimits
from controller.common.errors import (
    ApiError,
    GoneError,
    InvalidError,
    NotFoundError,
    StaleError,
    StorageError,
    UnavailableError,
)
from dataplane.rpc.access import Principal, Role

_AWAY_TIMEOUT_S = 6.0
_ENDED = frozenset({"succeeded", "failed", "finished"})
"""Phases of pods and groups in which nothing of them runs any more."""
_SUBJECTS: Mapping[str, Kind[Any]] = {kind.name.lower(): kind for kind in (POD, POD_GROUP, TASK)}
"""Kinds that decisions are about; a decision belongs to its subject's owner."""
_ALIVE = (Phase.PENDING, Phase.BOUND, Phase.STARTING, Phase.RUNNING)


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
            raise UnavailableError(f"the storage does not answer, nothing is written: {self.problem}")


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
        self._reports, self._leases = PoolReports(registry), Leases()
        self._watching = Watching(registry.storage, cache, limits or WatchLimits())

    async def run(self) -> None:
        """Maintain the cache and check the storage until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cache.run())
            group.create_task(self._look_after())

    async def get(self, principal: Principal, kind: Kind[R], name: str) -> tuple[R, int | None]:
        """Return a resource, and its age in ns while the storage is down."""
        found, age_ns = await self._get(kind, name)
        access.check(principal, Verb.READ, kind, found)
        return self._shown(found), age_ns

    async def list(
        self, principal: Principal, kind: Kind[R], selection: Selection, *, revision: int | None, after: str, limit: int
    ) -> tuple[Listing[R], int | None]:
        """Return resources, and their age in ns while the storage is down."""
        access.check_list(principal, kind, selection)
        selection = access.bounded(principal, kind, selection)
        if not self.health.is_away:
            try:
                found = await self.registry.list(kind, selection, revision=revision, after=after, limit=limit)
            except UnavailableError as error:
                self._lost(error)
            else:
                return self._all_shown(found), None
        self._check_loaded()
        found = self.cache.list(kind, selection, revision=revision, after=after, limit=limit)
        return self._all_shown(found), self.cache.age_ns

    async def create(self, principal: Principal, kind: Kind[R], resource: R) -> R:
        """Create a resource."""
        access.check(principal, Verb.CREATE, kind, resource)
        self.health.check()
        if principal.role is Role.USER:
            resource = replace(resource, status=kind.default("status"))
        resource = replace(resource, metadata=tenants.owned(principal, kind, resource.metadata))
        if isinstance(resource, Decision):
            resource = replace(resource, metadata=tenants.of_subjects(resource.metadata, self._subjects(resource)))
        tenants.check_labels(principal, None, resource.metadata)
        tenants.check_secrets(resource)
        if principal.role is Role.USER:
            check_plain(kind, resource)
        if isinstance(resource, Task):
            begun: Any = replace(kind.default("status"), user=principal.name)
            resource = replace(resource, status=begun)
        with self._quotas.room(principal, resource) as written:
            made = await self.registry.create(kind, self._stamped(None, resource))
            written(made.metadata.revision)
        return made

    async def replace(self, principal: Principal, kind: Kind[R], name: str, resource: R, *, expected: int | None) -> R:
        """Write labels and spec; everything else stays as it is."""
        expected = _expected(name, resource, expected)
        self.health.check()

        def replaced(found: R) -> R:
            tenants.check_labels(principal, found.metadata, resource.metadata)
            metadata = replace(found.metadata, labels=resource.metadata.labels)
            _check_held(found, resource)
            made = replace(found, metadata=metadata, spec=resource.spec)
            tenants.check_secrets(made)
            if principal.role is Role.USER:
                check_plain(kind, made)
            self._quotas.check_change(principal, found, made)
            return made

        allow = _allowing(principal, Verb.REPLACE, kind)
        return await self.registry.change(kind, name, replaced, expected=expected, allow=allow)

    async def replace_status(
        self, principal: Principal, kind: Kind[R], name: str, resource: R, *, expected: int | None
    ) -> R:
        """Write the status, except for what bindings write."""
        expected = _expected(name, resource, expected)
        self.health.check()

        def replaced(found: R) -> R:
            made = replace(found, status=resource.status)
            _check_manager(found, made, self._leases)
            kept: R = _keeping_place(found, made)
            if isinstance(found, Task) and isinstance(made, Task):
                kept = task_reports.reported(
                    found, made, self.registry.now_ns(), by_centre=principal.role is Role.CENTRE
                )  # type: ignore[assignment]
            return self._ended(self._stamped(found, kept))

        allow = _allowing(principal, Verb.STATUS, kind)
        return await self.registry.change(kind, name, replaced, expected=expected, allow=allow)

    async def delete(self, principal: Principal, kind: Kind[R], name: str, *, expected: int | None) -> R:
        """Delete a resource."""
        self.health.check()
        found = await self.registry.get(kind, name)
        access.check(principal, Verb.DELETE, kind, found)
        if isinstance(found, ProbeKernel):
            await probe_kernels.check_unused(self.registry, found)
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
                raise GoneError(f"revision {after} is too old for a watch of what is one's own: list again")
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

    def _shown(self, resource: R) -> R:
        return self._quotas.shown(resource) if isinstance(resource, Project) else resource  # type: ignore[return-value]

    def _all_shown(self, listing: Listing[R]) -> Listing[R]:
        return Listing(tuple(map(self._shown, listing.items)), listing.revision, listing.after)

    def _subjects(self, decision: Decision) -> Iterator[Metadata]:
        """Yield the metadata of a decision's subjects, as far as they are in memory."""
        kind = _SUBJECTS.get(decision.spec.subject_kind)
        if kind is None:
            return
        for name in decision.spec.subjects:
            with suppress(NotFoundError):
                yield self.cache.get(kind, name).metadata

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

    def _ended(self, resource: R) -> R:
        """Stamp a pod or group that has ended with the server's time."""
        if not isinstance(resource, Pod | PodGroup):
            return resource
        has_ended = resource.status.phase.value in _ENDED
        if has_ended == (resource.status.finished_ns is not None):
            return resource
        finished: Any = replace(resource.status, finished_ns=self.registry.now_ns() if has_ended else None)
        return replace(resource, status=finished)

    def _stamped(self, before: R | None, resource: R) -> R:
        """Stamp a report with the server's time: the clock of a node or centre may be wrong."""
        if not isinstance(resource, Node | Centre):
            return resource
        old = before.status.heartbeat_ns if isinstance(before, Node | Centre) else None
        if before is not None and resource.status.heartbeat_ns == old and old is not None:
            return resource
        if before is None and resource.status.heartbeat_ns is None:
            return resource
        stamped: Any = replace(resource.status, heartbeat_ns=self.registry.now_ns())
        reported = replace(resource, status=stamped)
        self._leases.note(reported)
        return reported


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
    return lambda found: access.check(principal, verb, kind, found)


def _completing(principal: Principal) -> Callable[[TaskState], None]:
    """Return a check that raises ForbiddenError for a task that the principal may not complete."""

    def check(state: TaskState) -> None:
        for task in state.tasks.values():
            if task is not None:
                access.check(principal, Verb.COMPLETE, TASK, task)
            else:
                access.check_dispatch(principal)

    return check


def _check_manager(found: Resource, made: Resource, leases: Leases) -> None:
    """Raise StaleError for a report by another manager or agent than the one whose lease still runs."""
    if isinstance(found, Centre) and isinstance(made, Centre):
        task_reports.check_agent(found, made, leases.is_over)
    if not isinstance(found, Node) or not isinstance(made, Node):
        return
    known = found.status
    if known.signed_off or known.heartbeat_ns is None or known.manager in ("", made.status.manager):
        return
    if not leases.is_over(found):
        name = found.metadata.name
        raise StaleError(f"Node {name} has a manager, of state folder {known.manager}, whose lease is not over")


def _keeping_place(found: Any, made: Any) -> Any:  # noqa: ANN401 - a resource of either type
    """Return a pod's new status, keeping what bindings write; raise StaleError for another epoch.

    For a pool the holders' reports are kept.
    """
    if isinstance(found, UnitPool):
        return replace(made, status=replace(made.status, holders=found.status.holders))
    if not isinstance(found, Pod):
        return made
    status, name = found.status, found.metadata.name
    if made.status.epoch != status.epoch:
        raise StaleError(f"Pod {name} is in epoch {status.epoch}, not {made.status.epoch} any more")
    parts = ("node", "devices", "operator_devices", "decision", "bound_ns", "then", "nominated")
    kept = {part: getattr(status, part) for part in parts}
    return replace(made, status=_stopping(status, replace(made.status, **kept)))


def _stopping(before: PodStatus, now: PodStatus) -> PodStatus:
    """Return the status of an evicted pod: the reporter has not seen the eviction yet, or is carrying it out."""
    if before.then is None:
        return now
    phase = Phase.STOPPING if now.phase in _ALIVE else now.phase
    return replace(now, phase=phase, reasons=now.reasons or before.reasons)


def _check_held(found: Resource, wanted: Resource) -> None:
    """Raise StaleError for a spec that contradicts what is held."""
    if isinstance(found, Pod) and isinstance(wanted, Pod):
        fixed = fixed_changes(found.spec, wanted.spec)
        if found.status.node is not None and fixed:
            what = " and ".join(fixed)
            raise StaleError(f"Pod {found.metadata.name} holds a share: its {what} cannot change before its release")
    if isinstance(found, Task) and isinstance(wanted, Task):
        task_reports.check_held(found, wanted)
    if isinstance(found, ProbeKernel) and isinstance(wanted, ProbeKernel):
        probe_kernels.check_unchanged(found, wanted)
    if isinstance(found, UnitPool) and isinstance(wanted, UnitPool):
        check_spec(found, wanted)
