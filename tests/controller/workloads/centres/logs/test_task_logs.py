"""Output of tasks over a real service and a real agent: of waiting, running and ended jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.completions import Completion, CompletionRequest
from controller.apiserver.resources import Task
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec
from controller.apiserver.sessions.frames import Frame, Stream, exit_frame
from controller.common.errors import NotFoundError, StaleError
from tests.controller.workloads.centres.centre_world import CentreWorld, play_centre, script
from tests.waiting import until

WRITES = "echo one; echo two; echo wrong >&2; echo three"
UNTIL_GO = "while [ ! -e {0}/go ]; do sleep 0.02; done"


async def read(frames: AsyncIterator[Frame]) -> tuple[bytes, bytes]:
    """Return the output and the errors in frames, the last of which must be a good end."""
    received = [frame async for frame in frames]
    assert received[-1] == exit_frame(0)
    return tuple(
        b"".join(frame.payload for frame in received if frame.stream is stream)
        for stream in (Stream.STDOUT, Stream.STDERR)
    )  # type: ignore[return-value]


async def read_until(frames: AsyncGenerator[Frame, None], output: bytes) -> None:
    """Read frames until they have given an output."""
    received = b""
    while received != output:
        frame = await anext(frames)
        assert frame.stream is Stream.STDOUT
        received += frame.payload
        assert output.startswith(received)


def test_output_and_errors_of_an_ended_task(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            await world.run("a", script(WRITES))
            # The local engine removes the folder of an ended job.
            await until(lambda: not list((tmp_path / "state/jobs").glob("*")), "the job's folder stays")
            client = world.client
            assert await read(client.task_logs("a")) == (b"one\ntwo\nthree\n", b"wrong\n")
            assert await read(client.task_logs("a", follow=True, tail=1)) == (b"three\n", b"wrong\n")
            assert await read(client.task_logs("a", errors_only=True)) == (b"", b"wrong\n")
            assert await read(client.task_logs("a", tail=0)) == (b"", b"")
            await world.run("failed", script("echo before; exit 3"))
            assert await read(client.task_logs("failed")) == (b"before\n", b"")
            await world.run("silent", script("true"))
            assert await read(client.task_logs("silent")) == (b"", b"")
        # The next agent still has it.
        async with world.agent():
            await world.centre()
            assert await read(client.task_logs("a")) == (b"one\ntwo\nthree\n", b"wrong\n")
        assert "log of Task a" in (world.served.folder / "audit").read_text()

    play_centre(tmp_path, act)


def test_output_of_a_running_task_is_followed_to_its_end(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            await world.submit("runs", script(f"echo begun; {UNTIL_GO.format(tmp_path / 'open')}; echo done"))
            async with aclosing(world.client.task_logs("runs", follow=True)) as followed:
                await read_until(followed, b"begun\n")
                # Without `follow`, only what there is.
                assert await read(world.client.task_logs("runs")) == (b"begun\n", b"")
                (tmp_path / "open/go").touch()
                assert await read(followed) == (b"done\n", b"")
            assert (await world.until("runs", TaskPhase.SUCCEEDED)).status.exit_code == 0

    play_centre(tmp_path, act)


def test_task_that_waits_for_units_has_no_output_yet(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            gate = UNTIL_GO.format(tmp_path / "open")
            # Another engine's view of units may differ from the API's: here the first job outlives its task.
            await world.submit("first", script(f"trap '' TERM; echo on; {gate}"))
            async with aclosing(world.client.task_logs("first", follow=True)) as followed_first:
                await read_until(followed_first, b"on\n")  # from now on it ignores the signal
            first = await world.client.of(Task).get("first")
            lost = Completion(task="first", epoch=first.status.epoch, phase=TaskPhase.PENDING)
            await world.client.complete(CompletionRequest(completions=(lost,)))
            await world.submit("waits", script("echo mine"))
            with pytest.raises(StaleError, match="task waits: it waits for units: it has no output yet"):
                await read(world.client.task_logs("waits"))
            followed = asyncio.create_task(read(world.client.task_logs("waits", follow=True)))
            (tmp_path / "open/go").touch()
            assert await followed == (b"mine\n", b"")

    play_centre(tmp_path, act, grace_s=600.0)


def test_a_task_dispatched_again_shows_its_current_attempt(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            number = f"[ -e {tmp_path}/open/second ] && echo 2 || echo 1"
            await world.submit("again", script(f"{number}; {UNTIL_GO.format(tmp_path / 'open')}"))
            async with aclosing(world.client.task_logs("again", follow=True)) as followed:
                await read_until(followed, b"1\n")
                lost = Completion(task="again", epoch=1, phase=TaskPhase.PENDING, reasons=("lost",))
                await world.client.complete(CompletionRequest(completions=(lost,)))
                # Its job is ended, and with it what follows it.
                assert await read(followed) == (b"", b"")
            with pytest.raises(StaleError, match="Task again is at no centre: it is pending: lost"):
                await read(world.client.task_logs("again"))
            (tmp_path / "open/second").touch()
            await world.dispatch("again")
            async with aclosing(world.client.task_logs("again", follow=True)) as followed:
                await read_until(followed, b"2\n")
                (tmp_path / "open/go").touch()
                await read(followed)
            await world.until("again", TaskPhase.SUCCEEDED)
            assert await read(world.client.task_logs("again")) == (b"2\n", b"")

    play_centre(tmp_path, act)


def test_tasks_without_output_say_why(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            tasks = world.client.of(Task)
            await world.run("gone", script("echo lost"))
            image = Program(kind=ProgramKind.CONTAINER, entry="busybox")
            await world.run("never", TaskSpec(program=image))
            asks = replace((await world.run("other", script("true"))).spec, asks=True)
            await tasks.create(Task(metadata=(await tasks.get("other")).metadata.__class__(name="asks"), spec=asks))
            why = "centre c1 has no output of it: it never started, or its output is no longer kept"
            for name, problem in (
                ("gone", f"task gone: {why}"),
                ("never", f"task never: {why}"),
                ("asks", "Task asks only asks which units could run it: it has no output"),
            ):
                with pytest.raises(StaleError, match=problem):
                    await read(world.client.task_logs(name, follow=True))
            with pytest.raises(NotFoundError, match="there is no Task unknown"):
                await read(world.client.task_logs("unknown"))

    play_centre(tmp_path, act, kept_outputs=0)


def test_long_output_has_its_beginning_and_its_end(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            await world.run("long", script("seq 1 100000"))
            output, _ = await read(world.client.task_logs("long"))
            lines = output.splitlines()
            assert (lines[0], lines[-1]) == (b"1", b"100000")
            assert len(output) < 4200
            assert any(line.endswith(b"bytes omitted ...") for line in lines)
            assert (await read(world.client.task_logs("long", tail=2)))[0] == b"99999\n100000\n"

    play_centre(tmp_path, act, output_limit_bytes=4096)


def test_what_a_task_puts_in_place_of_its_output_is_not_read(tmp_path: Path) -> None:
    """Neither a link nor a pipe is followed, and the agent goes on to other tasks."""
    secret = tmp_path / "secret"
    secret.write_text("the agent's")

    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            gate = UNTIL_GO.format(tmp_path / "open")
            swaps = f"rm stdout stderr; ln -s {secret} stdout; mkfifo stderr; touch {tmp_path}/open/swapped; {gate}"
            await world.submit("swaps", script(swaps))
            await until((tmp_path / "open/swapped").exists, "the job does not run")
            assert await read(world.client.task_logs("swaps")) == (b"", b"")
            followed = asyncio.create_task(read(world.client.task_logs("swaps", follow=True)))
            (tmp_path / "open/go").touch()
            assert (await world.until("swaps", TaskPhase.SUCCEEDED)).status.exit_code == 0
            assert await followed == (b"", b"")
            assert await read(world.client.task_logs("swaps")) == (b"", b"")

    play_centre(tmp_path, act)
