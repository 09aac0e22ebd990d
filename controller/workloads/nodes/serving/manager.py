"""The container manager of one node: follows its pods, reports, keeps the lease; the driver does the rest.

Pods are reread whenever the lease has expired: only an acknowledged report guarantees that the pods bound here stay so
for another lease.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.apiserver.agents import reporting
from controller.apiserver.agents.server_clock import ServerClock
from controller.apiserver.client import ApiClient
from controller.apiserver.client.values import Listing
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod import Phase
from controller.common.errors import ApiError, ForbiddenError, NotFoundError, UnauthorizedError
from controller.workloads.nodes.deciding.orders import Place
from controller.workloads.nodes.lease import LeaseKeeper
from controller.workloads.nodes.machine import Gauges, Machine, link_of
from controller.workloads.nodes.nic.server import NicServer
from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.runtimes.errors import ContainerError
from controller.workloads.nodes.serving.disks import DiskWatch
from controller.workloads.nodes.serving.driver import Driver
from controller.workloads.nodes.serving.images import ImageCollector, ImageTerms
from controller.workloads.nodes.serving.reporting import PodReporter
from controller.workloads.nodes.serving.sessions import Sessions
from controller.workloads.nodes.serving.usage import UsageReader
from controller.workloads.nodes.settings import NodeSettings, OnStop
from dataplane.cgroup_limits import remove_empty
from dataplane.clock import NS_PER_S

LOGGER: Final = logging.getLogger("millrace.node")
_LEAST_LOOK_S: Final = 0.05
_MONITORS_S: Final = 1.0
"""Monitors end a moment after their containers."""


class Manager:
    """See the module; construct it inside the event loop that runs it."""

    def __init__(
        self,
        client: ApiClient,
        runtime: Runtime,
        keeper: LeaseKeeper,
        *,
        settings: NodeSettings,
        machine: Machine,
        place: Place,
        gauges: Gauges,
        runtime_version: str,
        now_ns: Callable[[], int],
    ) -> None:
        self._client, self._keeper, self._settings = client, keeper, settings
        self._machine, self._runtime_version, self._now_ns = machine, runtime_version, now_ns
        self._clock = ServerClock(now_ns)
        self._reporter = PodReporter(client, self._clock)
        self._driver = self._reporter.driver = Driver(
            client,
            runtime,
            keeper,
            place,
            settings,
            now_ns=now_ns,
            on_change=self.note_change,
            on_release=self._reporter.write_last,
        )
        cpu_milli = machine.hardware.cpu_milli
        self._usage = UsageReader(self._driver, runtime, gauges, settings, cpu_milli=cpu_milli, now_ns=now_ns)
        self._disks = DiskWatch(self._driver, runtime, place.limits.disk_bytes)
        terms = ImageTerms(round(settings.images.kept_s * NS_PER_S), settings.images.kept_bytes)
        brought = Path(settings.state).absolute() / "images-brought.json"
        self._images = ImageCollector(runtime, brought, terms, now_ns)
        self._driver.on_pull = self._images.note_pulled
        self._report_now, self._leased = asyncio.Event(), asyncio.Event()
        self._nic: NicServer | None = None
        if settings.nic is not None:
            namespace, on_change = place.network_namespace, self._report_now.set
            self._nic = NicServer(settings.node, settings.nic, namespace, on_change=on_change)
        self._sessions = Sessions(client, runtime, settings.node, self._driver.containers_of, self._nic)
        self._following: asyncio.Task[None] | None = None
        self._disk_problem = ""
        self._api_problem = ""
        self._report_s = settings.report_s or reporting.FIRST_REPORT_S
        self._was_ready = False
        self._signs_off = ""
        self._has_left = False

    def note_change(self, pod: str) -> None:
        """Note that a pod, or the node, has something to report."""
        self._reporter.wake(pod)
        if self.is_ready != self._was_ready:
            self._report_now.set()

    @property
    def problem(self) -> str:
        """Reason why the node takes no pods; empty if it does."""
        if self._signs_off:
            return self._signs_off
        namespace = self._driver.place.network_namespace
        if namespace is not None and not namespace.exists():
            return f"network namespace {namespace} does not exist"
        if self._driver.problem is not None:
            return self._driver.problem
        if self._disk_problem:
            return self._disk_problem
        if self._driver.pods is None:
            return "its pods are not listed yet"
        return "" if self._driver.is_settled else "removing unwanted containers"

    @property
    def is_ready(self) -> bool:
        """True if the node takes pods."""
        return not self.problem

    async def run(self) -> None:
        """Manage until cancelled."""
        for note in self._machine.notes:
            LOGGER.info("%s", note)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.watch_guard())
            group.create_task(self._driver.run())
            group.create_task(self._reporter.run())
            group.create_task(self._report_for_ever())
            group.create_task(self._measure_for_ever())
            group.create_task(self._watch_disks())
            group.create_task(self._watch_lease())
            if self._nic is not None:
                group.create_task(self._nic.run())
            group.create_task(self._follow_when_leased())

    async def sign_off(self) -> None:
        """Close the node to pods, and treat the present ones as the settings say."""
        self._signs_off = "its manager has stopped"
        if self._settings.on_stop is OnStop.STOP and self._driver.pods is not None:
            self._signs_off = "its manager is signing off"
            for pod in self._driver.pods.values():
                reason = f"node {self._settings.node} has signed off"
                self._driver.dismiss(pod, Phase.PENDING, reason, grace_s=self._settings.stop_s / 2)
            try:
                async with asyncio.timeout(self._settings.stop_s):
                    await self._driver.wait_empty()
            except TimeoutError:
                LOGGER.warning("some containers have not ended within %g s: killing them", self._settings.stop_s)
            self._keeper.end()
            self._lapse()
            with suppress(TimeoutError):
                async with asyncio.timeout(_MONITORS_S):
                    while not remove_empty(self._driver.place.cgroup):
                        await asyncio.sleep(_LEAST_LOOK_S)
                    await self._driver.wait_empty()
                    self._has_left = remove_empty(self._driver.place.cgroup)
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(reporting.SIGN_OFF_S):
                await self._report()

    async def _report_for_ever(self) -> None:
        while True:
            self._report_now.clear()
            wait_s = self._report_s
            try:
                async with asyncio.timeout(reporting.patience_s(self._report_s)):
                    await self._report_and_renew()
            except (ForbiddenError, UnauthorizedError) as error:
                if not self._leased.is_set():
                    raise
                self._away(str(error))
                wait_s = min(wait_s, reporting.AGAIN_S)
            except (ApiError, TimeoutError) as error:
                self._away(str(error) or reporting.NO_ANSWER)
                wait_s = min(wait_s, reporting.AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._report_now.wait()

    async def _report_and_renew(self) -> None:
        begun_ns = self._now_ns()
        self._was_ready = self.is_ready
        node = await self._report()
        try:
            self._keeper.renew(begun_ns, node.spec.lease_s)
            self._disk_problem = ""
        except OSError as error:
            # A lease that the guard does not know must not count.
            self._disk_problem = f"the lease cannot be written: {error.strerror or error}"
            LOGGER.warning("%s", self._disk_problem)
            return
        self._report_s = reporting.report_s(self._settings.report_s, node.spec.lease_s)
        if self._api_problem:
            LOGGER.info("the API server answers again")
            self._api_problem = ""
        if not self._keeper.is_over():
            self._leased.set()

    async def _report(self) -> Node:
        """Write the node's status, creating the node if missing; return its new state."""
        nodes, name = self._client.of(Node), self._settings.node
        report = Node(metadata=Metadata(name=name), status=self._status())
        try:
            written = await nodes.replace_status(report)
        except NotFoundError:
            await nodes.create(Node(metadata=Metadata(name=name, labels=self._settings.labels)))
            LOGGER.info("node %s created", name)
            written = await nodes.replace_status(report)
        if written.status.heartbeat_ns is not None:
            self._clock.learn(written.status.heartbeat_ns)
        return written

    def _status(self) -> NodeStatus:
        usage = self._usage
        return NodeStatus(
            ready=self.is_ready,
            reason=self.problem[:1024],
            hardware=self._machine.hardware_without(usage.figures.gone),
            runtime=self._runtime_version,
            manager=self._driver.place.identity,
            signed_off=self._has_left,
            load=usage.figures.load,
            devices=usage.figures.devices,
            images=usage.images,
            link=link_of(usage.figures.rates, time.monotonic_ns()),
            nic_queues=() if self._nic is None else self._nic.queues(),
            notes=tuple(note[:1024] for note in self._notes() if note),
        )

    def _notes(self) -> tuple[str, ...]:
        of_nic = () if self._nic is None else self._nic.notes
        return (*self._machine.notes, *self._usage.notes, self._usage.problem, *of_nic)

    def _away(self, problem: str) -> None:
        if problem != self._api_problem:
            LOGGER.warning("%s", problem)
        self._api_problem = problem

    async def _measure_for_ever(self) -> None:
        while True:
            await self._usage.read()
            self._reporter.loads = self._usage.loads
            if self._leased.is_set():
                await self._reporter.write_all()
            await asyncio.sleep(self._report_s)

    async def _watch_disks(self) -> None:
        """Handle the consumers of disk space: pods' writes, and unused images."""
        while True:
            await self._disks.look()
            try:
                await self._images.collect({container.state.image_digest for container in self._driver.view})
            except ContainerError as error:
                LOGGER.debug("images: %s", error)
            await asyncio.sleep(self._report_s)

    async def _watch_lease(self) -> None:
        """Drop all state of pods when the lease is over; after the next report all is reread."""
        was_over = False
        while True:
            left_ns = self._keeper.lease.kill_ns - self._now_ns()
            if left_ns <= 0 and not was_over:
                if self._leased.is_set():
                    LOGGER.warning("the lease is over: no report was acknowledged in time, killing all pods")
                self._lapse()
            was_over = left_ns <= 0
            await asyncio.sleep(min(max(left_ns / NS_PER_S, _LEAST_LOOK_S), reporting.AGAIN_S))

    def _lapse(self) -> None:
        """Drop all pods, and start none, until a report is acknowledged."""
        self._leased.clear()
        if self._following is not None:
            self._following.cancel()
        self._driver.fence()

    async def _follow_when_leased(self) -> None:
        while True:
            await self._leased.wait()
            self._following = asyncio.create_task(self._follow_and_answer(), name="follow pods")
            try:
                await asyncio.wait((self._following,))
            finally:
                self._following.cancel()
                await asyncio.gather(self._following, return_exceptions=True)
            if not self._following.cancelled() and (error := self._following.exception()) is not None:
                raise error

    async def _follow_and_answer(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._sessions.run())

    async def _follow(self) -> None:
        """Follow the pods that are bound here."""
        pods: dict[str, Pod] = {}
        while True:
            try:
                async for told in self._client.of(Pod).follow(fields=f"node={self._settings.node}"):
                    if isinstance(told, Listing):
                        if told.age_s is not None:
                            break  # cached because the server's storage is away: it may be outdated
                        pods = {pod.metadata.name: pod for pod in told.items}
                    elif told.type is EventType.BOOKMARK:
                        continue
                    elif told.type is EventType.DELETE or told.resource is None:
                        pods.pop(told.name, None)
                    else:
                        pods[told.name] = told.resource
                    self._driver.take(pods)
                    for name in pods if isinstance(told, Listing) else (told.name,):
                        self.note_change(name)
            except ApiError as error:
                self._away(str(error))
            await asyncio.sleep(reporting.AGAIN_S)
