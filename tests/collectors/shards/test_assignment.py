"""Rendezvous hashing: who sees the same collectors computes the same, and only what must move moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from collectors.shards.assignment import assigned

NAMES = st.sets(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8))
COLLECTORS = NAMES.filter(bool)


@given(NAMES, COLLECTORS, st.randoms())
def test_order_does_not_matter(switches: set[str], collectors: set[str], random: object) -> None:
    mixed_switches, mixed = list(switches), list(collectors)
    for names in (mixed_switches, mixed):
        random.shuffle(names)  # type: ignore[attr-defined]
    assert assigned(mixed_switches, mixed) == assigned(switches, collectors)


@given(NAMES, COLLECTORS, st.data())
def test_leaving_collector_moves_its_own_switches_alone(
    switches: set[str], collectors: set[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(collectors)))
    before, after = assigned(switches, collectors), assigned(switches, collectors - {gone})
    if collectors == {gone}:
        assert after == {}
    else:
        moved = {switch for switch in switches if before[switch] != after[switch]}
        assert moved == {switch for switch, owner in before.items() if owner == gone}


def test_switches_are_shared_about_equally() -> None:
    shares = Counter(assigned((f"s{number}" for number in range(3000)), ["c1", "c2", "c3"]).values())
    assert all(900 < share < 1100 for share in shares.values())


def test_no_collector_has_nothing() -> None:
    assert assigned(["s1"], []) == {}
