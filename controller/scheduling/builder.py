"""The `millrace probe builder serve` process: builds the probe tasks of new types for schedulers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.apiserver.client import ApiClient, find_place
from controller.apiserver.resources import ProbeKernel, ProbeTask, Task
from controller.apiserver.resources.base import Resource
from controller.common.errors import ApiError, StaleError
from controller.scheduling.serving.tasks.builds import Building
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.tasks.settings import BuilderSettings
from dataplane.daemon import Daemon, Lifecycle
from dataplane.running import run_until, until_first_ends

LOGGER: Final = logging.getLogger("millrace.builder")
KINDS: Final[tuple[type[Resource], ...]] = (Task, ProbeTask, ProbeKernel)
_AGAIN_S: Final = 1.0


async def serve(
    settings: BuilderSettings, stop: asyncio.Event, *, on_ready: Callable[[str], None] | None = None
) -> None:
    """Build probe tasks for the types at an API server, until `stop` is set; the server may still be down."""
    async with ApiClient(find_place(settings.api), on_wait=LOGGER.info) as client:
        builder = _Builder(client, settings)
        if on_ready is not None:
            on_ready(f"API at {client.place.address}")
        await run_until(until_first_ends(builder.run()), stop)


class _Builder:
    def __init__(self, client: ApiClient, settings: BuilderSettings) -> None:
        self._client, self._view = client, TasksView()
        self._building = Building(self._view, settings.ratio, self._create, {})
        self._changed, self._listed = asyncio.Event(), set[type[Resource]]()

    async def run(self) -> None:
        """Follow and build until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._follow(kind))
            group.create_task(self._build_forever())

    async def _follow(self, kind: type[Resource]) -> None:
        async for event in self._client.of(kind).follow():
            if hasattr(event, "items"):
                self._view.take_all(kind, event.items, 0)
                self._listed.add(kind)
            elif event.name and event.resource is not None and event.type != "DELETE":
                self._view.take(event.resource, 0)
            elif event.name and event.type == "DELETE":
                self._view.remove(kind, event.name)
            self._changed.set()

    async def _build_forever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if len(self._listed) < len(KINDS):
                continue
            try:
                await self._building.build()
            except ApiError as error:
                LOGGER.warning("%s", error)
                self._changed.set()
                await asyncio.sleep(_AGAIN_S)

    async def _create(self, probe: ProbeTask) -> bool:
        try:
            created = await self._client.of(ProbeTask).create(probe)
        except StaleError:  # another builder was first
            return False
        self._view.take(created, 0)
        return True


async def _serve(settings: BuilderSettings, lifecycle: Lifecycle[BuilderSettings]) -> None:
    await serve(settings, lifecycle.stop, on_ready=lifecycle.ready)


DAEMON: Final = Daemon("builder", BuilderSettings, _serve)
