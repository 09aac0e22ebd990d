"""The largest of priorities that come and go, against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dataplane.switch.tables.priorities import PriorityCount


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=200))
def test_the_best_is_the_largest_present(steps: list[tuple[bool, int]]) -> None:
    count, present = PriorityCount(), list[int]()
    for comes, priority in steps:
        if comes:
            count.add(priority)
            present.append(priority)
        elif priority in present:
            count.remove(priority)
            present.remove(priority)
        assert count.best == max(present, default=0)
        assert bool(count) is bool(present)
