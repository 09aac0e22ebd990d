"""The traffic manager: readings, rates, priorities, tail drop and order, compared with a plain reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import SwitchError
from dataplane.switch.pipeline import Dequeued, Placement
from dataplane.switch.traffic import PortSettings, TrafficManager


def place(packet: object, port: int = 1, priority: int = 0, length: int = 100) -> Placement:
    return Placement(packet, port, priority, length)


def drain(traffic: TrafficManager, until_ns: int, length: int = 101) -> list[tuple[int, Dequeued, int]]:
    """Send everything that is due: (start, packet, departure)."""
    frames = []
    while (burst := traffic.dequeue(until_ns)) is not None:
        for packet in burst.packets:
            departs_ns = traffic.occupy(packet.port, length, burst.start_ns)
            frames.append((burst.start_ns, packet, departs_ns))
    return frames


def test_frame_occupies_its_port_for_its_bits_and_wire_overhead() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000_000_000)])
    for name in "abc":
        traffic.enqueue(place(name), 5_000)
    # (101 + 24) bytes * 8 bits at 1 Gbit/s are 1000 ns.
    assert [(s, p.packet, d) for s, p, d in drain(traffic, 10**9)] == [
        (5_000, "a", 6_000),
        (6_000, "b", 7_000),
        (7_000, "c", 8_000),
    ]


def test_queue_readings_are_microsecond_floors_and_own_depths() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000_000_000)])
    traffic.enqueue(place("a"), 1_999)
    traffic.enqueue(place("b"), 2_000)
    traffic.enqueue(place("c"), 2_100)
    (_, a, _), (start_b, b, _), (start_c, c, _) = drain(traffic, 10**9)
    assert (a.enq_timestamp_us, a.enq_qdepth, a.deq_timedelta_us, a.deq_qdepth) == (1, 0, 0, 2)
    # b starts at 2999 ns: 1 us after the floor of 2000 ns is not reached.
    assert (start_b, b.enq_timestamp_us, b.enq_qdepth, b.deq_timedelta_us, b.deq_qdepth) == (2_999, 2, 1, 0, 1)
    assert (start_c, c.enq_timestamp_us, c.enq_qdepth, c.deq_timedelta_us, c.deq_qdepth) == (3_999, 2, 2, 1, 0)


def test_a_late_caller_changes_no_start_time() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000_000_000)])
    traffic.enqueue(place("a"), 0)
    traffic.enqueue(place("b"), 0)
    assert [start for start, _, _ in drain(traffic, 77_777_777)] == [0, 1_000]


def test_nothing_leaves_before_its_port_is_free() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000_000_000)])
    traffic.enqueue(place("a"), 0)
    traffic.enqueue(place("b"), 0)
    assert len(drain(traffic, 999)) == 1
    assert traffic.next_event_ns() == 1_000
    assert traffic.dequeue(999) is None
    assert len(drain(traffic, 1_000)) == 1
    assert traffic.next_event_ns() is None


def test_a_packet_that_egress_drops_takes_no_time_on_the_port() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000)])
    for name in "abc":
        traffic.enqueue(place(name), 40)
    starts = []
    while (burst := traffic.dequeue(40)) is not None:
        starts.append(burst.start_ns)
    assert starts == [40, 40, 40]


def test_a_port_of_infinite_rate_gives_its_queue_as_one_burst() -> None:
    traffic = TrafficManager([PortSettings(1), PortSettings(2)])
    traffic.enqueue(place("late", port=2), 9)
    traffic.enqueue(place("low"), 9)
    traffic.enqueue(place("high", priority=7), 9)
    burst = traffic.dequeue(9)
    assert burst is not None
    assert [packet.packet for packet in burst.packets] == ["high", "low", "late"]
    assert traffic.occupy(1, 1500, 9) == 9


def test_priority_seven_is_served_first_and_each_priority_fifo() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000_000_000)])
    for index, priority in enumerate([0, 3, 7, 3, 0, 7]):
        traffic.enqueue(place((priority, index), priority=priority), 0)
    assert [p.packet for _, p, _ in drain(traffic, 10**9)] == [(7, 2), (7, 5), (3, 1), (3, 3), (0, 0), (0, 4)]


def test_full_queue_drops_the_newest_and_spares_other_priorities() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000, queue_frames=2)])
    assert [traffic.enqueue(place(n), 0) for n in "abc"] == [True, True, False]
    assert traffic.enqueue(place("d", priority=1), 0)
    assert traffic.port_drops(1) == {"queue_full": 1}
    assert traffic.occupancy(1) == (2, 1, 0, 0, 0, 0, 0, 0)
    assert traffic.queued() == 3


def test_what_has_no_port_or_no_priority_is_counted() -> None:
    traffic = TrafficManager([PortSettings(1)])
    assert not traffic.enqueue(place("a", port=2), 0)
    assert not traffic.enqueue(place("b", priority=8), 0)
    assert not traffic.enqueue(place("c", priority=-1), 0)
    assert traffic.drops == {"no_such_port": 1}
    assert traffic.port_drops(1) == {"priority_out_of_range": 2}


def test_clear_counts_dropped_frames_and_leaves_the_port_busy() -> None:
    traffic = TrafficManager([PortSettings(1, rate_bps=1_000_000_000)])
    traffic.enqueue(place("a"), 0)
    drain(traffic, 0)
    traffic.enqueue(place("b"), 0)
    traffic.enqueue(place("c", priority=4), 0)
    traffic.clear()
    assert traffic.port_drops(1) == {"program_replaced": 2}
    assert (traffic.queued(), traffic.next_event_ns()) == (0, None)
    traffic.enqueue(place("d"), 1)
    assert traffic.next_event_ns() == 1_000


def test_rounding_does_not_accumulate() -> None:
    # 88 bytes at 100 Gbit/s are 7.04 ns: a hundred frames are 704 ns, not 700 or 800.
    traffic = TrafficManager([PortSettings(1, rate_bps=100_000_000_000, queue_frames=100)])
    for index in range(100):
        traffic.enqueue(place(index), 0)
    assert drain(traffic, 10**6, length=64)[-1][2] == 704


@pytest.mark.parametrize(
    "wrong", [{"number": -1}, {"number": 512}, {"number": 1, "rate_bps": 0}, {"number": 1, "queue_frames": 0}]
)
def test_impossible_ports_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SwitchError, match=f"port {wrong['number']}"):
        PortSettings(**wrong)


def test_negative_delay_and_double_ports_are_refused() -> None:
    with pytest.raises(SwitchError, match="negative"):
        PortSettings(1, delay_ns=-1)
    for jitter_ns in (-1, 6):
        with pytest.raises(SwitchError, match=f"port 1: a jitter of {jitter_ns} ns is not between 0 and the delay"):
            PortSettings(1, delay_ns=5, jitter_ns=jitter_ns)
    with pytest.raises(SwitchError, match="twice"):
        TrafficManager([PortSettings(1), PortSettings(1)])


@dataclass(frozen=True)
class Arrival:
    gap_ns: int
    port: int
    priority: int
    length: int


ARRIVALS = st.lists(
    st.builds(
        Arrival,
        gap_ns=st.sampled_from([0, 0, 1, 300, 999, 1_000, 50_000]),
        port=st.integers(1, 3),
        priority=st.integers(0, 9),
        length=st.integers(14, 1_500),
    ),
    max_size=60,
)
PORTS = (PortSettings(1, 10_000_000, 4), PortSettings(2, 999_999_937, 3), PortSettings(3, None, 5))


@settings(deadline=None)
@given(ARRIVALS)
def test_packets_are_conserved_and_ports_keep_their_rate(arrivals: list[Arrival]) -> None:
    traffic = TrafficManager(PORTS)
    now, sent = 0, []
    for index, arrival in enumerate(arrivals):
        now += arrival.gap_ns
        sent += _send_until(traffic, now)
        traffic.enqueue(place((index, arrival), arrival.port, arrival.priority, arrival.length), now)
    dropped = sum(sum(traffic.port_drops(port.number).values()) for port in PORTS)
    assert len(arrivals) == len(sent) + dropped + traffic.queued()
    sent += _send_until(traffic, now + 10**12)
    assert traffic.queued() == 0
    assert len(arrivals) == len(sent) + dropped
    assert max(Counter(index for _, (index, _), _ in sent).values(), default=1) == 1
    for port in PORTS[:2]:
        times = [(start, done, item[1].length) for start, item, done in sent if item[1].port == port.number]
        assert port.rate_bps is not None
        for (_, done, _), (start, _, _) in pairwise(times):
            assert start >= done
        for start, done, length in times:
            exact = (length + 24) * 8 * 10**9 / port.rate_bps
            assert exact - 1 <= done - start <= exact + 1


def _send_until(traffic: TrafficManager, until_ns: int) -> list[tuple[int, tuple[int, Arrival], int]]:
    frames = []
    last = 0
    while (burst := traffic.dequeue(until_ns)) is not None:
        assert last <= burst.start_ns <= until_ns
        last = burst.start_ns
        for packet in burst.packets:
            departs = traffic.occupy(packet.port, packet.packet[1].length, burst.start_ns)
            frames.append((burst.start_ns, packet.packet, departs))
    return frames


@settings(deadline=None)
@given(ARRIVALS)
def test_calling_seldom_gives_the_same_as_calling_at_every_event(arrivals: list[Arrival]) -> None:
    def run(every_event: bool) -> list[tuple[int, tuple[int, Arrival], int]]:
        traffic = TrafficManager(PORTS)
        now, sent = 0, []
        for index, arrival in enumerate(arrivals):
            now += arrival.gap_ns
            while every_event and (event := traffic.next_event_ns()) is not None and event <= now:
                sent += _send_until(traffic, event)
            sent += _send_until(traffic, now)
            traffic.enqueue(place((index, arrival), arrival.port, arrival.priority, arrival.length), now)
        return sent + _send_until(traffic, now + 10**12)

    assert run(every_event=True) == run(every_event=False)
