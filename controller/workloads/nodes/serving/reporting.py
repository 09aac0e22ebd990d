"""Reports the states of the pods of a node, at each change.

A status is written only if its pod is unchanged since it was last seen; otherwise the newer version is read first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from controller.apiserver.agents.server_clock import ServerClock
from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Pod
from controller.apiserver.resources.hardware import Load
from controller.common.errors import ApiError, NotFoundError, StaleError, reason_of
from controller.workloads.nodes.deciding.statuses import is_news, is_other_load, status_of
from controller.workloads.nodes.serving.driver import Driver

LOGGER: Final = logging.getLogger("millrace.node")
_AT_ONCE: Final = 8
_LAST_TRIES: Final = 4


class PodReporter:
    """Writes statuses of pods named to `wake`; `run` until cancelled."""

    def __init__(self, client: ApiClient, clock: ServerClock) -> None:
        self._client, self._clock = client, clock
        self._waiting: dict[str, None] = {}
        self._writing: set[str] = set()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.loads: Mapping[str, Load] = {}
        """Last measured loads, by pod name."""
        self.driver: Driver | None = None

    def wake(self, pod: str) -> None:
        """Have a pod's status written if there is news."""
        if pod:
            self._waiting[pod] = None
            self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for name in [name for name in self._waiting if name not in self._writing]:
                    del self._waiting[name]
                    self._writing.add(name)
                    group.create_task(self._write_bounded(name))
                await self._wake.wait()

    async def write_last(self, name: str) -> None:
        """Write a pod's status before its release, despite concurrent writes by others."""
        for _ in range(_LAST_TRIES):
            if await self.write(name):
                return
            assert self.driver is not None
            try:
                self.driver.note_written(await self._client.of(Pod).get(name))
            except ApiError as error:
                LOGGER.debug("pod %s: %s", name, error)
                return

    async def write(self, name: str, *, with_load: bool = False) -> bool:
        """Write a pod's status if there is news; retry failures with the next report.

        Return False if somebody else has written it meanwhile.
        """
        assert self.driver is not None
        pod = (self.driver.pods or {}).get(name)
        if pod is None:
            return True
        wanted = self.driver.wanted_of(pod)
        load = self.loads.get(name) if with_load else None
        status = status_of(pod, wanted, self.driver.containers_of(name), now_ns=self._clock.now_ns(), load=load)
        if not is_news(status, pod.status) and (load is None or not is_other_load(load, pod.status.load)):
            return True
        try:
            written = await self._client.of(Pod).replace_status(replace(pod, status=status))
        except StaleError as error:
            LOGGER.debug("pod %s: %s", name, error)
            return False
        except NotFoundError as error:
            LOGGER.debug("pod %s: %s", name, error)
        except Exception as error:  # noqa: BLE001 - one pod's
            LOGGER.warning("pod %s: cannot write its status: %s", name, reason_of(error))
        else:
            self.driver.note_written(written)
        return True

    async def write_all(self) -> None:
        """Write the statuses of all pods, with their loads."""
        assert self.driver is not None

        async def one(name: str) -> None:
            async with self._slots:
                await self.write(name, with_load=True)

        await asyncio.gather(*(one(name) for name in self.driver.pods or () if name not in self._writing))

    async def _write_bounded(self, name: str) -> None:
        try:
            async with self._slots:
                await self.write(name)
        finally:
            self._writing.discard(name)
            if name in self._waiting:
                self._wake.set()
