"""Bytes that pods write to their containers' layers; pods above their limit are ended."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from controller.apiserver.resources.pod import Phase
from controller.common.errors import reason_of
from controller.workloads.nodes.deciding.values import Actual
from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.serving.driver import Driver

LOGGER: Final = logging.getLogger("millrace.node")
_AT_ONCE: Final = 4


class DiskWatch:
    """Measures the layers of all running containers; separate from other figures, as a layer may have many files."""

    def __init__(self, driver: Driver, runtime: Runtime, most_bytes: int) -> None:
        self._driver, self._runtime, self._most_bytes = driver, runtime, most_bytes
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def look(self) -> None:
        """Measure once, and dismiss pods that have written more than they may."""
        containers = [container for container in self._driver.view if container.runs]
        written: dict[tuple[str, str, int], int] = {}
        for container, nbytes in zip(containers, await asyncio.gather(*map(self._written, containers)), strict=True):
            key = (container.pod, container.uid, container.epoch)
            written[key] = written.get(key, 0) + nbytes
        for (name, uid, epoch), nbytes in written.items():
            pod = (self._driver.pods or {}).get(name)
            if nbytes <= self._most_bytes or pod is None or (pod.metadata.uid, pod.status.epoch) != (uid, epoch):
                continue
            if self._driver.wanted_of(pod).going is None:
                reason = f"has written {nbytes} bytes to its disk, this node allows at most {self._most_bytes}"
                LOGGER.warning("pod %s: %s", name, reason)
                self._driver.dismiss(pod, Phase.FAILED, reason)

    async def _written(self, container: Actual) -> int:
        async with self._slots:
            try:
                return await self._runtime.written(container.id)
            except Exception as error:  # noqa: BLE001 - one container's; most often it has ended
                LOGGER.debug("pod %s: its disk: %s", container.pod, reason_of(error))
                return 0
