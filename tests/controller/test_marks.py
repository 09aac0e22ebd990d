"""The mark of INT packets changes while traffic flows, and no host ever gets INT."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.errors import ControllerError
from controller.tables.int_domain import IntDomain
from controller.tables.int_watch import Mode, Watch
from controller.virtual import VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.topology_file import load_topology
from dataplane.fabric.virtual import VirtualFabric
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
BY_PORT = IntDomain(udp_port=5599)
DOMAINS = {
    "port": BY_PORT,
    "probe": IntDomain(probe_marker=0xFEED_FACE_0BAD_CAFE),
    "bit": IntDomain(dscp=1, dscp_mask=1),
}


class Bench:
    """A flow over leaf, spine and leaf, and what its host gets: ports, and the number of bytes."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        topology = load_topology("leaf-spine:spines=1,leaves=2,hosts=1")
        fabric = VirtualFabric(topology)
        self.controller = VirtualController.over(fabric, watches=watches)
        self.controller.start()
        self.fabric = fabric
        self.got: set[tuple[int, int]] = set()
        self.reports = 0
        assert topology.collector is not None
        collector = topology.collector.host
        src, dst = (host.name for host in topology.hosts if host.name != collector)
        fabric.host(dst).on_frame(lambda frame, now_ns: self._take(frame))
        fabric.host(collector).on_frame(lambda frame, now_ns: self._count())
        fabric.start_flow(src, flow_between(topology, 1, src, dst, rate_bps=2_000_000, stop_ns=500 * MS))

    def _take(self, frame: bytes) -> None:
        udp = decode_udp_frame(frame)
        assert udp is not None
        self.got.add((udp.dst_port, len(udp.payload)))

    def _count(self) -> None:
        self.reports += 1


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_hosts_never_get_int_while_the_mark_changes(domain: IntDomain) -> None:
    bench = Bench([Watch()])
    steps: list[tuple[list[Watch], IntDomain]] = [([], IntDomain()), ([], domain), ([Watch()], domain)]
    for number, (watches, mark) in enumerate(steps, start=1):
        bench.fabric.run_until(100 * number * MS)
        bench.controller.configure(watches=watches, domain=mark)
    before = bench.reports
    bench.fabric.run_until(600 * MS)
    assert len(bench.got) == 1
    assert before
    assert bench.reports > before, "telemetry is back"


@pytest.mark.parametrize("mode", ["md", "mx", "hop-by-hop"])
def test_a_mark_does_not_change_under_packets_on_their_way(mode: Mode) -> None:
    bench = Bench([Watch(mode=mode)])
    base = bench.controller.coordinator.base
    for watches in ([Watch()], []):
        with pytest.raises(ControllerError, match="the mark may change only while there are no watches"):
            bench.controller.configure(watches=watches, domain=BY_PORT)
    assert bench.controller.coordinator.base is base
    bench.controller.configure(watches=[])
    with pytest.raises(ControllerError, match="take them out first"):
        bench.controller.configure(watches=[Watch()], domain=BY_PORT)


def test_nothing_travels_in_xd_so_its_watches_may_stay() -> None:
    bench = Bench([Watch(mode="xd")])
    bench.controller.configure(watches=[Watch(mode="xd")], domain=BY_PORT)
    bench.controller.configure(
        watches=[Watch(mode="xd", instructions=(1,))], domain=IntDomain(udp_port=5599, mtu_bytes=1500)
    )
