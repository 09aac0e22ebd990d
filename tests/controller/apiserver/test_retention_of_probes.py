"""Bounded retention of probe results and ended tasks; the newest result of each probe on each unit type stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.registry import Registry
from controller.apiserver.resources import Metadata, ProbeResult, Task
from controller.apiserver.resources.probe_result import PROBE_RESULT, ProbeResultSpec
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec, TaskStatus
from controller.apiserver.resources.task_rules import TASK
from controller.apiserver.retention import forget_records
from controller.apiserver.settings import Retention
from controller.apiserver.storage.sqlite import SqliteStorage
from tests.waiting import until


def test_newest_results_and_the_last_of_each_place_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            times = iter(range(1, 1000))
            registry = Registry(storage, lambda: next(times))
            for number in range(30):
                spec = ProbeResultSpec(probe="p", centre="rare" if number < 2 else "often", unit="small")
                await registry.create(PROBE_RESULT, ProbeResult(metadata=Metadata(name=f"r{number:02}"), spec=spec))
            cache = ResourceCache(registry, time.monotonic_ns)
            following = asyncio.create_task(cache.run())
            await cache.loaded.wait()
            await forget_records(Retention(probe_results=5), registry, cache)
            left = await registry.list(PROBE_RESULT, limit=100)
            assert [result.metadata.name for result in left.items] == ["r01", "r24", "r25", "r26", "r27", "r28", "r29"]
            following.cancel()

    asyncio.run(main())


def in_phase(phase: TaskPhase) -> Callable[[Task], Task]:
    return lambda task: replace(task, status=TaskStatus(phase=phase, finished_ns=1))


def test_results_and_ended_tasks_are_kept_for_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            now = [1]
            registry = Registry(storage, lambda: now[0])
            spec = ProbeResultSpec(probe="p", centre="c")
            await registry.create(PROBE_RESULT, ProbeResult(metadata=Metadata(name="r"), spec=spec))
            program = Program(kind=ProgramKind.SCRIPT, text="true")
            for name, phase, after in (
                ("ended", TaskPhase.SUCCEEDED, ()),
                ("runs", TaskPhase.RUNNING, ("ended",)),
                # Item 13: needed by one that waits.
                ("needed", TaskPhase.SUCCEEDED, ()),
                ("waits", TaskPhase.PENDING, ("needed",)),
            ):
                spec_of = TaskSpec(program=program, after=after)
                await registry.create(TASK, Task(metadata=Metadata(name=name), spec=spec_of))
                await registry.change(TASK, name, in_phase(phase))
            cache = ResourceCache(registry, time.monotonic_ns)
            following = asyncio.create_task(cache.run())
            await cache.loaded.wait()
            retention = Retention(probe_results_s=100, ended_tasks_s=50)
            for at_s, gone in ((49, 0), (51, 1), (99, 0), (101, 1)):
                now[0] = at_s * 10**9
                assert await forget_records(retention, registry, cache) == gone
                await until(lambda: is_followed(cache, registry), "the cache does not follow")
            left = [task.metadata.name for task in (await registry.list(TASK, limit=9)).items]
            assert left == ["needed", "runs", "waits"]
            following.cancel()

    async def is_followed(cache: ResourceCache, registry: Registry) -> bool:
        tasks = (await registry.list(TASK, limit=9)).items
        results = (await registry.list(PROBE_RESULT, limit=9)).items
        names = {task.metadata.name for task in cache.all_of(TASK)}
        return names == {task.metadata.name for task in tasks} and len(cache.all_of(PROBE_RESULT)) == len(results)

    asyncio.run(main())
