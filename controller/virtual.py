"""The controller in virtual time: sessions in one process, writes that take effect when the fabric's clock says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec

from collectors.values import LinkStatus, Snapshot
from controller.aggregation.jobs import Jobs, RunningJob
from controller.aggregation.layer import AggregationLayer
from controller.aggregation.settings import AggregationSettings
from controller.coordinator import Coordinator
from controller.errors import ControllerError, SessionError
from controller.gnmi.in_process import InProcessPorts
from controller.gnmi.settings import Hellos, wanted_hellos
from controller.intents import RouteSet, Worker
from controller.link_status import RETURN_AFTER_NS, LinkWatch
from controller.p4runtime.in_process import InProcessSession
from controller.p4runtime.session import FABRIC, FABRIC_AGGREGATION, fabric_program, load_schema
from controller.reconcile import MAX_BATCH
from controller.tables.base import WATCH_ALL
from controller.tables.entities import Update, Verb
from controller.tables.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.tables.int_watch import Watch
from controller.tables.reporting import NO_REPORTING, Reporting
from controller.telemetry_change import Stage, longest_flight_ns
from controller.update_plan import Phase, Step
from dataplane.clock import Clock
from dataplane.config import Strict
from dataplane.fabric.topology import LinkKey, Topology
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.switch.gnmi import GnmiCore
from dataplane.switch.port_states import PortState

CallAt = Callable[[int, Callable[[], None]], object]
"""Runs a function when the fabric's clock reaches a time in ns."""


LinkListener = Callable[[Mapping[LinkKey, LinkStatus]], None]
"""Gets the condition of all links that are watched."""


class WriteDelays(Strict, frozen=True):
    """How long the control channel takes."""

    write_delay_ns: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """From sending a step to its effect in the tables and the next step's sending."""
    drain_ns: Annotated[int, msgspec.Meta(ge=0)] = 0
    """From the last new entry to the first removal, for packets that are still on the old path."""


DEFAULT_DELAYS = WriteDelays()
NO_HELLOS = Hellos(enabled=False)
HELLOS = Hellos()


@dataclass(frozen=True, slots=True)
class Applied:
    """A step that took effect, and when."""

    time_ns: int
    version: int
    step: Step


@dataclass(frozen=True, slots=True)
class _Ears:
    """Hears of ports for a virtual controller, as late as the control channel is."""

    controller: VirtualController

    def port_changed(self, switch: str, state: PortState) -> None:
        self.controller.hear_port(switch, state)

    def answers(self, switch: str) -> None:
        self.controller.hear_switch(switch, answers=True)

    def is_silent(self, switch: str) -> None:
        self.controller.hear_switch(switch, answers=False)


