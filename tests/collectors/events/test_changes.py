"""Rules changed at run time against those of the settings: the later change of a rule holds."""

from __future__ import annotations

from collectors.events.changes import RuleChange, RuleState, changes_of, holding, in_force
from collectors.events.rules import Rule

A = Rule(name="a", figure="utilisation", above=0.9)
B = Rule(name="b", figure="loss", above=0.1)
C = Rule(name="c", figure="samples", below=1.0)
LOWER = Rule(name="a", figure="utilisation", above=0.5)
HIGHER = Rule(name="a", figure="utilisation", above=0.95)


def test_differences_say_what_the_settings_have() -> None:
    changes = changes_of((A, B), (LOWER, C), (), "ada", 7)
    assert changes == (
        RuleChange("a", LOWER, A, "ada", 7),
        RuleChange("b", None, B, "ada", 7),
        RuleChange("c", C, None, "ada", 7),
    )
    assert in_force((A, B), changes) == (LOWER, C)


def test_known_differences_keep_author_and_time() -> None:
    first = changes_of((A, B), (LOWER, B), (), "ada", 7)
    second = changes_of((A, B), (LOWER,), first, "bob", 8)
    assert [(change.name, change.by, change.at_ns) for change in second] == [("a", "ada", 7), ("b", "bob", 8)]
    third = changes_of((A, B), (HIGHER,), second, "eve", 9)
    assert [(change.name, change.by) for change in third] == [("a", "eve"), ("b", "bob")]


def test_rule_as_in_the_settings_is_no_difference() -> None:
    changes = changes_of((A, B), (LOWER, B, C), (), "ada", 7)
    assert changes_of((A, B), (A, B, C), changes, "bob", 8) == changes[1:]


def test_change_holds_until_the_settings_change_the_rule() -> None:
    changes = changes_of((A, B), (LOWER, C), (), "ada", 7)
    assert holding((A, B), changes) == changes
    # Of the three only the rule that the settings have changed since is theirs again.
    assert in_force((HIGHER, B), holding((HIGHER, B), changes)) == (HIGHER, C)
    # A rule that was added gives way to one of its name in the settings.
    named = Rule(name="c", figure="samples", below=5.0)
    assert in_force((A, B, named), holding((A, B, named), changes)) == (LOWER, named)


def test_version_is_of_the_rules_in_force() -> None:
    assert RuleState((A, B)).version == RuleState((A, B), (RuleChange("c", None, C, "ada", 7),)).version
    assert len({RuleState(rules).version for rules in ((A, B), (B, A), (LOWER, B), ())}) == 4
