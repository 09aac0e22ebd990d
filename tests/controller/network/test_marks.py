"""The mark of INT packets changes under traffic, with packets in flight at every step: no host ever gets INT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from controller.common.errors import ControllerError, SessionError
from controller.network.owners.telemetry import Stage, longest_flight_ns
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.reconcile import diff
from controller.network.tables.entities import Batch
from controller.network.tables.telemetry.int_domain import IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.values import Topology
from dataplane.wire.packet import decode_udp_frame

MakeTopology = Callable[..., Topology]

MS = 1_000_000
DSCP = IntDomain()
BY_PORT = IntDomain(udp_port=5599)
MARKS = {
    "dscp": DSCP,
    "port": BY_PORT,
    "probe": IntDomain(probe_marker=0xFEED_FACE_0BAD_CAFE),
    "bit": IntDomain(dscp=1, dscp_mask=1),
}
PAIRS = [("dscp", "port"), ("probe", "bit")]
CHANGED_NS = 20 * MS
END_NS = 160 * MS


@pytest.fixture(scope="module")
def topology(diamond_of: MakeTopology) -> Topology:
    """Return links of 5 ms, so that each has several packets in flight."""
    return diamond_of((5 * MS, 5 * MS, 5 * MS, 5 * MS, 5 * MS), rate_bps=1_000_000_000)


class Bench:
    """Flows between edges in both directions, and their hosts' received packets: ports and bytes."""

    def __init__(
        self,
        topology: Topology,
        watches: Sequence[Watch] = (Watch(),),
        domain: IntDomain = DSCP,
        write_delay_ns: int = 1 * MS,
    ) -> None:
        self.fabric, self.topology = VirtualFabric(topology), topology
        self._delays = WriteDelays(write_delay_ns=write_delay_ns)
        schema = load_schema(*fabric_program())
        self.sessions = {
            node.name: InProcessSession(node.name, node.node_id, self.fabric.p4runtime(node.name), schema)
            for node in topology.switches
        }
        self.controller = self.control(watches, domain)
        self.got: set[tuple[int, int]] = set()
        self.reports: list[int] = []
        for host in ("ha", "hb", "hd"):
            self.fabric.host(host).on_frame(lambda frame, now_ns: self._take(frame))
        self.fabric.host("hc").on_frame(lambda frame, now_ns: self.reports.append(now_ns))
        for number, (src, dst) in enumerate((("ha", "hd"), ("hd", "ha"), ("hb", "hd")), start=1):
            flow = flow_between(topology, 1, src, dst, rate_bps=2_500_000, start_ns=number, stop_ns=END_NS)
            self.fabric.start_flow(src, flow)

    def control(self, watches: Sequence[Watch], domain: IntDomain) -> VirtualController:
        """Take control of the switches in their current state."""
        controller = VirtualController(
            self.topology,
            self.sessions,
            self.fabric.clock,
            self.fabric.call_at,
            watches=watches,
            domain=domain,
            delays=self._delays,
        )
        controller.start()
        return controller

    def _take(self, frame: bytes) -> None:
        udp = decode_udp_frame(frame)
        assert udp is not None
        self.got.add((udp.dst_port, len(udp.payload)))

    def check(self) -> None:
        """Let traffic end; check that no host got INT and that all desired telemetry has been in place for a while."""
        self.fabric.run_until(END_NS + 100 * MS)
        assert len(self.got) == 1, "a host got INT"
        telemetry = self.controller.features.telemetry
        assert telemetry.is_settled
        for name, session in self.sessions.items():
            assert diff(self.controller.coordinator.wanted(name), session.read()) == []
        assert any(at > END_NS - 20 * MS for at in self.reports), "telemetry is not back"


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_hosts_never_get_int_while_the_mark_changes(topology: Topology, before: str, after: str) -> None:
    # Longer than a packet's way from the first switch to the last.
    bench = Bench(topology, domain=MARKS[before], write_delay_ns=4 * MS)
    bench.fabric.run_until(CHANGED_NS)
    bench.controller.configure(watches=[Watch(sample_every=2)], domain=MARKS[after])
    quiet_ns = CHANGED_NS + longest_flight_ns(topology)
    bench.fabric.run_until(quiet_ns)
    silent_after = max(bench.reports)
    bench.check()
    assert min(at for at in bench.reports if at > silent_after) > quiet_ns, "INT travelled while the mark changed"


