"""Events and rules as messages: every value survives, what makes no sense is a clear error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.events.changes import RuleChange, RuleState
from collectors.events.rules import ChangeSettings, Rule
from collectors.events.scopes import FIGURES, Scope
from collectors.feed import events_pb2 as messages
from collectors.feed import feed_pb2
from collectors.feed.events import (
    event_message,
    event_of,
    events_message,
    events_of,
    rules_message,
    rules_of,
    state_message,
    state_of,
)
from collectors.feed.statuses import moves_message, moves_of
from collectors.values import Event, EventNote, FlowMove, Phase, ReporterKey
from dataplane.rpc.errors import MessageError
from tests.collectors.feed.drawn import EVENTS, SEVERITY

NUMBER = st.integers(1, 2**63 - 1)
FLOAT = st.floats(0, exclude_min=True, allow_infinity=False)
CHANGES = st.builds(ChangeSettings, st.integers(2, 2**40), FLOAT, FLOAT, FLOAT, FLOAT, NUMBER)
UNKNOWN: Any = 9
"""No member of any enumeration."""
EVENT = Event(1, "r", ReporterKey(1, 2), "lost", 3.0, 2.0, Phase.RAISED)


@st.composite
def rules(draw: st.DrawFn, number: int) -> Rule:
    """Return a rule with its number in its name."""
    scope = draw(st.sampled_from(Scope))
    kind = draw(st.sampled_from(["above", "below", "change"]))
    limit = draw(FLOAT)
    return Rule(
        name=f"rule {number}",
        figure=draw(st.sampled_from(sorted(FIGURES[scope]))),
        scope=scope,
        severity=draw(SEVERITY),
        above=limit if kind == "above" else None,
        below=limit if kind == "below" else None,
        change=draw(CHANGES) if kind == "change" else None,
        clear=limit if kind != "change" and draw(st.booleans()) else None,
        hold_ns=draw(NUMBER),
        clear_hold_ns=draw(st.none() | st.integers(0, 5)),
        match=tuple(draw(st.lists(st.text(max_size=5), max_size=2))),
        per_second=draw(st.booleans()),
        least_samples=0 if scope is Scope.REPORTER else draw(NUMBER),
        evidence=draw(st.integers(1, 1000)),
    )


@given(st.lists(EVENTS, max_size=4))
def test_events_survive(events: list[Event]) -> None:
    data = events_message(events).SerializeToString()
    assert events_of(messages.Events.FromString(data)) == tuple(events)


def test_notes_and_changed_rules_survive() -> None:
    noted = replace(EVENT, note=EventNote("ada", "on it", 7))
    assert event_of(messages.Event.FromString(event_message(noted).SerializeToString())) == noted
    old, new = Rule(name="a", figure="loss", above=0.5), Rule(name="a", figure="loss", above=0.7, hold_ns=3)
    changes = (RuleChange("a", new, old, "ada", 7), RuleChange("b", None, old, "bob", 8))
    state = RuleState((new,), changes)
    assert state_of(messages.RuleSet.FromString(state_message(state).SerializeToString())) == state


def test_moves_survive_and_are_bounded() -> None:
    moves = (
        FlowMove(7, "h1", "h2", 17, 0, 6001, ("s1", "s2"), ("s1", "s3", "s2"), "s1->s2 is full", -9),
        FlowMove(8, "h1", "h2", None, None, None, (), ("s1",), "pinned"),
    )
    assert moves_of(feed_pb2.FlowMoves.FromString(moves_message(moves).SerializeToString())) == moves
    with pytest.raises(MessageError, match="1001 moves are more than 1000"):
        moves_of(moves_message(moves[:1] * 1001))


@given(st.integers(0, 3).flatmap(lambda count: st.tuples(*map(rules, range(count)))))
def test_rules_survive(some: tuple[Rule, ...]) -> None:
    data = rules_message(some).SerializeToString()
    assert rules_of(messages.RuleSet.FromString(data)) == some


def test_rule_settings_match_their_message_fields() -> None:
    for settings, message in ((Rule, messages.Rule), (ChangeSettings, messages.Change)):
        own = {field.name for field in msgspec.structs.fields(settings)}
        assert own == set(message.DESCRIPTOR.fields_by_name)


def test_what_a_rule_leaves_out_is_as_in_settings() -> None:
    message = messages.RuleSet()
    message.rules.add(name="full", figure="utilisation", above=0.9)
    message.rules.add(name="moved", figure="delay_ns", scope=messages.SCOPE_PATH).change.SetInParent()
    assert rules_of(message) == (
        Rule(name="full", figure="utilisation", above=0.9),
        Rule(name="moved", figure="delay_ns", scope=Scope.PATH, change=ChangeSettings()),
    )


def test_an_event_about_what_nobody_knows_is_refused() -> None:
    message = events_message([EVENT])
    message.events[0].ClearField("reporter")
    with pytest.raises(MessageError, match="an event of rule 'r' has a subject that this version does not know"):
        events_of(message)


def test_a_phase_that_nobody_knows_is_refused() -> None:
    message = events_message([EVENT])
    message.events[0].phase = UNKNOWN
    with pytest.raises(MessageError, match="this version does not know Phase 9"):
        events_of(message)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (messages.Rule(), "missing required field `name`"),
        (messages.Rule(name="a", figure="loss"), "rule 'a': exactly one of above, below and change is required"),
        (messages.Rule(name="a", figure="tea", above=1), "a link has no figure 'tea'"),
        (messages.Rule(name="a", figure="loss", above=1, evidence=1001), "<= 1000"),
        (messages.Rule(name="a", figure="loss", above=1, scope=UNKNOWN), "this version does not know Scope 9"),
        (messages.Rule(name="a", figure="loss", change=messages.Change(learn=1)), ">= 2"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rule: messages.Rule, problem: str) -> None:
    with pytest.raises(MessageError, match=problem):
        rules_of(messages.RuleSet(rules=[rule]))


def test_two_rules_of_one_name_are_refused() -> None:
    rule = messages.Rule(name="a", figure="loss", above=1)
    with pytest.raises(MessageError, match="two rules are named 'a'"):
        rules_of(messages.RuleSet(rules=[rule, rule]))
