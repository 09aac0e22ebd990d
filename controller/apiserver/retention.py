"""Retention: deletes old revisions, and decisions, probe results, ended pods, groups and tasks beyond number or age.

Ages are by this server's clock, which also stamped the end times. Pods that a group with a template still counts
stay until the group goes; the decision that placed a pod or a task stays as long as its placement. The newest result
of each probe on each unit type of a centre always stays, however often others are probed. So does a task that others
run after, until they have started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.encoding import key_of
from controller.apiserver.registry.registry import Registry
from controller.apiserver.resources import Kind, Pod, PodGroup, ProbeResult, Task
from controller.apiserver.resources.decision import DECISION
from controller.apiserver.resources.pod import POD, POD_ENDED
from controller.apiserver.resources.pod_group import GROUP_ENDED, POD_GROUP
from controller.apiserver.resources.probe_result import PROBE_RESULT
from controller.apiserver.resources.task import TASK_ENDED
from controller.apiserver.resources.task_rules import TASK
from controller.apiserver.settings import Retention
from controller.apiserver.storage import Expected
from controller.apiserver.storage.values import MAX_CHANGES
from controller.common.errors import CompactedError, ConflictError, StorageError, UnavailableError
from dataplane.clock import NS_PER_S

LOGGER = logging.getLogger("millrace.api")

_ROUNDS: Final = 4
"""A revision is compacted after `history_s`, at most a fourth of it later."""


async def keep_within(retention: Retention, registry: Registry, cache: ResourceCache) -> None:
    """Delete old records periodically until cancelled, except while the storage is down."""
    seen: list[int] = []
    while True:
        await asyncio.sleep(retention.history_s / _ROUNDS)
        try:
            await forget_records(retention, registry, cache)
            seen.append(await registry.storage.revision())
            # Compact up to the revision of _ROUNDS rounds ago, which is as old as history may be.
            if len(seen) > _ROUNDS:
                await registry.storage.compact(seen.pop(0))
        except CompactedError:
            continue  # another server was first
        except (StorageError, UnavailableError) as error:
            LOGGER.warning("cannot compact the storage: %s", error)


async def forget_records(retention: Retention, registry: Registry, cache: ResourceCache) -> int:
    """Delete surplus and expired records; return their number."""
    pods, groups = cache.all_of(POD), {group.metadata.name: group for group in cache.all_of(POD_GROUP)}
    tasks, results = cache.all_of(TASK), cache.all_of(PROBE_RESULT)
    in_use = {pod.status.decision for pod in pods} | {task.status.decision for task in tasks if task.is_held}
    decisions = [decision for decision in cache.all_of(DECISION) if decision.metadata.name not in in_use]
    now_ns, number = registry.now_ns(), 0
    for kind, records, most, age_s in (
        (
            DECISION,
            ((decision.metadata.created_ns, decision) for decision in decisions),
            retention.decisions,
            retention.decisions_s,
        ),
        (POD, _ended_pods(pods, groups), retention.ended_pods, retention.ended_s),
        (POD_GROUP, _ended_groups(groups.values()), retention.ended_groups, retention.ended_s),
        (TASK, _ended_tasks(tasks), retention.ended_tasks, retention.ended_tasks_s),
        (PROBE_RESULT, _older_results(results), retention.probe_results, retention.probe_results_s),
        (PROBE_RESULT, _newest_results(results), len(results), retention.probe_results_s),
    ):
        surplus = _surplus(records, most, now_ns - int(age_s * NS_PER_S))
        number += await _forget(registry, kind, surplus)
    return number


def _ended_pods(pods: Iterable[Pod], groups: dict[str, PodGroup]) -> Iterable[tuple[int, Pod]]:
    for pod in pods:
        group = None if pod.spec.group is None else groups.get(pod.spec.group)
        is_counted = group is not None and group.spec.template is not None
        if pod.status.phase in POD_ENDED and pod.status.node is None and not is_counted:
            yield pod.status.finished_ns or pod.metadata.created_ns, pod


def _ended_groups(groups: Iterable[PodGroup]) -> Iterable[tuple[int, PodGroup]]:
    for group in groups:
        if group.status.phase in GROUP_ENDED and not group.status.bound:
            yield group.status.finished_ns or group.metadata.created_ns, group


def _ended_tasks(tasks: Sequence[Task]) -> Iterable[tuple[int, Task]]:
    awaited = {
        name
        for task in tasks
        if not task.is_held and task.status.phase not in TASK_ENDED
        for name in task.spec.predecessors
    }
    for task in tasks:
        if task.status.phase in TASK_ENDED and task.metadata.name not in awaited:
            yield task.status.finished_ns or task.metadata.created_ns, task


def _newest_results(results: Iterable[ProbeResult]) -> Iterable[tuple[int, ProbeResult]]:
    """Return the newest result of each probe on each unit type of a centre."""
    newest: dict[tuple[str, str, str | None], tuple[int, ProbeResult]] = {}
    for result in sorted(results, key=lambda result: (result.metadata.created_ns, result.metadata.name)):
        key = (result.spec.centre, result.spec.probe, result.status.unit or result.spec.unit)
        newest[key] = (result.metadata.created_ns, result)
    return newest.values()


def _older_results(results: Sequence[ProbeResult]) -> Iterable[tuple[int, ProbeResult]]:
    newest = {result.metadata.name for _, result in _newest_results(results)}
    return ((result.metadata.created_ns, result) for result in results if result.metadata.name not in newest)


def _surplus(records: Iterable[tuple[int, Any]], most: int, before_ns: int) -> list[Any]:
    """Return the oldest records beyond a number, and those from before a time."""
    ordered = sorted(records, key=lambda record: (record[0], record[1].metadata.name))
    too_many = max(len(ordered) - most, 0)
    return [record for index, (time_ns, record) in enumerate(ordered) if index < too_many or time_ns < before_ns]


async def _forget(registry: Registry, kind: Kind[Any], surplus: list[Any]) -> int:
    """Delete records that are still as last seen; after a conflict the rest wait for the next round."""
    number = 0
    for start in range(0, len(surplus), MAX_CHANGES):
        part = {key_of(kind, record.metadata.name): record for record in surplus[start : start + MAX_CHANGES]}
        expected = tuple(Expected(key, record.metadata.revision) for key, record in part.items())
        try:
            await registry.write(dict.fromkeys(part), expected)
        except ConflictError as error:
            LOGGER.info("keeping %d records for now: %s", len(part), error)
            continue
        number += len(part)
    return number
