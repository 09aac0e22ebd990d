from __future__ import annotations

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import FabricError
from dataplane.events import EventQueue


def test_events_come_in_the_order_of_time_then_of_asking() -> None:
    events, seen = EventQueue(VirtualClock()), list[str]()
    for time_ns, name in ((20, "c"), (10, "a"), (20, "d"), (10, "b")):
        events.at(time_ns, seen.append, name)
    assert events.next_ns() == 10
    assert events.run_until(19) == 2
    assert (seen, events.clock.time_ns) == (["a", "b"], 19)
    assert events.run_until(20) == 2
    assert seen == ["a", "b", "c", "d"]
    assert events.next_ns() is None


def test_what_an_event_asks_for_now_still_happens_now() -> None:
    events, seen = EventQueue(VirtualClock()), list[int]()

    def again() -> None:
        seen.append(events.clock.time_ns)
        if len(seen) < 3:
            events.at(events.clock.time_ns, again)

    events.at(5, again)
    events.run_until(5)
    assert seen == [5, 5, 5]


def test_a_cancelled_timer_is_silent() -> None:
    events, seen = EventQueue(VirtualClock()), list[int]()
    timer = events.timer(5, lambda: seen.append(5))
    events.timer(6, lambda: seen.append(6))
    timer.cancel()
    events.run_until(10)
    assert seen == [6]


def test_the_past_is_refused() -> None:
    events = EventQueue(VirtualClock(100))
    with pytest.raises(FabricError, match="99 ns"):
        events.at(99, print)
    with pytest.raises(ValueError, match="back"):
        events.run_until(99)
