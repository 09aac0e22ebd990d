"""Changes requested by the job service, made by the controller's job reconciler over fake switches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controller.common.errors import ControllerError
from controller.network.aggregation.service.job_state import Change, Create, End, InstalledJob, Join, Move, Remove
from controller.network.aggregation.service.server import JobService
from controller.network.aggregation.service.settings import JobSettings
from controller.network.intents import Worker
from dataplane.topology.families import leaf_spine
from tests.controller.network.aggregation.writable_switches import Lab, Running, running

WORKERS = tuple(Worker(f"h{number}", 20_000) for number in (1, 2, 5))


async def made(run: Running, service: JobService, change: Change) -> InstalledJob:
    result = await run.of(service._carry_out(change))
    assert isinstance(result, InstalledJob)
    return result


def test_job_changes_are_in_the_switches_when_acknowledged() -> None:
    async def play(folder: Path) -> None:
        async with running(Lab(leaf_spine(2, 2, 4))) as run:
            settings = JobSettings(listen=f"unix:{folder}/jobs")
            service = JobService(settings, run.lab.topology, run.jobs, run.lab.clock, change_ns=1)
            job = await made(run, service, Create(1, WORKERS, 8, 4))
            assert job.epoch == 1
            assert set(job.aggregators) == {"h1", "h2", "h5"}
            assert len(set(job.aggregators.values())) > 1
            assert service._place(job.number).switches
            left = await made(run, service, Remove(1, job.number, "h2"))
            assert (left.epoch, set(left.aggregators)) == (2, {"h1", "h5"})
            joined = await made(run, service, Join(1, job.number, Worker("h3", 20_001), "token"))
            assert (joined.epoch, set(joined.aggregators)) == (3, {"h1", "h3", "h5"})
            assert await made(run, service, Move(1, job.number)) == joined, "its place is the best"
            assert run.about(job.number)
            await run.of(service._carry_out(End(1, job.number)))
            assert not run.about(job.number)

    with TemporaryDirectory(prefix="jobs") as name:
        asyncio.run(play(Path(name)))


def test_refused_join_leaves_the_others_in_a_newer_epoch() -> None:
    """The newcomer was added and removed again: members left in the old epoch would be refused forever."""

    async def play(folder: Path) -> None:
        async with running(Lab(leaf_spine(2, 2, 4))) as run:
            settings = JobSettings(listen=f"unix:{folder}/jobs")
            service = JobService(settings, run.lab.topology, run.jobs, run.lab.clock, change_ns=1)
            job = await made(run, service, Create(1, WORKERS, 8, 4))
            leaf = next(name for name in service._place(job.number).switches if name.startswith("leaf"))
            run.lab.switches[leaf].refuse = lambda update: update.key.table == "aggregation_replicas"
            with pytest.raises(ControllerError, match=f"switch {leaf}: write: RESOURCE_EXHAUSTED"):
                await run.of(service._carry_out(Join(1, job.number, Worker("h3", 20_001), "token")))
            run.lab.switches[leaf].refuse = lambda _: False
            left = service._running(job.number)
            assert left is not None
            after = service._installed_job(left)
            assert (after.epoch, set(after.aggregators), after.nonce) == (3, {"h1", "h2", "h5"}, job.nonce)
            await run.right()

    with TemporaryDirectory(prefix="jobs") as name:
        asyncio.run(play(Path(name)))
