"""Rules over snapshots: limits, hold times, hysteresis, growth, subjects, rules that come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.events.engine import EventEngine
from collectors.events.rules import Rule
from collectors.events.scopes import FIGURES, Scope
from collectors.values import Event, Evidence, Phase, ReporterKey, Severity, Snapshot
from dataplane.config import loads
from dataplane.errors import ConfigError
from tests.collectors.events.states import FLOW, IDLE, LINK, MS, OTHER, snapshot


def busy(**changes: Any) -> Rule:
    rule = Rule(name="busy", figure="utilisation", above=0.8)
    return msgspec.structs.replace(rule, **changes)


def phases_of(engine: EventEngine, snapshots: Iterable[Snapshot]) -> list[tuple[int, Phase]]:
    return [(event.time_ns // MS, event.phase) for taken in snapshots for event in engine.observe(taken)]


def loads_of(*utilisations: float) -> list[Snapshot]:
    """Return snapshots 100 ms apart."""
    return [snapshot(100 * index, utilisation) for index, utilisation in enumerate(utilisations)]


def test_a_limit_raises_once_and_clears_when_it_is_over() -> None:
    engine = EventEngine([busy()])
    assert phases_of(engine, loads_of(0.5, 0.9, 0.95, 0.8, 0.9)) == [
        (100, Phase.RAISED),
        (300, Phase.CLEARED),
        (400, Phase.RAISED),
    ]


def test_the_event_says_what_crossed_which_limit_with_evidence() -> None:
    engine = EventEngine([busy(hold_ns=100 * MS)])
    events = [event for taken in loads_of(0.5, 0.85, 0.9) for event in engine.observe(taken)]
    assert events == list(engine.open_events())
    (event,) = events
    assert event == Event(200 * MS, "busy", LINK, "utilisation", 0.9, 0.8, Phase.RAISED, event.evidence)
    # The observation before, those of the hold time, then the evidence.
    assert event.evidence[:3] == (
        Evidence(0, "utilisation", 0.5),
        Evidence(100 * MS, "utilisation", 0.85),
        Evidence(200 * MS, "utilisation", 0.9),
    )
    assert Evidence(200 * MS, "delay_p99_ns", 5000.0) in event.evidence[3:]


def test_evidence_is_bounded() -> None:
    engine = EventEngine([busy(hold_ns=1000 * MS, evidence=3)])
    (event,) = [event for taken in loads_of(*[0.9] * 11) for event in engine.observe(taken)]
    times = [row.time_ns // MS for row in event.evidence if row.figure == "utilisation"]
    assert times == [800, 900, 1000]


def test_a_break_in_the_hold_time_begins_it_anew() -> None:
    engine = EventEngine([busy(hold_ns=200 * MS)])
    assert phases_of(engine, loads_of(0.9, 0.9, 0.5, 0.9, 0.9, 0.9)) == [(500, Phase.RAISED)]


def test_hysteresis_keeps_an_event_open_between_the_limits() -> None:
    engine = EventEngine([busy(clear=0.5)])
    assert phases_of(engine, loads_of(0.9, 0.7, 0.9, 0.6, 0.5)) == [(0, Phase.RAISED), (400, Phase.CLEARED)]


def test_clearing_has_a_hold_time_of_its_own() -> None:
    engine = EventEngine([busy(clear_hold_ns=200 * MS)])
    events = phases_of(engine, loads_of(0.9, 0.1, 0.9, 0.1, 0.1, 0.1))
    assert events == [(0, Phase.RAISED), (500, Phase.CLEARED)]


def test_below_is_the_mirror_of_above() -> None:
    engine = EventEngine([Rule(name="narrow", figure="available_bps", below=1e8, clear=2e8)])
    wide, narrow, between = (snapshot(at_ms) for at_ms in (0, 100, 200))
    narrow.links[LINK] = replace(IDLE, available_bps=10**7)  # type: ignore[index]  # the mapping is a dict here
    between.links[LINK] = replace(IDLE, available_bps=15 * 10**7)  # type: ignore[index]
    assert phases_of(engine, [wide, narrow, between, snapshot(300)]) == [(100, Phase.RAISED), (300, Phase.CLEARED)]


def test_a_figure_that_nobody_knows_neither_raises_nor_clears() -> None:
    engine = EventEngine([Rule(name="fast", figure="rate_bps", scope=Scope.PATH, above=10)])
    assert phases_of(engine, [snapshot(0), snapshot(1, rate_bps=11), snapshot(2), snapshot(3, rate_bps=9)]) == [
        (1, Phase.RAISED),
        (3, Phase.CLEARED),
    ]


def test_a_subject_that_is_gone_clears_its_event() -> None:
    engine = EventEngine([Rule(name="fast", figure="rate_bps", scope=Scope.PATH, above=10)])
    gone = replace(snapshot(1), paths={})
    (raised,) = engine.observe(snapshot(0, rate_bps=11))
    (cleared,) = engine.observe(gone)
    assert (raised.subject, cleared.phase, cleared.value, cleared.time_ns) == (FLOW, Phase.CLEARED, 11.0, MS)
    assert engine.open_events() == ()


def test_growth_per_second_watches_a_counter() -> None:
    rule = Rule(name="reports lost", figure="lost", scope=Scope.REPORTER, above=50.0, per_second=True)
    engine = EventEngine([rule])
    events = [
        event
        for at_ms, lost in ((0, 1000), (100, 1004), (200, 1010), (300, 1010))
        for event in engine.observe(snapshot(at_ms, lost=lost))
    ]
    assert [(event.time_ns // MS, event.subject, event.value) for event in events] == [
        (200, ReporterKey(7, 0), 60.0),
        (300, ReporterKey(7, 0), 0.0),
    ]


def test_patterns_choose_the_subjects() -> None:
    below = Rule(name="idle", figure="utilisation", below=0.5)
    assert [event.subject for event in EventEngine([below]).observe(snapshot(0))] == [LINK, OTHER]
    some = msgspec.structs.replace(below, match=("s9->*", "s2->*"))
    assert [event.subject for event in EventEngine([some]).observe(snapshot(0))] == [OTHER]


def test_too_few_samples_are_not_judged() -> None:
    engine = EventEngine([busy(least_samples=11)])
    assert phases_of(engine, loads_of(0.9)) == []
    assert phases_of(EventEngine([busy(least_samples=10)]), loads_of(0.9)) == [(0, Phase.RAISED)]


def test_a_snapshot_that_is_not_newer_says_nothing() -> None:
    engine = EventEngine([busy()])
    assert phases_of(engine, [snapshot(5, 0.5), snapshot(5, 0.9), snapshot(4, 0.9), snapshot(6, 0.9)]) == [
        (6, Phase.RAISED)
    ]


def test_what_is_remembered_is_bounded_and_the_rest_counted() -> None:
    engine = EventEngine([Rule(name="idle", figure="utilisation", below=0.5)], max_subjects=1)
    assert [event.subject for event in engine.observe(snapshot(0))] == [LINK]
    assert (engine.take_not_judged(), engine.take_not_judged()) == (1, 0)


def test_nothing_is_kept_of_subjects_that_are_well() -> None:
    engine = EventEngine([busy()])
    phases_of(engine, loads_of(0.1, 0.9, 0.1))
    assert not any(watch.remembered for watch in engine._watches.values())


def test_replacing_rules_keeps_the_state_of_those_that_stay() -> None:
    staying, going = busy(), busy(name="going", above=0.5)
    engine = EventEngine([staying, going])
    assert len(engine.observe(snapshot(0, 0.9))) == 2
    cleared = engine.replace([staying, busy(name="new")])
    assert [(event.rule, event.phase, event.time_ns) for event in cleared] == [("going", Phase.CLEARED, 0)]
    assert [rule.name for rule in engine.rules] == ["busy", "new"]
    assert [event.rule for event in engine.observe(snapshot(1, 0.9))] == ["new"]
    # The same name with another limit is another rule.
    assert [event.rule for event in engine.replace([busy(above=0.95), busy(name="new")])] == ["busy"]


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two rules are named 'busy'"):
        EventEngine([busy(), busy(above=0.1)])
    with pytest.raises(ValueError, match="two rules are named 'busy'"):
        EventEngine().replace([busy(), busy()])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{name: a, figure: weight, above: 1}", "a link has no figure 'weight'; it has delay_mean_ns, "),
        ("{name: a, figure: loss}", "exactly one of above, below and change is required"),
        ("{name: a, figure: loss, above: 1, below: 0}", "exactly one of above, below and change is required"),
        ("{name: a, figure: loss, above: 0.1, clear: 0.2}", "clear is on the wrong side of the limit"),
        ("{name: a, figure: loss, below: 0.1, clear: 0.05}", "clear is on the wrong side of the limit"),
        ("{name: a, figure: loss, change: {}, clear: 0.05}", "clear requires above or below; change does not take it"),
        ("{name: a, figure: lost, scope: reporter, above: 1, least_samples: 3}", "a reporter has no samples"),
        ("{name: a, figure: loss, above: 1, hold_ms: 3}", "hold_ms: unknown key"),
    ],
)
def test_rules_that_make_no_sense_are_one_line_with_their_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, Rule, file="rules.yaml")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("rules.yaml:1")
    assert "\n" not in str(caught.value)


def test_every_figure_of_every_scope_can_be_read() -> None:
    taken = snapshot(0)
    for scope, state in (
        (Scope.LINK, IDLE),
        (Scope.PATH, taken.paths[FLOW]),
        (Scope.REPORTER, taken.reporters[7, 0]),
    ):
        for read in FIGURES[scope].values():
            value = read(state)
            assert value is None or value >= 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(0, 4), st.integers(0, 4), st.floats(0, 0.5))
def test_events_of_a_rule_alternate_and_hold_what_they_promise(
    values: list[float], hold: int, clear_hold: int, gap: float
) -> None:
    rule = busy(hold_ns=hold * 100 * MS, clear_hold_ns=clear_hold * 100 * MS, clear=0.8 - gap)
    engine = EventEngine([rule])
    events = phases_of(engine, loads_of(*values))
    assert [phase for _, phase in events] == [Phase.RAISED, Phase.CLEARED] * (len(events) // 2) + [Phase.RAISED] * (
        len(events) % 2
    )
    for at_ms, phase in events:
        last = at_ms // 100
        if phase is Phase.RAISED:
            assert all(value > 0.8 for value in values[last - hold : last + 1])
        else:
            assert all(value <= 0.8 - gap for value in values[last - clear_hold : last + 1])


def test_an_event_is_as_urgent_as_its_rule() -> None:
    engine = EventEngine([busy(severity=Severity.CRITICAL), busy(name="high")])
    events = [event for taken in loads_of(0.5, 0.9, 0.5) for event in engine.observe(taken)]
    told = {(event.rule, event.phase, event.severity) for event in events}
    urgency = {"busy": Severity.CRITICAL, "high": Severity.WARNING}
    assert told == {(rule, phase, severity) for rule, severity in urgency.items() for phase in Phase}
