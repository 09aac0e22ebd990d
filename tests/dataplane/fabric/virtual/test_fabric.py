from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import pytest

from dataplane.errors import FabricError
from dataplane.fabric.hosts import Arrivals, Receiver, Sender, flow_between
from dataplane.fabric.load import SentLoad
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.file import load_topology, loads
from dataplane.topology.scaling import scaled
from dataplane.topology.values import LinkKey, Topology

MakeFabric = Callable[..., VirtualFabric]
SECOND = 1_000_000_000
MS = 1_000_000

LINE = loads(
    """\
millrace: 1
name: line
switches: [{name: s1}, {name: s2}]
hosts:
  - {name: a, switch: s1, rate: 100 Mbit/s, delay: 7 us, queue_frames: 4}
  - {name: b, switch: s2, rate: 50 Mbit/s, delay: 9 us}
  - {name: c, switch: s1, rate: 100 Mbit/s, delay: 0 ns}
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 2 ms, queue_frames: 8}]
"""
)


def on_wire_ns(frame_bytes: int, rate_bps: int) -> int:
    return (frame_bytes + 24) * 8 * SECOND // rate_bps


def listen(fabric: VirtualFabric, host: str) -> Receiver:
    receiver = Receiver()
    fabric.host(host).on_frame(receiver.receive)
    return receiver


def flow(fabric: VirtualFabric, number: int, src: str, dst: str, rate_bps: int, **settings: object) -> Sender:
    return fabric.start_flow(src, flow_between(fabric.topology, number, src, dst, rate_bps, **settings))  # type: ignore[arg-type]


