"""Events and rules as messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import msgspec

from collectors.events.rules import ChangeSettings, Rule, check_names
from collectors.events.scopes import Scope
from collectors.feed import events_pb2 as messages
from collectors.feed.columns import Enumeration, put, take
from collectors.feed.keys import flow_in, flow_out
from collectors.values import ChildKey, Event, Evidence, FlowKey, JobKey, Phase, ReporterKey, Subject
from dataplane.config.writing import by_keys
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

_PHASES: Final = Enumeration(Phase, messages.Phase.DESCRIPTOR)
_SCOPES: Final = Enumeration(Scope, messages.Scope.DESCRIPTOR)
_EVENT: Final = ("time_ns", "rule", "figure", "value", "threshold")
_EVIDENCE: Final = ("time_ns", "figure", "value")
_RULE: Final = tuple(name for name in Rule.__struct_fields__ if name not in {"scope", "change", "match"})
_CHANGE: Final = ChangeSettings.__struct_fields__
_SUBJECTS: Final = {"link": LinkKey, "reporter": ReporterKey, "job": JobKey, "child": ChildKey}
"""Subjects of events other than flows, whose addresses are bytes in a message."""
_NAMES: Final = {kind: name for name, kind in _SUBJECTS.items()}
_FIELDS: Final = {name: tuple(field.name for field in fields(kind)) for name, kind in _SUBJECTS.items()}


def events_message(events: Sequence[Event]) -> messages.Events:
    """Return events as a message."""
    message = messages.Events()
    for event in events:
        _write_event(message.events.add(phase=_PHASES.numbers[event.phase]), event)
    return message


def events_of(message: messages.Events) -> tuple[Event, ...]:
    """Return the events of a message; raise MessageError for what this version does not know."""
    return tuple(map(_event_of, message.events))


def rules_message(rules: Sequence[Rule]) -> messages.RuleSet:
    """Return rules as a message."""
    message = messages.RuleSet()
    for rule in rules:
        rule_message = message.rules.add(scope=_SCOPES.numbers[rule.scope], match=rule.match)
        put(rule_message, rule, _RULE)
        if rule.change is not None:
            put(rule_message.change, rule.change, _CHANGE)
    return message


def rules_of(message: messages.RuleSet) -> tuple[Rule, ...]:
    """Return the rules of a message; raise MessageError for rules that violate the schema of settings."""
    rules = tuple(map(_rule_of, message.rules))
    try:
        check_names(rules)
    except ValueError as error:
        raise MessageError(str(error)) from error
    return rules


def _write_event(message: messages.Event, event: Event) -> None:
    put(message, event, _EVENT)
    _write_subject(message, event.subject)
    for row in event.evidence:
        put(message.evidence.add(), row, _EVIDENCE)


def _event_of(message: messages.Event) -> Event:
    time_ns, rule, figure, value, threshold = take(message, _EVENT)
    phase, subject = _PHASES.member(message.phase), _subject_of(message)
    evidence = tuple(Evidence(*take(row, _EVIDENCE)) for row in message.evidence)
    return Event(time_ns, rule, subject, figure, value, threshold, phase, evidence)


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


def _rule_of(message: messages.Rule) -> Rule:
    fields_of: dict[str, Any] = {field.name: value for field, value in message.ListFields()}
    if "scope" in fields_of:
        fields_of["scope"] = _SCOPES.member(message.scope)
    if "match" in fields_of:
        fields_of["match"] = tuple(message.match)
    if "change" in fields_of:
        change = {field.name: value for field, value in message.change.ListFields()}
        fields_of["change"] = by_keys(change, ChangeSettings)
    try:
        return msgspec.convert(by_keys(fields_of, Rule), Rule)
    except msgspec.ValidationError as error:
        raise MessageError(f"rule {message.name!r}: {error}") from error
