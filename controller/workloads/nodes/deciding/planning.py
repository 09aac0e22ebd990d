"""Next step for each pod of a node; pure.

Containers are identified only by their labels, so that a restarted manager decides like its predecessor: wanted
containers that run are left alone, unwanted ones are removed. A container is created only when none of its name and pod
is left, dead or alive, of this binding or an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from controller.apiserver.resources.pod import Phase, Restart
from controller.workloads.nodes.deciding.values import (
    NO_RECORD,
    Action,
    Actual,
    Lease,
    Plan,
    Record,
    Release,
    Remove,
    Run,
    Step,
    Stop,
    Terms,
    Wanted,
    by_pod,
)
from controller.workloads.nodes.runtimes.base import ContainerPhase

_MOST_REASONS = 16


def plan(
    wanted: Mapping[str, Wanted] | None,
    actual: Sequence[Actual],
    lease: Lease,
    now_ns: int,
    *,
    terms: Terms,
    busy: Set[str] = frozenset(),
) -> Plan:
    """Return the steps due now, by pod name, except for `busy` pods with a step in progress.

    `wanted` is None while unknown: then nothing is touched, until the lease ends.
    """
    containers = by_pod(actual)
    names = sorted((containers.keys() | (wanted or {}).keys()) - busy)
    steps, wakes = list[Step](), list[int]()
    for name in names:
        mine = containers.get(name, [])
        if wanted is None:
            due = _unknown(mine, lease, now_ns, terms)
        else:
            due = _of_pod(wanted.get(name), mine, lease, now_ns, terms)
        if due.actions:
            steps.append(Step(name, due.actions))
        if due.wake_ns is not None:
            wakes.append(due.wake_ns)
    return Plan(tuple(steps), min(wakes, default=None))


def is_done(wanted: Wanted, container: Actual | None, record: Record) -> bool:
    """Return whether a pod's container must not start again on this node."""
    restart, limit = wanted.restart, wanted.restart_limit
    if container is None:
        return restart is Restart.NEVER and record.failures > 0 and not record.is_fenced
    if container.phase is not ContainerPhase.EXITED or record.is_fenced:
        return False
    is_at_limit = limit is not None and container.attempt >= limit
    return restart is Restart.NEVER or (restart is Restart.ON_FAILURE and (container.has_succeeded or is_at_limit))


def own_containers(wanted: Wanted, containers: Iterable[Actual]) -> dict[str, Actual]:
    """Return a pod's containers by name; of two with one name the running one, else the newer one."""
    own: dict[str, Actual] = {}
    for container in sorted(containers, key=lambda actual: (not actual.runs, -actual.attempt, actual.id)):
        if container.is_of(wanted):
            own.setdefault(container.container, container)
    return own


@dataclass(frozen=True, slots=True)
class _Next:
    actions: tuple[Action, ...] = ()
    wake_ns: int | None = None


def _unknown(containers: Sequence[Actual], lease: Lease, now_ns: int, terms: Terms) -> _Next:
    """Leave everything as it is, unless the lease ends: then stop it."""
    running = [container for container in containers if container.runs]
    return _closing(running, terms.stranger_grace_ns, lease, now_ns)


def _of_pod(wanted: Wanted | None, containers: Sequence[Actual], lease: Lease, now_ns: int, terms: Terms) -> _Next:
    own = {} if wanted is None else own_containers(wanted, containers)
    kept = {container.id for container in own.values()}
    strangers = [container for container in containers if container.id not in kept]
    if strangers:
        return _Next(_removals(strangers, terms.stranger_grace_ns))
    if wanted is None:
        return _Next()
    running = [container for container in own.values() if container.runs]
    if wanted.going is not None:
        if running:
            return _Next(_stops(running, wanted.grace_ns, lease, now_ns))
        return _Next((Release(wanted.uid, wanted.epoch, wanted.going, wanted.reasons),))
    closing = _closing(running, wanted.grace_ns, lease, now_ns)
    if closing.actions or now_ns >= lease.stop_ns(wanted.grace_ns):
        return closing
    due = _running(wanted, own, now_ns)
    wakes = [wake for wake in (due.wake_ns, closing.wake_ns) if wake is not None]
    return replace(due, wake_ns=min(wakes, default=None))


def _removals(strangers: Sequence[Actual], grace_ns: int) -> tuple[Action, ...]:
    """Stop running containers; remove the others once none runs."""
    running = [container for container in strangers if container.runs]
    return tuple(Stop(container.id, grace_ns) for container in running) or tuple(
        Remove(container.id) for container in strangers
    )


def _closing(running: Sequence[Actual], grace_ns: int, lease: Lease, now_ns: int) -> _Next:
    begin_ns = lease.stop_ns(grace_ns)
    if not running:
        return _Next()
    return _Next(_stops(running, grace_ns, lease, now_ns)) if now_ns >= begin_ns else _Next(wake_ns=begin_ns)


def _stops(running: Sequence[Actual], grace_ns: int, lease: Lease, now_ns: int) -> tuple[Action, ...]:
    left_ns = max(0, min(grace_ns, lease.kill_ns - now_ns))
    return tuple(Stop(container.id, left_ns) for container in running)


def _running(wanted: Wanted, own: Mapping[str, Actual], now_ns: int) -> _Next:
    """Start missing containers, remove those due for a restart; release the pod if there are neither."""
    records = {name: wanted.records.get(name, NO_RECORD) for name in wanted.containers}
    done = [is_done(wanted, own.get(name), records[name]) for name in wanted.containers]
    if all(done):
        return _Next((_ended(wanted, own, records),))
    removes, runs, wakes = list[Action](), list[Action](), list[int]()
    for name, is_finished in zip(wanted.containers, done, strict=True):
        container, record = own.get(name), records[name]
        if is_finished or (container is not None and container.runs):
            continue
        if container is not None and container.phase is ContainerPhase.CREATED:
            removes.append(Remove(container.id))
        elif now_ns < record.not_before_ns:
            wakes.append(record.not_before_ns)
        elif container is not None:
            removes.append(Remove(container.id))
        else:
            runs.append(Run(name, record.attempt))
    return _Next(tuple(removes or runs), min(wakes, default=None))


def _ended(wanted: Wanted, own: Mapping[str, Actual], records: Mapping[str, Record]) -> Release:
    reasons = list[str]()
    for name in wanted.containers:
        container, record = own.get(name), records[name]
        if container is None:
            reasons.append(f"{name}: {record.problem}")
        elif not container.has_succeeded:
            reasons.append(f"{name}: {end_of(container)}")
    phase = Phase.FAILED if reasons else Phase.SUCCEEDED
    return Release(wanted.uid, wanted.epoch, phase, tuple(reasons[:_MOST_REASONS]))


def end_of(container: Actual) -> str:
    """Return how a container has ended, for people."""
    if container.exit_code is None:
        return "ended in an unknown way"
    memory = ", out of memory" if container.state.is_out_of_memory else ""
    return f"ended with {container.exit_code}{memory}"
