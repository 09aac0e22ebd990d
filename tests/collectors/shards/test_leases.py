"""Leases of collectors over a real file; time stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from collectors.errors import CollectorError
from collectors.shards.live import LiveCollectors
from collectors.shards.membership import Announcement, Membership
from collectors.shards.values import PREFIX
from dataplane.leases.sqlite import SqliteLeases
from dataplane.leases.storage import Entry, LeaseStorage
from tests.controller.common.standby.test_lease import LEASE_NS, Time


class Failing(SqliteLeases):
    """A storage that fails on demand."""

    is_away = loses_answers = False

    def write(self, changes: Mapping[str, bytes], expected: Mapping[str, int], *, durable: bool = False) -> int | None:
        """Write, and lose the answer on demand."""
        revision = super().write(changes, expected, durable=durable)
        if self.loses_answers:
            raise CollectorError("no answer")
        return revision

    def below(self, prefix: str) -> dict[str, Entry]:
        """Read, or fail."""
        if self.is_away:
            raise CollectorError("it is away")
        return super().below(prefix)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Failing]:
    """Return the storage that all share."""
    with Failing(str(tmp_path / "leases"), 10.0, CollectorError) as opened:
        yield opened


def member(storage: LeaseStorage, name: str, clock: Time, feed: str = "") -> Membership:
    me = Announcement(name, f"host-{name}", 32766, feed or f"unix:{name}")
    return Membership(storage, me, lease_ns=LEASE_NS, now_ns=clock)


def names(live: LiveCollectors) -> list[str] | None:
    live.step()
    return None if live.live is None else [collector.name for collector in live.live]


def pass_ms(clock: Time, ms: int, *members: Membership) -> None:
    """Let time pass, with renewals of those that live."""
    for _ in range(ms // 100):
        clock.pass_ms(100)
        for one in members:
            one.step()


def test_live_collectors_are_those_that_renew(storage: Failing) -> None:
    clock = Time()
    first, second = (member(storage, name, clock) for name in ("c1", "c2"))
    live = LiveCollectors(storage, clock)
    assert names(live) == []
    first.step()
    second.step()
    assert names(live) == ["c1", "c2"]
    pass_ms(clock, 900, first)
    assert names(live) == ["c1", "c2"]
    pass_ms(clock, 200, first)
    assert names(live) == ["c1"]
    assert live.live is not None
    assert (live.live[0].host, live.live[0].udp_port, live.live[0].feed) == ("host-c1", 32766, "unix:c1")
    second.step()
    assert names(live) == ["c1", "c2"]


def test_leases_given_back_end_at_once(storage: Failing) -> None:
    clock, live = Time(), LiveCollectors(storage)
    first = member(storage, "c1", clock)
    assert names(live) == []
    first.step()
    assert names(live) == ["c1"]
    first.release()
    assert names(live) == []
    first.release()
    again = member(storage, "c1", clock)
    again.step()
    assert names(live) == ["c1"]
    assert again.generation == 2


def test_late_renewals_are_lapses(storage: Failing) -> None:
    clock = Time()
    first = member(storage, "c1", clock)
    first.step()
    begun = first.lapses
    pass_ms(clock, 3000, first)
    assert first.lapses == begun
    clock.pass_ms(900)
    first.step()
    assert (first.lapses, first.generation) == (begun + 1, 1)


def test_newcomer_waits_until_it_knows_who_lives(storage: Failing) -> None:
    clock = Time()
    first, dead = (member(storage, name, clock) for name in ("c1", "c2"))
    first.step()
    dead.step()
    live = LiveCollectors(storage, clock)
    assert names(live) is None
    pass_ms(clock, 500, first)
    assert names(live) is None
    pass_ms(clock, 500, first)
    assert names(live) == ["c1"]


def test_newcomer_knows_renewing_collectors_at_once(storage: Failing) -> None:
    clock = Time()
    first = member(storage, "c1", clock)
    first.step()
    live = LiveCollectors(storage, clock)
    assert names(live) is None
    pass_ms(clock, 200, first)
    assert names(live) == ["c1"]


def test_storage_that_is_away_ends_no_lease(storage: Failing) -> None:
    clock = Time()
    first, live = member(storage, "c1", clock), LiveCollectors(storage, clock)
    names(live)
    first.step()
    assert names(live) == ["c1"]
    storage.is_away = True
    clock.pass_ms(5000)
    assert names(live) == ["c1"]
    assert live.problem == "it is away"
    storage.is_away = False
    assert names(live) == ["c1"]
    assert live.problem == ""
    clock.pass_ms(1100)
    assert names(live) == []


@pytest.mark.parametrize("begun", [False, True])
def test_lost_answers_lose_no_lease(storage: Failing, begun: bool) -> None:
    clock = Time()
    first = member(storage, "c1", clock)
    if begun:
        first.step()
    storage.loses_answers = True
    pass_ms(clock, 400, first)
    assert first.problem == "no answer"
    storage.loses_answers = False
    pass_ms(clock, 300, first)
    assert (first.generation, first.problem) == (1, "")


def test_second_process_of_a_name_waits_for_the_first(storage: Failing) -> None:
    clock = Time()
    first, second = member(storage, "c1", clock), member(storage, "c1", clock, "unix:other")
    first.step()
    pass_ms(clock, 2000, first, second)
    assert (first.generation, second.generation) == (1, None)
    assert second.problem == "collector c1: another process, with its feed at unix:c1, has this name"
    pass_ms(clock, 1200, second)
    assert second.generation == 2
    first.step()
    assert first.generation is None
    pass_ms(clock, 2000, first, second)
    assert (first.generation, second.generation) == (None, 2)


def test_broken_key_is_told_and_left_out(storage: Failing) -> None:
    clock = Time()
    live = LiveCollectors(storage, clock)
    names(live)
    member(storage, "c1", clock).step()
    storage.write({PREFIX + "c2": b"junk"}, {})
    assert names(live) == ["c1"]
    assert live.problem.startswith("lease of collector c2: cannot decode it")
    clock.pass_ms(1100)
    assert names(live) == []
