"""Three collectors that share a fabric in virtual time: what they measured together, and what moves when one dies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from finsy import P4TableAction, P4TableEntry

from collectors.collector import Collector
from collectors.feed.windows.windows import NamedWindows
from collectors.settings import CollectorSettings, StateSettings
from collectors.shards.merging import ShardView, SnapshotMerger
from collectors.shards.values import LiveCollector
from collectors.values import Snapshot
from controller.common.errors import ControllerError
from controller.network.report_owners import ReportOwners, check_sharing
from controller.network.tables.telemetry.int_watch import Mode, Watch
from controller.network.virtual import NO_HELLOS, VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.families import leaf_spine
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
SETTINGS = CollectorSettings(state=StateSettings(window_ns=60_000 * MS))
"""A window longer than the test: only whole windows have the same counts whoever took the reports."""
SHARDS = ("h1", "h3", "h5")


class Shards:
    """A fabric whose reports three collectors take, and one more that is given all of them."""

    def __init__(self) -> None:
        self.topology = leaf_spine(2, 4, 2)
        assert self.topology.synchronised_clocks
        self.fabric = VirtualFabric(self.topology)
        self.whole = self.new_collector()
        self.collectors = {name: self.new_collector() for name in SHARDS}
        self.reports = dict.fromkeys(SHARDS, 0)
        self.controller = VirtualController.over(self.fabric, hellos=NO_HELLOS)
        self.owners = ReportOwners(self.topology, self.controller.report_to)
        for name in SHARDS:
            self.fabric.host(name).on_frame(partial(self.receive, name))
        self.merger = SnapshotMerger(self.topology, SETTINGS.state)
        self.share(*SHARDS)
        self.controller.start()
        pairs = [(src, dst) for src in ("h2", "h4", "h6", "h8") for dst in ("h2", "h4", "h6", "h8") if src != dst]
        for number, (src, dst) in enumerate(pairs, 1):
            self.fabric.start_flow(src, flow_between(self.topology, number, src, dst, rate_bps=1_500_000))

    def new_collector(self) -> Collector:
        return Collector(self.topology, self.fabric.clock, SETTINGS)

    def share(self, *live: str) -> None:
        """Tell the controller which collectors live."""
        port = 32766
        self.owners.take([LiveCollector(name, 1, name, port, f"unix:{name}") for name in live])

    def receive(self, name: str, frame: bytes, _: int) -> None:
        packet = decode_udp_frame(frame)
        if packet is not None and packet.dst_port == 32766:
            self.reports[name] += 1
            self.collectors[name].receive(packet.payload)
            self.whole.receive(packet.payload)

    def run_ms(self, ms: int) -> dict[str, int]:
        """Let time pass; return the reports that each collector received meanwhile."""
        before = dict(self.reports)
        self.fabric.run_until(self.fabric.clock.now_ns() + ms * MS)
        return {name: self.reports[name] - before[name] for name in SHARDS}

    def merged(self) -> Snapshot:
        """Return what a reader sees."""
        return self.merger.merged([self.view(name) for name in SHARDS], self.fabric.clock.now_ns())

    def view(self, name: str) -> ShardView:
        collector = self.collectors[name]
        return ShardView(collector.snapshot(), NamedWindows(collector.link_places, collector.link_windows()), 0)


def test_merged_state_is_that_of_one_collector() -> None:
    shards = Shards()
    received = shards.run_ms(400)
    merged, whole = shards.merged(), shards.whole.snapshot()
    assert sum(share > 0 for share in received.values()) > 1
    measured = [key for key, link in whole.links.items() if link.samples]
    assert len(measured) > 10
    # A collector dates a sample by the newest stamp that it has seen of the switch, so ages differ by microseconds.
    for key, link in whole.links.items():
        together = merged.links[key]
        assert abs((together.age_ns or 0) - (link.age_ns or 0)) < MS
        assert replace(together, age_ns=link.age_ns) == link
    assert dict(merged.paths) == dict(whole.paths)
    assert merged.reporters == whole.reporters
    assert sum(state.received for state in merged.reporters.values()) == sum(received.values()) > 100


def test_dead_collector_moves_its_switches_alone() -> None:
    shards = Shards()
    shards.run_ms(100)
    before = targets(shards)
    [gone] = {address for address in before.values() if address == targets(shards)["leaf3"]}
    live = [name for name in SHARDS if int(shards.topology.host[name].ipv4) != gone]
    [dead] = set(SHARDS) - set(live)
    shards.share(*live)
    shards.run_ms(50)
    after = targets(shards)
    moved = {switch for switch, address in before.items() if after[switch] != address}
    assert moved == {switch for switch, address in before.items() if address == gone}
    late = shards.run_ms(100)
    assert late[dead] == 0
    assert sum(late.values()) > 0
    shards.share(*SHARDS)
    shards.run_ms(50)
    assert targets(shards) == before


def test_links_of_a_dead_collector_age_and_do_not_look_idle() -> None:
    shards = Shards()
    shards.run_ms(300)
    views, now_ns = [shards.view(name) for name in SHARDS], shards.fabric.clock.now_ns()
    before, later, stale = (shards.merger.merged(views, now_ns + ms * MS) for ms in (0, 500, 3500))
    measured = [key for key, link in before.links.items() if link.samples]
    assert len(measured) > 10
    for key in measured:
        link = before.links[key]
        age_ns = link.age_ns or 0
        assert later.links[key] == replace(link, age_ns=age_ns + 500 * MS)
        assert (stale.links[key].samples, stale.links[key].age_ns) == (0, age_ns + 3500 * MS)
    assert {path.age_ns for path in later.paths.values()} == {path.age_ns + 500 * MS for path in before.paths.values()}
    assert not shards.merger.merged(views, now_ns + 20_000 * MS).paths


def test_handover_there_and_back_counts_no_report_as_lost() -> None:
    shards = Shards()
    shards.run_ms(200)
    nodes = {node.node_id for node in shards.topology.switches}
    shards.share("h1")
    shards.run_ms(5)
    for name in ("h3", "h5"):
        shards.collectors[name].end_accounts(nodes)
    shards.run_ms(300)
    shards.share(*SHARDS)
    shards.run_ms(200)
    shards.collectors["h1"].end_accounts(set())
    lost = {name: sum(state.lost for state in shards.collectors[name].reporters().values()) for name in ("h3", "h5")}
    assert lost == {"h3": 0, "h5": 0}
    assert sum(state.received for state in shards.merged().reporters.values()) == sum(shards.reports.values())


def test_no_live_collector_leaves_reports_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    shards = Shards()
    before = targets(shards)
    shards.share()
    shards.run_ms(50)
    assert targets(shards) == before
    assert "no collector holds a lease" in caplog.text


def test_collector_of_another_topology_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    shards = Shards()
    before = targets(shards)
    live = [LiveCollector(name, 1, name, 32766, f"unix:{name}") for name in SHARDS]
    shards.owners.take([*live, LiveCollector("c9", 1, "elsewhere", 32766, "unix:c9")])
    shards.run_ms(50)
    assert targets(shards) == before
    assert "collector c9: topology leaf-spine-2-4-2 has no host elsewhere" in caplog.text


@pytest.mark.parametrize("mode", ["xd", "mx", "hop-by-hop"])
def test_reports_of_every_hop_need_one_collector(mode: Mode) -> None:
    with pytest.raises(ControllerError, match=rf"^watches\[1\]: mode {mode} needs all reports of a packet in one"):
        check_sharing(leaf_spine(1, 1, 1), [Watch(), Watch(mode=mode)])


def targets(shards: Shards) -> dict[str, int]:
    """Return where each switch sends its reports, as its table says."""
    result = {}
    for node in shards.topology.switches:
        for key, entity in shards.controller.coordinator.held(node.name).items():
            if key.table == "report_target":
                assert isinstance(entity, P4TableEntry)
                assert isinstance(entity.action, P4TableAction)
                result[node.name] = int(entity.action.args["dst_addr"])
    return result
