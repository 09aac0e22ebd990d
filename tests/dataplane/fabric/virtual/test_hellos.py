"""Hellos in virtual time: failures are detected to the nanosecond, and skipping hellos changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.ports.states import Diagnostic, HelloSettings, HelloState, PortState
from dataplane.topology.file import loads
from dataplane.topology.values import LinkKey

MS = 1_000_000
UP = HelloState.UP
RING = loads("""
millrace: 1
name: ring
switches: [{name: s1}, {name: s2}, {name: s3}]
hosts: [{name: a, switch: s1, rate: 1 Gbit/s, delay: 0 ns}]
links:
  - {a: s1, b: s2, rate: 10 Mbit/s, delay: 3 ms}
  - {a: s2, b: s3, rate: 10 Mbit/s, delay: 10 ms}
  - {a: s3, b: s1, rate: 10 Mbit/s, delay: 40 us}
""")
PAIRS = (("s1", "s2"), ("s2", "s3"), ("s3", "s1"))
BRISK, SLOW = HelloSettings(20 * MS, 4), HelloSettings(300 * MS, 2)


class Story:
    """A ring with hellos, and the timed port reports of its switches."""

    def __init__(self, *, every_hello: bool) -> None:
        self.fabric = VirtualFabric(RING, seed=5, every_hello=every_hello)
        self.told: list[tuple[int, str, PortState]] = []
        self.events = 0
        for name in ("s1", "s2", "s3"):
            self.fabric.switch(name).add_port_listener(lambda state, name=name: self._hear(name, state))  # type: ignore[misc]
        for a, b in PAIRS:
            self.set_hello(a, b, HelloSettings())
            self.set_hello(b, a, HelloSettings())

    def _hear(self, name: str, state: PortState) -> None:
        self.told.append((self.fabric.now_ns, name, state))

    def port(self, a: str, b: str) -> int:
        """Return the port of `a` towards `b`."""
        return self.fabric.cables[LinkKey(a, b)].link.tail.port

    def set_hello(self, a: str, b: str, settings: HelloSettings | None) -> None:
        self.fabric.switch(a).set_hello(self.port(a, b), settings)

    def state(self, a: str, b: str) -> PortState:
        return self.fabric.switch(a).port_states()[self.port(a, b)]

    def run(self, time_ns: int) -> None:
        self.events += self.fabric.run_until(self.fabric.now_ns + time_ns)

    def do(self, what: int, pair: tuple[str, str]) -> None:
        """Apply an event to a cable or its first end."""
        a, b = pair
        switch, port = self.fabric.switch(a), self.port(a, b)
        cable = self.fabric.cables[LinkKey(a, b)]
        if what == 0:
            self.fabric.set_link(a, b, up=not cable.up, notice_after_ns=5 * MS)
        elif what == 1:
            self.fabric.set_link(a, b, up=not cable.up)
        elif what == 2:
            cable.set_up(not cable.up)
        elif what == 3:
            switch.set_admin(port, not switch.port_states()[port].admin_up)
        elif what == 4:
            self.set_hello(a, b, BRISK)
        elif what == 5:
            self.set_hello(b, a, SLOW)
        elif what == 6:
            self.set_hello(a, b, None if self.state(a, b).hello is not None else HelloSettings())
        else:
            self.told.append((self.fabric.now_ns, a, self.state(a, b)))


def in_order(story: Story) -> list[tuple[int, str, PortState]]:
    """Return the reports; those of one instant in the order of the ports."""
    return sorted(story.told, key=lambda told: (told[0], told[1], told[2].port))


happenings = st.lists(
    st.tuples(st.integers(0, 700 * MS), st.integers(0, 7), st.sampled_from((*PAIRS, *(pair[::-1] for pair in PAIRS)))),
    max_size=12,
)


@settings(max_examples=30)
@given(happenings)
@example([(0, 5, ("s2", "s3")), (121_100_000, 4, ("s3", "s2"))])
def test_hellos_that_are_passed_over_would_have_changed_nothing(
    happened: list[tuple[int, int, tuple[str, str]]],
) -> None:
    stories = Story(every_hello=False), Story(every_hello=True)
    for story in stories:
        story.run(30 * MS)
        for pause_ns, what, pair in happened:
            story.run(pause_ns)
            story.do(what, pair)
        story.run(2_000 * MS)
    quiet, full = stories
    assert in_order(quiet) == in_order(full)
    for a, b in PAIRS:
        assert (quiet.state(a, b), quiet.state(b, a)) == (full.state(a, b), full.state(b, a))
    assert quiet.events <= full.events + 50 * (len(happened) + 1)


def test_idle_hellos_cost_no_events_but_are_counted() -> None:
    story = Story(every_hello=False)
    story.run(2_000 * MS)
    before = story.events
    story.run(3_600_000 * MS)
    assert story.events == before
    hello = story.state("s1", "s2").hello
    assert hello is not None
    assert hello.state is UP
    assert 3_600_000 / 45 < hello.received < 3_600_000 / 37.5
    counters = story.fabric.cables[LinkKey("s1", "s2")].counters
    assert (counters.frames, counters.on_the_way) == (0, 0)


@pytest.mark.parametrize("every_hello", [False, True])
def test_broken_cable_is_lost_three_intervals_after_last_hello(every_hello: bool) -> None:
    story = Story(every_hello=every_hello)
    story.run(5_000 * MS)
    assert story.state("s2", "s3").hello is not None
    story.told.clear()
    broken_ns = story.fabric.now_ns
    story.fabric.cables[LinkKey("s2", "s3")].set_up(False)
    story.run(1_000 * MS)
    (lost_ns, name, lost), (told_ns, other, signalled) = story.told[:2]
    assert lost.hello is not None
    assert signalled.hello is not None
    assert (name, lost.hello.diagnostic) == ("s3", Diagnostic.CONTROL_DETECTION_EXPIRED)
    assert (other, signalled.hello.diagnostic) == ("s2", Diagnostic.NEIGHBOR_SIGNALED_DOWN)
    assert told_ns == lost_ns + 10 * MS
    assert broken_ns + 150 * MS - 45 * MS <= lost_ns <= broken_ns + 150 * MS
    assert not lost.is_usable
    story.fabric.cables[LinkKey("s2", "s3")].set_up(True)
    story.run(2_000 * MS)
    assert story.state("s2", "s3").is_usable
    assert story.state("s3", "s2").is_usable