class VirtualController:
    """Drives a fabric's switches by the same plans as the daemon; every failure is raised where it happens."""

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
        return_after_ns: int = RETURN_AFTER_NS,
        ports: Mapping[str, GnmiCore] | None = None,
        hellos: Hellos = NO_HELLOS,
    ) -> None:
        """Watch the ports of switches by their gNMI services, where `ports` has them, and set their hellos."""
        missing = [node.name for node in topology.switches if node.name not in sessions]
        if missing:
            raise ControllerError(f"topology {topology.name}: no session to switch {missing[0]}")
        layer = None if aggregation is None else AggregationLayer(topology, aggregation)
        self.coordinator = Coordinator(topology, watches, reporting, domain, layer)
        self.applied: list[Applied] = []
        self._sessions, self._clock, self._call_at, self._delays = sessions, clock, call_at, delays
        self._busy = False
        self._made_ns: int | None = None
        self._links = LinkWatch(topology, return_after_ns=return_after_ns)
        self._link_listeners: list[LinkListener] = []
        self._hellos = wanted_hellos(topology, hellos)
        self._ports = {name: InProcessPorts(name, core, _Ears(self)) for name, core in (ports or {}).items()}

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
        return_after_ns: int = RETURN_AFTER_NS,
        hellos: Hellos = HELLOS,
    ) -> VirtualController:
        """Return a controller with sessions to every switch of a fabric, which are to run the program of ours.

        With `aggregation` it is the one that adds up, and `jobs` are to be had.
        """
        schema = load_schema(*fabric_program(FABRIC if aggregation is None else FABRIC_AGGREGATION))
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
            return_after_ns=return_after_ns,
            ports={node.name: GnmiCore(fabric.switch(node.name)) for node in fabric.topology.switches},
            hellos=hellos,
        )

    def start(self) -> None:
        """Become primary everywhere and fill every switch at once, before traffic flows."""
        for switch, session in self._sessions.items():
            session.become_primary()
            self.reconnect(switch)
        for switch, ports in self._ports.items():
            ports.start(self._hellos[switch])

    def reconnect(self, switch: str) -> None:
        """Make one switch right at once, whatever it holds: after a start or a restart."""
        session, stage = self._sessions[switch], self.coordinator.telemetry.number
        session.install_pipeline()
        for batch in self.coordinator.connected(switch, session.read()):
            session.write(batch)
            self.coordinator.acknowledged(switch, batch)
        self.coordinator.reconciled(switch)
        self._write_jobs(switch)
        self._schedule()
        if self.coordinator.telemetry.number != stage:
            self._bring_telemetry(self._delays.write_delay_ns)

    def configure(
        self,
        watches: Sequence[Watch] = WATCH_ALL,
        reporting: Reporting = NO_REPORTING,
        domain: IntDomain = DEFAULT_DOMAIN,
    ) -> None:
        """Want other telemetry while traffic flows; raise ControllerError if it does not fit.

        It is there at once, but where the mark of INT packets changes: then each stage reaches one switch after the
        other, a write delay apart.
        """
        self.coordinator.configure(watches, reporting, domain)
        is_staged = self.coordinator.telemetry.stage is not Stage.IN_FORCE
        self._bring_telemetry(self._delays.write_delay_ns if is_staged else 0)

    def _bring_telemetry(self, gap_ns: int) -> None:
        change = self.coordinator.telemetry
        number = change.number
        if change.stage is Stage.DRAIN:
            wait_ns = max(self._delays.drain_ns, longest_flight_ns(self.coordinator.topology))
            self._call_at(self._clock.now_ns() + wait_ns, lambda: self._drained(number))
            return
        for place, switch in enumerate(sorted(self._sessions)):
            if gap_ns:
                self._call_at(self._clock.now_ns() + place * gap_ns, partial(self._look_again, switch, number))
            else:
                self._look_again(switch, number)

    def _drained(self, number: int) -> None:
        if number == self.coordinator.telemetry.number:
            self.coordinator.telemetry.drained(number)
            self._bring_telemetry(self._delays.write_delay_ns)

    def _look_again(self, switch: str, number: int) -> None:
        """Make a switch right for a stage of telemetry, unless that is over or the switch has gone."""
        change = self.coordinator.telemetry
        if number != change.number or switch not in self.coordinator.live:
            return
        try:
            self.reconnect(switch)
        except SessionError as error:
            if not error.refused or not change.roll_back():
                raise
            self._bring_telemetry(self._delays.write_delay_ns)

    def lose(self, switch: str) -> None:
        """Stop writing to a switch that has gone; `reconnect` takes it back."""
        self.coordinator.lost(switch)
        self._schedule()

    def submit(self, routes: RouteSet) -> None:
        """Want these routes from now on; the first step takes effect one write delay later."""
        self.coordinator.want(routes)
        self._schedule()

    @property
    def jobs(self) -> Jobs:
        """The jobs that switches add up; after a change of them, `bring_jobs`. ControllerError if switches cannot."""
        if self.coordinator.aggregation is None:
            raise ControllerError(f"topology {self.coordinator.topology.name}: its switches do not add up")
        return self.coordinator.aggregation.jobs

    def create_job(
        self,
        workers: Sequence[Worker],
        snapshot: Snapshot,
        *,
        window: int,
        capacity: int,
        server: Worker | None = None,
    ) -> RunningJob:
        """Place a job on switches that are there; its switches have it one write delay later. ControllerError."""
        away = self._sessions.keys() - self.coordinator.live
        job = self.jobs.create(workers, snapshot, window=window, capacity=capacity, server=server, banned=away)
        self.bring_jobs()
        return job

    def bring_jobs(self, gap_ns: int = 0, *, reverse: bool = False) -> None:
        """Have switches hold what is wanted of jobs, the first of them one write delay from now, then by `gap_ns`."""
        first_ns = self._clock.now_ns() + self._delays.write_delay_ns
        for place, switch in enumerate(sorted(self._sessions, reverse=reverse)):
            if self._delays.write_delay_ns or gap_ns:
                self._call_at(first_ns + place * gap_ns, partial(self._write_jobs, switch))
            else:
                self._write_jobs(switch)

    def hear_switch(self, switch: str, *, answers: bool) -> None:
        """Take that a switch tells of its ports, or no more, one write delay from now."""
        note = self._links.reachable if answers else self._links.unreachable
        time_ns = self._clock.now_ns() + self._delays.write_delay_ns
        self._call_at(time_ns, lambda: self._note_links(note(switch, time_ns)))

    def hear_port(self, switch: str, state: PortState) -> None:
        """Take what a switch says of one of its ports, one write delay from now."""
        self._call_at(self._clock.now_ns() + self._delays.write_delay_ns, lambda: self.port_changed(switch, state))

    def port_changed(self, switch: str, state: PortState) -> None:
        """Take what a switch says of one of its ports: traffic keeps off links that died, after write delays."""
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
        before, down = self.coordinator.down, self._links.down
        if self.coordinator.avoid(down):
            for link in before ^ down:
                self.link_changed(link, up=link in before)
            self.bring_jobs()
            self._schedule()
        for listener in self._link_listeners:
            listener(self._links.statuses(self._clock.now_ns()))

    def _links_due(self, due_ns: int) -> None:
        if due_ns == self._links.due_ns():
            self._note_links(self._links.tick(self._clock.now_ns()))

    def link_changed(self, link: LinkKey, *, up: bool) -> None:
        """Have jobs' packets avoid a link that is dead, as far as there is another way, one write delay from now."""
        layer = self.coordinator.aggregation
        if layer is not None and layer.avoid(layer.dead - {link} if up else layer.dead | {link}):
            self.bring_jobs()

    def _write_jobs(self, switch: str) -> None:
        if switch not in self.coordinator.live:
            return
        for number, batches in self.coordinator.clearings(switch).items():
            for batch in batches:
                self._sessions[switch].write(batch)
            self.coordinator.cleared(number, switch)
        for batch in (*self.coordinator.report_updates(switch), *self.coordinator.sums(switch)):
            self._write(switch, batch)
        self.coordinator.brought(switch)

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be written."""
        is_right = not any(self.coordinator.sums(switch) for switch in self.coordinator.live)
        return is_right and not self._busy and self.coordinator.next_step() is None

    def _schedule(self) -> None:
        """Send the next step, unless one is on its way: then its effect decides what comes next."""
        step = None if self._busy else self.coordinator.next_step()
        if step is None:
            return
        now_ns = self._clock.now_ns()
        if step.phase is Phase.BREAK and self._made_ns is not None:
            now_ns = max(now_ns, self._made_ns + self._delays.drain_ns)
        self._busy = True
        self._call_at(now_ns + self._delays.write_delay_ns, lambda: self._take_effect(step))

    def _take_effect(self, step: Step) -> None:
        self._busy = False
        for switch, updates in step.updates.items():
            if switch in self.coordinator.live:
                self._write(switch, tuple(update for update in updates if self._applies(switch, update)))
        now_ns = self._clock.now_ns()
        if step.phase is Phase.MAKE:
            self._made_ns = now_ns
        routes = self.coordinator.routes
        self.applied.append(Applied(now_ns, 0 if routes is None else routes.version, step))
        self._schedule()

    def _applies(self, switch: str, update: Update) -> bool:
        """Return whether an update still has something to do: the switch may have restarted since it was sent."""
        return (update.key in self.coordinator.held(switch)) is (update.verb is not Verb.INSERT)

    def _write(self, switch: str, updates: tuple[Update, ...]) -> None:
        session = self._sessions[switch]
        for start in range(0, len(updates), MAX_BATCH):
            batch = updates[start : start + MAX_BATCH]
            try:
                session.write(batch)
            except SessionError:
                self.coordinator.lost(switch)
                raise
            self.coordinator.acknowledged(switch, batch)
