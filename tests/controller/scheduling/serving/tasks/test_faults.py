"""Vanishing centres, two schedulers, and late decisions."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.completions import Completion
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, ProbeTask, Task
from controller.apiserver.resources.task import TaskPhase
from controller.common.errors import StaleError
from controller.scheduling.tasks.settings import TaskSettings
from tests.controller.scheduling.serving.tasks.conftest import Play, Site, units


def never(task: Task, probe: ProbeTask | None) -> Completion | None:
    """Leave a task running for good."""
    del task, probe
    return None


async def with_lease(site: Site, name: str, lease_s: float) -> None:
    made = await site.client.of(Centre).get(name)
    await site.client.of(Centre).replace(replace(made, spec=replace(made.spec, lease_s=lease_s)))


async def reporting(site: Site, *centres: str) -> None:
    """Let centres report periodically like agents."""
    while True:
        for name in centres:
            made = await site.client.of(Centre).get(name)
            status = replace(made.status, heartbeat_ns=None)
            await site.client.of(Centre).replace_status(
                replace(made, metadata=replace(made.metadata, revision=0), status=status)
            )
        await asyncio.sleep(0.1)


def test_tasks_of_a_silent_centre_move_after_its_lease(play: Play) -> None:
    async def act(site: Site) -> None:
        gone, other = site.centre("gone", 4.0), site.centre("other")
        true = gone.completion
        gone.runs = lambda task, probe: true(task, probe) if task.spec.is_probe else None
        async with site.running(gone, other):
            reports = asyncio.create_task(reporting(site, "gone", "other"))
            async with site.scheduling():
                await site.submit("t", task_type="products")
                tasks = await site.tasks_when(lambda tasks: tasks["t"].status.phase is TaskPhase.RUNNING)
                assert tasks["t"].status.centre == "gone"
                reports.cancel()
                reports = asyncio.create_task(reporting(site, "other"))
                await with_lease(site, "gone", 0.3)
                tasks = await site.ended("t")
                assert (tasks["t"].status.centre, tasks["t"].status.epoch) == ("other", 2)
                assert not (await site.client.of(Centre).get("gone")).shares
            reports.cancel()

    play(act)


def test_task_that_loses_its_centre_too_often_fails(play: Play) -> None:
    async def act(site: Site) -> None:
        gone = site.centre("gone")
        true = gone.completion
        gone.runs = lambda task, probe: true(task, probe) if task.spec.is_probe else None
        async with site.running(gone), site.scheduling(replace(TaskSettings(), retries=0)):
            await site.submit("t", task_type="products")
            await site.tasks_when(lambda tasks: tasks["t"].status.phase is TaskPhase.RUNNING)
            await with_lease(site, "gone", 0.2)
            tasks = await site.tasks_when(lambda tasks: tasks["t"].status.phase is TaskPhase.FAILED)
            assert "centre gone has fallen silent, and it was dispatched 1 times" in tasks["t"].status.reasons[0]

    play(act)


def test_probe_at_a_vanished_centre_does_not_block_its_type(play: Play) -> None:
    async def act(site: Site) -> None:
        gone, other = site.centre("gone", 4.0), site.centre("other")
        gone.runs = never
        async with site.running(gone, other):
            reports = asyncio.create_task(reporting(site, "other"))
            async with site.scheduling():
                await site.submit("t", task_type="products")
                await site.tasks_when(
                    lambda tasks: any(
                        task.spec.centre == "gone" and task.status.phase is TaskPhase.RUNNING for task in tasks.values()
                    )
                )
                await with_lease(site, "gone", 0.3)
                tasks = await site.ended("t")
                assert tasks["t"].status.centre == "other"
            reports.cancel()

    play(act)


def test_centre_lost_before_dispatch_costs_the_task_nothing(play: Play) -> None:
    """The server refuses; the task is decided again and goes elsewhere."""

    async def act(site: Site) -> None:
        first, second = site.centre("first", 4.0), site.centre("second")
        async with site.running(first, second), site.scheduling():
            await site.submit("warm", task_type="products")
            await site.ended("warm")
            await first.report(ready=False, reason="maintenance")
            await site.submit("t", task_type="products")
            tasks = await site.ended("t")
            assert tasks["t"].status.centre == "second"

    play(act)


def test_a_dispatch_of_an_older_reading_is_refused_whole(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a", 1.0, units("cpu", 2))
        await centre.report()
        one, other = await site.submit("one"), await site.submit("other")
        version = (await site.client.of(Centre).get("a")).shares_version
        go = Dispatch(task="one", centre="a", unit="cpu", units=2, task_revision=one.metadata.revision)
        await site.client.dispatch(DispatchRequest(dispatches=(go,)))
        late = Dispatch(task="other", centre="a", unit="cpu", units=1, shares_version=version)
        with pytest.raises(StaleError, match="shares of Centre a are at version 1, not 0"):
            await site.client.dispatch(DispatchRequest(dispatches=(late,)))
        assert (await site.client.of(Task).get("other")).metadata.revision == other.metadata.revision

    play(act)


def test_two_schedulers_send_each_task_and_each_probe_once(play: Play) -> None:
    async def act(site: Site) -> None:
        centres = [site.centre(f"c{number}", 1.0 + number / 10, units("cpu", 2)) for number in range(3)]
        async with site.running(*centres), site.scheduling(name="one"), site.scheduling(name="two"):
            names = [f"t{number}" for number in range(24)]
            for name in names:
                await site.submit(name, task_type=f"type-{int(name[1:]) % 3}")
            tasks = await site.ended(*names)
            assert {tasks[name].status.epoch for name in names} == {1}
            given = [task.metadata.name for centre in centres for task in centre.given]
            assert len(given) == len(set(given))
            probes = [task for task in tasks.values() if task.spec.is_probe]
            assert len({(task.spec.program.entry, task.spec.centre, task.spec.units) for task in probes}) == len(probes)

    play(act)
