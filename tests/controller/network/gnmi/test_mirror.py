"""The mirror of a switch's ports, fed by the switch's own gNMI core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from finsy.proto import gnmi

from controller.network.gnmi.mirror import PortMirror, subscription
from dataplane.errors import SwitchError
from dataplane.switch.gnmi import GnmiCore
from dataplane.switch.ports.states import Diagnostic, HelloSettings, HelloState, OperStatus, PortState
from tests.dataplane.switch.gnmi.boards import EPOCH_NS, Board

MS = 1_000_000
NORMAL = HelloSettings()
QUICK = HelloSettings(10 * MS, 4)


class Mirrored:
    """A board and its mirror; `news` are the mirror's states of changed ports."""

    def __init__(self) -> None:
        self.board = Board()
        self.core = GnmiCore(self.board, epoch_ns=self.board.epoch_ns)
        self.mirror = PortMirror()
        self.news: list[PortState] = []
        request = subscription().subscribe
        for message in self.core.subscribe(request, self._take).initial():
            self._take(message)

    def _take(self, message: gnmi.SubscribeResponse) -> None:
        self.news += self.mirror.take(message.update)

    def dated(self, port: int) -> PortState:
        """Return a port's own state with gNMI's timestamps and without counts, which are not mirrored."""
        state, start_ns = self.board.board[port], 5
        hello = state.hello
        if hello is not None:
            hello = replace(hello, since_ns=max(hello.since_ns, start_ns) + EPOCH_NS, sent=0, received=0)
        speed_bps = None if state.speed_bps == 12_345 else state.speed_bps
        return replace(state, since_ns=max(state.since_ns, start_ns) + EPOCH_NS, speed_bps=speed_bps, hello=hello)


@pytest.fixture
def mirrored() -> Mirrored:
    return Mirrored()


def test_mirror_equals_the_board(mirrored: Mirrored) -> None:
    assert mirrored.mirror.states() == [mirrored.dated(1), mirrored.dated(2)]
    assert mirrored.news == mirrored.mirror.states()


@pytest.mark.parametrize(
    "change",
    [
        lambda board: board.set_oper(1, OperStatus.LOWER_LAYER_DOWN),
        lambda board: board.set_oper(1, OperStatus.NOT_PRESENT),
        lambda board: board.set_admin(1, False),
        lambda board: board.set_hello(1, QUICK),
        lambda board: (board.set_hello(1, NORMAL), board.say(1, HelloState.UP, was_up=True)),
        lambda board: (
            board.set_hello(1, NORMAL),
            board.say(
                1,
                HelloState.DOWN,
                was_up=True,
                diagnostic=Diagnostic.CONTROL_DETECTION_EXPIRED,
                remote_state=HelloState.INIT,
                remote_diagnostic=Diagnostic.NEIGHBOR_SIGNALED_DOWN,
            ),
        ),
        lambda board: (board.set_hello(1, NORMAL), board.set_hello(1, None), board.set_oper(1, OperStatus.DOWN)),
    ],
)
def test_a_mirror_follows(mirrored: Mirrored, change: Callable[[Board], object]) -> None:
    mirrored.board.clock.advance_to(1_000)
    mirrored.news.clear()
    change(mirrored.board)
    assert mirrored.news[-1] == mirrored.dated(1)
    assert mirrored.mirror.states() == [mirrored.dated(1), mirrored.dated(2)]
    assert {state.port for state in mirrored.news} == {1}


@pytest.mark.parametrize("diagnostic", Diagnostic)
@pytest.mark.parametrize("state", HelloState)
def test_every_state_and_diagnostic_comes_through(
    mirrored: Mirrored, state: HelloState, diagnostic: Diagnostic
) -> None:
    mirrored.board.set_hello(1, NORMAL)
    mirrored.board.say(1, state, diagnostic=diagnostic, remote_state=state, remote_diagnostic=diagnostic)
    assert mirrored.mirror.states()[0] == mirrored.dated(1)


def test_a_port_that_is_taken_away_is_not_present(mirrored: Mirrored) -> None:
    path = gnmi.Path(elem=[gnmi.PathElem(name="interfaces"), gnmi.PathElem(name="interface", key={"name": "east"})])
    (news,) = mirrored.mirror.take(gnmi.Notification(delete=[path]))
    assert news == replace(mirrored.dated(1), oper=OperStatus.NOT_PRESENT)


def test_corrections_set_hellos_and_then_stop(mirrored: Mirrored) -> None:
    wanted = {1: QUICK, 2: None, 9: NORMAL}
    assert mirrored.mirror.missing(wanted) == [9]
    request = mirrored.mirror.corrections(wanted)
    assert request is not None
    mirrored.core.set(request)
    assert mirrored.board.calls == [f"hello 1 {QUICK}"]
    assert mirrored.mirror.corrections(wanted) is None
    assert mirrored.mirror.corrections({}) is None
    mirrored.board.set_hello(2, QUICK)
    back = mirrored.mirror.corrections({1: NORMAL, 2: None})
    assert back is not None
    mirrored.core.set(back)
    assert [state.hello and state.hello.settings for state in mirrored.mirror.states()] == [NORMAL, None]


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (gnmi.Update(path=gnmi.Path(elem=[gnmi.PathElem(name="x")])), "path without an interface: x"),
        (
            gnmi.Update(
                path=gnmi.Path(elem=[gnmi.PathElem(name="interface", key={"name": "a"})]),
                val=gnmi.TypedValue(json_val=b"1"),
            ),
            "value of type json_val",
        ),
    ],
)
def test_malformed_update_is_an_error(mirrored: Mirrored, update: gnmi.Update, text: str) -> None:
    with pytest.raises(SwitchError, match=text):
        mirrored.mirror.take(gnmi.Notification(update=[update]))


def test_unknown_oper_status_is_down(mirrored: Mirrored) -> None:
    elems = [("interfaces", ""), ("interface", "east"), ("state", ""), ("oper-status", "")]
    path = gnmi.Path(elem=[gnmi.PathElem(name=name, key={"name": key} if key else {}) for name, key in elems])
    update = gnmi.Update(path=path, val=gnmi.TypedValue(string_val="DORMANT"))
    (state,) = mirrored.mirror.take(gnmi.Notification(update=[update]))
    assert state.oper is OperStatus.DOWN
