"""`millrace task submit`, then `millrace task logs`: an API server, and a centre's agent as a process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

from controller.apiserver.resources.task import TaskPhase
from tests.controller.workloads.centres.centre_world import AgentProcess, CentreWorld, play_centre
from tests.waiting import until

Act = Callable[[CentreWorld, AgentProcess], Awaitable[None]]
ESCAPES = "\\033[31mred\\033[0m \\377"


def play_site(folder: Path, act: Act, **more: object) -> None:
    """Run a function with an agent's process."""

    async def main(world: CentreWorld) -> None:
        agent = AgentProcess(world)
        agent.start()
        try:
            await world.centre()
            await act(world, agent)
        finally:
            agent.kill(signal.SIGTERM)

    play_centre(folder, main, **more)


async def millrace(world: CentreWorld, *words: str) -> tuple[int, bytes, bytes]:
    """Run a command; return its exit status, stdout and stderr."""
    command = (sys.executable, "-m", "controller.apps.cli", *words)
    environment = {**os.environ, "MILLRACE_API": world.served.socket}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=environment)
    out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, errors


async def submit(world: CentreWorld, name: str, text: str) -> None:
    """Submit a shell script under a name."""
    file = world.folder / f"{name}.sh"
    file.write_text(text)
    code, out, errors = await millrace(world, "task", "submit", "--name", name, "--", str(file))
    assert (code, out.strip()) == (0, f"task {name} is submitted".encode()), errors


def test_output_of_a_submitted_task_reaches_its_user(tmp_path: Path) -> None:
    async def act(world: CentreWorld, agent: AgentProcess) -> None:
        gate = f"while [ ! -e {tmp_path}/open/go ]; do sleep 0.02; done"
        await submit(world, "job", f"echo begun; echo wrong >&2; {gate}; printf '{ESCAPES}\\n'")
        await world.dispatch("job")
        await world.until("job", TaskPhase.RUNNING)

        async def has_begun() -> bool:
            return await millrace(world, "task", "logs", "job") == (0, b"begun\n", b"wrong\n")

        await until(has_begun, "its first lines do not come")
        following = asyncio.create_task(millrace(world, "task", "logs", "-f", "job"))
        (tmp_path / "open/go").touch()
        # Bytes go to the user as the task has written them, as with `pod logs`.
        assert await following == (0, b"begun\n\033[31mred\033[0m \xff\n", b"wrong\n")
        await world.until("job", TaskPhase.SUCCEEDED)
        assert await millrace(world, "task", "logs", "job", "--tail", "1", "--errors") == (0, b"wrong\n", b"")
        assert (await millrace(world, "task", "logs", "job", "--tail", "1"))[1] == b"\033[31mred\033[0m \xff\n"
        # A killed agent's successor still has it.
        agent.kill()
        agent.start()

        async def is_there() -> bool:
            return (await millrace(world, "task", "logs", "job", "--errors"))[1] == b"wrong\n"

        await until(is_there, lambda: agent.log)
        assert "Traceback" not in agent.log

    play_site(tmp_path, act)


def test_missing_output_is_one_line(tmp_path: Path) -> None:
    async def act(world: CentreWorld, agent: AgentProcess) -> None:
        assert await millrace(world, "task", "logs", "unknown") == (1, b"", b"millrace: there is no Task unknown\n")
        await submit(world, "gone", "echo lost")
        code, _, errors = await millrace(world, "task", "logs", "gone")
        assert (code, errors) == (1, b"millrace: Task gone is at no centre: it is pending\n")
        await world.dispatch("gone")
        await world.until("gone", TaskPhase.SUCCEEDED)
        code, out, errors = await millrace(world, "task", "logs", "-f", "gone")
        assert (code, out, errors.count(b"\n")) == (1, b"", 1)
        assert b"it never started, or its output is no longer kept" in errors
        agent.kill()
        code, _, errors = await millrace(world, "task", "logs", "gone")
        assert (code, errors) == (
            1,
            b"millrace: centre c1 is not connected: its agent is not running, or cannot reach this server\n",
        )

    play_site(tmp_path, act, kept_outputs=0)
