"""Detection of dead links from the reports of their ends: every kind of report, silence, and the hold time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.values import LinkCondition, LinkStatus
from controller.network.links.status import LinkStatusTable
from dataplane.switch.ports.states import (
    Diagnostic,
    HelloSession,
    HelloSettings,
    HelloState,
    OperStatus,
    PortState,
)
from dataplane.topology.values import LinkKey, Topology

S = 1_000_000_000
HOLD_NS = 5 * S
AB, BA = LinkKey("a", "b"), LinkKey("b", "a")

LOST = HelloSession(HelloSettings(), HelloState.DOWN, Diagnostic.CONTROL_DETECTION_EXPIRED, was_up=True)
TOLD = HelloSession(HelloSettings(), HelloState.DOWN, Diagnostic.NEIGHBOR_SIGNALED_DOWN, was_up=True)
LEFT = replace(TOLD, remote_state=HelloState.ADMIN_DOWN)
LEAVES = HelloSession(HelloSettings(), HelloState.ADMIN_DOWN, Diagnostic.ADMIN_DOWN, was_up=True)
HEARD = HelloSession(HelloSettings(), HelloState.UP, was_up=True)
NEVER = HelloSession(HelloSettings())
BEGUN = HelloSession(HelloSettings(), HelloState.INIT)


class Watched:
    """A watch over a topology's cable a-b, told of its two ends by name."""

    def __init__(self, topology: Topology) -> None:
        self.watch = LinkStatusTable(topology, return_after_ns=HOLD_NS)
        link = topology.directed_links[AB]
        self._ports = {"a": link.tail.port, "b": link.head.port}

    def says(
        self,
        switch: str,
        now_ns: int,
        *,
        oper: OperStatus = OperStatus.UP,
        hello: HelloSession | None = HEARD,
        admin_up: bool = True,
    ) -> bool:
        """Report from one end; return whether a link changed."""
        port = self._ports[switch]
        return self.watch.port_changed(switch, PortState(port, "veth", None, admin_up, oper, 0, hello), now_ns)

    def port(self, switch: str) -> int:
        """Return an end's port."""
        return self._ports[switch]

    def cause(self, now_ns: int = 0) -> str:
        """Return the reason for the link being down."""
        return self.watch.statuses(now_ns)[AB].cause


@pytest.fixture
def watched(diamond: Topology) -> Watched:
    return Watched(diamond)


def test_nothing_is_known_before_an_end_speaks(watched: Watched) -> None:
    assert watched.watch.statuses(0) == {}
    assert watched.watch.down == frozenset()


def test_a_link_is_up_when_its_ends_say_so(watched: Watched) -> None:
    assert watched.says("a", 1 * S)
    assert not watched.says("b", 2 * S)
    up = LinkStatus(LinkCondition.UP, 3 * S)
    assert watched.watch.statuses(4 * S) == {AB: up, BA: up}


@pytest.mark.parametrize(
    ("oper", "word"),
    [
        (OperStatus.DOWN, "down"),
        (OperStatus.LOWER_LAYER_DOWN, "without carrier"),
        (OperStatus.NOT_PRESENT, "gone"),
    ],
)
def test_one_port_takes_both_ways_down(watched: Watched, oper: OperStatus, word: str) -> None:
    watched.says("a", 0)
    watched.says("b", 0)
    assert watched.says("b", 2 * S, oper=oper)
    assert watched.watch.down == {AB, BA}
    assert watched.watch.statuses(3 * S)[BA] == LinkStatus(
        LinkCondition.DOWN, 1 * S, f"port {watched.port('b')} of b is {word}"
    )


def test_a_port_out_of_service_is_down(watched: Watched) -> None:
    watched.says("a", 0, admin_up=False)
    assert watched.cause() == f"port {watched.port('a')} of a was taken out of service"


@pytest.mark.parametrize(
    ("hello", "cause"),
    [
        (LOST, "a no longer hears b"),
        (TOLD, "b reports that it does not hear a"),
        (LEFT, "b announces that it is stopping or taking its port out of service"),
        (LEAVES, "a stops"),
    ],
)
def test_a_lost_neighbour_takes_the_link_down(watched: Watched, hello: HelloSession, cause: str) -> None:
    watched.says("a", 0)
    assert watched.says("a", 1, hello=hello)
    assert watched.cause() == cause


@pytest.mark.parametrize("hello", [NEVER, BEGUN])
def test_a_neighbour_that_was_never_heard_proves_nothing(watched: Watched, hello: HelloSession) -> None:
    assert not watched.says("a", 0, hello=hello)
    assert watched.watch.statuses(0) == {}


def test_without_hellos_the_port_decides(watched: Watched) -> None:
    assert watched.says("a", 0, hello=None)
    assert watched.watch.statuses(0)[AB].condition is LinkCondition.UP
    assert not watched.says("a", 0, hello=None, oper=OperStatus.UNKNOWN)


def test_link_returns_after_both_ends_hold_it_up(watched: Watched) -> None:
    watched.says("a", 0)
    watched.says("b", 0)
    watched.says("a", 1 * S, hello=LOST)
    watched.says("b", 1 * S, hello=TOLD)
    watched.says("a", 10 * S)
    assert watched.watch.due_ns() is None  # b has not reported it yet
    watched.says("b", 11 * S)
    assert watched.watch.due_ns() == 11 * S + HOLD_NS
    assert "it is alive again, and back in use in 4.0 s" in watched.cause(12 * S)
    assert not watched.watch.tick(11 * S + HOLD_NS - 1)
    assert watched.watch.down == {AB, BA}
    assert watched.watch.tick(11 * S + HOLD_NS)
    assert watched.watch.down == frozenset()
    assert watched.watch.due_ns() is None


def test_a_link_that_comes_and_goes_stays_down(watched: Watched) -> None:
    watched.says("a", 0)
    for second in range(1, 40, 4):
        watched.says("a", second * S, oper=OperStatus.DOWN)
        watched.says("a", (second + 2) * S)
        assert not watched.watch.tick((second + 3) * S)
        assert watched.watch.down == {AB, BA}
    assert watched.watch.due_ns() == (37 + 2) * S + HOLD_NS


def test_unreachable_switch_does_not_change_links(watched: Watched) -> None:
    watched.says("a", 0)
    watched.says("b", 0)
    assert not watched.watch.unreachable("b", 1)
    assert watched.watch.down == frozenset()  # as seen from a, it still forwards
    assert watched.says("a", 2, hello=LOST)
    assert watched.cause() == "a no longer hears b, and b does not answer the controller"


def test_link_without_reporters_stays_as_it_was(watched: Watched) -> None:
    watched.says("a", 0, oper=OperStatus.DOWN)
    assert not watched.watch.unreachable("a", 1)
    assert not watched.watch.unreachable("b", 1)
    assert watched.watch.down == {AB, BA}


def test_reachable_switch_is_believed_by_its_new_status(watched: Watched) -> None:
    watched.says("a", 0, oper=OperStatus.DOWN)
    watched.watch.unreachable("a", 1)
    assert not watched.watch.reachable("a", 2)
    assert watched.watch.down == {AB, BA}
    watched.says("a", 3)
    assert watched.watch.due_ns() == 3 + HOLD_NS


def test_ports_to_hosts_are_not_links(watched: Watched) -> None:
    state = PortState(99, "veth", oper=OperStatus.DOWN)
    assert not watched.watch.port_changed("a", state, 0)
