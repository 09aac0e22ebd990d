"""Cluster engines' knowledge of their jobs during a query to the cluster; test_engines.py uses real clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.apiserver.resources.centre import UnitType
from controller.workloads.centres.engines.base import JobMark, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.jobs.engine import ClusterEngine
from controller.workloads.centres.engines.jobs.folders import ENDED_FILE, OWN, unknown_job
from tests.controller.workloads.centres.engines.forging import SUCCESS


class SlowCluster(ClusterEngine[str]):
    """Reads its jobs when asked, and answers once `answers` is set."""

    name = "slow"

    def __init__(self, root: Path, centre: str = "c1", *, trusts_folders: bool = False) -> None:
        super().__init__(centre=centre, records=root / f"records-{centre}", poll_s=0.0, trusts_folders=trusts_folders)
        self.root = root
        self.queue: dict[str, str] = {}
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    def submit(self, task: str) -> str:
        mark = JobMark(self._centre, task, f"uid-{task}", 1)
        order = JobOrder(mark=mark, argv=("true",), folder=self.root / f"{self._centre}-{task}", unit="core", units=1)
        job = self._bind(self._folders.prepare(order, passes=""), f"job-{task}")
        self.queue[job] = "running"
        return job

    def forget(self, job: str) -> None:
        self._forget(job)
        self.queue.pop(job, None)

    async def resources(self) -> tuple[UnitType, ...]:
        return ()

    async def _reports(self) -> Mapping[str, str]:
        queued = dict(self.queue)
        self.asked.set()
        await self.answers.wait()
        return queued

    async def _state(self, job: str, told: str | None) -> JobState:
        folder = self._known.get(job)
        if folder is None:
            return unknown_job(job, self._centre)
        return self._forgotten(folder, "slow") if told is None else folder.state(JobPhase(told))

    def _fingerprint(self, told: str) -> object:
        return told


def test_job_submitted_during_a_query_is_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        engine = SlowCluster(tmp_path)
        first = engine.submit("first")
        asking = asyncio.create_task(engine.jobs())
        await engine.asked.wait()
        second = engine.submit("second")
        engine.answers.set()
        assert [(state.id, state.phase) for state in await asking] == [(first, JobPhase.RUNNING)]
        assert {state.id for state in await engine.jobs()} == {first, second}

    asyncio.run(main())


def test_job_forgotten_during_a_query_is_not_reported(tmp_path: Path) -> None:
    async def main() -> None:
        engine = SlowCluster(tmp_path)
        gone, told, stays = (engine.submit(task) for task in ("gone", "told", "stays"))
        engine.queue.pop(gone)  # it has ended, and the cluster has forgotten it
        asking = asyncio.create_task(engine.jobs())
        await engine.asked.wait()
        engine.forget(gone)
        engine.forget(told)
        engine.answers.set()
        assert [state.id for state in await asking] == [stays]

    asyncio.run(main())


def test_a_job_that_the_cluster_does_not_know_any_more_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        engine = SlowCluster(tmp_path)
        engine.answers.set()
        job = engine.submit("gone")
        engine.queue.clear()
        assert [(state.id, state.phase) for state in await engine.jobs()] == [(job, JobPhase.LOST)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("trusts_folders", "phase", "reason"),
    [
        (False, JobPhase.LOST, "slow has forgotten it, and its folder is not trusted (unsafe_trust_folders)"),
        (True, JobPhase.SUCCEEDED, ""),
    ],
)
def test_forgotten_job_ends_by_a_trusted_folder_only(
    tmp_path: Path, trusts_folders: bool, phase: JobPhase, reason: str
) -> None:
    async def main() -> None:
        engine = SlowCluster(tmp_path, trusts_folders=trusts_folders)
        engine.answers.set()
        job = engine.submit("victim")
        # Any other job of the same user can write there.
        (tmp_path / "c1-victim" / OWN / ENDED_FILE).write_text(SUCCESS)
        engine.queue.clear()
        (state,) = await engine.jobs()
        assert (state.id, state.phase, state.reason) == (job, phase, reason)

    asyncio.run(main())


def test_an_engine_started_again_knows_jobs_by_their_records(tmp_path: Path) -> None:
    async def main() -> None:
        first, other = SlowCluster(tmp_path), SlowCluster(tmp_path, "elsewhere")
        job, _ = first.submit("mine"), other.submit("theirs")
        again = SlowCluster(tmp_path)
        again.answers.set()
        assert [state.id for state in await again.jobs()] == [job]
        assert (await again.states((job,)))[job].mark.task == "mine"

    asyncio.run(main())
