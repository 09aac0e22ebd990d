"""Parts of a connection, each by itself: timeout, scoreboard, pace of recovery, reassembly, timers, numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.clock import VirtualClock
from dataplane.events import EventQueue
from dataplane.fabric.virtual.tcp.congestion.proportional_rate import ProportionalRate
from dataplane.fabric.virtual.tcp.reassembly import Reassembly
from dataplane.fabric.virtual.tcp.retransmission_timeout import RetransmissionTimeout
from dataplane.fabric.virtual.tcp.scoreboard import Scoreboard
from dataplane.fabric.virtual.tcp.segments import SEQUENCES, position_of, sequence_of
from dataplane.fabric.virtual.tcp.timers import LazyTimer

MS = 1_000_000
SECOND = 1_000 * MS
MSS = 100


def test_the_timeout_is_that_of_rfc_6298() -> None:
    timeout = RetransmissionTimeout(SECOND, 200 * MS, 60 * SECOND)
    assert timeout.timeout_ns == SECOND
    first = timeout.sampled(400 * MS)
    assert (first.smoothed_ns, first.variation_ns, first.timeout_ns) == (400 * MS, 200 * MS, 1_200 * MS)  # 2.2
    second = first.sampled(480 * MS)
    assert second.smoothed_ns == 410 * MS  # 2.3: 7/8 and 1/8
    assert second.variation_ns == 170 * MS  # 3/4 of 200 and 1/4 of 80
    assert first.backed_off().timeout_ns == 2_400 * MS  # 5.5
    assert first.backed_off().recovered() == first
    assert first.sampled(400 * MS, samples=10).variation_ns == 195 * MS
    assert first.sampled(1_200 * MS, samples=10).variation_ns == 350 * MS, "what grows is believed at once"


def test_the_timeout_has_bounds() -> None:
    timeout = RetransmissionTimeout(SECOND, 200 * MS, 60 * SECOND).sampled(MS)
    for _ in range(30):
        timeout = timeout.sampled(MS)
    assert timeout.timeout_ns == 201 * MS, "the least beyond the round trip, as in Linux"
    for _ in range(30):
        timeout = timeout.backed_off()
    assert timeout.timeout_ns == 60 * SECOND


def board(pieces: int) -> Scoreboard:
    made = Scoreboard(MSS)
    for number in range(pieces):
        made.add(1 + number * MSS, 1 + (number + 1) * MSS, number * MS)
    return made


def block(first: int, last: int) -> tuple[int, int]:
    return 1 + first * MSS, 1 + (last + 1) * MSS


def test_a_piece_is_lost_when_three_behind_it_have_arrived() -> None:
    """RFC 6675, IsLost()."""
    sent = board(10)
    sent.select([block(1, 2)], 20 * MS)
    assert not sent.find_lost(10 * MS)
    assert sent.under_way == 8 * MSS
    sent.select([block(4, 4)], 21 * MS)
    assert sent.find_lost(10 * MS)
    lost = sent.next_lost()
    assert lost is not None
    assert lost.start == 1
    assert sent.under_way == 6 * MSS, "piece 3 has only one behind it"
    assert not sent.find_lost(10 * MS)


def test_repeated_segment_is_lost_again_after_later_arrivals() -> None:
    sent = board(10)
    sent.select([block(1, 3)], 20 * MS)
    sent.find_lost(10 * MS)
    lost = sent.next_lost()
    assert lost is not None
    sent.repeat(lost, 30 * MS)
    assert sent.next_lost() is None
    assert sent.under_way == 7 * MSS
    sent.select([block(1, 9)], 35 * MS)
    assert not sent.find_lost(10 * MS), "the others were sent before"
    sent.add(1001, 1101, 32 * MS)
    sent.select([(1001, 1101)], 40 * MS)
    assert not sent.find_lost(10 * MS), "later, but by less than a quarter of a round trip"
    sent.add(1101, 1201, 33 * MS)
    sent.select([(1101, 1201)], 41 * MS)
    assert sent.find_lost(10 * MS)
    assert sent.next_lost() is lost


def test_newest_first_sack_blocks_are_no_sign_of_reordering() -> None:
    sent = board(10)
    sent.select([block(7, 8), block(4, 5)], 20 * MS)
    assert not sent.rack.is_reordered
    sent.select([block(2, 2), block(7, 8), block(4, 5)], 21 * MS)
    assert sent.rack.is_reordered


def test_a_round_trip_is_not_taken_of_what_was_sent_twice() -> None:
    sent = board(3)
    sent.lose_all()
    first = sent.next_lost()
    assert first is not None
    sent.repeat(first, 50 * MS)
    assert sent.acknowledge(1 + MSS, 60 * MS).rtt_ns is None
    assert sent.acknowledge(1 + 3 * MSS, 61 * MS).rtt_ns == 59 * MS


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 6)), max_size=40))
def test_what_is_under_way_is_what_is_neither_there_nor_lost(steps: list[tuple[int, int, int]]) -> None:
    sent, now_ns, reached = board(20), SECOND, 1
    for what, start, length in steps:
        now_ns += MS
        if what == 0:
            reached = max(reached, min(1 + start * MSS + length, 1 + 20 * MSS))
            sent.acknowledge(reached, now_ns)
        elif what == 1:
            sent.select([block(start, start + length)], now_ns)
        elif what == 2:
            sent.find_lost(4 * MS)
        elif what == 3:
            sent.lose_all()
        else:
            lost = sent.next_lost()
            if lost is not None:
                sent.repeat(lost, now_ns)
        pieces = list(sent)
        assert sent.under_way == sum(piece.length for piece in pieces if not piece.is_there and not piece.is_lost)
        assert sent.there == sum(piece.length for piece in pieces if piece.is_there)
        awaited = [piece for piece in pieces if piece.is_lost and not piece.is_there]
        assert sent.next_lost() is (awaited[0] if awaited else None)


def test_recovery_sends_half_of_arrivals_until_half_in_flight() -> None:
    """RFC 9937: of twenty segments in flight ten remain, and one is sent for every two that arrive."""
    rate = ProportionalRate(MSS, 10 * MSS, 20 * MSS)
    under_way, sent = 19 * MSS, 0
    for _ in range(18):
        under_way -= MSS
        rate = rate.delivered(MSS, under_way, is_safe=False)
        while rate.allowed_bytes >= MSS:
            rate, sent, under_way = rate.sent(MSS), sent + MSS, under_way + MSS
    assert under_way == pytest.approx(10 * MSS, abs=MSS)
    assert sent == pytest.approx(9 * MSS, abs=MSS)


def test_a_recovery_that_loses_more_sends_no_more_than_arrives() -> None:
    rate = ProportionalRate(MSS, 10 * MSS, 20 * MSS).sent(MSS)
    rate = rate.delivered(3 * MSS, 2 * MSS, is_safe=False)
    assert rate.allowed_bytes == 3 * MSS
    assert (
        ProportionalRate(MSS, 10 * MSS, 20 * MSS).sent(MSS).delivered(3 * MSS, 2 * MSS, is_safe=True).allowed_bytes
        == 4 * MSS
    )


@given(st.integers(0, 1 << 32), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60)), max_size=80), st.randoms())
def test_any_order_gives_the_stream(seed: int, pieces: list[tuple[int, int]], shuffled: random.Random) -> None:
    stream = random.Random(seed).randbytes(460)
    every = [*pieces, *((start, 20) for start in range(0, 460, 20))]
    shuffled.shuffle(every)
    taken, text = Reassembly(1), b""
    have: set[int] = set()
    for start, length in every:
        data = stream[start : start + length]
        text += taken.take(1 + start, data)
        have.update(range(start, start + len(data)))
        in_order = next((position for position in range(461) if position not in have), 460)
        assert taken.position == 1 + in_order
        assert text == stream[:in_order]
        beyond = {position for first, last in taken.blocks for position in range(first - 1, last - 1)}
        assert beyond == {position for position in have if position > in_order}
        if start > in_order:
            first, last = taken.blocks[0]
            assert first <= 1 + start < last, "the block of what came last is the first (RFC 2018, section 4)"
    assert text == stream


@given(st.integers(0, SEQUENCES - 1), st.integers(0, 1 << 40), st.integers(-(1 << 31) + 1, (1 << 31) - 1))
def test_sequence_numbers_wrap_and_positions_do_not(first: int, near: int, away: int) -> None:
    position = near + away
    assert position_of(first, sequence_of(first, position), near) == position


def test_a_timer_fires_once_at_the_time_that_was_set_last() -> None:
    clock = VirtualClock()
    events = EventQueue(clock)
    fired: list[int] = []
    timer = LazyTimer(events, lambda: fired.append(clock.time_ns))
    timer.set(100)
    timer.set(300)
    timer.set(200)
    events.run_until(1_000)
    assert fired == [200]
    timer.set(1_500)
    timer.set(1_200)
    events.run_until(2_000)
    assert fired == [200, 1_200]
    timer.set(2_500)
    timer.clear()
    events.run_until(3_000)
    assert fired == [200, 1_200]
    assert not timer.is_set
