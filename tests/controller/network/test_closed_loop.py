"""The whole loop in virtual time: packets, reports, state, decision, writes, packets on another path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from collectors.collector import Collector
from controller.network.intents import FlowSpec, Route
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.paths.core import PathServerCore
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import DrainChange
from controller.network.paths.settings import DecideSettings, ManagedFlow
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.packet import decode_udp_frame

MakeTopology = Callable[..., Topology]

MS = 1_000_000
S = 1000 * MS


class Circle:
    """A fabric with its collector, path server and controller on one clock."""

    def __init__(self, topology: Topology, decide: DecideSettings, store: PathStore | None = None) -> None:
        self.fabric = VirtualFabric(topology)
        self.collector = Collector(topology, self.fabric.clock)
        self.decide, self.store = decide, store
        self.paths = self.new_path_server()
        self.receiver = Receiver()
        self.controller = self.new_controller()
        self.controller.start()
        self.fabric.host("hc").on_frame(self._report)
        self.fabric.host("hd").on_frame(self.receiver.receive)

    def new_path_server(self) -> PathServerCore:
        """Return a path server with what the store has kept."""
        flows = (ManagedFlow(src="ha", dst="hd"),)
        return PathServerCore(self.fabric.topology, self.decide, flows=flows, store=self.store)

    def new_controller(self, election_id: int = 1) -> VirtualController:
        """Return a controller that knows nothing yet."""
        schema = load_schema(*fabric_program())
        return VirtualController(
            self.fabric.topology,
            {
                node.name: InProcessSession(
                    node.name, node.node_id, self.fabric.p4runtime(node.name), schema, election_id=election_id
                )
                for node in self.fabric.topology.switches
            },
            self.fabric.clock,
            self.fabric.call_at,
            delays=WriteDelays(write_delay_ns=2 * MS, drain_ns=50 * MS),
        )

    def send(self, number: int, src: str, dst: str, rate_bps: int, start_ns: int, stop_ns: int) -> None:
        """Let a host send at a constant rate."""
        flow = flow_between(self.fabric.topology, number, src, dst, rate_bps, start_ns=start_ns, stop_ns=stop_ns)
        self.fabric.start_flow(src, flow)

    def run(self, end_ns: int) -> None:
        """Run to a time, deciding every 100 ms."""
        while self.fabric.now_ns < end_ns:
            self.fabric.run_until(min(end_ns, self.fabric.now_ns + 100 * MS))
            result = self.paths.step(self.collector.snapshot(), self.fabric.now_ns)
            if result is not None:
                self.controller.submit(result.routes)

    def paths_now(self) -> list[Route]:
        """Return the explicit paths in force."""
        return list(self.paths.routes.routes)

    def _report(self, frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == self.collector.report_udp_port:
            self.collector.receive(datagram.payload)


@pytest.fixture
def circle(diamond_of: MakeTopology) -> Circle:
    """Return a slow diamond: 1 Mbit/s, a-b-d of 10 ms and a-c-d of 14 ms."""
    topology = diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS), 1_000_000)
    return Circle(topology, DecideSettings(min_gain_ns=MS, hold_down_ns=S, settle_ns=200 * MS, confirm_rounds=3))


def test_flow_leaves_a_congested_link_without_loss_and_returns(circle: Circle) -> None:
    circle.send(1, "ha", "hd", 150_000, 0, 6 * S)
    circle.send(2, "ha", "hb", 1_000_000, S, 3 * S)
    circle.run(S)
    assert circle.paths_now() == []
    circle.run(2500 * MS)
    assert circle.paths_now() == [Route(FlowSpec("ha", "hd"), ("a", "c", "d"))]
    assert circle.controller.settled
    circle.run(6500 * MS)
    assert circle.paths_now() == []
    assert [decision.new_path for decision in circle.paths.decisions] == [("a", "c", "d"), ("a", "b", "d")]
    before, during, after = (
        circle.receiver.measure(1, start_ns, end_ns) for start_ns, end_ns in ((0, S), (2 * S, 3 * S), (5 * S, 6 * S))
    )
    assert before.delay_mean_ns is not None
    assert during.delay_mean_ns is not None
    assert after.delay_mean_ns is not None
    assert during.delay_mean_ns - before.delay_mean_ns == pytest.approx(4 * MS, abs=2 * MS)
    assert after.delay_mean_ns == pytest.approx(before.delay_mean_ns, abs=MS)
    assert circle.receiver.measure(1, 0, 6 * S).lost == 0


def test_drained_link_carries_nothing_until_it_is_put_back(diamond_of: MakeTopology) -> None:
    """A managed and an unmanaged flow leave without loss, across restarts of path server and controller."""
    topology = diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS), 1_000_000)
    settings = DecideSettings(settle_ns=200 * MS, confirm_rounds=3)
    with closing(open_path_database(":memory:")) as database:
        circle = Circle(topology, settings, PathStore(database, max_decisions=99))
        circle.send(1, "ha", "hd", 100_000, 0, 5 * S)
        circle.send(2, "hb", "hd", 100_000, 0, 5 * S)
        circle.run(S)
        effect, result = circle.paths.drain(DrainChange("b->d", drained=True), circle.fabric.now_ns)
        assert result is not None
        assert ([move.new_path for move in effect.moves], effect.others) == ([("a", "c", "d")], 1)
        circle.controller.submit(result.routes)
        circle.run(2 * S)
        before = frames_over(circle, "b", "d")
        circle.paths = circle.new_path_server()
        circle.run(3 * S)
        circle.controller = circle.new_controller(election_id=2)
        circle.controller.start()
        circle.run(3500 * MS)
        circle.controller.submit(circle.paths.routes)
        circle.run(4 * S)
        assert circle.controller.settled
        assert frames_over(circle, "b", "d") == before
        _, result = circle.paths.drain(DrainChange("b->d", drained=False), circle.fabric.now_ns)
        assert result is not None
        circle.controller.submit(result.routes)
        circle.run(5500 * MS)
        assert frames_over(circle, "b", "d") > before
        assert [circle.receiver.measure(number, 0, 5 * S).lost for number in (1, 2)] == [0, 0]


def frames_over(circle: Circle, src: str, dst: str) -> int:
    """Return the frames that a switch has sent to another."""
    return circle.fabric.cables[LinkKey(src, dst)].counters.frames
