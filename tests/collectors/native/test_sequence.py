"""The native accounts against the reference's, number by number."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.counters import Count, Counters
from collectors.decode.sequence import MODULUS
from collectors.native.sequence import NativeAccounting
from collectors.reference.sequence import PlainAccounting
from collectors.settings import SequenceSettings
from dataplane.wire.report_group import ReportGroup

SMALL = SequenceSettings(
    window_reports=8, largest_gap_reports=100, silence_ns=1000, repeats_before_restart=4, max_reporters=2
)
WIDE = SequenceSettings(window_reports=100, largest_gap_reports=3000, silence_ns=1000, max_reporters=3)

STEPS = st.integers(-12, 12) | st.sampled_from([90, 101, 150, 4000, -5000, MODULUS // 2])


def run_both(chosen: SequenceSettings, events: list[tuple[int, int, int]], contents: int = 1) -> None:
    """Account the same numbers in both; each event is (node, number, pause), whose lowest bits make the content."""
    plain, native = Counters(), Counters()
    reference, machine = PlainAccounting(chosen, plain), NativeAccounting(chosen, native)
    now_ns = 0
    for node_id, number, pause_ns in events:
        now_ns += pause_ns
        group = ReportGroup(node_id % 2, number % MODULUS, node_id)
        mark = pause_ns % contents
        assert machine.observe(group, mark, now_ns) is reference.observe(group, mark, now_ns)
        assert machine.states() == reference.states()
    assert native[Count.REPORTERS_FORGOTTEN] == plain[Count.REPORTERS_FORGOTTEN]


@settings(max_examples=50)
@given(st.integers(0, 3000), st.lists(st.tuples(STEPS, st.integers(0, 1500)), max_size=50))
@example(40, [(1, 0), (1, 0), (-39, 0), (40, 0), (1, 0)])
@example(0, [(1, 0)] * 6 + [(-6, 0)] + [(1, 0)] * 4)
def test_a_reporter_has_the_same_account(start: int, steps: list[tuple[int, int]]) -> None:
    for chosen in (SMALL, WIDE):
        number, events = start, [(7, start, 0)]
        for step, pause_ns in steps:
            number += step
            events.append((7, number, pause_ns))
        run_both(chosen, events, contents=3)


@settings(max_examples=50)
@given(st.lists(st.tuples(STEPS, st.integers(0, 3)), min_size=1, max_size=50))
@example([(1, 0), (5000, 0), (1, 0), (-5000, 1), (4000, 0), (1, 0)])
@example([(-12, 0), (1, 1), (3, 0), (-5, 0)])
def test_ended_accounts_begin_anew_alike(steps: list[tuple[int, int]]) -> None:
    reference, machine = PlainAccounting(SMALL, Counters()), NativeAccounting(SMALL, Counters())
    number = 1000
    for now_ns, (step, end) in enumerate(steps, 1):
        if not end:
            for accounts in (reference, machine):
                accounts.end({7, 9})
        number += step
        group = ReportGroup(0, number % MODULUS, 7)
        assert machine.observe(group, now_ns % 2, now_ns) is reference.observe(group, now_ns % 2, now_ns)
        assert machine.states() == reference.states()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40), st.just(1)), max_size=40))
def test_reporters_make_room_alike(events: list[tuple[int, int, int]]) -> None:
    run_both(SMALL, events)


def test_long_runs_with_gaps_and_a_wrap_are_accounted_alike() -> None:
    numbers = [MODULUS - 500 + n + 3 * (n % 7 == 0) - 2 * (n % 11 == 0) for n in range(1200)]
    for contents in (1, 7):
        run_both(SequenceSettings(), [(3, number, index) for index, number in enumerate(numbers)], contents)
