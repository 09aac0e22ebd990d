"""Sequence accounting against a model that keeps everything, and restarts, wraps and bounds one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.counters import Count, Counters
from collectors.decode.sequence import MODULUS, Arrival, content_mark
from collectors.reference.sequence import PlainAccounting, SequenceTracker
from collectors.settings import SequenceSettings
from collectors.values import ReporterState
from dataplane.wire.report_group import ReportGroup
from tests.collectors.cores import AccountingFactory, every_accounting

SETTINGS = SequenceSettings(window_reports=8, largest_gap_reports=100, silence_ns=1000, repeats_before_restart=4)


def account(
    numbers: list[int], settings: SequenceSettings = SETTINGS, marks: list[int] | None = None
) -> tuple[SequenceTracker, list[Arrival]]:
    """Account numbers, of the same content where these are the same unless `marks` say otherwise."""
    marks = numbers if marks is None else marks
    tracker = SequenceTracker(settings, numbers[0] % MODULUS, marks[0], 0)
    later = zip(numbers[1:], marks[1:], strict=True)
    return tracker, [tracker.observe(number % MODULUS, mark, 0) for number, mark in later]


def figures(tracker: SequenceTracker) -> tuple[int, int, int, int, int]:
    return tracker.received, tracker.lost, tracker.late, tracker.duplicate, tracker.restarts


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([5], (1, 0, 0, 0, 0)),
        ([5, 6, 7], (3, 0, 0, 0, 0)),
        ([5, 8], (2, 2, 0, 0, 0)),
        ([5, 8, 6], (3, 1, 1, 0, 0)),
        ([5, 8, 6, 7], (4, 0, 2, 0, 0)),
        ([5, 6, 6, 5], (2, 0, 0, 2, 0)),
        ([5, 8, 6, 6], (3, 1, 1, 1, 0)),
        ([5, 4, 3], (3, 0, 0, 0, 0)),  # the first that we hear need not be the first that was sent
        ([5, 2], (2, 2, 0, 0, 0)),
        ([5, 2, 3], (3, 1, 1, 0, 0)),
        ([MODULUS - 2, MODULUS - 1, 0, 1], (4, 0, 0, 0, 0)),
        ([MODULUS - 2, 1], (2, 2, 0, 0, 0)),
        ([MODULUS - 2, 1, MODULUS - 1], (3, 1, 1, 0, 0)),
        ([50, 70], (1, 0, 1, 0, 0)),  # a window ahead or more: not believed until the next number follows
        ([50, 70, 71], (3, 19, 0, 0, 0)),
        ([50, 70, 77], (3, 25, 0, 0, 0)),
        ([50, 70, 78, 79], (3, 27, 1, 0, 0)),
        ([50, 70, 51, 71], (2, 0, 2, 0, 0)),
        ([50, 70, 70, 71], (3, 19, 1, 0, 0)),
        ([50, 70, 71, 60], (3, 19, 1, 0, 0)),  # 60 is behind the window: late or repeated, indistinguishable
    ],
)
def test_gaps_late_reports_and_repeats(numbers: list[int], expected: tuple[int, int, int, int, int]) -> None:
    tracker, _ = account(numbers)
    assert figures(tracker) == expected


def test_each_arrival_is_called_by_its_name() -> None:
    _, arrivals = account([50, 51, 53, 52, 52, 70, 71, 60])
    new, late, repeated, old = Arrival.NEW, Arrival.LATE, Arrival.REPEATED, Arrival.TOO_OLD
    assert arrivals == [new, new, late, repeated, Arrival.FAR_AHEAD, new, old]


def test_ended_account_counts_no_loss_of_what_others_took() -> None:
    tracker, _ = account([50, 51])
    tracker.end()
    assert tracker.observe(5000, 5000, 0) is Arrival.NEW
    assert tracker.observe(5002, 5002, 0) is Arrival.NEW
    assert figures(tracker) == (4, 1, 0, 0, 0)


class Model:
    """Remembers every number: the truth, as long as nothing restarts and nothing is behind the window."""

    def __init__(self, first: int) -> None:
        self.seen = {first}
        self.lost_then_came = 0
        self.repeated = 0
        self.too_old = 0
        self.stray: int | None = None
        self.strays = 0

    def observe(self, number: int, window: int) -> None:
        stray, self.stray = self.stray, None
        if stray is not None and 0 < number - stray < window:
            self.seen.add(stray)
            self.strays -= 1
        if number - max(self.seen) >= window:
            self.stray = number
            self.strays += 1
        elif max(self.seen) - number >= window:
            self.too_old += 1
        elif number in self.seen:
            self.repeated += 1
        else:
            self.lost_then_came += min(self.seen) < number < max(self.seen)
            self.seen.add(number)

    def figures(self) -> tuple[int, int, int, int, int]:
        expected = max(self.seen) - min(self.seen) + 1
        return (
            len(self.seen),
            expected - len(self.seen),
            self.lost_then_came + self.too_old + self.strays,
            self.repeated,
            0,
        )


@given(
    start=st.integers(0, 3 * MODULUS),
    steps=st.lists(st.integers(-12, 12), max_size=60),
)
@example(start=MODULUS - 4, steps=[1, 1, 1, 1, 1, 1, -3, 5, -2])
@example(start=50, steps=[12, 12, 1, 9, -9, 1])
def test_the_account_equals_the_model_that_keeps_everything(start: int, steps: list[int]) -> None:
    # Far from 0 no restart is seen in it; repeats never restart.
    settings = SequenceSettings(window_reports=8, largest_gap_reports=100, repeats_before_restart=1_000_000)
    start = start % MODULUS + MODULUS
    number, numbers = start, [start]
    for step in steps:
        number = max(number + step, start - 7)
        numbers.append(number)
    # Small numbers are where restarts are looked for: leave them to the tests below.
    if any(n % MODULUS < 8 and max(numbers[: i + 1]) - n >= 8 for i, n in enumerate(numbers)):
        return
    model = Model(start)
    for n in numbers[1:]:
        model.observe(n, 8)
    tracker, _ = account(numbers, settings)
    assert figures(tracker) == model.figures()


@pytest.mark.parametrize("first", [0, 1, 7])
def test_small_numbers_far_from_the_newest_are_a_restart(first: int) -> None:
    for newest in (5000, MODULUS // 2 + 50, MODULUS - 5000):
        tracker, arrivals = account([newest, first, first + 1])
        assert arrivals == [Arrival.RESTART, Arrival.NEW]
        assert figures(tracker) == (3, 0, 0, 0, 1)


def test_small_number_is_a_restart_only_after_silence() -> None:
    quick, slow = SequenceTracker(SETTINGS, 0, 0, 0), SequenceTracker(SETTINGS, 0, 0, 0)
    for number in range(1, 6):
        quick.observe(number, number, 0)
        slow.observe(number, number, 0)
    assert quick.observe(0, 0, 1000) is Arrival.REPEATED
    assert slow.observe(0, 0, 1001) is Arrival.RESTART
    assert figures(slow) == (7, 0, 0, 0, 1)


def test_silence_before_the_next_number_is_no_restart() -> None:
    tracker = SequenceTracker(SETTINGS, 0, 0, 0)
    assert tracker.observe(1, 0, 10_000) is Arrival.NEW
    assert tracker.observe(4, 0, 20_000) is Arrival.NEW
    assert figures(tracker) == (3, 2, 0, 0, 0)


def test_repeated_run_is_a_restart_only_with_new_content() -> None:
    numbers = [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]
    tracker, arrivals = account(numbers, marks=list(range(len(numbers))))
    assert arrivals[-5:] == [Arrival.CONTESTED] * 3 + [Arrival.RESTART, Arrival.NEW]
    assert figures(tracker) == (9, 0, 0, 0, 1)
    tracker, arrivals = account(numbers)
    assert arrivals[-5:] == [Arrival.REPEATED] * 5
    assert figures(tracker) == (7, 0, 0, 5, 0)


def test_a_network_that_doubles_every_packet_restarts_nothing() -> None:
    tracker, _ = account([n // 2 for n in range(100)])
    assert figures(tracker) == (50, 0, 0, 50, 0)


def test_a_long_outage_is_a_loss_unless_the_number_is_small() -> None:
    tracker, _ = account([5, 5000, 5001])
    assert figures(tracker) == (3, 4994, 0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, MODULUS - 1), st.integers(0, 5000)), min_size=1, max_size=50))
def test_any_numbers_leave_sane_figures(events: list[tuple[int, int]]) -> None:
    tracker = SequenceTracker(SETTINGS, events[0][0], 0, 0)
    now_ns = 0
    for number, pause_ns in events[1:]:
        now_ns += pause_ns
        tracker.observe(number, pause_ns % 2, now_ns)
    received, lost, late, duplicate, restarts = figures(tracker)
    assert min(received, lost, late, duplicate, restarts, tracker.contested) >= 0
    # Every report is new to the account, there already, or too old to say; some that are new came late.
    again = duplicate + tracker.contested
    assert received + again <= len(events) <= received + again + late


def test_accounts_are_per_node_and_hardware_and_bounded() -> None:
    counters = Counters()
    accounting = PlainAccounting(SequenceSettings(max_reporters=2), counters)
    for node_id, hw_id, sequence in ((1, 0, 5), (1, 1, 9), (1, 0, 7), (2, 0, 1)):
        accounting.observe(ReportGroup(hw_id, sequence, node_id), 0, 0)
    assert accounting.states() == {
        (1, 0): ReporterState(1, 0, 2, 1, 0, 0, 0),
        (2, 0): ReporterState(2, 0, 1, 0, 0, 0, 0),
    }
    assert counters[Count.REPORTERS_FORGOTTEN] == 1


def test_the_wrap_is_exhaustively_like_any_other_place() -> None:
    for offset in range(-9, 2):
        shapes = [
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            [0, 2, 1, 4, 3, 7, 9, 8],
            [0, 3, 3, 1, 9, 2, 5],
        ]
        for shape in shapes:
            near, _ = account([n + offset + 2 * MODULUS for n in shape])
            far, _ = account([n + 500_000 for n in shape])
            assert figures(near) == figures(far), (offset, shape)


@pytest.mark.parametrize("ahead", [8, 100, 101, 5000, MODULUS // 2 - 1])
def test_one_number_far_ahead_moves_nothing(ahead: int) -> None:
    tracker = SequenceTracker(SETTINGS, 40, 0, 0)
    arrivals = [tracker.observe(number, number, 0) for number in (41, 41 + ahead, *range(42, 400))]
    assert arrivals == [Arrival.NEW, Arrival.FAR_AHEAD, *[Arrival.NEW] * 358]
    assert figures(tracker) == (360, 0, 1, 0, 0)


def test_pair_far_ahead_is_left_for_a_run_in_order() -> None:
    tracker, arrivals = account([40, 900, 901, 41, 42, 43, 44, 45, 46])
    old, restart = Arrival.TOO_OLD, Arrival.RESTART
    assert arrivals == [Arrival.FAR_AHEAD, Arrival.NEW, old, old, old, restart, Arrival.NEW, Arrival.NEW]
    assert figures(tracker) == (6, 859, 3, 0, 1)


def test_one_stray_old_report_is_no_restart() -> None:
    tracker = SequenceTracker(SETTINGS, 40, 0, 0)
    for number in (41, 42, 3, 43, 44):
        tracker.observe(number, number, 0)
    # 3 looked like a restart until 43 went on as if nothing had been: nothing is lost, one report came late.
    assert figures(tracker) == (5, 0, 1, 0, 0)


def test_a_restart_that_goes_on_stays_one() -> None:
    tracker = SequenceTracker(SETTINGS, 40, 0, 0)
    for number in (41, 3, 4, 5):
        tracker.observe(number, number, 0)
    assert figures(tracker) == (5, 0, 0, 0, 1)


class Account:
    """One reporter's account in either accounting; content is a number, and its own number where none is given."""

    def __init__(self, make_accounting: AccountingFactory) -> None:
        self._accounting = make_accounting(SETTINGS, Counters())

    def observe(self, number: int, content: int | None = None) -> Arrival:
        mark = number if content is None else content
        return self._accounting.observe(ReportGroup(0, number % MODULUS, 7), mark % 2**32, 0)

    def state(self) -> ReporterState:
        return self._accounting.states()[7, 0]