def test_other_modes_that_travel_wait_alike(topology: Topology) -> None:
    bench = Bench(topology, [Watch(src="ha", mode="mx"), Watch(mode="hop-by-hop")])
    bench.fabric.run_until(CHANGED_NS)
    bench.controller.configure(watches=[Watch(src="ha", mode="hop-by-hop"), Watch(mode="mx")], domain=BY_PORT)
    bench.check()


def test_xd_goes_on_while_the_mark_changes(topology: Topology) -> None:
    bench = Bench(topology, [Watch(mode="xd")])
    bench.fabric.run_until(CHANGED_NS)
    bench.controller.configure(watches=[Watch(mode="xd")], domain=BY_PORT)
    bench.check()
    gaps = [later - at for at, later in zip(bench.reports, bench.reports[1:], strict=False)]
    assert max(gaps) < 7 * MS


@pytest.mark.parametrize("after_ms", [2, 59])
def test_settings_that_change_again_meanwhile(topology: Topology, after_ms: int) -> None:
    bench = Bench(topology)
    bench.fabric.run_until(CHANGED_NS)
    bench.controller.configure(domain=BY_PORT)
    bench.fabric.run_until(CHANGED_NS + after_ms * MS)
    bench.controller.configure(domain=DSCP if after_ms % 2 else MARKS["probe"])
    bench.check()


@pytest.mark.parametrize(("table", "switch"), [("int_marker", "d"), ("ipv4_watchlist", "d")])
def test_refusal_of_a_mark_change_rolls_all_back(
    topology: Topology, monkeypatch: pytest.MonkeyPatch, table: str, switch: str
) -> None:
    """The last switch refuses the new mark after others have it, or the watches after others mark by them."""
    bench = Bench(topology)
    write, refusals = bench.sessions[switch].write, list[Batch]()

    def refuse(batch: Batch) -> None:
        if batch[0].key.table == table and batch[0].verb != "delete" and not refusals:
            refusals.append(batch)
            raise SessionError(switch, "write", "no room", code="RESOURCE_EXHAUSTED", refused=(0,))
        write(batch)

    bench.fabric.run_until(CHANGED_NS)
    monkeypatch.setattr(bench.sessions[switch], "write", refuse)
    bench.controller.configure(watches=[Watch(sample_every=3)], domain=BY_PORT)
    before = VirtualController.over(VirtualFabric(topology)).coordinator
    bench.check()
    assert refusals
    assert diff(before.wanted(switch), bench.sessions[switch].read()) == []


def test_a_switch_that_is_away_holds_the_change_up(topology: Topology) -> None:
    bench = Bench(topology)
    bench.fabric.run_until(CHANGED_NS)
    bench.controller.lose("b")
    bench.controller.configure(domain=BY_PORT)
    change = bench.controller.features.telemetry
    bench.fabric.run_until(40 * MS)
    assert (change.stage, set(change.missing)) == (Stage.QUIET, {"b"})
    bench.controller.reconnect("b")
    bench.check()


def test_a_controller_that_starts_with_another_mark(topology: Topology) -> None:
    bench = Bench(topology, domain=MARKS["probe"])
    bench.fabric.run_until(CHANGED_NS)
    bench.controller = bench.control([Watch()], BY_PORT)
    assert bench.controller.features.telemetry.stage is not Stage.IN_FORCE
    bench.check()


def test_controller_restart_with_the_same_mark_changes_nothing(topology: Topology) -> None:
    bench = Bench(topology, domain=BY_PORT)
    for session in bench.sessions.values():
        session.write = None  # type: ignore[assignment,method-assign]
    assert bench.control([Watch()], BY_PORT).features.telemetry.is_settled


def test_settings_that_do_not_fit_change_nothing(topology: Topology) -> None:
    bench = Bench(topology)
    base, number = bench.controller.features.telemetry.base, bench.controller.features.telemetry.number
    with pytest.raises(ControllerError, match="there is no host 'nobody'"):
        bench.controller.configure(watches=[Watch(src="nobody")], domain=BY_PORT)
    assert bench.controller.features.telemetry.base is base
    assert bench.controller.features.telemetry.number == number
