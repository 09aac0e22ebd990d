"""`millrace task submit -- SCRIPT` on an idle system: an API server, a scheduler and a new centre."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controller.apiserver.resources import Task
from controller.scheduling.process import serve
from controller.scheduling.settings import SchedulerSettings
from controller.scheduling.tasks.settings import TaskSettings
from tests.controller.apps.cli.task.test_logs import millrace, play_site
from tests.controller.workloads.centres.centre_world import AgentProcess, CentreWorld

SOLVE = "import sys\nprint(sum(range(int(sys.argv[1]))))\n"
GRAPH = """
millrace: 1
name: last
program: {kind: script, text: 'echo "$MILLRACE_INPUTS" | grep "first.*true.*c1.*rows.*4096"'}
inputs: [{task: first, output: rows}]
---
millrace: 1
name: first
program: {kind: script, text: "sleep 0.2"}
outputs: [{name: rows, size: 4 KiB}]
"""
REFUSED = "millrace: task a: a trace of it has no operators ({why}): submit it without --trace, or with its operators\n"


@asynccontextmanager
async def scheduling(world: CentreWorld) -> AsyncIterator[None]:
    """Run a task scheduler until the block ends."""
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = SchedulerSettings(api=world.served.socket, tasks=TaskSettings())
    task = asyncio.create_task(serve(settings, stop, on_ready=lambda _: ready.set()))
    await ready.wait()
    try:
        yield
    finally:
        stop.set()
        await task


def test_first_script_of_an_idle_system_succeeds(tmp_path: Path) -> None:
    async def act(world: CentreWorld, agent: AgentProcess) -> None:
        file = world.folder / "solve.py"
        file.write_text(SOLVE)
        async with scheduling(world):
            words = ("task", "submit", "--name", "solve", "--wait", "--", str(file), "100000")
            code, out, errors = await millrace(world, *words)
            assert code == 0, (out, errors, agent.log)
            assert (await millrace(world, "task", "logs", "solve"))[1] == b"4999950000\n"
            code, out, errors = await millrace(world, "task", "explain", "solve")
            assert code == 0, errors
            assert b"its run is the first measurement there: type " in out
            code, _, errors = await millrace(world, "task", "submit", "--after", "gone", "--name", "b", "--", str(file))
            assert (code, errors.decode()) == (1, "millrace: Task b: after: there is no task gone\n")
            # Item 13, from a file to jobs: the second document runs first, and the other one is told where.
            graph = world.folder / "graph.yaml"
            graph.write_text(GRAPH)
            code, out, errors = await millrace(world, "task", "submit", str(graph), "--wait")
            assert code == 0, (out, errors, agent.log)
            assert out.decode().splitlines()[:2] == ["task first is submitted", "task last is submitted"]
            code, out, errors = await millrace(world, "task", "explain", "last")
            assert code == 0, errors
            assert "after first: succeeded at c1, 1 of core" in out.decode()
            tasks = {name: await world.client.of(Task).get(name) for name in ("first", "last")}
            assert (tasks["first"].status.finished_ns or 0) <= (tasks["last"].status.dispatched_ns or 0)

    play_site(tmp_path, act)


def test_trace_without_operators_is_refused_as_such(tmp_path: Path) -> None:
    async def act(world: CentreWorld, agent: AgentProcess) -> None:
        del agent
        file = world.folder / "solve.py"
        file.write_text(SOLVE)
        code, _, errors = await millrace(world, "task", "submit", "--trace", "--name", "a", "--", str(file), "10")
        why = "no operator was recorded: it uses nothing that is traced"
        assert (code, errors.decode()) == (1, REFUSED.format(why=why))
        file.write_text("import os\nos._exit(3)\n")
        code, _, errors = await millrace(world, "task", "submit", "--trace", "--name", "a", "--", str(file))
        why = "it ended with status 3 before its trace was written"
        assert (code, errors.decode()) == (1, REFUSED.format(why=why))
        assert not (await world.client.of(Task).list()).items
        file.write_text(SOLVE)
        for words in (("submit", "--name", "a", "--", str(file), "10"), ("explain", "a")):
            code, out, errors = await millrace(world, "task", *words)
            assert code == 0, errors
        assert out.decode().endswith("or no task scheduler with profile measured runs\n")

    play_site(tmp_path, act)
