"""The controller daemon: a driver over gRPC, and the sources of its table owners' desired state.

The path server sends routes, switches report dead links, the job service requests jobs, and settings define the rest.
When the daemon ends, the switches keep their tables and traffic continues.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from collectors.errors import FeedError
from collectors.state.nominal import nominal_snapshot
from collectors.values import Snapshot
from controller.common.errors import ControllerError, LostLeaseError, PathError
from controller.common.standby.lease import Lease
from controller.common.standby.pair import until_active
from controller.common.tracing import UNTRACED, Traces
from controller.network.aggregation.job_reconciler import JobReconciler
from controller.network.content.reconciler import StoreReconciler
from controller.network.daemon_settings import RetrySettings
from controller.network.driver import Connect, Driver, Sleep
from controller.network.features import Features
from controller.network.intents import RouteSet
from controller.network.links.monitor import LinkMonitor
from controller.network.links.status import RETURN_AFTER_NS, LinkStatusTable
from controller.network.owners.telemetry import Telemetry
from controller.network.status.values import ControllerStatus, SwitchProblem
from controller.network.tables.sources import RoutedNetworks
from controller.network.tables.telemetry.int_domain import IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import Reporting
from dataplane.clock import Clock
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.topology.values import CollectorAddress, LinkKey

LOGGER = logging.getLogger("millrace.controller")


class Daemon:
    """Keeps a fabric's tables reconciled until its task is cancelled; construct it inside a running event loop."""

    def __init__(
        self,
        features: Features,
        connect: Connect,
        routes: AsyncIterator[RouteSet],
        clock: Clock,
        *,
        retry: RetrySettings,
        rng: random.Random,
        sleep: Sleep = asyncio.sleep,
        states: AsyncIterator[Snapshot] | None = None,
        return_after_ns: int = RETURN_AFTER_NS,
        traces: Traces = UNTRACED,
        lease: Lease | None = None,
    ) -> None:
        """Place jobs by the newest of `states`; without any, by the topology's own figures.

        With a `lease` no switch is connected until it is held.
        """
        self._lease = lease
        self.features, self.coordinator = features, features.coordinator
        self._routes, self._states, self._traces = routes, states, traces
        self._rejected = 0
        self._source_problem: str | None = None
        self._driver = driver = Driver(
            self.coordinator, connect, clock, retry=retry, rng=rng, sleep=sleep, traces=traces
        )
        table = LinkStatusTable(features.topology, return_after_ns=return_after_ns)
        self.links = LinkMonitor(self.coordinator, table, clock, driver.changed, sleep, drained=self._drained)
        """Receives switches' port reports."""
        self.jobs: JobReconciler | None = None
        if features.aggregation is not None:
            state = nominal_snapshot(features.topology, clock.now_ns())
            self.jobs = features.aggregation.listener = JobReconciler(
                features.aggregation.tables, driver, clock, state, sleep
            )
        self.store: StoreReconciler | None = None
        if features.content is not None:
            self.store = StoreReconciler(features.content.stores, driver.sync)
            features.content.on_change = self.store.changed
        self.on_active: Callable[[], None] | None = None
        """Called once this process is the active one, before any switch is connected."""

    async def run(self) -> None:
        """Keep every switch reconciled and follow the routes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._drive(), name="drive switches")
            group.create_task(self._follow(), name="follow routes")
            group.create_task(self.links.run(), name="monitor links")
            if self.jobs is not None:
                group.create_task(self.jobs.run(), name="keep jobs")
                if self._states is not None:
                    group.create_task(_observe(self.jobs, self._states), name="observe")

    async def _drive(self) -> None:
        await until_active(self._lease)
        if self.on_active is not None:
            try:
                self.on_active()
            except LostLeaseError:
                return  # already lost again: this process starts over as standby
        await self._driver.run()

    def configure(
        self,
        watches: Sequence[Watch],
        reporting: Reporting,
        domain: IntDomain,
        routed: Sequence[RoutedNetworks] | None = None,
    ) -> None:
        """Apply other telemetry to every switch, and other networks behind hosts unless None.

        Raise ControllerError, and change nothing, if they do not fit.
        """
        self.features.configure(Telemetry(tuple(watches), reporting, domain), routed)
        self.changed()

    def report_to(self, collectors: Mapping[str, CollectorAddress]) -> None:
        """Send each switch's reports to its collector, by switch name."""
        self.features.telemetry.report_to(collectors)
        self.changed()

    def changed(self) -> None:
        """Bring switches to the owners' desired state."""
        self._driver.changed()

    def status(self, load: DaemonLoad = NO_LOAD) -> ControllerStatus:
        """Return the state of the switches and the routes, with the load of the process if it is measured."""
        routes, live, plan = self.features.route_set, self.coordinator.live, self.coordinator.plan()
        switches = self.features.topology.switch
        is_reconciled = self.coordinator.is_everybody_right and not plan.steps and not plan.pending
        return ControllerStatus(
            switches=len(switches),
            live=tuple(sorted(live)),
            problems=tuple(
                SwitchProblem(name, self._driver.problem(name)) for name in sorted(switches) if name not in live
            ),
            wanted_version=None if routes is None else routes.version,
            pending_entries=len(plan.pending),
            settled=is_reconciled and not self._driver.is_sending and all(map(self.coordinator.is_right, switches)),
            rejected_route_sets=self._rejected,
            source_problem=self._source_problem,
            writes=self._driver.writes,
            load=load,
            standby=None if self._lease is None else self._lease.status(),
        )

    def _drained(self) -> tuple[LinkKey, ...]:
        routes = self.features.route_set
        return () if routes is None else routes.drained

    async def _follow(self) -> None:
        """Take every set of routes that arrives; without a source the switches keep their present paths."""
        try:
            async for routes in self._routes:
                self._take(routes)
        except PathError as error:
            self._source_problem = str(error)
            LOGGER.critical("route feed ended: %s", error)

    def _take(self, routes: RouteSet) -> None:
        try:
            self.features.want(routes)
        except ControllerError as error:
            self._rejected += 1
            LOGGER.warning("routes version %d rejected: %s", routes.version, error)
            about = {"millrace.routes.version": routes.version}
            self._traces.begin("apply routes", about, parent=routes.traceparent).end(str(error))
        else:
            self._driver.routes_changed(routes.version, routes.traceparent)


async def _observe(jobs: JobReconciler, states: AsyncIterator[Snapshot]) -> None:
    """Pass the state of the network to jobs; without a source they stay where they are."""
    try:
        async for state in states:
            jobs.observe(state)
    except FeedError as error:
        LOGGER.critical("network state feed ended: %s", error)
