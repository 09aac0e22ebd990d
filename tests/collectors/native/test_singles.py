"""Reports of one hop each through the native core: queues' natively, the others joined, or some of them."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.native.choice import SECOND_NS, JoinChoice
from collectors.native.kernels.singles import NO_INT, identity
from collectors.native.structures import Packet
from collectors.settings import CollectorSettings
from collectors.values import DelaySource
from dataplane.clock import VirtualClock
from dataplane.fabric.topology import LinkKey
from dataplane.native import kernel_library
from dataplane.wire import inner
from tests.collectors.cores import receive_together
from tests.collectors.native.test_bulk import Pair
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way
from tests.dataplane.wire.golden_frames import FRAMES

MODES = ("hop by hop", "mx", "xd")
MS = 1_000_000


def reports_of(mode: str, reporter: Reporter, number: int) -> list[bytes]:
    """Return each hop's report of one packet."""
    hops, payload = long_way(number * 10 * MICRO, queue=number % 7, tx_bytes=number), number.to_bytes(4, "big")
    if mode == "hop by hop":
        return reporter.hop_by_hop(hops, payload=payload)
    return reporter.postcards(hops, mx=mode == "mx", payload=payload)


def crowd(mode: str, packets: int, per_s: int) -> tuple[Collector, VirtualClock]:
    """Return a collector that was given so many packets at once."""
    clock = VirtualClock(SECOND_NS)
    collector = Collector(build_topology(), clock, CollectorSettings(joined_reports_per_s=per_s))
    reporter = Reporter()
    receive_together(collector, [one for n in range(packets) for one in reports_of(mode, reporter, n)])
    return collector, clock


def test_queue_reports_never_leave_the_native_core(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(build_topology(), VirtualClock())
    monkeypatch.setattr(collector, "receive", None)
    reporter = Reporter()
    receive_together(collector, [reporter.congested(long_way(n * MICRO, queue=4)[1]) for n in range(20)])
    assert collector.snapshot().links[LinkKey("s2", "s3")].queue_occupancy_frames == 4
    assert collector.counters[Count.RECORDS] == 20


@pytest.mark.parametrize("src", ["10.0.0.1", "2001:db8::1"])
def test_queue_reports_say_what_the_reference_says(src: str) -> None:
    dst = "10.0.0.2" if ip_address(src).version == 4 else "2001:db8::2"
    pair, reporter = Pair(), Reporter(src, dst, bits=0xFD80)
    payloads = []
    for n in range(30):
        hops = long_way(n * MICRO, queue=n % 5, tx_bytes=n)
        payloads += [reporter.congested(hops[n % 3]), reporter.stacked(hops), reporter.congested(hops[1], tracked=True)]
    pair.receive(payloads)


@pytest.mark.parametrize("mode", MODES)
def test_few_reports_are_all_joined(mode: str) -> None:
    pair, reporter = Pair(), Reporter()
    pair.receive([one for n in range(40) for one in reports_of(mode, reporter, n)])
    assert pair.native.snapshot().paths[reporter.flow].switches == ("s1", "s2", "s3")
    assert not pair.native.counters[Count.JOINS_WITHHELD]


@pytest.mark.parametrize("mode", MODES)
def test_of_many_reports_whole_packets_are_joined_and_no_loss_is_seen(mode: str) -> None:
    collector, clock = crowd(mode, 1000, per_s=300)
    reporter = Reporter(sequences={11: 999, 12: 999, 13: 999})
    withheld = collector.counters[Count.JOINS_WITHHELD]
    assert 1500 < withheld < 2700
    assert collector.counters[Count.REPORTS] == collector.counters[Count.RECORDS] == 3000
    # The share stays as it is: from now on packets are whole or not there.
    clock.advance_to(clock.now_ns() + 500 * MS)
    before = collector.counters[Count.INCOMPLETE_PACKETS]
    receive_together(collector, [one for n in range(1000, 1400) for one in reports_of(mode, reporter, n)])
    clock.advance_to(clock.now_ns() + 400 * MS)
    receive_together(collector, [one for n in range(1400, 1500) for one in reports_of(mode, reporter, n)])
    state = collector.snapshot()
    assert state.paths[reporter.flow].switches == ("s1", "s2", "s3")
    link = state.links[LinkKey("s1", "s2")]
    assert link.source is DelaySource.STAMPS
    assert link.loss in {None, 0.0}
    # What had been begun when the share changed is given up; nothing else is.
    assert collector.counters[Count.INCOMPLETE_PACKETS] - before <= 3
    assert all(reporter.lost == reporter.duplicate == 0 for reporter in state.reporters.values())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_joined_tells_load_and_hop_latency(mode: str) -> None:
    collector, _ = crowd(mode, 200, per_s=1)
    link = collector.snapshot().links[LinkKey("s2", "s3")]
    assert link.samples > 0
    assert link.queue_occupancy_frames == pytest.approx(sum(n % 7 for n in range(200)) / 200)
    assert collector.counters[Count.JOINS_WITHHELD] > 550


def test_the_share_is_halved_while_too_many_come_and_doubles_when_few_do() -> None:
    choice, now_ns = JoinChoice(100), 5 * SECOND_NS
    assert not choice.take(now_ns, 100)
    assert choice.mask == 0
    assert choice.take(now_ns, 1)
    assert (choice.mask, choice.share) == (3, 0.25)
    assert not choice.take(now_ns + SECOND_NS, 30)
    assert not choice.take(now_ns + 2 * SECOND_NS, 0)
    assert choice.take(now_ns + 3 * SECOND_NS, 0)
    assert choice.share == 0.5
    assert choice.take(now_ns + 4 * SECOND_NS, 0)
    assert choice.mask == 0


GOLDEN = {
    name: golden
    for name, golden in FRAMES.items()
    if name in {"MD_TCP", "MD_UDP_PORT", "MX_TCP", "MX_UDP_PORT", "XD_UDP", "HOP_BY_HOP"}
}


@pytest.mark.parametrize("name", list(GOLDEN))
def test_packets_are_told_apart_as_the_reference_does(name: str) -> None:
    golden = GOLDEN[name]
    data = golden.packet
    decode = inner.decode_ipv4 if data[0] >> 4 == 4 else inner.decode_ipv6
    told = decode(data, golden.marking)
    transport = 4 * (data[0] & 0xF) if data[0] >> 4 == 4 else 40
    size = 4 * (data[transport + 12] >> 4) if told.protocol == 6 else 8
    at = transport + size if told.shim is not None else NO_INT
    packet = Packet()
    packet.key[4] = told.src_port << 32 | told.dst_port << 16 | told.protocol << 8
    end = NO_INT if told.shim is None else at + 4 + 4 * told.shim.length_words  # type: ignore[union-attr]
    assert kernel_library(identity).bind(identity)(data, 0, at, end, packet) == told.packet_id
