"""The controller in virtual time: a driver in one process, and the calls that set the table owners' desired state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from collectors.values import LinkStatus, Snapshot
from controller.common.errors import ControllerError
from controller.network.aggregation.jobs import Jobs, RunningJob
from controller.network.aggregation.settings import AggregationSettings
from controller.network.content.settings import StoreSettings
from controller.network.features import Features
from controller.network.gnmi.in_process import InProcessPorts
from controller.network.gnmi.settings import Hellos, wanted_hellos
from controller.network.intents import RouteSet, Worker
from controller.network.links.status import RETURN_AFTER_NS, LinkStatusTable
from controller.network.owners.base import Owner
from controller.network.owners.steps import Step
from controller.network.owners.telemetry import Stage, Telemetry
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import FABRIC, FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.tables.base import WATCH_ALL
from controller.network.tables.sources import RoutedNetworks
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting
from controller.network.virtual_driver import CallAt, VirtualDriver, WriteDelays
from dataplane.clock import Clock
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.switch.gnmi import GnmiCore
from dataplane.switch.ports.states import PortState
from dataplane.topology.values import CollectorAddress, LinkKey, Topology

__all__ = [
    "DEFAULT_DELAYS",
    "HELLOS",
    "NO_HELLOS",
    "Applied",
    "CallAt",
    "LinkListener",
    "VirtualController",
    "WriteDelays",
]

LinkListener = Callable[[Mapping[LinkKey, LinkStatus]], None]
"""Gets the condition of all watched links."""


DEFAULT_DELAYS = WriteDelays()
NO_HELLOS = Hellos(enabled=False)
HELLOS = Hellos()


@dataclass(frozen=True, slots=True)
class Applied:
    """A step that took effect, with its time."""

    time_ns: int
    version: int
    step: Step


@dataclass(frozen=True, slots=True)
class _DelayedObserver:
    """Observes ports for a virtual controller, with the control channel's delay."""

    controller: VirtualController

    def port_changed(self, switch: str, state: PortState) -> None:
        self.controller.delayed_port(switch, state)

    def reachable(self, switch: str) -> None:
        self.controller.delayed_switch(switch, is_reachable=True)

    def unreachable(self, switch: str) -> None:
        self.controller.delayed_switch(switch, is_reachable=False)