def test_a_lone_frame_takes_exactly_its_time(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    receiver = listen(fabric, "b")
    flow(fabric, 1, "a", "b", 1_000_000, frame_bytes=500, start_ns=123, stop_ns=124)
    fabric.run_until(10 * MS)
    seen = receiver.measure(1, 0, 10 * MS)
    wire = sum(on_wire_ns(500, rate) for rate in (100_000_000, 10_000_000, 50_000_000))
    assert (seen.packets, seen.delay_max_ns) == (1, wire + 7_000 + 2 * MS + 9_000)


def test_queueing_grows_frame_by_frame(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    receiver = listen(fabric, "b")
    flow(fabric, 1, "a", "b", 20_000_000, frame_bytes=1000, stop_ns=2 * MS)  # five frames, 0.4 ms apart
    fabric.run_until(20 * MS)
    delays = [window.delay_max_ns for window in receiver.windows(1, 0, 20 * MS, 819_200) if window.packets]
    alone = sum(on_wire_ns(1000, rate) for rate in (100_000_000, 10_000_000, 50_000_000)) + 7_000 + 2 * MS + 9_000
    assert delays == [alone + number * (819_200 - 400_000) for number in range(5)]


def test_an_overloaded_link_gives_its_rate_and_drops_the_rest(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    receiver = listen(fabric, "b")
    sender = flow(fabric, 1, "a", "b", 20_000_000, frame_bytes=1000, stop_ns=SECOND)
    fabric.run_until(2 * SECOND)
    seen = receiver.measure(1, SECOND // 2, SECOND)
    assert seen.throughput_bps == pytest.approx(10_000_000 * 1000 / 1024, rel=0.01)
    port = fabric.topology.directed_links[LinkKey("s1", "s2")].tail.port
    drops = fabric.switch("s1").counters().ports[port].drops
    assert set(drops) == {"queue_full"}
    assert receiver.received_frames(1) + drops["queue_full"] == sender.sent_frames
    # Nine frames ahead (eight wait, one is being sent) is the most that a frame can find.
    assert seen.delay_max_ns is not None
    assert seen.delay_max_ns < 2 * MS + 10 * on_wire_ns(1000, 10_000_000)


def test_a_host_s_uplink_serialises_and_is_bounded(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    receiver = listen(fabric, "c")
    sender = Sender(flow_between(LINE, 3, "a", "c", 1_000_000), random.Random(0))
    frames = [sender.frame(0) for _ in range(7)]
    assert [fabric.host("a").send(frame) for frame in frames] == [True] * 5 + [False] * 2
    fabric.run_until(MS)
    counters = fabric.host("a").counters
    assert (counters.tx_frames, counters.uplink_full) == (5, 2)
    wire_ns = on_wire_ns(1000, 100_000_000)
    assert receiver.measure(3, 0, MS).delay_max_ns == 5 * wire_ns + 7_000 + wire_ns
    assert fabric.host("a").send(frames[0])


def test_a_host_says_what_it_sent_of_what_was_due(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    within = flow(fabric, 1, "c", "a", 1_000_000, frame_bytes=1000, stop_ns=SECOND)
    beyond = flow(fabric, 2, "a", "c", 200_000_000, frame_bytes=1000, stop_ns=10 * MS)
    fabric.run_until(2 * SECOND)
    assert fabric.host("c").load(within) == SentLoad(planned=125, sent=125)
    load, refused = fabric.host("a").load(beyond), fabric.host("a").counters.uplink_full
    assert refused > 0
    assert load == SentLoad(planned=250, sent=250 - refused, refused=refused)


def test_the_truth_of_every_hop(
    make_fabric: MakeFabric, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fabric = make_fabric(LINE, record_hops=True)
    listen(fabric, "b")
    flow(fabric, 1, "a", "b", 20_000_000, frame_bytes=1000, stop_ns=MS)  # three frames
    fabric.run_until(20 * MS)
    assert fabric.hops is not None
    first, second = list(fabric.hops.of_packet(1, 1))
    sent_ns = 400_000
    assert (first.switch, first.in_port, first.out_port) == ("s1", 1, 3)
    assert first.arrived_ns == sent_ns + on_wire_ns(1000, 100_000_000) + 7_000
    assert first.residence_ns == 819_200 - 400_000
    assert first.departed_ns == first.started_ns + 819_200
    assert (second.switch, second.arrived_ns) == ("s2", first.departed_ns + 2 * MS)
    assert second.residence_ns == 0
    assert (len(fabric.hops.hops), fabric.hops.is_full) == (6, False)
    monkeypatch.setattr("dataplane.fabric.virtual.fabric.MAX_HOPS", 6)
    flow(fabric, 2, "a", "b", 20_000_000, frame_bytes=1000, start_ns=20 * MS, stop_ns=21 * MS)
    fabric.run_until(40 * MS)
    assert (len(fabric.hops.hops), fabric.hops.is_full) == (6, True)
    assert caplog.messages == ["6 hops are recorded or under way: later ones are left out"]


def test_a_broken_cable_loses_what_is_on_it_and_mends(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    receiver = listen(fabric, "b")
    sender = flow(fabric, 1, "a", "b", 800_000, frame_bytes=1000, stop_ns=100 * MS)  # every 10 ms, from 0
    fabric.call_at(31 * MS, lambda: fabric.set_link("s2", "s1", up=False))
    fabric.call_at(32 * MS, lambda: fabric.set_link("s2", "s1", up=True))  # the frame of 30 ms was in flight
    fabric.call_at(45 * MS, lambda: fabric.set_link("s1", "s2", up=False))
    fabric.call_at(65 * MS, lambda: fabric.set_link("s1", "s2", up=True))
    fabric.run_until(SECOND)
    assert sender.sent_frames == 10
    assert receiver.measure(1, 0, SECOND).lost == 3
    counters = fabric.cables[LinkKey("s1", "s2")].counters
    assert (counters.frames, counters.delivered, counters.lost_cable_down, counters.on_the_way) == (10, 7, 3, 0)


def test_flow_with_a_past_start_begins_at_once_without_backlog(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    receiver = listen(fabric, "c")
    fabric.run_until(SECOND)
    sender = flow(fabric, 1, "a", "c", 800_000, frame_bytes=1000, stop_ns=SECOND + 25 * MS)
    fabric.run_until(2 * SECOND)
    assert (sender.sent_frames, receiver.received_frames(1)) == (3, 3)
    assert flow(fabric, 2, "a", "c", 800_000, stop_ns=SECOND).next_send_ns() is None


def test_parts_that_are_not_there_are_named(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    for ask in (fabric.host, fabric.switch, fabric.p4runtime):
        with pytest.raises(FabricError, match="'x'"):
            ask("x")
    with pytest.raises(FabricError, match="'a' and 'b'"):
        fabric.set_link("a", "b", up=False)
    fabric.run_until(10)
    with pytest.raises(FabricError, match="5 ns"):
        fabric.call_at(5, print)


def test_time_between_events_passes_too(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(LINE)
    assert fabric.run_until(5) == 0
    assert fabric.now_ns == 5
    seen: list[int] = []
    fabric.call_after(5, lambda: seen.append(fabric.now_ns))
    fabric.call_after(5, lambda: seen.append(-1)).cancel()
    fabric.run_until(100)
    assert seen == [10]


def busy(make_fabric: MakeFabric, seed: int, until_ns: int = SECOND // 2) -> VirtualFabric:
    """Abilene at a thousandth of its rates, six Poisson flows, two of them congesting a link that breaks once."""
    fabric = make_fabric(scaled(load_topology("abilene"), 10_000), seed=seed, record_hops=True)
    ends = [("sttl", "wash"), ("losa", "nycm"), ("snva", "atla"), ("hstn", "chin"), ("chin", "wash"), ("nycm", "losa")]
    for number, (src, dst) in enumerate(ends):
        flow(fabric, number, f"h-{src}", f"h-{dst}", 500_000, frame_bytes=700, arrivals=Arrivals.POISSON)
    fabric.call_at(until_ns // 2, lambda: fabric.set_link("ipls", "chin", up=False))
    fabric.call_at(until_ns * 2 // 3, lambda: fabric.set_link("ipls", "chin", up=True))
    fabric.run_until(until_ns)
    return fabric


def digest(fabric: VirtualFabric) -> str:
    assert fabric.hops is not None
    return hashlib.sha256(repr(fabric.hops.hops).encode()).hexdigest()


def test_the_same_seed_gives_the_same_run_and_another_one_not(make_fabric: MakeFabric) -> None:
    first = digest(busy(make_fabric, seed=1))
    assert digest(busy(make_fabric, seed=1)) == first
    assert digest(busy(make_fabric, seed=2)) != first


def test_no_frame_appears_or_vanishes(make_fabric: MakeFabric) -> None:
    fabric = busy(make_fabric, seed=3)
    assert account(fabric) == 0
    assert sum(cable.counters.lost_cable_down for cable in fabric.cables.values()) > 0
    assert sum(cable.counters.on_the_way for cable in fabric.cables.values()) > 0
    assert sum(fabric.host(node.name).counters.rx_frames for node in fabric.topology.hosts) > 100


def test_what_is_under_way_ends_somewhere(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(scaled(load_topology("abilene"), 10_000), seed=4)
    receiver = listen(fabric, "h-nycm")
    sender = flow(fabric, 1, "h-losa", "h-nycm", 1_500_000, stop_ns=SECOND // 2)
    fabric.run_until(10 * SECOND)
    drops = sum(
        sum(port.drops.values())
        for node in fabric.topology.switches
        for port in fabric.switch(node.name).counters().ports.values()
    )
    assert sum(cable.counters.on_the_way for cable in fabric.cables.values()) == 0
    assert receiver.received_frames(1) + drops == sender.sent_frames
    assert receiver.measure(1, 0, 10 * SECOND).lost <= drops
    assert account(fabric) == 0


def account(fabric: VirtualFabric) -> int:
    """Return frames sent minus frames received, dropped by name, waiting or in flight."""
    hosts = [fabric.host(node.name).counters for node in fabric.topology.hosts]
    switches = [fabric.switch(node.name).counters() for node in fabric.topology.switches]
    ports = [port for switch in switches for port in switch.ports.values()]
    cables = [cable.counters for cable in fabric.cables.values()]
    ended = sum(host.rx_frames for host in hosts)
    ended += sum(cable.lost_cable_down + cable.on_the_way for cable in cables)
    ended += sum(port.queued_frames + sum(port.drops.values()) for port in ports)
    ended += sum(sum(switch.drops.values()) for switch in switches)
    return sum(host.tx_frames for host in hosts) - ended


@pytest.mark.parametrize("topology", [load_topology("fat-tree:k=2"), load_topology("leaf-spine")], ids=lambda t: t.name)
def test_families_carry_all_pairs(topology: Topology, make_fabric: MakeFabric) -> None:
    fabric = make_fabric(topology)
    names = [node.name for node in topology.hosts]
    receivers = {name: listen(fabric, name) for name in names}
    pairs = [(src, dst) for src in names for dst in names if src != dst]
    for number, (src, dst) in enumerate(pairs):
        flow(fabric, number, src, dst, 1_000_000, stop_ns=1)
    fabric.run_until(SECOND)
    assert all(receivers[dst].received_frames(number) == 1 for number, (_, dst) in enumerate(pairs))
    assert account(fabric) == 0
