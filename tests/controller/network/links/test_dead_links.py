"""A link dies in virtual time: packets lost until the switch or the path server has rerouted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from collectors.collector import Collector
from collectors.values import LinkCondition, LinkStatus
from controller.common.errors import PathError
from controller.network.gnmi.settings import Hellos
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.links.status import RETURN_AFTER_NS
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.backups import Backups
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.settings import DecideSettings, ManagedFlow
from controller.network.tables.entities import same
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.virtual import NO_HELLOS, VirtualController, WriteDelays
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.packet import decode_udp_frame

MakeTopology = Callable[..., Topology]

MS = 1_000_000
S = 1000 * MS
NOTICE_NS = 2 * MS
WRITE_NS = 3 * MS
GAP_NS = 2 * MS
"""A packet every two milliseconds."""
DELAYS = WriteDelays(write_delay_ns=WRITE_NS)
DECIDE = DecideSettings(hold_down_ns=300 * MS, settle_ns=0, confirm_rounds=1)
IN_FLIGHT_NS = 3 * MS
"""Traffic in flight to the broken cable, as a duration."""


class Circle:
    """A fabric under a controller and a path server that receives dead ports; ha sends to hd."""

    def __init__(
        self,
        topology: Topology,
        decide: DecideSettings = DECIDE,
        engineering: EngineeringSettings | None = None,
        *,
        return_after_ns: int = RETURN_AFTER_NS,
        hellos: Hellos = NO_HELLOS,
    ) -> None:
        self.fabric = VirtualFabric(topology)
        self.collector = Collector(topology, self.fabric.clock)
        self.paths = PathServerCore(topology, decide, flows=(ManagedFlow(src="ha", dst="hd"),), engineering=engineering)
        self.receiver = Receiver()
        self.controller = VirtualController.over(
            self.fabric, watches=(Watch(sample_every=5),), delays=DELAYS, return_after_ns=return_after_ns, hellos=hellos
        )
        self.controller.start()
        self.fabric.host("hc").on_frame(self._report)
        self.fabric.host("hd").on_frame(self.receiver.receive)
        flow = flow_between(topology, 1, "ha", "hd", 8 * 500 * S // GAP_NS, frame_bytes=500)
        self.fabric.start_flow("ha", flow)

    def listen(self) -> None:
        """Tell the path server of port changes at once."""
        self.fabric.on_port_status(self._port_changed)

    def run(self, end_ns: int) -> None:
        """Run to a time, deciding every 100 ms."""
        while self.fabric.now_ns < end_ns:
            self.fabric.run_until(min(end_ns, self.fabric.now_ns + 100 * MS))
            result = self.paths.step(self.collector.snapshot(), self.fabric.now_ns)
            if result is not None:
                self.controller.submit(result.routes)

    def lost(self, start_ns: int, end_ns: int) -> int:
        """Return the number of lost packets among those sent in a time span."""
        return self.receiver.measure(1, start_ns, end_ns).lost

    def _port_changed(self, link: LinkKey, up: bool) -> None:
        result = self.paths.link_changed(link, self.fabric.now_ns, up=up)
        if result is not None:
            self.controller.submit(result.routes)

    def _report(self, frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == self.collector.report_udp_port:
            self.collector.receive(datagram.payload)


@pytest.fixture
def unequal(diamond_of: MakeTopology) -> Topology:
    """Return a diamond with one shortest path from a to d: via b."""
    return diamond_of((MS, 2 * MS, MS, 2 * MS, 20 * MS))


def test_switch_leaves_a_dead_group_port_when_it_notices(diamond_of: MakeTopology) -> None:
    circle = Circle(diamond_of((MS, MS, MS, MS, 20 * MS)))
    circle.run(200 * MS)
    seen = circle.paths.positions.current(circle.collector.snapshot(), 0)[FlowSpec("ha", "hd")].path
    circle.fabric.set_link("a", seen[1], up=False, notice_after_ns=NOTICE_NS)
    circle.fabric.run_until(500 * MS)
    assert 0 < circle.lost(0, 450 * MS) <= (NOTICE_NS + IN_FLIGHT_NS) // GAP_NS


def test_a_dead_link_is_left_for_the_backup_at_once(unequal: Topology) -> None:
    """Packets are lost from the break until the switch detects it and one write at the source takes effect."""
    circle = Circle(unequal)
    circle.listen()
    circle.run(200 * MS)
    assert not circle.paths.routes.routes
    circle.fabric.set_link("a", "b", up=False, notice_after_ns=NOTICE_NS)
    circle.run(800 * MS)
    assert circle.paths.routes.routes == (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)
    steps = 3  # d, c, a: written from the last switch to the source
    assert 0 < circle.lost(0, 700 * MS) <= (NOTICE_NS + steps * WRITE_NS + IN_FLIGHT_NS) // GAP_NS
    assert [decision.reason for decision in circle.paths.decisions] == [
        "link a->b of a-b-d is dead; a-c-d is its backup"
    ]
    circle.fabric.set_link("a", "b", up=True, notice_after_ns=NOTICE_NS)
    circle.run(1500 * MS)
    assert circle.paths.routes.version == 2  # moved flows have returned
    assert circle.lost(700 * MS, 1400 * MS) == 0


def test_a_silent_link_is_left_in_the_next_round(unequal: Topology) -> None:
    circle = Circle(unequal, DecideSettings(dead_after_ns=150 * MS))
    circle.run(200 * MS)
    circle.fabric.set_link("b", "d", up=False)
    circle.run(700 * MS)
    assert circle.paths.routes.routes == (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)
    assert circle.lost(500 * MS, 650 * MS) == 0


def test_engineered_routes_leave_a_dead_link_at_once(unequal: Topology) -> None:
    circle = Circle(unequal, engineering=EngineeringSettings(enough=0.9))
    circle.listen()
    circle.run(200 * MS)
    circle.fabric.set_link("a", "b", up=False, notice_after_ns=NOTICE_NS)
    circle.run(600 * MS)
    assert ("a", "d", (("c", 1),)) in {(r.switch, r.destination, r.next_hops) for r in circle.paths.routes.weighted}
    assert circle.lost(400 * MS, 550 * MS) == 0
    circle.fabric.set_link("a", "b", up=True, notice_after_ns=NOTICE_NS)
    circle.run(800 * MS)
    assert circle.paths.routes.weighted == ()


def test_dead_backup_is_replaced_by_a_live_path(unequal: Topology) -> None:
    backups = Backups(PathServerCore(unequal, DecideSettings()).network.table)
    assert backups.backup(("a", "b", "d")) == ("a", "c", "d")
    dead = {LinkKey("a", "b"), LinkKey("c", "d")}
    assert backups.around(("a", "b", "d"), dead) == (("a", "c", "b", "d"), "the shortest path that is alive")
    assert backups.around(("a", "b", "d"), dead | {LinkKey("a", "c")}) is None


def test_a_link_to_a_host_is_not_the_path_servers(unequal: Topology) -> None:
    with pytest.raises(PathError, match="has no link ha->a between switches"):
        PathServerCore(unequal, DecideSettings()).link_changed(LinkKey("ha", "a"), 0, up=False)


HOLD_NS = 400 * MS


def watching(topology: Topology, hellos: Hellos = NO_HELLOS) -> Circle:
    """Return a closed loop whose path server and collector hear of dead links from the controller only."""
    circle = Circle(topology, return_after_ns=HOLD_NS, hellos=hellos)

    def hear(statuses: Mapping[LinkKey, LinkStatus]) -> None:
        circle.collector.note_links(statuses)
        result = circle.paths.links_noted(statuses, circle.fabric.now_ns)
        if result is not None:
            circle.controller.submit(result.routes)

    circle.controller.on_links(hear)
    return circle


def test_flows_avoid_a_reported_dead_port_until_the_hold_time(
    unequal: Topology,
) -> None:
    circle = watching(unequal)
    circle.run(200 * MS)
    circle.fabric.set_link("a", "b", up=False, notice_after_ns=NOTICE_NS)
    circle.run(700 * MS)
    assert 0 < circle.lost(0, 600 * MS) <= (NOTICE_NS + 4 * WRITE_NS + IN_FLIGHT_NS) // GAP_NS
    assert circle.paths.routes.routes == (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)
    port = unequal.directed_links[LinkKey("a", "b")].tail.port
    cause = f"port {port} of a is down"
    assert [decision.reason for decision in circle.paths.decisions] == [
        f"link a->b ({cause}) of a-b-d is dead; a-c-d is its backup"
    ]
    status = circle.collector.snapshot().statuses[LinkKey("b", "a")]
    assert (status.condition, status.cause) == (LinkCondition.DOWN, cause)
    assert status.age_ns == circle.fabric.now_ns - (200 * MS + NOTICE_NS + WRITE_NS)

    circle.fabric.set_link("a", "b", up=True, notice_after_ns=NOTICE_NS)
    circle.run(700 * MS + HOLD_NS)
    assert circle.paths.routes.version == 1  # held back
    circle.run(1500 * MS)
    assert circle.paths.routes == RouteSet(2, ())
    assert circle.paths.decisions[-1].reason == "link a->b is in use again: from a-c-d back to a-b-d"
    assert circle.collector.snapshot().statuses[LinkKey("a", "b")].condition is LinkCondition.UP
    assert circle.lost(600 * MS, 1400 * MS) == 0


def test_base_routes_go_around_a_dead_link_without_a_path_server(unequal: Topology) -> None:
    """Also for unmeasured traffic; flows on other paths stay there, and moved ones return afterwards."""
    circle = Circle(unequal, return_after_ns=HOLD_NS)
    held = {node.name: circle.controller.coordinator.held(node.name) for node in unequal.switches}
    circle.fabric.run_until(200 * MS)
    circle.fabric.set_link("a", "b", up=False, notice_after_ns=NOTICE_NS)
    circle.fabric.run_until(700 * MS)
    assert 0 < circle.lost(0, 600 * MS) <= (NOTICE_NS + 4 * WRITE_NS + IN_FLIGHT_NS) // GAP_NS
    circle.fabric.set_link("a", "b", up=True, notice_after_ns=NOTICE_NS)
    circle.fabric.run_until(1500 * MS)
    assert circle.lost(600 * MS, 1400 * MS) == 0
    assert circle.controller.settled
    for node in unequal.switches:
        now = circle.controller.coordinator.held(node.name)
        assert now.keys() == held[node.name].keys()
        assert all(same(now[key], held[node.name][key]) for key in now)


def test_reports_keep_off_a_dead_link(unequal: Topology) -> None:
    """The sink's reports went via b->c or c; the collector still gets a report of every arriving packet."""
    circle = watching(unequal)
    circle.run(200 * MS)
    circle.fabric.set_link("d", "c", up=False, notice_after_ns=NOTICE_NS)
    circle.run(700 * MS)
    ages = [state.age_ns for state in circle.collector.snapshot().paths.values()]
    assert ages
    assert max(ages) < 50 * MS


