"""Changes of rules while a collector runs, against the rules of its settings; pure.

The later change of a rule holds, wherever it was made: a change at run time until the settings' rule of that name
changes, also across restarts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from collectors.events.rules import Rule


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Change of the rule of one name: by whom, and when (ns since 1970).

    `rule` is None if it was removed, `settings_rule` is None if the settings have no rule of that name.
    """

    name: str
    rule: Rule | None
    settings_rule: Rule | None
    by: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class RuleState:
    """The rules in force, and how they differ from the settings."""

    rules: tuple[Rule, ...]
    changes: tuple[RuleChange, ...] = ()

    @property
    def version(self) -> str:
        """Version of the rules in force, the same for the same rules."""
        return hashlib.sha256(msgspec.json.encode(self.rules)).hexdigest()[:16]


def holding(settings_rules: Sequence[Rule], changes: Iterable[RuleChange]) -> tuple[RuleChange, ...]:
    """Return the changes of rules that have stayed the same in the settings since."""
    by_name = {rule.name: rule for rule in settings_rules}
    return tuple(change for change in changes if by_name.get(change.name) == change.settings_rule)


def in_force(settings_rules: Sequence[Rule], changes: Iterable[RuleChange]) -> tuple[Rule, ...]:
    """Return the settings' rules with the changes: in the settings' order, then those that were added."""
    rules: dict[str, Rule | None] = {rule.name: rule for rule in settings_rules}
    rules.update((change.name, change.rule) for change in changes)
    return tuple(rule for rule in rules.values() if rule is not None)


def changes_of(
    settings_rules: Sequence[Rule], rules: Sequence[Rule], earlier: Iterable[RuleChange], by: str, at_ns: int
) -> tuple[RuleChange, ...]:
    """Return how rules differ from the settings'; differences that are not new keep their author and time."""
    before = {rule.name: rule for rule in settings_rules}
    after = {rule.name: rule for rule in rules}
    known = {change.name: change for change in earlier}

    def differences() -> Iterator[RuleChange]:
        for name in before | after:
            rule, settings_rule = after.get(name), before.get(name)
            if rule == settings_rule:
                continue
            change = known.get(name)
            is_known = change is not None and (change.rule, change.settings_rule) == (rule, settings_rule)
            yield change if change is not None and is_known else RuleChange(name, rule, settings_rule, by, at_ns)

    return tuple(differences())
