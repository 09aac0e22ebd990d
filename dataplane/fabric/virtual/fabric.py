"""A topology in virtual time: switches, cables and hosts in one process, driven by one clock.

Rates, queues and delays are exact to the nanosecond, the same seed gives the same run, and no root is needed. The
switches are `dataplane.switch.switch.Switch`; their P4Runtime service is answered in process by the code that answers
gRPC.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from dataplane.clock import VirtualClock
from dataplane.errors import FabricError
from dataplane.events import EventQueue, Timer
from dataplane.fabric.hosts import Flow, Sender, find_probe
from dataplane.fabric.virtual.cable import Cable
from dataplane.fabric.virtual.host import VirtualHost
from dataplane.fabric.virtual.quiet import HelloEnd, QuietCable
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.counters import SwitchFigures
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.switch import PipelineFactory, PortSettings, Switch
from dataplane.switch.traffic import DEFLECT_SESSION
from dataplane.topology.addressing import gateway_mac
from dataplane.topology.values import DirectedLink, LinkKey, SwitchNode, Topology

LOGGER = logging.getLogger("millrace.fabric")
MAX_HOPS = 1 << 20
"""Maximum number of hops kept; a warning says when later ones are left out."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A packet crossing a switch: last bit in, first bit out, last bit out; ns, on the fabric's clock."""

    switch: str
    flow_id: int
    sequence: int
    in_port: int
    out_port: int
    arrived_ns: int
    started_ns: int
    departed_ns: int

    @property
    def residence_ns(self) -> int:
        """Time before its transmission began: hop latency in INT terms."""
        return self.started_ns - self.arrived_ns


@dataclass(slots=True)
class HopRecorder:
    """Pairs arrivals and departures of probes at each switch, by flow and sequence, whatever INT did to the frame."""

    hops: list[Hop] = field(default_factory=list)
    is_full: bool = False
    _inside: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)

    def arrived(self, switch: str, port: int, frame: bytes, now_ns: int) -> None:
        """Record a frame whose last bit arrives now."""
        probe = find_probe(frame)
        if probe is None:
            return
        if len(self._inside) >= MAX_HOPS:
            self._leave_out()
            return
        self._inside[switch, probe.flow_id, probe.sequence] = port, now_ns

    def departed(self, switch: str, port: int, frame: bytes, started_ns: int, departed_ns: int) -> None:
        """Record a frame that began to leave at `started_ns`; a second copy of a frame is not a hop."""
        probe = find_probe(frame)
        entered = None if probe is None else self._inside.pop((switch, probe.flow_id, probe.sequence), None)
        if probe is None or entered is None:
            return
        if len(self.hops) >= MAX_HOPS:
            self._leave_out()
            return
        in_port, arrived_ns = entered
        hop = Hop(switch, probe.flow_id, probe.sequence, in_port, port, arrived_ns, started_ns, departed_ns)
        self.hops.append(hop)

    def _leave_out(self) -> None:
        if not self.is_full:
            LOGGER.warning("%d hops are recorded or under way: later ones are left out", MAX_HOPS)
        self.is_full = True

    def of_packet(self, flow_id: int, sequence: int) -> Iterator[Hop]:
        """Yield the hops of one packet in time order."""
        return (hop for hop in self.hops if (hop.flow_id, hop.sequence) == (flow_id, sequence))


Post = Callable[[Callable[[], None]], None]
"""Schedules a call soon, in the thread that owns a fabric."""


def call_at_once(call: Callable[[], None]) -> None:
    """Call immediately: for a fabric that only one thread uses."""
    call()


@dataclass(slots=True)
class _Running:
    """A switch, its P4Runtime service, its cables by port, and the wake-up times that the first two asked for."""

    name: str
    switch: Switch
    p4runtime: P4RuntimeCore
    cables: dict[int, Cable]
    wake_ns: int | None = None
    tick_ns: int | None = None


