"""The board of port states: timestamped changes, sent in order to all subscribers, with no lock held."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.switch.ports.board import PortBoard, UsableWatch
from dataplane.switch.ports.states import HelloSession, HelloSettings, HelloState, OperStatus, PortState

CLOCK_NS = 7


def make() -> tuple[PortBoard, VirtualClock, list[PortState]]:
    clock = VirtualClock(CLOCK_NS)
    board = PortBoard(3, [PortState(1, "a", 10_000_000), PortState(2, "b")], clock.now_ns)
    seen: list[PortState] = []
    board.add_listener(seen.append)
    return board, clock, seen


def test_a_change_is_dated_and_told_once() -> None:
    board, clock, seen = make()
    board.set_oper(1, OperStatus.LOWER_LAYER_DOWN)
    clock.advance_to(20)
    board.set_oper(1, OperStatus.LOWER_LAYER_DOWN)
    board.set_admin(1, False)
    board.notify()
    down = PortState(1, "a", 10_000_000, oper=OperStatus.LOWER_LAYER_DOWN, since_ns=CLOCK_NS)
    assert seen == [down, replace(down, admin_up=False, since_ns=20)]
    assert board.unusable() == {1}
    assert board.read() == {1: seen[-1], 2: PortState(2, "b")}


def test_a_port_that_is_not_there_is_named() -> None:
    board, _, _ = make()
    with pytest.raises(SwitchError, match="switch 3 has no port 9"):
        board.set_admin(9, False)
    with pytest.raises(SwitchError, match="switch 3 has no port 9"):
        board.set_oper(9, OperStatus.UP)
    with pytest.raises(SwitchError, match="switch 3 has no port 9"):
        board.set_hello(9, None)


def test_counts_of_hellos_are_no_change_and_keep_the_date() -> None:
    board, clock, seen = make()
    session = HelloSession(HelloSettings())
    board.set_hello(1, session)
    clock.advance_to(50)
    board.set_hello(1, replace(session, sent=5, received=4))
    board.notify()
    assert [state.hello for state in seen] == [session]
    read = board[1]
    assert read.hello is not None
    assert (read.hello.sent, read.since_ns) == (5, 0)


def test_change_by_a_listener_is_announced_after_the_current_one() -> None:
    board, _, seen = make()

    def down_too(state: PortState) -> None:
        if state.port == 1:
            board.set_oper(2, state.oper)
            board.notify()

    board.add_listener(down_too)
    board.set_oper(1, OperStatus.DOWN)
    board.notify()
    assert [(state.port, state.oper) for state in seen] == [(1, OperStatus.DOWN), (2, OperStatus.DOWN)]


def test_a_listener_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    board, _, _ = make()
    after: list[PortState] = []

    def fail(state: PortState) -> None:
        raise ValueError(state.port)

    board.add_listener(fail)
    remove = board.add_listener(after.append)
    board.set_oper(2, OperStatus.NOT_PRESENT)
    board.notify()
    remove()
    remove()
    board.set_oper(2, OperStatus.UP)
    board.notify()
    assert [state.oper for state in after] == [OperStatus.NOT_PRESENT]
    assert caplog.messages == ["a port listener of switch 3 failed: it missed a change"] * 2


def test_port_is_usable_until_it_loses_its_neighbour() -> None:
    board, _, _ = make()
    told: list[tuple[int, bool]] = []
    board.set_admin(2, False)
    watch = UsableWatch(lambda port, up: told.append((port, up)), board.unusable())
    board.add_listener(watch)
    watch.begin()
    board.notify()
    session = HelloSession(HelloSettings())
    for hello in (
        session,
        replace(session, state=HelloState.UP, was_up=True),
        replace(session, was_up=True),
        replace(session, was_up=True, state=HelloState.INIT),
        replace(session, was_up=True, state=HelloState.UP),
        None,
    ):
        board.set_hello(1, hello)
        board.notify()
    assert told == [(2, False), (1, False), (1, True)]
    assert board[1].is_open


@pytest.mark.parametrize(
    ("interval_ns", "multiplier"), [(999_000, 3), (1_000_500, 3), (1 << 43, 3), (50_000_000, 0), (50_000_000, 256)]
)
def test_hellos_that_cannot_be_said_are_refused(interval_ns: int, multiplier: int) -> None:
    with pytest.raises(SwitchError, match="hellos: "):
        HelloSettings(interval_ns, multiplier)
