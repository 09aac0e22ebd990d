"""RACK, tail loss probes and early acknowledgments, each by itself and to the nanosecond through a fabric."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from dataplane.fabric.virtual.tcp import TcpSettings
from dataplane.fabric.virtual.tcp.rack import PERSISTENT_RECOVERIES, Rack, Sent
from dataplane.fabric.virtual.tcp.sender import Acknowledgment
from dataplane.fabric.virtual.tcp.tail_loss_probe import Answer, TailLossProbe, probe_after_ns
from dataplane.wire.packet import decode_tcp_frame
from tests.dataplane.fabric.virtual.tcp.ends import MS, SECOND, Ends, MakeFabric, dumbbell

MSS = 1448
LEAST_RTO_NS = 200 * MS


def rack_with(*arrived: Sent, now_ns: int = 100 * MS) -> Rack:
    rack = Rack()
    for piece in arrived:
        rack.note(piece, now_ns)
    return rack


def test_earlier_segment_is_lost_after_a_quarter_round_trip() -> None:
    """RFC 8985, section 6.2, step 5: with one segment behind it; those sent later are not."""
    rack = rack_with(Sent(100, 200, 60 * MS))
    before, same_time, behind = Sent(0, 100, 60 * MS), Sent(50, 60, 60 * MS), Sent(200, 300, 60 * MS)
    patience_ns = rack.patience_ns(50 * MS, is_hurried=False)
    assert patience_ns == 10 * MS
    assert rack.overdue([before, same_time, behind], patience_ns, 100 * MS) == ([], 110 * MS)
    assert rack.overdue([before, same_time, behind], patience_ns, 110 * MS) == ([before, same_time], None)
    assert rack.overdue([before], rack.patience_ns(50 * MS, is_hurried=True), 100 * MS) == ([before], None)


def test_resent_segment_is_lost_again_by_its_own_send_time() -> None:
    rack = rack_with(Sent(100, 200, 60 * MS))
    again = Sent(0, 100, 61 * MS, is_repeated=True)
    assert rack.overdue([again], 0, 500 * MS) == ([], None)
    rack.note(Sent(300, 400, 62 * MS), 103 * MS)
    assert rack.overdue([again], 0, 103 * MS) == ([again], None)


def test_too_early_ack_is_for_the_first_transmission() -> None:
    """Step 2: retransmitted 39 ms ago, with a minimum round trip of 40 ms."""
    rack = rack_with(Sent(100, 200, 60 * MS))
    rack.note(Sent(200, 300, 71 * MS, is_repeated=True), 110 * MS)
    assert rack.sent_ns == 60 * MS
    rack.note(Sent(200, 300, 70 * MS, is_repeated=True), 110 * MS)
    assert rack.sent_ns == 70 * MS


def test_who_saw_segments_overtake_waits_though_three_are_there() -> None:
    rack = rack_with(Sent(100, 200, 60 * MS))
    assert rack.patience_ns(50 * MS, is_hurried=True) == 0
    rack.note(Sent(0, 100, 60 * MS), 101 * MS)
    assert rack.is_reordered
    assert rack.patience_ns(50 * MS, is_hurried=True) == 10 * MS
    assert rack.patience_ns(8 * MS, is_hurried=True) == 8 * MS, "the smoothed round trip at most"


def test_needless_retransmissions_widen_the_reordering_window() -> None:
    """Step 4: RACK.reo_wnd_mult and its persistence."""
    rack = rack_with(Sent(100, 200, 60 * MS))
    rack.was_needless(0, 1_000)
    assert rack.steps == 1, "nothing was overtaken: it has another reason"
    rack.note(Sent(0, 100, 60 * MS), 101 * MS)
    for first in (0, 500, 999, 1_000):
        rack.was_needless(first, first + 1_000)
    assert rack.steps == 3
    assert rack.patience_ns(50 * MS, is_hurried=False) == 30 * MS
    for _ in range(PERSISTENT_RECOVERIES - 1):
        rack.recovered()
    assert rack.steps == 3
    rack.recovered()
    assert rack.steps == 1


@pytest.mark.parametrize(
    ("position", "is_repeated", "is_duplicate", "needless_end", "expected"),
    [
        (999, True, True, None, Answer.OPEN),
        (1_000, False, False, None, Answer.NOTHING_LOST),
        (1_000, True, False, None, Answer.OPEN),
        (1_000, True, True, None, Answer.NOTHING_LOST),
        (1_000, True, True, 1_000, Answer.NOTHING_LOST),
        (1_001, True, False, 1_000, Answer.NOTHING_LOST),
        (1_001, True, False, None, Answer.REPAIRED),
        (1_001, True, False, 700, Answer.REPAIRED),
    ],
)
def test_what_an_answer_says_of_a_probe(
    position: int, is_repeated: bool, is_duplicate: bool, needless_end: int | None, expected: Answer
) -> None:
    """RFC 8985, section 7.4.2."""
    probe = TailLossProbe(1_000, is_repeated)
    assert probe.answered(position, is_duplicate=is_duplicate, needless_end=needless_end) is expected


def test_probe_waits_two_round_trips_or_longer_for_one_segment() -> None:
    """Section 7.2."""
    assert probe_after_ns(40 * MS, SECOND, LEAST_RTO_NS, is_single=False) == 82 * MS
    assert probe_after_ns(40 * MS, SECOND, LEAST_RTO_NS, is_single=True) == 280 * MS
    assert probe_after_ns(None, SECOND, LEAST_RTO_NS, is_single=False) == SECOND


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ((), None),
        (((100, 200),), 200),
        (((900, 1_100),), None),
        (((1_500, 1_600), (1_400, 1_700)), 1_600),
        (((1_500, 1_600), (1_800, 1_900)), None),
    ],
)
def test_a_first_block_that_is_known_says_what_arrived_twice(
    blocks: tuple[tuple[int, int], ...], expected: int | None
) -> None:
    """RFC 2883, section 4: below what is acknowledged, or within the next block."""
    assert Acknowledgment(1_000, 5_000, blocks).needless_end == expected


class Wire:
    """A connection that sends bursts of ten segments; records transmissions with their times, and loses some.

    `lose` gets the number of a segment of the burst, and how often it was sent before.
    """

    def __init__(self, make_fabric: MakeFabric, *, quick_acks: int = 16, **client: object) -> None:
        self.fabric = make_fabric(dumbbell("10 Mbit/s"))
        self.ends = Ends(self.fabric, server=TcpSettings(quick_acks=quick_acks), **client)
        self.sent: list[tuple[int, int]] = []
        """Time and number."""
        self.heard: list[tuple[int, int]] = []
        """Time, and segments of the burst acknowledged."""
        self.lose: Callable[[int, int], bool] = lambda _number, _before: False
        self.lose_answers = False
        self.ends.run(SECOND)
        self._burst(10)  # the round trip is known, and the first acknowledgments were not delayed
        self._first = self.ends.client.sender.next
        for host in ("a", "b"):
            stack = self.fabric.host(host).tcp
            stack._send = self._tamper(host, stack._send)
        hear = self.ends.client.sender.hear

        def note(heard: Acknowledgment, now_ns: int) -> int:
            self.heard.append((now_ns, (heard.position - self._first) // MSS))
            return hear(heard, now_ns)

        self.ends.client.sender.hear = note  # type: ignore[method-assign]

    def _tamper(self, host: str, send: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        def tampered(frame: bytes) -> bool:
            segment = decode_tcp_frame(frame)
            assert segment is not None
            if host == "b":
                return self.lose_answers or send(frame)
            if not segment.payload:
                return send(frame)
            position = segment.header.sequence - self.ends.client._first_sequence
            number = (position - self._first) // MSS
            before = sum(number == other for _, other in self.sent)
            self.sent.append((self.fabric.now_ns, number))
            return self.lose(number, before) or send(frame)

        return tampered

    def _burst(self, segments: int) -> None:
        self.ends.client.write(bytes(segments * MSS))
        self.ends.run(SECOND)

    def burst(self, segments: int = 10) -> int:
        """Send a burst, run for a second, and return the time of sending."""
        began_ns = self.fabric.now_ns
        self._burst(segments)
        return began_ns

    def again(self) -> list[tuple[int, int]]:
        """Return the retransmissions."""
        return [entry for index, entry in enumerate(self.sent) if entry[1] in {other for _, other in self.sent[:index]}]


@pytest.mark.parametrize("quick_acks", [16, 0])
def test_of_a_burst_whose_last_two_are_lost_a_probe_finds_them(make_fabric: MakeFabric, quick_acks: int) -> None:
    """Two round trips and 2 ms after the last news; then the probe's SACK shows the other, a round trip later.

    Its round trip is shorter than any of two segments that were acknowledged together, not than the SYN's.
    """
    wire = Wire(make_fabric, quick_acks=quick_acks)
    wire.lose = lambda number, before: number in {8, 9} and not before
    smoothed_ns: list[int | None] = []
    wire.fabric.call_after(100 * MS, lambda: smoothed_ns.append(wire.ends.client.sender.timeout.smoothed_ns))
    wire.burst()
    last_ns = max(time_ns for time_ns, number in wire.heard if number == 8 and time_ns < wire.again()[0][0])
    assert smoothed_ns[0] is not None
    (probe_ns, probed), (repair_ns, repaired) = wire.again()
    assert (probed, repaired) == (9, 8)
    assert probe_ns == last_ns + 2 * smoothed_ns[0] + 2 * MS
    assert repair_ns == next(time_ns for time_ns, _ in wire.heard if time_ns > probe_ns)
    assert 20 * MS < repair_ns - probe_ns < 23 * MS
    statistics = wire.ends.client.statistics
    assert (statistics.probes, statistics.recoveries, statistics.retransmissions, statistics.timeouts) == (1, 1, 2, 0)
    assert len(wire.ends.got["b"]) == 20 * MSS


def test_without_probes_the_last_segments_wait_for_the_timeout(make_fabric: MakeFabric) -> None:
    wire = Wire(make_fabric, tail_loss_probes=False)
    wire.lose = lambda number, before: number in {8, 9} and not before
    wire.burst()
    statistics = wire.ends.client.statistics
    assert (statistics.probes, statistics.timeouts) == (0, 1)
    last_ns = max(time_ns for time_ns, number in wire.heard if number == 8 and time_ns < wire.again()[0][0])
    assert wire.again()[0][0] - last_ns > LEAST_RTO_NS


def test_lone_last_segment_is_probed_and_costs_one_reduction(
    make_fabric: MakeFabric,
) -> None:
    wire = Wire(make_fabric)
    wire.lose = lambda number, before: number == 9 and not before
    due_ns: list[int | None] = []
    wire.fabric.call_after(100 * MS, lambda: due_ns.append(wire.ends.client._retransmission.due_ns))
    wire.burst()
    assert [(time_ns, number) for time_ns, number in wire.again()] == [(due_ns[0], 9)]
    statistics, sender = wire.ends.client.statistics, wire.ends.client.sender
    assert (statistics.probes, statistics.probe_recoveries, statistics.timeouts) == (1, 0, 0)
    before_bytes = sender.control.window_bytes
    assert before_bytes >= 10 * MSS
    wire.burst()  # acknowledgments beyond the probe show that it repaired a loss
    assert statistics.probe_recoveries == 1
    assert sender.control.threshold_bytes < before_bytes


def test_a_probe_that_was_not_needed_costs_nothing(make_fabric: MakeFabric) -> None:
    """Answers are lost, not the burst; the receiver reports the last segment as a duplicate (DSACK)."""
    wire = Wire(make_fabric)
    wire.lose_answers = True
    wire.fabric.call_after(50 * MS, lambda: setattr(wire, "lose_answers", False))
    wire.burst()
    wire.burst()
    statistics = wire.ends.client.statistics
    assert (statistics.probes, statistics.needless, statistics.probe_recoveries) == (1, 1, 0)
    assert (statistics.recoveries, statistics.timeouts) == (0, 0)
    assert wire.ends.client.sender.control.threshold_bytes > 1 << 40, "nothing was reduced"
    assert wire.ends.server.statistics.duplicate_segments == 1


def test_probe_sends_new_data_beyond_the_window_if_any(make_fabric: MakeFabric) -> None:
    wire = Wire(make_fabric)
    wire.lose_answers = True
    wire.fabric.call_after(60 * MS, lambda: setattr(wire, "lose_answers", False))
    window = wire.ends.client.sender.control.window_bytes // MSS
    began_ns = wire.burst(window + 5)
    at_first = [number for time_ns, number in wire.sent if time_ns == began_ns]
    assert at_first == list(range(window))
    later_ns, number = wire.sent[window]
    assert (number, later_ns > began_ns + 40 * MS) == (window, True)
    assert wire.again() == []
    assert wire.ends.client.statistics.probes == 1


def test_one_later_segment_reveals_loss_in_a_quarter_round_trip(
    make_fabric: MakeFabric,
) -> None:
    """Not three: the last but one is lost, and retransmitted once the last cannot have overtaken it."""
    wire = Wire(make_fabric)
    wire.lose = lambda number, before: number == 8 and not before
    wire.burst()
    ((again_ns, number),) = wire.again()
    selected_ns = next(time_ns for time_ns, acked in wire.heard[::-1] if time_ns < again_ns)
    least_ns = wire.ends.client.sender.board.rack.least_rtt_ns
    assert least_ns is not None
    assert (number, again_ns) == (8, selected_ns + least_ns // 4)
    statistics = wire.ends.client.statistics
    assert (statistics.recoveries, statistics.probes, statistics.timeouts) == (1, 0, 0)


def test_slightly_reordered_segments_are_not_resent(make_fabric: MakeFabric) -> None:
    """However many overtake: the first is 4 ms late, first behind two others, then, once learned, behind nine."""
    fabric = make_fabric(dumbbell("100 Mbit/s"))
    ends = Ends(fabric)
    ends.run(SECOND)
    stack = fabric.host("a").tcp
    send, count = stack._send, [0]

    def send_it(frame: bytes) -> None:
        send(frame)

    def later(frame: bytes) -> bool:
        count[0] += 1
        if count[0] == 1:
            fabric.call_after(4 * MS, partial(send_it, frame))
            return True
        return send(frame)

    stack._send = later
    for segments in (3, 10):
        count[0] = 0
        ends.client.write(bytes(segments * MSS))
        ends.run(SECOND)
    statistics = ends.client.statistics
    assert ends.server.statistics.out_of_order >= 11
    assert (statistics.retransmissions, statistics.recoveries) == (0, 0)


@pytest.mark.parametrize(("quick", "expected"), [(16, 16 + 12), (0, 20)])
def test_first_segments_are_acknowledged_at_once_also_after_idle(
    make_fabric: MakeFabric, quick: int, expected: int
) -> None:
    """The first sixteen of forty segments are acknowledged one by one, then every second one; again after a pause."""
    settings = TcpSettings(quick_acks=quick)
    ends = Ends(make_fabric(dumbbell("100 Mbit/s")), server=settings)
    ends.run(100 * MS)
    for _ in range(2):
        before = ends.server.statistics.segments_sent
        ends.client.write(bytes(40 * MSS))
        ends.run(SECOND)
        assert ends.server.statistics.segments_sent - before == expected
