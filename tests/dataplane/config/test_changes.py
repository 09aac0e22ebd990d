"""Messages of a daemon that rereads its settings about keys that it cannot apply."""

from __future__ import annotations

from dataplane.config import Strict
from dataplane.config.changes import changed_keys, not_in_force


class _Feed(Strict, frozen=True):
    address: str = "unix:feed"
    interval_ns: int = 1


class _Rules(Strict, frozen=True):
    rules: tuple[str, ...] = ()
    keep_ns: int = 1


class _Settings(Strict, frozen=True):
    topology: str = "abilene"
    feed: _Feed | None = None
    events: _Rules = _Rules()


def test_keys_are_named_as_deep_as_both_have_the_section() -> None:
    before = _Settings(feed=_Feed())
    after = _Settings(topology="geant", feed=_Feed(interval_ns=2), events=_Rules(rules=("slow",)))
    assert changed_keys(before, after) == ("topology", "feed.interval_ns", "events.rules")
    assert changed_keys(before, _Settings()) == ("feed",)
    assert changed_keys(before, before) == ()


def test_what_is_in_force_is_not_said() -> None:
    before, after = _Settings(), _Settings(topology="geant", events=_Rules(rules=("slow",), keep_ns=2))
    assert not_in_force(before, after, reloaded=("events",)) == "restart required for: topology"
    assert not_in_force(before, after, reloaded=("events.rules",)) == "restart required for: topology, events.keep_ns"
    assert not not_in_force(before, after, reloaded=("topology", "events"))
