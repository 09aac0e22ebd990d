"""Checks of watches detect lost, invented, reordered and repeated events."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.adversary.histories.watching import Seen, Stretch, Writes, disagreements, problems_of

Written = list[tuple[str, str | None]]
"""Names and values, of revisions 1, 2, ..."""


@st.composite
def written(draw: st.DrawFn, least: int = 0) -> Written:
    names = draw(st.lists(st.sampled_from("abc"), min_size=least, max_size=20))
    there: set[str] = set()
    writes: Written = []
    for number, name in enumerate(names):
        if name in there and draw(st.booleans()):
            there.remove(name)
            writes.append((name, None))
        else:
            there.add(name)
            writes.append((name, f"v{number}"))
    return writes


def told_of(changes: Written, begun: int = 0) -> tuple[Stretch, Writes]:
    """Return a correct watch from a revision on, and the writes that it shows."""
    writes, before = Writes(), Stretch(0, {})
    for revision, (name, value) in enumerate(changes, start=1):
        writes.acknowledged[name, revision] = value
        if value is not None:
            writes.called[name, value] = 10 * revision
        before.events.append(Seen(10 * revision + 1, name, revision, value))
    listed = replace(before, events=before.events[:begun]).replayed
    return Stretch(begun, listed, before.events[begun:]), writes


@given(written(), st.data())
def test_right_watches_are_accepted(changes: Written, data: st.DataObject) -> None:
    whole, writes = told_of(changes)
    later, _ = told_of(changes, data.draw(st.integers(0, len(changes))))
    for stretch in (whole, later):
        stretch.bookmark(len(changes))
        assert problems_of("w", [stretch], writes, whole.replayed) == []
    assert disagreements([[whole], [later]]) == []


@given(written(1), st.data())
def test_a_lost_event_is_found(changes: Written, data: st.DataObject) -> None:
    stretch, writes = told_of(changes)
    lost = stretch.events.pop(data.draw(st.integers(0, len(changes) - 1)))
    stretch.bookmark(len(changes))
    [problem] = problems_of("w", [stretch], writes, None)
    assert problem.startswith(f"watch w: {lost.name} is {lost.value} at revision {lost.revision}, which is lost")


@given(written(1), st.data())
def test_an_event_told_twice_is_found(changes: Written, data: st.DataObject) -> None:
    stretch, writes = told_of(changes)
    index = data.draw(st.integers(0, len(changes) - 1))
    stretch.events.insert(index, stretch.events[index])
    assert any("it comes after revision" in problem for problem in problems_of("w", [stretch], writes, None))


@given(written(2), st.data())
def test_events_out_of_order_are_found(changes: Written, data: st.DataObject) -> None:
    stretch, writes = told_of(changes)
    index = data.draw(st.integers(1, len(changes) - 1))
    stretch.events[index - 1 : index + 1] = reversed(stretch.events[index - 1 : index + 1])
    assert any("it comes after revision" in problem for problem in problems_of("w", [stretch], writes, None))


def test_an_invented_event_is_found() -> None:
    stretch, writes = told_of([("a", "v0")])
    stretch.events.append(Seen(50, "a", 7, "v7"))
    assert problems_of("w", [stretch], writes, None) == ["watch w: a v7 at revision 7: nobody has written that"]
    writes.called["a", "v7"] = 40
    assert problems_of("w", [stretch], writes, None) == []
    writes.called["a", "v7"] = 60
    assert len(problems_of("w", [stretch], writes, None)) == 1


def test_a_deletion_needs_somebody_who_deletes() -> None:
    stretch, writes = told_of([("a", "v0")])
    stretch.events.append(Seen(50, "a", 7, None))
    assert problems_of("w", [stretch], writes, None) == ["watch w: a is gone at revision 7: nobody has deleted it"]
    writes.lost_deletions.add("a")
    assert problems_of("w", [stretch], writes, None) == []


def test_another_value_than_was_written_is_found() -> None:
    stretch, writes = told_of([("a", "v0")])
    stretch.events[0] = replace(stretch.events[0], value="v9")
    assert problems_of("w", [stretch], writes, None) == ["watch w: a v9 at revision 1: v0 was written at this revision"]
    moved, _ = told_of([("a", "v0")])
    moved.events[0] = replace(moved.events[0], revision=2)
    assert "watch w: a v0 at revision 2: it was written at revision 1" in problems_of("w", [moved], writes, None)


def test_another_end_than_the_list_is_found() -> None:
    stretch, writes = told_of([("a", "v0"), ("b", "v1")])
    problems = problems_of("w", [stretch], writes, {"a": ("v0", 1)})
    assert problems == ["watch w: b is None and is replayed as ('v1', 2)"]


def test_watches_that_disagree_are_found() -> None:
    stretch, _ = told_of([("a", "v0")])
    other, _ = told_of([("a", "v1")])
    assert disagreements([[stretch], [other]]) == ["a is v0 and v1 at revision 1"]
