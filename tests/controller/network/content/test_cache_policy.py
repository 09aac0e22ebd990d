"""Choice of the names that a switch caches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.network.content.switch_store import ADVANTAGE, HeldName, Insertion, choose
from dataplane.store.names import HotName, Segment

COUNTS = st.dictionaries(st.integers(0, 30), st.integers(0, 100), max_size=8)


def _hot(**requests: int) -> list[HotName]:
    return [HotName(Segment(ord(name)), count) for name, count in requests.items()]


def _held(*packets: int) -> list[HeldName]:
    return [HeldName(Segment(cell), cell, count) for cell, count in enumerate(packets)]


def test_free_cells_are_taken_first_by_the_hottest() -> None:
    choice = choose(_held(1), _hot(a=5, b=9, c=1), cells=range(3), generation=70)
    assert choice.evicted == ()
    assert choice.inserted == (Insertion(Segment(ord("b")), 1, 70), Insertion(Segment(ord("a")), 2, 71))


def test_the_least_asked_for_goes() -> None:
    choice = choose(_held(50, 2, 8), _hot(a=20), cells=range(3), generation=1)
    assert [entry.cell for entry in choice.evicted] == [1]
    assert choice.inserted == (Insertion(Segment(ord("a")), 1, 1),)


def test_names_that_are_asked_for_alike_do_not_take_turns() -> None:
    assert choose(_held(8), _hot(a=10), cells=range(1), generation=1).inserted == ()
    assert choose(_held(8), _hot(a=11), cells=range(1), generation=1).inserted != ()


def test_held_or_repeated_name_is_not_inserted_again() -> None:
    hot = [*_hot(a=3), *_hot(a=5), HotName(Segment(0), 9)]
    assert [entry.segment for entry in choose(_held(1), hot, cells=range(4), generation=1).inserted] == [
        Segment(ord("a"))
    ]


@given(COUNTS, COUNTS, st.integers(0, 6))
def test_every_name_has_a_cell_of_its_own_and_none_colder_stays(
    packets: dict[int, int], requests: dict[int, int], spare: int
) -> None:
    held = [HeldName(Segment(name), cell, count) for cell, (name, count) in enumerate(packets.items())]
    cells = len(held) + spare
    choice = choose(
        held, [HotName(Segment(name), count) for name, count in requests.items()], cells=range(cells), generation=9
    )
    kept = [entry for entry in held if entry not in choice.evicted]
    all_cells = [*(entry.cell for entry in kept), *(entry.cell for entry in choice.inserted)]
    assert len(set(all_cells)) == len(all_cells)
    assert all(cell < cells for cell in all_cells)
    left_out = [
        requests[name]
        for name in requests.keys() - packets.keys()
        if Segment(name) not in {entry.segment for entry in choice.inserted}
    ]
    if left_out:
        assert len(all_cells) == cells
        assert all(max(left_out) <= ADVANTAGE * entry.packets for entry in kept)
    generations = [entry.generation for entry in choice.inserted]
    assert generations == list(range(9, 9 + len(generations)))
