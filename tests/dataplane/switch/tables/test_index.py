"""Every index against the linear reference: the same suite, the same answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.program.objects import ActionCall, KeyField, MatchKind
from dataplane.switch.tables import TableEntry
from dataplane.switch.tables.index import ExactIndex, Index, MaskIndex, PrefixIndex, index_for
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, check_match, prefix_mask
from tests.reference.match_index import LinearIndex

Keys = tuple[KeyField, ...]
Factory = Callable[[Keys], Index]

EXACT = KeyField("port", MatchKind.EXACT, 4)
LPM = KeyField("dst", MatchKind.LPM, 6)
TERNARY = KeyField("proto", MatchKind.TERNARY, 5)
RANGE = KeyField("l4", MatchKind.RANGE, 5)
OPTIONAL = KeyField("vrf", MatchKind.OPTIONAL, 3)
KEYS: list[Keys] = [
    (EXACT,),
    (EXACT, KeyField("other", MatchKind.EXACT, 3)),
    (LPM,),
    (EXACT, LPM),
    (LPM, EXACT),
    (TERNARY,),
    (TERNARY, TERNARY),
    (RANGE,),
    (RANGE, RANGE),
    (OPTIONAL,),
    (TERNARY, RANGE, OPTIONAL, LPM, EXACT),
]


@pytest.fixture(params=[LinearIndex, index_for], ids=["reference", "quick"])
def make(request: pytest.FixtureRequest) -> Factory:
    factory: Factory = request.param
    return factory


def entry(match: Match, priority: int = 0, port: int = 1) -> TableEntry:
    return TableEntry(match, priority, call=ActionCall("forward", (port,)))


def hit(index: Index, *key: int) -> int | None:
    entry = index.lookup(key)
    if entry is None:
        return None
    assert entry.call is not None
    return entry.call.arguments[0]


def test_index_for_chooses_by_kind() -> None:
    assert isinstance(index_for((EXACT,)), ExactIndex)
    assert isinstance(index_for((EXACT, LPM)), PrefixIndex)
    assert isinstance(index_for((LPM, TERNARY)), MaskIndex)


def test_exact(make: Factory) -> None:
    index = make((EXACT, EXACT))
    index.put(entry((1, 2), port=5))
    assert hit(index, 1, 2) == 5
    assert hit(index, 2, 1) is None


def test_longest_prefix_wins_whatever_the_order(make: Factory) -> None:
    index = make((EXACT, LPM))
    index.put(entry((1, (0b101000, 3)), port=3))
    index.put(entry((1, (0, 0)), port=0))
    index.put(entry((1, (0b101010, 6)), port=6))
    index.put(entry((2, (0b101010, 6)), port=7))
    assert hit(index, 1, 0b101010) == 6
    assert hit(index, 1, 0b101011) == 3
    assert hit(index, 1, 0b000000) == 0
    assert hit(index, 3, 0b101010) is None
    index.remove((1, (0b101010, 6)), 0)
    assert hit(index, 1, 0b101010) == 3
    index.remove((1, (0b101000, 3)), 0)
    assert hit(index, 1, 0b101010) == 0


def test_larger_priority_wins_over_longer_prefix(make: Factory) -> None:
    index = make((LPM, TERNARY))
    index.put(entry(((0b111111, 6), (0, 0)), priority=1, port=1))
    index.put(entry(((0, 0), (0b00001, 0b00001)), priority=2, port=2))
    assert hit(index, 0b111111, 1) == 2
    assert hit(index, 0b111111, 2) == 1


def test_same_match_with_two_priorities_is_two_entries(make: Factory) -> None:
    index = make((TERNARY,))
    index.put(entry(((1, 1),), priority=5, port=5))
    index.put(entry(((1, 1),), priority=7, port=7))
    assert len(index) == 2
    assert hit(index, 1) == 7
    index.remove(((1, 1),), 7)
    assert hit(index, 1) == 5


def test_among_equals_the_older_wins_also_after_a_change(make: Factory) -> None:
    index = make((TERNARY,))
    index.put(entry(((1, 1),), priority=5, port=1))
    index.put(entry(((2, 2),), priority=5, port=2))
    assert hit(index, 3) == 1
    index.put(entry(((1, 1),), priority=5, port=9))
    assert hit(index, 3) == 9
    assert [entry.match for entry in index] == [((1, 1),), ((2, 2),)]


def test_range_bounds_are_inclusive(make: Factory) -> None:
    index = make((RANGE,))
    index.put(entry(((3, 5),), priority=1, port=1))
    assert [hit(index, value) for value in (2, 3, 5, 6)] == [None, 1, 1, None]


def test_optional_matches_a_value_or_anything(make: Factory) -> None:
    index = make((OPTIONAL,))
    index.put(entry((2,), priority=2, port=2))
    index.put(entry((None,), priority=1, port=1))
    assert [hit(index, value) for value in (2, 3)] == [2, 1]


def test_keyless_never_hits(make: Factory) -> None:
    assert hit(make(())) is None


def field_match(key: KeyField) -> st.SearchStrategy[FieldMatch]:
    values = st.integers(0, all_ones(key.width))
    match key.kind:
        case MatchKind.EXACT:
            return values
        case MatchKind.OPTIONAL:
            return st.none() | values
        case MatchKind.LPM:
            lengths = st.integers(0, key.width)
            return st.tuples(values, lengths).map(lambda pair: (pair[0] & prefix_mask(key.width, pair[1]), pair[1]))
        case MatchKind.TERNARY:
            return st.tuples(values, values).map(lambda pair: (pair[0] & pair[1], pair[1]))
        case MatchKind.RANGE:
            return st.tuples(values, values).map(lambda pair: (min(pair), max(pair)))


@given(st.data())
def test_quick_agrees_with_the_reference(data: st.DataObject) -> None:
    keys = data.draw(st.sampled_from(KEYS), "keys")
    reference, quick = LinearIndex(keys), index_for(keys)
    priorities = st.integers(1, 4) if isinstance(quick, MaskIndex) else st.just(0)
    places = st.tuples(st.tuples(*map(field_match, keys)), priorities)
    for number, (match, priority) in enumerate(data.draw(st.lists(places, max_size=20), "entries")):
        check_match(keys, match, "t")
        new = entry(match, priority, number)
        for index in (reference, quick):
            index.put(new)
    present = [(entry.match, entry.priority) for entry in reference]
    for match, priority in data.draw(
        st.lists(st.sampled_from(present), unique=True) if present else st.just([]), "gone"
    ):
        for index in (reference, quick):
            index.remove(match, priority)
    assert list(reference) == list(quick)
    assert len(reference) == len(quick)
    key = st.tuples(*(st.integers(0, all_ones(field.width)) for field in keys))
    for values in data.draw(st.lists(key, min_size=1, max_size=20), "packets"):
        assert reference.lookup(values) is quick.lookup(values)
    for match, priority in present:
        assert reference.get(match, priority) is quick.get(match, priority)