@every_accounting
@pytest.mark.parametrize("ahead", [0, 1, 5, 7])
def test_number_used_before_costs_no_measurement_and_no_loss(make_accounting: AccountingFactory, ahead: int) -> None:
    account = Account(make_accounting)
    for number in range(40, 50):
        account.observe(number)
    account.observe(49 + ahead, content=-1)
    arrivals = {number: account.observe(number) for number in range(50, 70)}
    contested = [number for number, arrival in arrivals.items() if arrival is Arrival.CONTESTED]
    assert contested == ([49 + ahead] if ahead else [])
    assert Arrival.REPEATED not in arrivals.values()
    assert (account.state().received, account.state().lost, account.state().contested) == (30, 0, 1)


@every_accounting
def test_network_duplicate_is_repeated_for_either_content(
    make_accounting: AccountingFactory,
) -> None:
    account = Account(make_accounting)
    first = [account.observe(50), account.observe(51, content=-1), account.observe(51, content=-1)]
    assert first == [Arrival.NEW, Arrival.NEW, Arrival.REPEATED]
    assert [account.observe(51), account.observe(51)] == [Arrival.CONTESTED, Arrival.REPEATED]
    assert account.state() == ReporterState(7, 0, 2, 0, 0, 2, 0, 1)


@every_accounting
def test_content_is_remembered_over_strays_jumps_and_late_ones(make_accounting: AccountingFactory) -> None:
    account = Account(make_accounting)
    for number in (40, 41, 43):
        account.observe(number)
    assert account.observe(3, content=-1) is Arrival.RESTART  # taken back by the next: 3 lies where 43 does in the ring
    assert account.observe(44) is Arrival.NEW
    assert [account.observe(43), account.observe(42), account.observe(42)] == [
        Arrival.REPEATED,
        Arrival.LATE,
        Arrival.REPEATED,
    ]
    assert account.observe(42, content=-1) is Arrival.CONTESTED
    assert [account.observe(90), account.observe(91)] == [Arrival.FAR_AHEAD, Arrival.NEW]
    assert [account.observe(90), account.observe(90, content=-1)] == [Arrival.REPEATED, Arrival.CONTESTED]


@given(st.binary(min_size=16, max_size=300), st.integers(0, 299), st.integers(1, 255))
@example(bytes(24), 23, 0x80)
@example(bytes(30), 29, 0x80)
def test_mark_distinguishes_contents_regardless_of_the_number(payload: bytes, index: int, change: int) -> None:
    altered = bytearray(payload)
    altered[index % len(payload)] ^= change
    assert (content_mark(bytes(altered)) == content_mark(payload)) is (index % len(payload) < 8)


def test_what_is_no_report_has_a_mark_of_nothing() -> None:
    assert content_mark(bytes(7)) == 0