class VirtualFabric:
    """A running topology; time advances only in `run_until`, and all of it belongs to one thread.

    Hellos between switches that change nothing are not simulated as events (`dataplane.fabric.virtual.quiet`) unless
    `every_hello`. `seed` seeds the random numbers of programs, flows and links; with `record_hops` the true times of
    every probe at every switch are kept in `hops`. `pipeline_factory` replaces compiled programs, for example by the
    interpreter.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        seed: int = 0,
        clock: VirtualClock | None = None,
        record_hops: bool = False,
        pipeline_factory: PipelineFactory = compiled_pipeline,
        every_hello: bool = False,
        post: Post = call_at_once,
    ) -> None:
        """Use `post` to run requests of switches, possibly from another thread, in the fabric's own."""
        self.topology = topology
        self._post = post
        self.seed = seed
        self.clock = clock or VirtualClock()
        self.hops: HopRecorder | None = HopRecorder() if record_hops else None
        self.events = EventQueue(self.clock)
        self.cables: dict[LinkKey, Cable] = {}
        self._port_listeners: list[Callable[[LinkKey, bool], None]] = []
        self._cable_listeners: list[Callable[[], None]] = []
        self._hosts: dict[str, VirtualHost] = {}
        self._switches: dict[str, _Running] = {}
        for node in topology.switches:
            self._switches[node.name] = self._make_switch(node, pipeline_factory)
        for link in topology.directed_links.values():
            self.cables[link.key] = self._make_cable(link)
        for running in self._switches.values():
            self._connect(running)
        self._quiet = {} if every_hello else self._make_quiet()
        for host in topology.hosts:
            uplink = self.cables[LinkKey(host.name, topology.attachment[host.name].node)]
            mac = gateway_mac(topology, host.name)
            self._hosts[host.name] = VirtualHost(host, self.events, uplink, mac, seed)

    # parts

    def host(self, name: str) -> VirtualHost:
        """Return a host; raise FabricError for an unknown name."""
        if name not in self._hosts:
            raise FabricError(f"{self.topology.name}: there is no host {name!r}")
        return self._hosts[name]

    def switch(self, name: str) -> Switch:
        """Return a switch; raise FabricError for an unknown name."""
        return self._running(name).switch

    def figures(self, switch: str) -> SwitchFigures:
        """Return a switch's counters and port states, the control plane's drops included."""
        running = self._running(switch)
        counters = running.switch.counters()
        drops = {**counters.drops, **running.p4runtime.drops}
        return SwitchFigures(counters.ports, drops, running.switch.port_states())

    def p4runtime(self, switch: str) -> P4RuntimeCore:
        """Return a switch's P4Runtime service; raise FabricError for an unknown name."""
        return self._running(switch).p4runtime

    # time

    @property
    def now_ns(self) -> int:
        """The current time."""
        return self.clock.time_ns

    def call_at(self, time_ns: int, call: Callable[[], None]) -> Timer:
        """Call at a time; raise FabricError if it has passed."""
        return self.events.timer(time_ns, call)

    def call_after(self, delay_ns: int, call: Callable[[], None]) -> Timer:
        """Call after a delay."""
        return self.events.timer(self.clock.time_ns + delay_ns, call)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call at the present time, in the fabric's own thread; any thread may ask for it."""
        self._post(lambda: self.events.at(self.clock.time_ns, call))

    def run_until(self, time_ns: int) -> int:
        """Run every event that is due up to `time_ns`; return the number of events."""
        return self.events.run_until(time_ns)

    # events

    def start_flow(self, host: str, flow: Flow) -> Sender:
        """Send a flow's packets from a host; a start in the past means now.

        Equal seeds and flow numbers draw equal gaps.
        """
        flow = replace(flow, start_ns=max(flow.start_ns, self.clock.time_ns))
        sender = Sender(flow, random.Random(f"{self.seed}/flow/{flow.flow_id}"))
        self.host(host).run(sender)
        return sender

    def set_link(self, a: str, b: str, *, up: bool, notice_after_ns: int | None = None) -> None:
        """Break or repair a cable, both ways; frames on it when it breaks are lost and counted.

        With `notice_after_ns` the switches at its ends see their ports' state change after that time, and so do
        listeners; without, there is no notification. Raises FabricError if there is no such cable.
        """
        for key in (LinkKey(a, b), LinkKey(b, a)):
            if key not in self.cables:
                raise FabricError(f"{self.topology.name}: there is no cable between {a!r} and {b!r}")
            self.cables[key].set_up(up)
            if notice_after_ns is not None:
                self.call_after(notice_after_ns, partial(self._notice, self.cables[key], up))
        self._note_cables()

    def lose(self, a: str, b: str, *, lost: bool) -> None:
        """Start or stop losing all frames from `a` to `b`, unseen by any device; FabricError for an unknown cable."""
        key = LinkKey(a, b)
        if key not in self.cables:
            raise FabricError(f"{self.topology.name}: there is no cable between {a!r} and {b!r}")
        self.cables[key].set_up(not lost)
        self._note_cables()

    def on_port_status(self, listener: Callable[[LinkKey, bool], None]) -> None:
        """Call `listener(link, up)` when the switch that sends onto a link sees its port go down or come back."""
        self._port_listeners.append(listener)

    def on_cables(self, listener: Callable[[], None]) -> None:
        """Call `listener` after any cable breaks, is repaired, or begins or ends to lose everything."""
        self._cable_listeners.append(listener)

    def on_arrival(self, listener: Callable[[LinkKey, bytes], None]) -> None:
        """Call `listener(link, frame)` for every frame except hellos at the end of any cable, before delivery."""
        for cable in self.cables.values():
            cable.deliver = partial(_notify_then_deliver, listener, cable.link.key, cable.deliver)

    # internals

    def _note_cables(self) -> None:
        for listener in self._cable_listeners:
            listener()

    def _notice(self, cable: Cable, up: bool) -> None:
        tail = cable.link.tail
        if cable.up is up and tail.node in self._switches:
            self._switches[tail.node].switch.set_port_status(tail.port, up)
            for listener in self._port_listeners:
                listener(cable.link.key, up)

    def _running(self, name: str) -> _Running:
        if name not in self._switches:
            raise FabricError(f"{self.topology.name}: there is no switch {name!r}")
        return self._switches[name]

    def _make_switch(self, node: SwitchNode, pipeline_factory: PipelineFactory) -> _Running:
        links = (self.topology.link_at[end] for end in self.topology.link_at if end.node == node.name)
        ports = [PortSettings(link.tail.port, link.rate_bps, link.queue_frames, link.delay_ns) for link in links]
        switch = Switch(
            node.node_id,
            ports,
            self.clock,
            seed=self.seed,
            deflect_session=DEFLECT_SESSION,
            pipeline_factory=pipeline_factory,
        )
        return _Running(node.name, switch, P4RuntimeCore(switch), {})

    def _make_cable(self, link: DirectedLink) -> Cable:
        if link.head.node in self._switches:
            running, port = self._switches[link.head.node], link.head.port
            arrive = partial(self._arrive, running, port)
            hello = partial(self._arrive_hello, running, port, link.key)
            return Cable(link, self.events, arrive, hello, seed=self.seed)
        return Cable(link, self.events, partial(self._arrive_at_host, link.head.node), seed=self.seed)

    def _connect(self, running: _Running) -> None:
        running.cables = {
            port: self.cables[LinkKey(running.name, end.node)]
            for port, end in self.topology.neighbours[running.name].items()
        }
        running.switch.on_wakeup(partial(self._post, partial(self._wake_at, running, None)))
        running.p4runtime.on_due(partial(self._post, partial(self._tick_at, running, None)))

    def _arrive(self, running: _Running, port: int, frame: bytes) -> None:
        if self.hops is not None:
            self.hops.arrived(running.name, port, frame, self.clock.time_ns)
        running.switch.receive(port, (frame,))
        self._poll(running)

    def _arrive_hello(self, running: _Running, port: int, link: LinkKey, frame: bytes) -> None:
        running.switch.receive(port, (frame,))
        self._poll(running)
        if link in self._quiet:
            self._quiet[link].rest(self.clock.time_ns)

    def _make_quiet(self) -> dict[LinkKey, QuietCable]:
        """Return the hello elision of both directions of each cable between switches.

        Where hellos may be lost or late, each of them is an event.
        """
        quiet: dict[LinkKey, QuietCable] = {}
        for key, cable in self.cables.items():
            if not cable.link.is_exact:
                continue
            back = LinkKey(cable.link.head.node, cable.link.tail.node)
            if back in quiet:
                quiet[key] = quiet[back]
            elif cable.link.tail.node in self._switches and cable.link.head.node in self._switches:
                quiet[key] = QuietCable((self._end(cable), self._end(self.cables[back])))
        for key, between in quiet.items():
            self.cables[key].on_change = partial(self._stir, (between,))
        for running in self._switches.values():
            quiet_cables = [quiet[cable.link.key] for cable in running.cables.values() if cable.link.key in quiet]
            running.switch.on_reading(partial(self._stir, quiet_cables))
        return quiet

    def _end(self, cable: Cable) -> HelloEnd:
        running = self._switches[cable.link.tail.node]
        return HelloEnd(running.switch, cable.link.tail.port, cable, partial(self._wake_for_hellos, running))

    def _stir(self, cables: Iterable[QuietCable]) -> None:
        for cable in cables:
            cable.stir(self.clock.time_ns)

    def _wake_for_hellos(self, running: _Running) -> None:
        self._wake_at(running, running.switch.hellos.due_ns)

    def _arrive_at_host(self, name: str, frame: bytes) -> None:
        self._hosts[name].receive(frame)

    def _poll(self, running: _Running) -> None:
        now_ns = self.clock.time_ns
        for departure in running.switch.advance(now_ns):
            if departure.is_hello:
                running.cables[departure.port].carry_hello(departure.data, departure.departs_ns)
                continue
            if self.hops is not None:
                self.hops.departed(running.name, departure.port, departure.data, now_ns, departure.departs_ns)
            running.cables[departure.port].carry(departure.data, departure.departs_ns)
        next_ns = running.switch.next_event_ns()
        if next_ns is not None:
            self._wake_at(running, next_ns)

    def _tick_at(self, running: _Running, time_ns: int | None) -> None:
        """Make the P4Runtime service send what is due at a time (None: now) unless it is due to do so earlier."""
        now_ns = self.clock.time_ns
        time_ns = now_ns if time_ns is None else max(time_ns, now_ns)
        if running.tick_ns is None or time_ns < running.tick_ns:
            running.tick_ns = time_ns
            self.events.at(time_ns, self._tick, running, time_ns)

    def _tick(self, running: _Running, time_ns: int) -> None:
        if running.tick_ns == time_ns:
            running.tick_ns = None
            due_ns = running.p4runtime.tick(time_ns)
            if due_ns is not None:
                self._tick_at(running, due_ns)

    def _wake_at(self, running: _Running, time_ns: int | None) -> None:
        """Poll a switch at a time (None: now) unless it will be polled earlier."""
        now_ns = self.clock.time_ns
        time_ns = now_ns if time_ns is None else max(time_ns, now_ns)
        if running.wake_ns is None or time_ns < running.wake_ns:
            running.wake_ns = time_ns
            self.events.at(time_ns, self._wake, running, time_ns)

    def _wake(self, running: _Running, time_ns: int) -> None:
        if running.wake_ns == time_ns:
            running.wake_ns = None
            self._poll(running)


def _notify_then_deliver(
    listener: Callable[[LinkKey, bytes], None], link: LinkKey, deliver: Callable[[bytes], None], frame: bytes
) -> None:
    listener(link, frame)
    deliver(frame)
