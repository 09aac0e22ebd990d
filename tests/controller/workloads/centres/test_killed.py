"""The agent as a process, killed by SIGKILL, or its jobs and keepers: no result is lost or duplicated."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase
from controller.workloads.centres.settings import TrialSettings
from tests.controller.workloads.centres.centre_world import AgentProcess, CentreWorld, play_centre, probe, script
from tests.left_processes import processes_of_job
from tests.waiting import until

TRIAL = TrialSettings(kernels=("dot",))
UNTIL_GO = "while [ ! -e {0}/go ]; do sleep 0.02; done; echo $$ >> {0}/ran"


def play_killed(folder: Path, act: Callable[[CentreWorld, AgentProcess], Awaitable[None]], **more: object) -> None:
    async def main(world: CentreWorld) -> None:
        agent = AgentProcess(world)
        agent.start()
        try:
            await world.centre()
            await act(world, agent)
        finally:
            agent.kill(signal.SIGTERM)
            for lock in (folder / "state/engine").glob("*/lock"):
                if (text := lock.read_text().strip()) and Path(f"/proc/{text}").exists():
                    os.kill(int(text), signal.SIGKILL)

    play_centre(folder, main, **more)


def test_a_job_outlives_its_agent_and_its_result_is_not_lost(tmp_path: Path) -> None:
    async def act(world: CentreWorld, agent: AgentProcess) -> None:
        name = await world.add_probe()
        await world.submit("runs", script(UNTIL_GO.format(tmp_path / "open")))
        await world.until("runs", TaskPhase.RUNNING)
        agent.kill()
        # It ends while no agent runs.
        (tmp_path / "open/go").write_text("")
        await until(lambda: any((tmp_path / "state/engine").glob("*/exit.json")), "the job does not end")
        agent.start()
        ended = await world.until("runs", *TASK_ENDED)
        assert (ended.status.phase, ended.status.exit_code, ended.status.epoch) == (TaskPhase.SUCCEEDED, 0, 1)
        assert len((tmp_path / "open/ran").read_text().split()) == 1
        # A probe whose agent is killed right after the start.
        await world.submit("probe", probe(name))
        starts = "millrace-probe-probe-*/start.json"
        await until(lambda: any((tmp_path / "state/engine").glob(starts)), "the probe does not start")
        agent.kill()
        agent.start()
        ended = await world.until("probe", *TASK_ENDED)
        assert ended.status.phase is TaskPhase.SUCCEEDED, ended.status.reasons
        assert [result.spec.task for result in (await world.client.of(ProbeResult).list()).items] == ["probe"]
        assert "Traceback" not in agent.log

    play_killed(tmp_path, act, trial=TRIAL)


def test_killed_job_fails_and_a_killed_keeper_returns_its_task(tmp_path: Path) -> None:
    async def act(world: CentreWorld, _: AgentProcess) -> None:
        await world.submit("job", script("exec sleep 1000"))
        running = await world.until("job", TaskPhase.RUNNING)
        await until(lambda: processes_of_job(running.status.engine_id) != [], "no process", poll_s=0.02)
        os.kill(processes_of_job(running.status.engine_id)[0], signal.SIGKILL)
        ended = await world.until("job", *TASK_ENDED)
        assert (ended.status.phase, ended.status.exit_code) == (TaskPhase.FAILED, 137)
        await world.submit("keeper", script("sleep 1000"))
        await world.until("keeper", TaskPhase.RUNNING)
        locks = tmp_path / "state/engine"

        def keepers() -> list[str]:
            return [text for lock in locks.glob("*-keeper-*/lock") if (text := lock.read_text())]

        await until(lambda: keepers() != [], "no keeper has its lock")
        os.kill(int(keepers()[0]), signal.SIGKILL)
        back = await world.until("keeper", TaskPhase.PENDING)
        assert back.status.reasons == ("its job is lost: its keeper was killed: its outcome is unknown",)
        assert (await world.centre()).shares == ()

    play_killed(tmp_path, act)
