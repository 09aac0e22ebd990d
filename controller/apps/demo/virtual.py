"""The demo in virtual time: fabric, collector, path server and controller in one process, stepped by one clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from msgspec.structs import replace

from collectors.collector import Collector
from collectors.values import HopRecord, Snapshot
from controller.apps.demo.comparison import Unsteered
from controller.apps.demo.live import LiveView, Status
from controller.apps.demo.moves import (
    describe,
    describe_weights,
    first_moves,
    largest_surge,
    new_links,
    phase_name,
)
from controller.apps.demo.outcome import Move, Outcome
from controller.apps.demo.scenario import Scenario
from controller.apps.demo.settings import DemoSettings
from controller.common.errors import PathError
from controller.network.intents import RouteSet
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.signals import Signals
from controller.network.paths.records.recorder import Recorder
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.clock import NS_PER_S
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Receiver, Sender
from dataplane.fabric.virtual.background import FluidBackground
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.fabric.virtual.host import VirtualHost
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.wire.packet import decode_udp_frame

_VIEW_INTERVAL_NS = 100_000_000


@dataclass
class VirtualRun:
    """One run of the scenario; `run` returns what it showed."""

    scenario: Scenario
    settings: DemoSettings
    view: LiveView
    recorder: Recorder
    seed: int = 0
    deciding: bool = True
    """False: no flow moves, the baseline of a comparison."""
    fluid: bool = False
    """True: the flows are a fluid, and only those of their packets that carry telemetry are sent."""

    def __post_init__(self) -> None:
        topology = self.scenario.topology
        if topology.collector is None:
            raise FabricError(f"topology {topology.name}: has no collector; the demo needs one")
        self.fabric = VirtualFabric(topology, seed=self.seed, pipeline_factory=compiled_pipeline, record_hops=True)
        self.collector = Collector(topology, self.fabric.clock, self.settings.collector())
        decide = self.settings.decider()
        self.paths = PathServerCore(topology, decide)
        self._signals = Signals(queue_frames=decide.idle_frames, interval_ns=self.settings.decision_interval_ns)
        self.receivers = {host.name: Receiver() for host in topology.hosts}
        self.snapshots: list[tuple[str, Snapshot]] = []
        self.moves: list[Move] = []
        self.decisions: list[Decision] = []
        self.rebalances: list[Rebalance] = []
        self._records: list[HopRecord] = []
        self._collector_host = topology.collector.host
        self._controller = _connect(self.fabric, self.settings, self.fluid)
        self._no_room: str | None = None
        self._sending: list[tuple[VirtualHost, Sender]] = []

    def run(self) -> Outcome:
        """Run from zero to the scenario's end."""
        self.start()
        self.fabric.run_until(self.scenario.end_ns)
        return self.outcome()

    def start(self) -> None:
        """Begin at zero; `fabric.run_until` the scenario's end comes next, in one piece or in several."""
        self._controller.start()
        self._attach_hosts()
        fabric, scenario = self.fabric, self.scenario
        if self.deciding:
            self._every(self.settings.decision_interval_ns, self._decide)
        self._every(_VIEW_INTERVAL_NS, self._show)
        fabric.call_at(scenario.congest_ns - 1, lambda: self._keep("before"))
        fabric.call_at(scenario.after_ns, self._keep_during)
        self._sending = _send(fabric, scenario, self.settings.watch.sample_every if self.fluid else 1)

    def outcome(self) -> Outcome:
        """Return what the run showed, at its end."""
        self._keep("after")
        self._write_records()
        reporters = self.collector.snapshot().reporters.values()
        return Outcome(
            scenario=self.scenario,
            receivers=self.receivers,
            moves=tuple(self.moves),
            rebalances=tuple(self.rebalances),
            snapshots=tuple(self.snapshots),
            reports=sum(state.received for state in reporters),
            lost_reports=sum(state.lost for state in reporters),
            first_on_new_path_ns=self._first_on_new_path(),
            sent={sender.flow.flow_id: host.load(sender) for host, sender in self._sending},
            exact=True,
            sample_every=self.settings.watch.sample_every if self.fluid else 1,
            no_room=self._no_room,
        )

    # the loop: report, state, decision, write

    def _attach_hosts(self) -> None:
        for name, receiver in self.receivers.items():
            self.fabric.host(name).on_frame(_measuring(receiver))
        self.fabric.host(self._collector_host).on_frame(self._report_arrives)
        self.collector.subscribe(self._note)

    def _report_arrives(self, frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == self.collector.report_udp_port:
            payload, source = datagram.payload, datagram.ip.src
            if isinstance(source, IPv4Address):  # as all reports are
                self.fabric.call_after(self.settings.delays.report_ns, lambda: self._receive(payload, source))

    def _receive(self, payload: bytes, source: IPv4Address) -> None:
        self.collector.receive(payload, address=source)
        if self.deciding:
            signals = self.collector.take_signals()
            if self._signals.observe(signals, self.fabric.now_ns, self.paths.outgrows):
                self.fabric.call_after(0, lambda: self._decide(out_of_turn=True))

    def _decide(self, *, out_of_turn: bool = False) -> None:
        self._write_records()
        self.collector.begin_round()
        snapshot = self.collector.snapshot()
        result = self.paths.step(snapshot, self.fabric.now_ns, out_of_turn=out_of_turn)
        self._signals.decided(moved=result is not None)
        if result is None:
            return
        for change in result.rebalances:
            self.rebalances.append(change)
            self.view.decided(describe_weights(change))
        if result.moves and self.fabric.now_ns >= self.scenario.congest_ns:
            self._keep_during()
        for decision in result.moves:
            self.decisions.append(decision)
            move = Move(decision.time_ns, decision.flow, decision.old_path, decision.new_path, decision.reason)
            self.moves.append(move)
            self.view.decided(describe(move))
        self.fabric.call_after(self.settings.delays.decision_ns, lambda: self._submit(result.routes))

    def _submit(self, routes: RouteSet) -> None:
        self._controller.submit(routes)

    def _note(self, records: tuple[HopRecord, ...]) -> None:
        self._records += records

    def _write_records(self) -> None:
        records, self._records = self._records, []
        self.recorder.record(records)

    # watching

    def _every(self, interval_ns: int, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            if self.fabric.now_ns + interval_ns <= self.scenario.end_ns:
                self.fabric.call_after(interval_ns, again)

        self.fabric.call_after(interval_ns, again)

    def _show(self) -> None:
        now_ns, snapshot = self.fabric.now_ns, self.collector.snapshot()
        phase = phase_name(self.scenario, now_ns, self.moves, self.rebalances, snapshot)
        self._no_room = self._reason() if self.deciding and phase == "no room" else None
        self.view.congested = self.scenario.congested if now_ns >= self.scenario.congest_ns else None
        self.view.show(
            Status(
                time_s=now_ns / NS_PER_S,
                end_s=self.scenario.end_ns / NS_PER_S,
                phase=phase,
                reports=sum(state.received for state in snapshot.reporters.values()),
                lost_reports=sum(state.lost for state in snapshot.reporters.values()),
            ),
            snapshot,
        )

    def _reason(self) -> str:
        """Return the path server's reason for leaving the surge where it is."""
        try:
            return self.paths.why(largest_surge(self.scenario), self.fabric.now_ns).reason
        except PathError as error:
            return str(error)

    def _keep_during(self) -> None:
        """Keep the state at the first decision after the surge began, or before the last phase."""
        if "during" not in dict(self.snapshots):
            self._keep("during")

    def _keep(self, name: str) -> None:
        self.snapshots.append((name, self.collector.snapshot()))

    def _first_on_new_path(self) -> int | None:
        """Return when the first packet of a moved flow left by a link of its new path; the simulator's own record."""
        assert self.fabric.hops is not None
        planned = self.scenario.by_number()
        neighbours = self.scenario.topology.neighbours
        first = first_moves(self.scenario, self.moves)
        best: int | None = None
        for hop in self.fabric.hops.hops:
            move = first.get(planned[hop.flow_id].flow)
            if move is None or hop.started_ns < move.time_ns or hop.switch not in move.new:
                continue
            onward = neighbours[hop.switch][hop.out_port].node
            if (hop.switch, onward) in new_links(move) and (best is None or hop.started_ns < best):
                best = hop.started_ns
        return best


def run_unsteered(scenario: Scenario, settings: DemoSettings, seed: int, *, fluid: bool = False) -> Unsteered:
    """Run the scenario in virtual time with the same telemetry, but nothing that collects or decides."""
    topology = scenario.topology
    fabric = VirtualFabric(topology, seed=seed, pipeline_factory=compiled_pipeline, record_hops=True)
    _connect(fabric, settings, fluid).start()
    receivers = {name: Receiver() for name in {planned.flow.dst_host for planned in scenario.flows}}
    for name, receiver in receivers.items():
        fabric.host(name).on_frame(_measuring(receiver))
    _send(fabric, scenario, settings.watch.sample_every if fluid else 1)
    fabric.run_until(scenario.end_ns)
    return Unsteered(receivers, _crossing(scenario, fabric))


def _send(fabric: VirtualFabric, scenario: Scenario, sample_every: int) -> list[tuple[VirtualHost, Sender]]:
    """Send the scenario's flows; of every so many packets one, and the others as a fluid."""
    flows = [
        (planned.flow.src_host, flow) for planned, flow in zip(scenario.flows, scenario.packet_flows(), strict=True)
    ]
    senders = FluidBackground(fabric, flows, sample_every=sample_every).senders
    return [(fabric.host(host), sender) for (host, _), sender in zip(flows, senders, strict=True)]


def _connect(fabric: VirtualFabric, settings: DemoSettings, fluid: bool) -> VirtualController:
    # Hosts choose the samples of a fluid: each packet is one.
    watch = replace(settings.watch, sample_every=1) if fluid else settings.watch
    return VirtualController.over(
        fabric,
        watches=(watch,),
        delays=WriteDelays(write_delay_ns=settings.delays.write_ns, drain_ns=settings.delays.drain_ns),
    )


def _measuring(receiver: Receiver) -> Callable[[bytes, int], None]:
    def measure(frame: bytes, now_ns: int) -> None:
        receiver.receive(frame, now_ns)

    return measure


def _crossing(scenario: Scenario, fabric: VirtualFabric) -> frozenset[int]:
    link = scenario.congested
    ports = {port for port, peer in scenario.topology.neighbours[link.src].items() if peer.node == link.dst}
    hops = fabric.hops.hops if fabric.hops else ()
    return frozenset(hop.flow_id for hop in hops if hop.switch == link.src and hop.out_port in ports)
