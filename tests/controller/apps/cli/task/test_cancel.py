"""`millrace task cancel`: a task that has ended keeps its record."""

from __future__ import annotations

from pathlib import Path

from controller.apiserver.resources.task import TaskPhase
from tests.controller.apps.cli.task.test_logs import millrace, play_site, submit
from tests.controller.workloads.centres.centre_world import AgentProcess, CentreWorld


def test_only_tasks_that_have_not_ended_are_cancelled(tmp_path: Path) -> None:
    async def act(world: CentreWorld, agent: AgentProcess) -> None:
        await submit(world, "over", "echo 1")
        await world.dispatch("over")
        await world.until("over", TaskPhase.SUCCEEDED)
        await submit(world, "waiting", "echo 2")
        code, out, errors = await millrace(world, "task", "cancel", "over", "waiting")
        assert (code, out) == (1, b"task waiting is cancelled\n")
        reason = "task over has already succeeded: nothing to cancel; `millrace delete task over` removes its record"
        assert errors.decode() == f"millrace: {reason}\n"
        assert (await millrace(world, "task", "logs", "over"))[:2] == (0, b"1\n")
        assert (await millrace(world, "task", "show", "waiting"))[0] == 1
        code, out, errors = await millrace(world, "delete", "task", "over")
        assert code == 0, errors
        assert b"is deleted" in out
        assert (await millrace(world, "task", "show", "over"))[0] == 1
        assert "Traceback" not in agent.log

    play_site(tmp_path, act)