class VirtualController:
    """Drives a fabric's switches by the same plans as the daemon; failures are raised where they happen."""

    def __init__(
        self,
        topology: Topology,
        sessions: Mapping[str, InProcessSession],
        clock: Clock,
        call_at: CallAt,
        *,
        watches: Sequence[Watch] = WATCH_ALL,
        reporting: Reporting = NO_REPORTING,
        domain: IntDomain = DEFAULT_DOMAIN,
        delays: WriteDelays = DEFAULT_DELAYS,
        aggregation: AggregationSettings | None = None,
        store: StoreSettings | None = None,
        routed: Sequence[RoutedNetworks] = (),
        more: Sequence[Owner] = (),
        return_after_ns: int = RETURN_AFTER_NS,
        ports: Mapping[str, GnmiCore] | None = None,
        hellos: Hellos = NO_HELLOS,
    ) -> None:
        """Watch the ports of switches by their gNMI services, if given in `ports`, and set their hellos.

        `routed` are the networks behind hosts that route; `more` are owners of tables that the switches' program has in
        addition to ours.
        """
        missing = [node.name for node in topology.switches if node.name not in sessions]
        if missing:
            raise ControllerError(f"topology {topology.name}: no session to switch {missing[0]}")
        telemetry = Telemetry(tuple(watches), reporting, domain)
        self.features = Features(topology, telemetry, aggregation=aggregation, store=store, routed=routed, more=more)
        self.coordinator = self.features.coordinator
        self.applied: list[Applied] = []
        self._clock, self._call_at, self._delays = clock, call_at, delays
        self._driver = VirtualDriver(self.coordinator, sessions, clock, call_at, delays=delays, on_step=self._note_step)
        self._links = LinkStatusTable(topology, return_after_ns=return_after_ns)
        self._link_listeners: list[LinkListener] = []
        self._hellos = wanted_hellos(topology, hellos)
        self._ports = {name: InProcessPorts(name, core, _DelayedObserver(self)) for name, core in (ports or {}).items()}

    @classmethod
    def over(
        cls,
        fabric: VirtualFabric,
        *,
        watches: Sequence[Watch] = WATCH_ALL,
        reporting: Reporting = NO_REPORTING,
        domain: IntDomain = DEFAULT_DOMAIN,
        delays: WriteDelays = DEFAULT_DELAYS,
        aggregation: AggregationSettings | None = None,
        store: StoreSettings | None = None,
        routed: Sequence[RoutedNetworks] = (),
        return_after_ns: int = RETURN_AFTER_NS,
        hellos: Hellos = HELLOS,
        watch_ports: bool = True,
    ) -> VirtualController:
        """Return a controller with sessions to every switch of a fabric, all of which run our program.

        With `aggregation` or `store` it is the one with aggregation and content, and `jobs` are available. Without
        `watch_ports` it knows nothing of ports and sets no hellos.
        """
        schema = load_schema(*fabric_program(FABRIC if aggregation is None and store is None else FABRIC_AGGREGATION))
        sessions = {
            node.name: InProcessSession(node.name, node.node_id, fabric.p4runtime(node.name), schema)
            for node in fabric.topology.switches
        }
        return cls(
            fabric.topology,
            sessions,
            fabric.clock,
            fabric.call_at,
            watches=watches,
            reporting=reporting,
            domain=domain,
            delays=delays,
            aggregation=aggregation,
            store=store,
            routed=routed,
            return_after_ns=return_after_ns,
            ports={node.name: GnmiCore(fabric.switch(node.name)) for node in fabric.topology.switches if watch_ports},
            hellos=hellos,
        )

    def start(self) -> None:
        """Become primary everywhere and fill every switch at once, before traffic flows."""
        self._driver.start()
        for switch, ports in self._ports.items():
            ports.start(self._hellos[switch])

    def fill(self, switch: str) -> None:
        """Become primary at one switch and fill it at once, and leave its ports unwatched."""
        self._driver.fill(switch)

    def reconnect(self, switch: str) -> None:
        """Reconcile one switch at once, whatever it holds, after a start or a restart."""
        self._driver.reconnect(switch)

    def configure(
        self,
        watches: Sequence[Watch] = WATCH_ALL,
        reporting: Reporting = NO_REPORTING,
        domain: IntDomain = DEFAULT_DOMAIN,
    ) -> None:
        """Apply other telemetry while traffic flows; raise ControllerError if it does not fit.

        It applies at once, unless the mark of INT packets changes: then each stage reaches one switch after the other,
        a write delay apart.
        """
        self.features.configure(Telemetry(tuple(watches), reporting, domain))
        is_staged = self.features.telemetry.stage is not Stage.IN_FORCE
        self._driver.stages_changed(self._delays.write_delay_ns if is_staged else 0)

    def report_to(self, collectors: Mapping[str, CollectorAddress]) -> None:
        """Send each switch's reports to its collector, by switch name, one write delay from now."""
        self.features.telemetry.report_to(collectors)
        self._driver.changed()

    def lose(self, switch: str) -> None:
        """Stop writing to a switch that has gone; `reconnect` takes it back."""
        self._driver.lose(switch)

    def submit(self, routes: RouteSet) -> None:
        """Set these routes; the first step takes effect one write delay later."""
        self.features.want(routes)
        self._driver.steps_changed()

    @property
    def routes(self) -> RouteSet:
        """The desired routes; switches have them all if `settled`."""
        return self.features.route_set or RouteSet(0, ())

    @property
    def jobs(self) -> Jobs:
        """The jobs that switches add up; after a change of them, `sync_jobs`. ControllerError if switches cannot."""
        if self.features.aggregation is None:
            raise ControllerError(f"topology {self.features.topology.name}: its switches do not aggregate")
        return self.features.aggregation.tables.jobs

    def create_job(
        self,
        workers: Sequence[Worker],
        snapshot: Snapshot,
        *,
        window: int,
        capacity: int,
        server: Worker | None = None,
    ) -> RunningJob:
        """Place a job on reachable switches, which have it one write delay later; raise ControllerError."""
        away = self.features.topology.switch.keys() - self.coordinator.live
        job = self.jobs.create(workers, snapshot, window=window, capacity=capacity, server=server, banned=away)
        self.sync_jobs()
        return job

    def sync_jobs(self, gap_ns: int = 0, *, reverse: bool = False) -> None:
        """Bring switches to the desired jobs, the first of them one write delay from now, the others `gap_ns` apart."""
        self._driver.sync(gap_ns, reverse=reverse)

    def changed(self) -> None:
        """Bring switches to the owners' desired state, one write delay from now."""
        self._driver.changed()

    def delayed_switch(self, switch: str, *, is_reachable: bool) -> None:
        """Note that a switch reports its ports, or has stopped, one write delay from now."""
        note = self._links.reachable if is_reachable else self._links.unreachable
        time_ns = self._clock.now_ns() + self._delays.write_delay_ns
        self._call_at(time_ns, lambda: self._note_links(note(switch, time_ns)))

    def delayed_port(self, switch: str, state: PortState) -> None:
        """Take a switch's report of one of its ports, one write delay from now."""
        self._call_at(self._clock.now_ns() + self._delays.write_delay_ns, lambda: self.port_changed(switch, state))

    def port_changed(self, switch: str, state: PortState) -> None:
        """Take a switch's report of one of its ports: traffic avoids dead links, after write delays."""
        self._note_links(self._links.port_changed(switch, state, self._clock.now_ns()))

    def on_links(self, listener: LinkListener) -> None:
        """Call `listener` with the condition of all watched links at each change."""
        self._link_listeners.append(listener)

    def _note_links(self, changed: bool) -> None:
        due_ns = self._links.due_ns()
        if due_ns is not None:
            self._call_at(due_ns, lambda: self._links_due(due_ns))
        if not changed:
            return
        if self.coordinator.avoid(self._links.down):
            self._driver.changed()
        for listener in self._link_listeners:
            listener(self._links.statuses(self._clock.now_ns()))

    def _links_due(self, due_ns: int) -> None:
        # The due time may have moved since: then another call is scheduled.
        if due_ns == self._links.due_ns():
            self._note_links(self._links.tick(self._clock.now_ns()))

    def link_changed(self, link: LinkKey, *, up: bool) -> None:
        """Make packets avoid a dead link, if there is another path, one write delay from now."""
        down = self.coordinator.down
        if self.coordinator.avoid(down - {link} if up else down | {link}):
            self._driver.changed()

    @property
    def settled(self) -> bool:
        """Return whether nothing is left to be written."""
        return self._driver.settled

    def _note_step(self, step: Step) -> None:
        routes = self.features.route_set
        self.applied.append(Applied(self._clock.now_ns(), 0 if routes is None else routes.version, step))
