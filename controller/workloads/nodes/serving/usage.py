"""Resource usage of a node's pods: read separately from the reports, which wait for no runtime."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from controller.apiserver.resources import Pod
from controller.apiserver.resources.hardware import Load
from controller.apiserver.resources.node import Image
from controller.apiserver.resources.pod import Phase
from controller.common.errors import reason_of
from controller.workloads.nodes.deciding.idle import (
    Activity,
    device_share,
    idle_reason,
    limit_s,
    observe,
)
from controller.workloads.nodes.deciding.values import Actual
from controller.workloads.nodes.machine import Figures, Gauges
from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.serving.driver import Driver
from controller.workloads.nodes.settings import NodeSettings
from dataplane.cgroups import Usage

LOGGER: Final = logging.getLogger("millrace.node")
_AT_ONCE: Final = 8
_MOST_IMAGES: Final = 1024
_READS: Final = 2
"""Readings after which every device that ever reports its use has done so."""


class UsageReader:
    """Reads figures of the node and its pods; dismisses idle pods."""

    def __init__(
        self,
        driver: Driver,
        runtime: Runtime,
        gauges: Gauges,
        settings: NodeSettings,
        *,
        cpu_milli: int,
        now_ns: Callable[[], int],
    ) -> None:
        self._driver, self._runtime, self._gauges, self._settings = driver, runtime, gauges, settings
        self._cpu_milli, self._now_ns = cpu_milli, now_ns
        self.figures = Figures()
        self.images: tuple[Image, ...] = ()
        self.loads: dict[str, Load] = {}
        self._activities: dict[tuple[str, int], Activity] = {}
        self._reads = 0
        self._said = ""

    async def read(self) -> None:
        """Read everything once; unreadable figures stay as they were."""
        before = self._gauges.problem
        self.figures = await asyncio.to_thread(self._gauges.read)
        self._reads += 1
        self._dismiss_from_gone()
        if self.problem and self.problem != before:
            LOGGER.warning("%s", self.problem)
        try:
            images = await self._runtime.images()
            self.images = tuple(
                Image(digest=image.digest, names=image.names[:256], nbytes=image.nbytes)
                for image in images[:_MOST_IMAGES]
            )
            usages = await self._usages(container for container in self._driver.view if container.runs)
        except Exception as error:  # noqa: BLE001 - figures, not pods
            if reason_of(error) != self._said:
                LOGGER.warning("%s", reason_of(error))
            self._said = reason_of(error)
            return
        self._said = ""
        self._take(usages)

    @property
    def problem(self) -> str:
        """Reason why the node's network counters cannot be read; empty if they can."""
        return self._gauges.problem

    @property
    def notes(self) -> tuple[str, ...]:
        """Devices whose use is unknown, a line each."""
        gone = tuple(f"device {number} is gone: {reason}" for number, reason in sorted(self.figures.gone.items()))
        # Some drivers only count busy time: their first reading yields nothing.
        if self._reads < _READS or not self._settings.idle.unknown_device_is_busy:
            return gone
        known = {number for number, activity in self.figures.activities.items() if activity.total is not None}
        return gone + tuple(
            f"device {number} does not report its use: pods that hold it never count as idle"
            for number in sorted(self._driver.place.known)
            if self._is_real(number) and number not in known and number not in self.figures.gone
        )

    def _is_real(self, number: int) -> bool:
        """Return whether a device exists: those of a topology that have no files are only allocated."""
        place = self._driver.place
        return not place.is_stated or bool(place.devices.get(number))

    async def _usages(self, containers: Iterable[Actual]) -> dict[str, list[Usage]]:
        """Return containers' usage, by pod; without those that have ended meanwhile."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(container: Actual) -> tuple[str, Usage | None]:
            async with slots:
                try:
                    return container.pod, await self._runtime.usage(container.id)
                except Exception as error:  # noqa: BLE001 - figures, not pods
                    LOGGER.debug("pod %s: its usage: %s", container.pod, reason_of(error))
                    return container.pod, None

        by_pod: dict[str, list[Usage]] = {}
        for pod, usage in await asyncio.gather(*map(one, containers)):
            if usage is not None:
                by_pod.setdefault(pod, []).append(usage)
        return by_pod

    def _take(self, usages: dict[str, list[Usage]]) -> None:
        now_ns, pods = self._now_ns(), self._driver.pods or {}
        before, self._activities, self.loads = self._activities, {}, {}
        rates = self.figures.rates
        network_bps = None
        if self._driver.place.network_namespace is not None and rates is not None:
            network_bps = rates.rx_bps + rates.tx_bps
        terms = self._settings.idle.terms
        for name, used in usages.items():
            if (pod := pods.get(name)) is None:
                continue
            key = (pod.metadata.uid, pod.status.epoch)
            cpu_ns = sum(usage.cpu_ns or 0 for usage in used)
            last = before.get(key)
            held = [share for share in pod.status.devices if self._is_real(share.number)]
            device = device_share(name, held, self.figures.activities, terms)
            self._activities[key] = observe(last, now_ns, cpu_ns, network_bps, terms, device=device)
            self.loads[name] = self._load(pod, used, last, cpu_ns, now_ns)
        self._dismiss_idle(pods.values(), now_ns)

    def _load(self, pod: Pod, used: list[Usage], last: Activity | None, cpu_ns: int, now_ns: int) -> Load:
        """Return a pod's load: relative to its limits, if it has any, else to the node."""
        request = pod.spec.request
        busy = free = None
        may_use = (request.cpu_milli or self._cpu_milli) / 1000
        if last is not None and now_ns > last.time_ns and may_use > 0:
            busy = min(max((cpu_ns - last.cpu_ns) / (now_ns - last.time_ns) / may_use, 0.0), 1.0)
        if request.memory_bytes:
            free = max(0, request.memory_bytes - sum(usage.memory_bytes or 0 for usage in used))
        return Load(busy=busy, memory_free_bytes=free)

    def _dismiss_from_gone(self) -> None:
        """Give back the pods that hold a device which is gone: they can run elsewhere."""
        for pod in (self._driver.pods or {}).values() if self.figures.gone else ():
            number = next((part.number for part in pod.status.devices if part.number in self.figures.gone), None)
            if number is not None and self._driver.wanted_of(pod).going is None:
                reason = f"device {number} of node {self._settings.node} is gone: {self.figures.gone[number]}"
                LOGGER.warning("pod %s: %s", pod.metadata.name, reason)
                self._driver.dismiss(pod, Phase.PENDING, reason)

    def _dismiss_idle(self, pods: Iterable[Pod], now_ns: int) -> None:
        pods = list(pods)
        copies = Counter(image for pod in pods for image in {_image_of(pod)})
        starts = self._starts_ns(pods)
        for pod in pods:
            activity = self._activities.get((pod.metadata.uid, pod.status.epoch))
            limit = limit_s(pod.spec.idle_limit_s, _image_of(pod), copies, starts, self._settings.idle.terms)
            if activity is None or limit is None:
                continue
            reason = idle_reason(activity, now_ns, limit)
            if reason is not None and self._driver.wanted_of(pod).going is None:
                LOGGER.info("pod %s: %s", pod.metadata.name, reason)
                self._driver.dismiss(pod, Phase.SUCCEEDED, reason)

    def _starts_ns(self, pods: Iterable[Pod]) -> dict[str, int]:
        """Return the start durations of images, as far as this manager has seen them."""
        starts: dict[str, int] = {}
        for pod in pods:
            records = self._driver.memory.of(pod.metadata.uid, pod.status.epoch)
            took = [record.start_ns for record in records.values() if record.start_ns is not None]
            if took:
                starts[_image_of(pod)] = max(*took, starts.get(_image_of(pod), 0), 0)
        return starts


def _image_of(pod: Pod) -> str:
    """Return the image or bundle of a pod's first container, by which copies of a pod are counted."""
    first = pod.spec.containers[0]
    return first.image or first.bundle or ""
