"""Admission of flows to the path server above its limit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.network.paths.membership import admit

rates = st.lists(st.integers(0, 100), max_size=8)


def rows(new: list[int], known: list[int], held: tuple[int, ...] = (), *, room: int) -> tuple[list[int], list[int]]:
    flags = np.zeros(len(known), np.bool_)
    flags[list(held)] = True
    admission = admit(np.array(new, np.int64), np.array(known, np.int64), flags, room=room)
    return admission.admitted.tolist(), admission.removed.tolist()


def test_heaviest_newcomers_take_the_free_places() -> None:
    assert rows([3, 5, 4], [9, 9], room=2) == ([1, 2], [])


def test_newcomer_replaces_the_lightest_that_sends_half_as_much() -> None:
    assert rows([41, 100], [40, 20, 30], room=0) == ([1], [1])


def test_silent_flows_make_room_first() -> None:
    assert rows([1, 2], [0, 50, 0], room=0) == ([1, 0], [0, 2])


def test_held_flows_never_make_room() -> None:
    assert rows([100], [1, 2], held=(0,), room=0) == ([0], [1])
    assert rows([100], [1, 2], held=(0, 1), room=0) == ([], [])


@given(rates, rates, st.integers(0, 4), st.sets(st.integers(0, 7)))
def test_number_of_flows_never_exceeds_the_places(new: list[int], known: list[int], room: int, held: set[int]) -> None:
    kept = tuple(row for row in held if row < len(known))
    admitted, removed = rows(new, known, kept, room=room)
    assert len(admitted) <= room + len(removed)
    assert len(set(admitted)) == len(admitted)
    assert not set(removed) & set(kept)
    left_out = [new[row] for row in range(len(new)) if row not in admitted]
    staying = [known[row] for row in range(len(known)) if row not in removed and row not in kept]
    if len(new) > room and left_out and staying:
        assert max(left_out) <= 2 * min(staying)