def test_explicit_path_over_a_dead_link_yields_without_a_server(unequal: Topology) -> None:
    circle = Circle(unequal, return_after_ns=HOLD_NS)
    circle.controller.submit(RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)))
    circle.fabric.run_until(200 * MS)
    circle.fabric.set_link("c", "d", up=False, notice_after_ns=NOTICE_NS)
    circle.fabric.run_until(700 * MS)
    assert circle.lost(300 * MS, 600 * MS) == 0
    circle.fabric.set_link("c", "d", up=True, notice_after_ns=NOTICE_NS)
    circle.fabric.run_until(1400 * MS)
    assert circle.controller.settled
    assert circle.lost(600 * MS, 1300 * MS) == 0


def test_restarted_path_server_believes_the_collector(unequal: Topology) -> None:
    circle = watching(unequal)
    circle.run(200 * MS)
    circle.fabric.set_link("a", "b", up=False, notice_after_ns=NOTICE_NS)
    circle.run(400 * MS)
    circle.paths = PathServerCore(unequal, DECIDE, flows=(ManagedFlow(src="ha", dst="hd"),))
    result = circle.paths.step(circle.collector.snapshot(), circle.fabric.now_ns)
    assert result is not None
    assert result.routes.routes == (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)


AROUND_B = tuple(ends for far in "acd" for ends in (("b", far), (far, "b")))


