"""Real containers of a real podman: made, started, stopped, removed, listed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller.nodes.runtimes.base import ContainerOrder, ContainerPhase, ContainerState, Ended
from controller.nodes.runtimes.podman import PodmanRuntime
from tests.controller.nodes.conftest import PodmanStorage

pytestmark = [pytest.mark.root, pytest.mark.containers]

Work = Callable[[PodmanRuntime], Awaitable[None]]


def run(storage: PodmanStorage, work: Work) -> None:
    """Do something with a runtime that starts a service of its own."""

    async def main() -> None:
        runtime = PodmanRuntime(storage.folder, environment=storage.environment)
        await runtime.start()
        try:
            async with asyncio.timeout(60):
                await work(runtime)
        finally:
            await runtime.close()

    asyncio.run(main())


async def only(runtime: PodmanRuntime) -> ContainerState:
    (state,) = await runtime.list("n1")
    return state


def test_a_container_from_its_creation_to_its_removal(podman_storage: PodmanStorage) -> None:
    async def work(runtime: PodmanRuntime) -> None:
        assert (await runtime.version()).startswith("podman 4.")
        image = await runtime.pull(podman_storage.image)
        assert image.digest == podman_storage.digest
        assert await runtime.images() == (image,)
        order = ContainerOrder(
            name="millrace-n1-p1-c1",
            labels={"millrace.node": "n1", "millrace.epoch": "3"},
            image=image.digest,
            command=("/bin/sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.02; done"),
        )
        container = await runtime.create(order)
        made = await only(runtime)
        assert (made.id, made.phase, made.exit_code) == (container, ContainerPhase.CREATED, None)
        await runtime.start_container(container)
        running = await only(runtime)
        assert running.phase is ContainerPhase.RUNNING
        assert running.pid is not None
        assert running.labels == order.labels
        assert running.image_digest == image.digest
        assert ((await runtime.usage(container)).memory_bytes or 0) > 0
        ended = asyncio.ensure_future(anext(runtime.events()))
        await asyncio.sleep(0)
        await runtime.stop(container, 5)
        stopped = await only(runtime)
        assert (stopped.phase, stopped.exit_code) == (ContainerPhase.EXITED, 7)
        assert await ended == Ended(container)
        await runtime.remove(container)
        await runtime.remove(container)
        assert await runtime.list("n1") == ()

    run(podman_storage, work)
