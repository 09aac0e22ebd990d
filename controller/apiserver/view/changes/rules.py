"""Rules of events as the page shows and takes them: YAML, as in the settings file; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from collectors.events.changes import RuleChange, RuleState
from collectors.events.engine import EventEngine
from collectors.events.observation import Observation
from collectors.events.rules import Rule
from collectors.events.scopes import FIGURES
from collectors.values import Snapshot
from controller.common.errors import InvalidError, NotFoundError
from dataplane.config import document_of, loads
from dataplane.errors import ConfigError

_MOST_SUBJECTS: Final = 20


def rule_of(text: str) -> Rule:
    """Return the rule of a text, by the reader of the settings file; raise InvalidError with line and key."""
    try:
        return loads(text, Rule, file="rule")
    except ConfigError as error:
        raise InvalidError(str(error)) from None


def text_of(rule: Rule) -> str:
    """Return a rule as YAML, without what has its default."""
    document = document_of(rule)
    fields = msgspec.structs.fields(rule)
    stated = {
        field.encode_name: document[field.encode_name] for field in fields if getattr(rule, field.name) != field.default
    }
    return yaml.safe_dump(stated, sort_keys=False, default_flow_style=None, allow_unicode=True)


def without(rules: Sequence[Rule], name: str) -> list[Rule]:
    """Return rules without one; raise NotFoundError."""
    kept = [rule for rule in rules if rule.name != name]
    if len(kept) == len(rules):
        raise NotFoundError(f"no rule is named {name}")
    return kept


def rules_answer(state: RuleState) -> dict[str, Any]:
    """Return the rules in force and removed ones, each with what the settings say where that differs."""
    changes = {change.name: change for change in state.changes}
    rows = [_row(rule, changes.get(rule.name)) for rule in state.rules]
    removed = [_removed(change) for change in state.changes if change.rule is None]
    figures = {scope.value: list(readers) for scope, readers in FIGURES.items()}
    return {"version": state.version, "rules": rows, "removed": removed, "figures": figures}


def checked_answer(rule: Rule, snapshot: Snapshot | None) -> dict[str, Any]:
    """Return what a valid rule says, and of which subjects its condition holds at present; None: not known."""
    now: dict[str, Any] | None = None
    if snapshot is not None and rule.change is None and not rule.per_second:
        events = EventEngine((replace(rule, hold_ns=0),)).observe(snapshot)
        subjects = [str(event.subject) for event in events]
        now = {
            "count": len(subjects),
            "of": len(Observation(snapshot).subjects(rule.scope)),
            "subjects": subjects[:_MOST_SUBJECTS],
        }
    return {"name": rule.name, "condition": condition_of(rule), "now": now}


def condition_of(rule: Rule) -> str:
    """Return in words when a rule raises an event."""
    figure = rule.figure.replace("_", " ") + (" per second" if rule.per_second else "")
    if rule.above is not None:
        words = f"{figure} above {rule.above:g}"
    elif rule.below is not None:
        words = f"{figure} below {rule.below:g}"
    else:
        words = f"the level of {figure} changes"
    lasts = f" for {document_of(rule)['hold']}" if rule.hold_ns else ""
    of = f" of {', '.join(rule.match)}" if rule.match else ""
    return f"{rule.scope.value}: {words}{lasts}{of}"


def _row(rule: Rule, change: RuleChange | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": rule.name, "text": text_of(rule), "condition": condition_of(rule), "changed": None}
    if change is not None:
        row["changed"] = _change(change)
    return row


def _removed(change: RuleChange) -> dict[str, Any]:
    condition = "" if change.settings_rule is None else condition_of(change.settings_rule)
    return {"name": change.name, "condition": condition, "changed": _change(change)}


def _change(change: RuleChange) -> dict[str, Any]:
    settings = None if change.settings_rule is None else text_of(change.settings_rule)
    return {"by": change.by, "at_ns": change.at_ns, "settings": settings}