@pytest.mark.parametrize("lost", [(("a", "b"),), (("b", "a"),), AROUND_B], ids=["out", "back", "switch"])
def test_hellos_detect_failures_hidden_from_ports(unequal: Topology, lost: tuple[tuple[str, str], ...]) -> None:
    """Frames lost in one direction, along the flow or against it, and a dead switch."""
    circle = watching(unequal, Hellos())
    circle.run(400 * MS)
    for a, b in lost:
        circle.fabric.lose(a, b, lost=True)
    circle.run(1000 * MS)
    detection_ns = 3 * 50 * MS
    assert circle.lost(0, 900 * MS) <= (detection_ns + 4 * WRITE_NS + 2 * IN_FLIGHT_NS) // GAP_NS
    assert circle.lost(650 * MS, 900 * MS) == 0
    assert {LinkKey("a", "b"), LinkKey("b", "a")} <= circle.controller.coordinator.down
    assert all(not {link.src, link.dst}.isdisjoint({"b"}) for link in circle.controller.coordinator.down)
    for a, b in lost:
        circle.fabric.lose(a, b, lost=False)
    circle.run(2000 * MS)
    assert circle.controller.coordinator.down == frozenset()
    assert circle.paths.routes.routes == ()
    assert circle.lost(900 * MS, 1900 * MS) == 0
