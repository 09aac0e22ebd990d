"""Reports of one hop each through the native core: decoded, joined and given up as the reference does."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.counters import Count
from collectors.native.kernels.decode.identity import NO_INT, identity
from collectors.native.structures import Packet
from collectors.settings import CollectorSettings, StateSettings
from collectors.values import DelaySource, HopRecord
from dataplane.clock import VirtualClock
from dataplane.native import kernel_library
from dataplane.topology.values import LinkKey
from dataplane.wire import inner
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.cores import receive_together
from tests.collectors.native.test_core import Pair
from tests.collectors.reports import ALL, MICRO, Hop, Reporter, build_topology, long_way, short_way
from tests.dataplane.wire.golden_frames import FRAMES

MODES = ("hop by hop", "mx", "xd")
MS = 1_000_000


def reports_of(mode: str, reporter: Reporter, number: int) -> list[bytes]:
    """Return each hop's report of one packet."""
    hops, payload = long_way(number * 10 * MICRO, queue=number % 7, tx_bytes=number), number.to_bytes(4, "big")
    if mode == "hop by hop":
        return reporter.hop_by_hop(hops, payload=payload)
    return reporter.postcards(hops, mx=mode == "mx", payload=payload)


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
def test_the_native_core_joins_by_itself(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collector, reporter = Collector(build_topology(), VirtualClock()), Reporter()
    monkeypatch.setattr(collector, "receive", None)
    receive_together(collector, [payload for n in range(40) for payload in reports_of(mode, reporter, n)])
    state = collector.snapshot()
    assert state.paths[reporter.flow].switches == ("s1", "s2", "s3")
    assert (state.links[LinkKey("s1", "s2")].source, state.links[LinkKey("s1", "s2")].samples) == (
        DelaySource.STAMPS,
        40,
    )
    assert not collector.counters[Count.INCOMPLETE_PACKETS]


NUMBERED = 0x0100_0000


@functools.cache
def payload_of(mode: str, flow: int, packet: int, hop: int, oddity: int, bits: int) -> bytes:
    """Return one hop's report of one packet, or a report of all of its hops."""
    source, target = (("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "10.0.0.2"), ("192.0.2.1", "192.0.2.9"))[flow]
    number = packet if bits & NUMBERED else None
    reporter = Reporter(
        source, target if flow != 1 else "2001:db8::2", 5000 + flow, bits=bits & ~NUMBERED, number=number
    )
    hops = long_way(packet * 300 * MICRO, queued_ns=packet * MICRO, queue=packet, tx_bytes=hop)
    match oddity:
        case 1:
            hops[1] = replace(hops[1], node_id=99)
        case 2:
            hops = short_way(packet * 300 * MICRO)
        case 3:
            hops[1] = replace(hops[1], egress_port=77)
        case 4:
            hops[1] = replace(hops[1], arrived_ns=0, ingress_port=3)
        case 5:
            hops = [hops[0], hops[1], replace(hops[0], ingress_port=2), *hops[1:]]
    content, hop = packet.to_bytes(4, "big"), hop % len(hops)
    match mode:
        case "hop by hop":
            return reporter.hop_by_hop(hops, payload=content)[hop]
        case "mx" | "xd":
            return reporter.postcards(hops, mx=mode == "mx", payload=content)[hop]
        case "queue":
            return reporter.congested(hops[hop])
        case "stack":
            return reporter.stacked(hops)
        case "drop":
            reason = DropReason.INT_DISCARD if packet == 3 else DropReason.NO_ROUTE
            return reporter.dropped(hops[: hop + 1], reason, tracked=packet % 2 == 0)
        case _:
            return reporter.intermediate(hops[:1], hops[1:])[hop % 2]


SINGLES = (*MODES, "queue")
EVERY = (*SINGLES, "stack", "drop", "intermediate")


def reports_in(modes: Sequence[str]) -> st.SearchStrategy[tuple[str, int, int, int, int, int]]:
    """Return a strategy of reports of few packets, so that hops meet; most of them make sense."""
    oddities, bits = (
        st.sampled_from([0] * 10 + [1, 2, 3, 4, 5]),
        st.sampled_from([ALL] * 6 + [ALL | NUMBERED] * 2 + [0x8C80, 0xDC00, 0xC000]),
    )
    return st.tuples(st.sampled_from(modes), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), oddities, bits)


class Feeder:
    """Gives a reference and a native collector the same reports with sequence numbers that go on, or do not."""

    def __init__(self, chosen: StateSettings, *, synchronised: bool = True) -> None:
        self.pair = Pair(CollectorSettings(state=chosen), synchronised=synchronised)
        self.numbers: dict[bytes, int] = {}

    def give(self, reports: Sequence[tuple[str, int, int, int, int, int]], wait_ns: int = 0, repeat: int = 99) -> None:
        """Give reports at once, the same number to two of them at `repeat`."""
        self.pair.clock.advance_to(self.pair.clock.now_ns() + wait_ns)
        payloads = []
        for index, report in enumerate(reports):
            payload = payload_of(*report)
            number = self.numbers[payload[4:8]] = self.numbers.get(payload[4:8], 0) + (index != repeat)
            payloads.append((0x2000_0000 | number).to_bytes(4, "big") + payload[4:])
        self.pair.receive(payloads)


WAITS = st.sampled_from([0, MS, 90 * MS, 150 * MS, 250 * MS, 4_000 * MS, 11_000 * MS])


def test_first_counted_packet_was_sent_when_it_arrived() -> None:
    feeder = Feeder(StateSettings(max_pending_packets=1), synchronised=False)
    postcards = [("mx", 1, 0, 0, 0, 0xFD00), ("mx", 1, 0, 1, 0, 0xFD00), ("xd", 1, 0, 2, 0, 0xFD00)]
    feeder.give([*postcards, ("stack", 1, 0, 0, 0, 0xFD00)])
    feeder.give([("hop by hop", 1, 0, 2, 0, 0xFD00)], 150 * MS)


@given(
    st.booleans(),
    st.sampled_from([1, 2, 100]),
    st.lists(st.tuples(st.lists(reports_in(EVERY), max_size=25), WAITS, st.integers(0, 40)), max_size=5),
)
@settings(max_examples=60)
def test_any_mixture_of_modes_says_the_same(
    synchronised: bool, most: int, batches: list[tuple[list[tuple[str, int, int, int, int, int]], int, int]]
) -> None:
    feeder = Feeder(StateSettings(max_pending_packets=most, sample_every=3), synchronised=synchronised)
    for reports, wait_ns, repeat in batches:
        feeder.give(reports, wait_ns, repeat)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.lists(st.tuples(st.lists(reports_in(SINGLES), max_size=25), WAITS), max_size=5),
)
@settings(max_examples=40)
def test_bounds_in_number_and_time_are_the_references(
    packets: int, flows: int, batches: list[tuple[list[tuple[str, int, int, int, int, int]], int]]
) -> None:
    feeder = Feeder(StateSettings(max_pending_packets=packets, max_flows=flows, window_ns=100 * MS))
    for reports, wait_ns in batches:
        feeder.give(reports, wait_ns)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("synchronised", [True, False])
def test_lost_and_shuffled_reports_give_the_same_state(mode: str, synchronised: bool) -> None:
    pair, reporter, random = Pair(synchronised=synchronised), Reporter(), Random(7)
    for step in range(15):
        pair.clock.advance_to(1000 + step * 60 * MS)
        reports = [payload for n in range(10) for payload in reports_of(mode, reporter, 10 * step + n)]
        random.shuffle(reports)
        pair.receive([payload for payload in reports if random.random() > 0.07])
    assert pair.native.counters[Count.INCOMPLETE_PACKETS] > 10
    if mode != "xd":
        assert pair.native.snapshot().links[LinkKey("s1", "s2")].loss is not None


def test_ways_with_more_hops_than_there_is_room_for_are_given_up() -> None:
    to_and_fro = [Hop(11 + n % 2, n * MICRO, n * MICRO + 5, 1, 2 if n % 2 == 0 else 1) for n in range(40)]
    pair, reporter = Pair(CollectorSettings(state=StateSettings(max_pending_packets=1))), Reporter()
    pair.receive(reporter.hop_by_hop(to_and_fro, max_hops=64))
    assert pair.native.counters[Count.INCOMPLETE_PACKETS]
    pair.receive(reporter.hop_by_hop(to_and_fro[:10], max_hops=64))


def test_hops_of_a_packet_join_whichever_decoder_read_them() -> None:
    pair, sequences = Pair(), dict[int, int]()
    reports = [
        reports_of(mode, Reporter(src_port=port, sequences=sequences), 1) for port, mode in enumerate(MODES, start=1)
    ]
    # Those for the subscribers are decoded one by one in Python.
    leave = [collector.subscribe(list[HopRecord]().extend) for collector in (pair.reference, pair.native)]
    pair.receive([payload for first, *_ in reports for payload in [first]])
    for end in leave:
        end()
    pair.receive([payload for _, *others in reports for payload in others])
    assert not pair.native.counters[Count.INCOMPLETE_PACKETS]
    assert pair.native.snapshot().links[LinkKey("s1", "s2")].samples == 3


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
