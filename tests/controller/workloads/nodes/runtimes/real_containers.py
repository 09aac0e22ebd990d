"""Real containers of every runtime for tests: a runtime with the test's own storage, and queries to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from controller.workloads.nodes.runtimes.base import (
    STDERR,
    STDOUT,
    ContainerOrder,
    ContainerPhase,
    ContainerState,
    ExecSession,
    Runtime,
)
from controller.workloads.nodes.runtimes.settings import RuntimeKind, RuntimeSettings, make_runtime
from dataplane.local.deadline import local_timeout
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.waiting import until

Work = Callable[[Runtime], Awaitable[None]]
Run = Callable[[Work], None]
DEADLINE_S = 60


@asynccontextmanager
async def started(kind: RuntimeKind, storage: PodmanStorage, **more: object) -> AsyncIterator[Runtime]:
    """Yield a started runtime; containers outlive it."""
    more.setdefault("image_folders", storage.image_folders)
    settings = RuntimeSettings(kind=kind, environment=storage.environment, socket=storage.socket, **more)  # type: ignore[arg-type]
    runtime = make_runtime(settings, storage.folder / "runtime")
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.close()


@asynccontextmanager
async def container(runtime: Runtime, storage: PodmanStorage, script: str, **more: object) -> AsyncIterator[str]:
    """Yield a container that runs a shell script."""
    image = await runtime.pull(storage.image)
    order = ContainerOrder(
        **{"name": "millrace-n1-p1-c1", "labels": {"millrace.node": "n1", "millrace.epoch": "3"}, "image": image.digest}
        | {"command": ("/bin/sh", "-c", script)}
        | more  # type: ignore[arg-type]
    )
    made = await runtime.create(order)
    try:
        await runtime.start_container(made)
        yield made
    finally:
        await runtime.remove(made)


async def only(runtime: Runtime) -> ContainerState:
    """Return the only container."""
    (state,) = await runtime.list("n1")
    return state


async def until_ended(runtime: Runtime) -> ContainerState:
    """Return the only container once it has ended."""
    state = await only(runtime)

    async def has_ended() -> bool:
        nonlocal state
        state = await only(runtime)
        return state.phase is ContainerPhase.EXITED

    await until(has_ended, lambda: state, limit_s=DEADLINE_S, poll_s=0.02)
    return state


async def logged(runtime: Runtime, made: str, **how: object) -> bytes:
    """Return a container's stdout and stderr combined."""
    return b"".join([output.data async for output in runtime.logs(made, **how)])  # type: ignore[arg-type]


async def outcome(session: ExecSession) -> tuple[bytes, bytes, int]:
    """Return a process's stdout, stderr and exit code."""
    written = {STDOUT: b"", STDERR: b""}
    async for output in session.output():
        written[output.stream] += output.data
    return written[STDOUT], written[STDERR], await session.exit_code()


async def stderr_of(runtime: Runtime, made: str) -> AsyncIterator[bytes]:
    """Yield a container's stderr."""
    async with aclosing(runtime.logs(made, follow=True)) as outputs:
        async for output in outputs:
            if output.stream == STDERR:
                yield output.data


def run_with(kind: RuntimeKind, storage: PodmanStorage, work: Work, **more: object) -> None:
    """Run work on a runtime with these settings."""

    async def main() -> None:
        async with started(kind, storage, **more) as runtime, local_timeout(DEADLINE_S, "a test"):
            await work(runtime)

    asyncio.run(main())
