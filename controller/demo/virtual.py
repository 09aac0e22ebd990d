"""The demo in virtual time: fabric, collector, path server and controller in one process, stepped by one clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from collectors.collector import Collector
from collectors.values import Snapshot
from controller.demo.live import LiveView, Status
from controller.demo.outcome import Move, Outcome
from controller.demo.scenario import NS_PER_S, Scenario
from controller.intents import RouteSet
from controller.p4runtime.in_process import InProcessSession
from controller.p4runtime.session import fabric_program, load_schema
from controller.paths.core import PathServer
from controller.paths.settings import PathServerSettings
from controller.tables.int_watch import Watch
from controller.virtual import VirtualController, WriteDelays
from dataplane.config import Strict
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Receiver
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.wire.packet import decode_udp_frame

_VIEW_INTERVAL_NS = 100_000_000
_DelayNs = Annotated[int, msgspec.Meta(ge=0)]


class LoopDelays(Strict, frozen=True):
    """What the control loop's own parts take, on the fabric's clock; the network's delays come on top."""

    report_ns: _DelayNs = 200_000
    """From a report's arrival at the collector's host to its figures in the state."""
    decision_ns: _DelayNs = 2_000_000
    """From a snapshot to the routes that were decided on it."""
    write_ns: _DelayNs = 1_000_000
    """From sending a batch of table writes to its effect and acknowledgement."""


@dataclass
class VirtualRun:
    """One run of the scenario; `run` returns what it showed."""

    scenario: Scenario
    settings: PathServerSettings
    delays: LoopDelays
    watches: tuple[Watch, ...]
    view: LiveView
    seed: int = 0

    def __post_init__(self) -> None:
        topology = self.scenario.topology
        if topology.collector is None:
            raise FabricError(f"topology {topology.name}: has no collector; the demo needs one")
        self.fabric = VirtualFabric(topology, seed=self.seed, record_hops=True)
        self.collector = Collector(topology, self.fabric.clock)
        self.paths = PathServer(topology, self.settings)
        self.receivers = {host.name: Receiver() for host in topology.hosts}
        self.snapshots: list[tuple[str, Snapshot]] = []
        self.moves: list[Move] = []
        self._collector_host = topology.collector.host
        self._controller = self._connect()

    def run(self) -> Outcome:
        """Run from zero to the scenario's end."""
        self._controller.start()
        self._attach_hosts()
        fabric, scenario = self.fabric, self.scenario
        self._every(self.settings.interval_ns, self._decide)
        self._every(_VIEW_INTERVAL_NS, self._show)
        fabric.call_at(scenario.congest_ns - 1, lambda: self._keep("before"))
        for number, (planned, flow) in enumerate(zip(scenario.flows, scenario.packet_flows(), strict=True)):
            assert flow.flow_id == number
            fabric.start_flow(planned.flow.src_host, flow)
        fabric.run_until(scenario.end_ns)
        self._keep("after")
        self.paths.close()
        return Outcome(
            scenario=scenario,
            receivers=self.receivers,
            moves=tuple(self.moves),
            snapshots=tuple(self.snapshots),
            reports=self._reports(),
            lost_reports=sum(state.lost for state in self.collector.snapshot().reporters.values()),
            first_on_new_path_ns=self._first_on_new_path(),
        )

    # the circle: report, state, decision, write

    def _connect(self) -> VirtualController:
        schema = load_schema(*fabric_program())
        sessions = {
            node.name: InProcessSession(node.name, node.node_id, self.fabric.p4runtime(node.name), schema)
            for node in self.scenario.topology.switches
        }
        return VirtualController(
            self.scenario.topology,
            sessions,
            self.fabric.clock,
            self.fabric.call_at,
            watches=self.watches,
            delays=WriteDelays(write_delay_ns=self.delays.write_ns),
        )

    def _attach_hosts(self) -> None:
        for name, receiver in self.receivers.items():
            self.fabric.host(name).on_frame(lambda frame, now_ns, r=receiver: r.receive(frame, now_ns))
        self.fabric.host(self._collector_host).on_frame(self._report_arrives)
        self.collector.subscribe(self.paths.record)

    def _report_arrives(self, frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == self.collector.report_udp_port:
            payload = datagram.payload
            self.fabric.call_after(self.delays.report_ns, lambda: self.collector.receive(payload))

    def _decide(self) -> None:
        snapshot = self.collector.snapshot()
        before = len(self.paths.decisions)
        routes = self.paths.step(snapshot, self.fabric.now_ns)
        if routes is None:
            return
        if not self.moves:
            self._keep("during")
        for decision in self.paths.decisions[before:]:
            move = Move(decision.time_ns, decision.flow, decision.old_path, decision.new_path, decision.reason)
            self.moves.append(move)
            self.view.decided(describe(move))
        self.fabric.call_after(self.delays.decision_ns, lambda: self._submit(routes))

    def _submit(self, routes: RouteSet) -> None:
        self._controller.submit(routes)

    # watching

    def _every(self, interval_ns: int, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            if self.fabric.now_ns + interval_ns <= self.scenario.end_ns:
                self.fabric.call_after(interval_ns, again)

        self.fabric.call_after(interval_ns, again)

    def _show(self) -> None:
        now_ns = self.fabric.now_ns
        self.view.congested = self.scenario.congested if now_ns >= self.scenario.congest_ns else None
        self.view.show(
            Status(
                time_s=now_ns / NS_PER_S,
                end_s=self.scenario.end_ns / NS_PER_S,
                phase=phase_name(self.scenario, now_ns, moved=bool(self.moves)),
                reports=self._reports(),
                lost_reports=0,
            ),
            self.collector.snapshot(),
        )

    def _keep(self, name: str) -> None:
        self.snapshots.append((name, self.collector.snapshot()))

    def _reports(self) -> int:
        return sum(state.received for state in self.collector.snapshot().reporters.values())

    def _first_on_new_path(self) -> int | None:
        """Return when the first packet of a moved flow left by a link of its new path; the simulator's own record."""
        assert self.fabric.hops is not None
        specs = [planned.flow for planned in self.scenario.flows]
        neighbours = self.scenario.topology.neighbours
        first = {move.flow: move for move in reversed(self.moves)}
        best: int | None = None
        for hop in self.fabric.hops.hops:
            move = first.get(specs[hop.flow_id])
            if move is None or hop.started_ns < move.time_ns or hop.switch not in move.new:
                continue
            onward = neighbours[hop.switch][hop.out_port].node
            if (hop.switch, onward) in _new_links(move) and (best is None or hop.started_ns < best):
                best = hop.started_ns
        return best


def describe(move: Move) -> str:
    """Return a move as the line that the live view and the log show."""
    return (
        f"{move.time_ns / NS_PER_S:7.3f} s  {move.flow.src_host} → {move.flow.dst_host}: "
        f"{'-'.join(move.old)} ⇒ {'-'.join(move.new)}: {move.reason}"
    )


def phase_name(scenario: Scenario, now_ns: int, *, moved: bool) -> str:
    """Return what is going on at a time of the run, in one word."""
    if now_ns < scenario.congest_ns:
        return "warm-up" if now_ns < scenario.warm_up_ns else "before"
    return "rerouted" if moved else "congested"


def _new_links(move: Move) -> set[tuple[str, str]]:
    return set(zip(move.new, move.new[1:], strict=False)) - set(zip(move.old, move.old[1:], strict=False))
