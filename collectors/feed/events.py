"""Events and rules as messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import msgspec

from collectors.events.changes import RuleChange, RuleState
from collectors.events.rules import ChangeSettings, Rule, check_names
from collectors.events.scopes import Scope
from collectors.feed import events_pb2 as messages
from collectors.feed.columns import Enumeration, put, take
from collectors.feed.keys import flow_in, flow_out
from collectors.values import (
    ChildKey,
    Event,
    EventNote,
    Evidence,
    FlowKey,
    JobKey,
    Phase,
    ReporterKey,
    Severity,
    Subject,
)
from dataplane.config.writing import by_keys
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

_PHASES: Final = Enumeration(Phase, messages.Phase.DESCRIPTOR)
_SCOPES: Final = Enumeration(Scope, messages.Scope.DESCRIPTOR)
_SEVERITIES: Final = Enumeration(Severity, messages.Severity.DESCRIPTOR)
_EVENT: Final = ("time_ns", "rule", "figure", "value", "threshold")
_EVIDENCE: Final = ("time_ns", "figure", "value")
_NOTE: Final = ("by", "text", "at_ns")
_RULE: Final = tuple(name for name in Rule.__struct_fields__ if name not in {"scope", "severity", "change", "match"})
_CHANGE: Final = ChangeSettings.__struct_fields__
_SUBJECTS: Final = {"link": LinkKey, "reporter": ReporterKey, "job": JobKey, "child": ChildKey}
"""Subjects of events other than flows, whose addresses are bytes in a message."""
_NAMES: Final = {kind: name for name, kind in _SUBJECTS.items()}
_FIELDS: Final = {name: tuple(field.name for field in fields(kind)) for name, kind in _SUBJECTS.items()}


def events_message(events: Sequence[Event]) -> messages.Events:
    """Return events as a message."""
    return messages.Events(events=map(event_message, events))


def events_of(message: messages.Events) -> tuple[Event, ...]:
    """Return the events of a message; raise MessageError for what this version does not know."""
    return tuple(map(event_of, message.events))


def event_message(event: Event) -> messages.Event:
    """Return an event as a message."""
    phase, severity = _PHASES.numbers[event.phase], _SEVERITIES.numbers[event.severity]
    message = messages.Event(phase=phase, severity=severity)  # type: ignore[arg-type]  # numbers are members
    put(message, event, _EVENT)
    _write_subject(message, event.subject)
    for row in event.evidence:
        put(message.evidence.add(), row, _EVIDENCE)
    if event.note is not None:
        put(message.note, event.note, _NOTE)
    return message


def event_of(message: messages.Event) -> Event:
    """Return the event of a message; raise MessageError for what this version does not know."""
    time_ns, rule, figure, value, threshold = take(message, _EVENT)
    phase, subject = _PHASES.member(message.phase), _subject_of(message)
    evidence = tuple(Evidence(*take(row, _EVIDENCE)) for row in message.evidence)
    note = EventNote(*take(message.note, _NOTE)) if message.HasField("note") else None
    severity = _SEVERITIES.member(message.severity) if message.severity else Severity.WARNING
    return Event(time_ns, rule, subject, figure, value, threshold, phase, evidence, note, severity)


def rules_message(rules: Sequence[Rule]) -> messages.RuleSet:
    """Return rules as a message."""
    return messages.RuleSet(rules=map(_rule_message, rules))


def state_message(state: RuleState) -> messages.RuleSet:
    """Return the rules in force, and how they differ from the settings, as a message."""
    message = rules_message(state.rules)
    message.version = state.version
    for change in state.changes:
        row = message.changes.add(name=change.name, by=change.by, at_ns=change.at_ns)
        if change.rule is not None:
            row.rule.CopyFrom(_rule_message(change.rule))
        if change.settings_rule is not None:
            row.settings_rule.CopyFrom(_rule_message(change.settings_rule))
    return message


def state_of(message: messages.RuleSet) -> RuleState:
    """Return the rules in force of a message; raise MessageError as `rules_of` does."""
    changes = tuple(
        RuleChange(
            row.name,
            _rule_of(row.rule) if row.HasField("rule") else None,
            _rule_of(row.settings_rule) if row.HasField("settings_rule") else None,
            row.by,
            row.at_ns,
        )
        for row in message.changes
    )
    return RuleState(rules_of(message), changes)


def rules_of(message: messages.RuleSet) -> tuple[Rule, ...]:
    """Return the rules of a message; raise MessageError for rules that violate the schema of settings."""
    rules = tuple(map(_rule_of, message.rules))
    try:
        check_names(rules)
    except ValueError as error:
        raise MessageError(str(error)) from error
    return rules


def _write_subject(message: messages.Event, subject: Subject) -> None:
    if isinstance(subject, FlowKey):
        flow_out(message.flow, subject)
        return
    name = _NAMES[type(subject)]
    part = getattr(message, name)
    part.SetInParent()  # also where all its fields are 0 or empty
    put(part, subject, _FIELDS[name])


def _subject_of(message: messages.Event) -> Subject:
    name = message.WhichOneof("subject")
    if name is None:
        raise MessageError(f"an event of rule {message.rule!r} has a subject that this version does not know")
    if name == "flow":
        return flow_in(message.flow)
    subject: Subject = _SUBJECTS[name](*take(getattr(message, name), _FIELDS[name]))
    return subject


def _rule_message(rule: Rule) -> messages.Rule:
    scope, severity = _SCOPES.numbers[rule.scope], _SEVERITIES.numbers[rule.severity]
    message = messages.Rule(scope=scope, severity=severity, match=rule.match)  # type: ignore[arg-type]  # as above
    put(message, rule, _RULE)
    if rule.change is not None:
        put(message.change, rule.change, _CHANGE)
    return message


def _rule_of(message: messages.Rule) -> Rule:
    fields_of: dict[str, Any] = {field.name: value for field, value in message.ListFields()}
    if "scope" in fields_of:
        fields_of["scope"] = _SCOPES.member(message.scope)
    if "severity" in fields_of:
        fields_of["severity"] = _SEVERITIES.member(message.severity)
    if "match" in fields_of:
        fields_of["match"] = tuple(message.match)
    if "change" in fields_of:
        change = {field.name: value for field, value in message.change.ListFields()}
        fields_of["change"] = by_keys(change, ChangeSettings)
    try:
        return msgspec.convert(by_keys(fields_of, Rule), Rule)
    except msgspec.ValidationError as error:
        raise MessageError(f"rule {message.name!r}: {error}") from error
