"""Dead links, as the switches at their ends report ports and hellos; no session, no clock, no traffic.

A cable is down, both ways (as in BFD, RFC 5880 section 6.2), as soon as one of its ends reports it: the port is not up,
or its neighbour was heard and is heard no longer. It is up when every end that can be asked reports so; while none can
be asked its state is kept. A switch that does not answer reports nothing: its neighbours' hellos show whether it still
forwards. A cable that returns is used again only after it has been up for a hold time, so that a flapping one moves
traffic once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from collectors.values import LinkCondition, LinkStatus
from dataplane.clock import NS_PER_S
from dataplane.switch.ports.states import Diagnostic, HelloSession, HelloState, OperStatus, PortState
from dataplane.topology.values import Endpoint, LinkKey, Topology

RETURN_AFTER_NS: Final = 5_000_000_000


@dataclass(frozen=True, slots=True)
class CableEnd:
    """One end of a cable between two switches, and the switch at the other end."""

    switch: str
    port: int
    peer: str


@dataclass(slots=True)
class _Cable:
    """A cable, its known condition, since when, and since when it has been up again while it is still held back."""

    ends: tuple[CableEnd, CableEnd]
    condition: LinkCondition | None = None
    since_ns: int = 0
    cause: str = ""
    up_since_ns: int | None = None


class LinkStatusTable:
    """The condition of every cable between two switches of a topology.

    Report ports and switches to it, then query it; `now_ns` is on one clock throughout.
    """

    def __init__(self, topology: Topology, *, return_after_ns: int = RETURN_AFTER_NS) -> None:
        self._return_after_ns = return_after_ns
        self._cables = [_Cable(ends) for ends in _cables(topology)]
        self._at = {(end.switch, end.port): cable for cable in self._cables for end in cable.ends}
        self._cables_of: dict[str, list[_Cable]] = {}
        for (switch, _), cable in self._at.items():
            self._cables_of.setdefault(switch, []).append(cable)
        # Asked for at each port's change: a fabric has tens of thousands of cables, and few of these.
        self._dead: dict[tuple[CableEnd, CableEnd], _Cable] = {}
        self._held_back: dict[tuple[CableEnd, CableEnd], _Cable] = {}
        self._states: dict[tuple[str, int], PortState] = {}
        self._silent: set[str] = set()

    def port_changed(self, switch: str, state: PortState, now_ns: int) -> bool:
        """Take a port's state, unless it has no cable; return whether the condition of a link has changed."""
        cable = self._at.get((switch, state.port))
        if cable is None:
            return False
        self._states[switch, state.port] = state
        return self._evaluate(cable, now_ns)

    def unreachable(self, switch: str, now_ns: int) -> bool:
        """Note that a switch does not answer; return whether the condition of a link has changed."""
        self._silent.add(switch)
        return self._evaluate_all(self._of(switch), now_ns)

    def reachable(self, switch: str, now_ns: int) -> bool:
        """Note that a switch answers again; it is believed from the next state of each port on."""
        self._silent.discard(switch)
        for key in [key for key in self._states if key[0] == switch]:
            del self._states[key]
        return self._evaluate_all(self._of(switch), now_ns)

    def tick(self, now_ns: int) -> bool:
        """Let links return that have been up long enough; return whether the condition of one has changed."""
        return self._evaluate_all(list(self._held_back.values()), now_ns)

    def due_ns(self) -> int | None:
        """Return when `tick` is next due, None if nothing waits."""
        waiting = [cable.up_since_ns for cable in self._held_back.values() if cable.up_since_ns is not None]
        return min(waiting) + self._return_after_ns if waiting else None

    @property
    def down(self) -> frozenset[LinkKey]:
        """The links that must not be used, both ways of each cable."""
        return frozenset(key for cable in self._dead.values() for key in _links(cable))

    def statuses(self, now_ns: int) -> dict[LinkKey, LinkStatus]:
        """Return the known state of every link; links without any report are absent."""
        by_link: dict[LinkKey, LinkStatus] = {}
        for cable in self._cables:
            if cable.condition is not None:
                cause = cable.cause
                if cable.up_since_ns is not None:
                    left_ns = max(0, cable.up_since_ns + self._return_after_ns - now_ns)
                    cause += f"; it is alive again, and back in use in {left_ns / NS_PER_S:.1f} s"
                status = LinkStatus(cable.condition, max(0, now_ns - cable.since_ns), cause)
                by_link.update(dict.fromkeys(_links(cable), status))
        return by_link

    def _of(self, switch: str) -> list[_Cable]:
        return self._cables_of.get(switch, [])

    def _evaluate_all(self, cables: Iterable[_Cable], now_ns: int) -> bool:
        """Judge each of them; return whether the condition of one has changed."""
        return len([cable for cable in cables if self._evaluate(cable, now_ns)]) > 0

    def _evaluate(self, cable: _Cable, now_ns: int) -> bool:
        """Judge a cable; return whether its condition has changed."""
        has_changed = self._judge(cable, now_ns)
        for listed, belongs in (
            (self._dead, cable.condition is LinkCondition.DOWN),
            (self._held_back, cable.up_since_ns is not None),
        ):
            if belongs:
                listed[cable.ends] = cable
            else:
                listed.pop(cable.ends, None)
        return has_changed

    def _judge(self, cable: _Cable, now_ns: int) -> bool:
        conditions = [self._end_condition(end) for end in cable.ends]
        problem = next((cause for condition, cause in conditions if condition is LinkCondition.DOWN), None)
        # One end that reports a dead link suffices.
        if problem is not None:
            cable.up_since_ns = None
            return _set_condition(cable, LinkCondition.DOWN, problem, now_ns)
        asked = [condition for end, (condition, _) in zip(cable.ends, conditions, strict=True) if self._answers(end)]
        if not asked or any(condition is None for condition in asked):
            cable.up_since_ns = None
            return False
        if cable.condition is not LinkCondition.DOWN:
            return _set_condition(cable, LinkCondition.UP, "", now_ns)
        if cable.up_since_ns is None:
            cable.up_since_ns = now_ns
        if now_ns - cable.up_since_ns < self._return_after_ns:
            return False
        cable.up_since_ns = None
        return _set_condition(cable, LinkCondition.UP, "", now_ns)

    def _answers(self, end: CableEnd) -> bool:
        return end.switch not in self._silent and (end.switch, end.port) in self._states

    def _end_condition(self, end: CableEnd) -> tuple[LinkCondition | None, str]:
        """Return the condition that one end reports of its cable, None if it cannot, and why it is down."""
        state = self._states.get((end.switch, end.port))
        if state is None or end.switch in self._silent:
            return None, ""
        if not state.admin_up:
            return LinkCondition.DOWN, f"port {end.port} of {end.switch} was taken out of service"
        if state.oper in _DEAD_PORTS:
            return LinkCondition.DOWN, f"port {end.port} of {end.switch} is {_DEAD_PORTS[state.oper]}"
        hello = state.hello
        if hello is None:
            return (LinkCondition.UP if state.oper is OperStatus.UP else None), ""
        if hello.state is HelloState.UP:
            return LinkCondition.UP, ""
        # A neighbour that was never heard proves nothing: it may not send hellos.
        return (LinkCondition.DOWN, self._hello_problem(end, hello)) if hello.is_lost else (None, "")

    def _hello_problem(self, end: CableEnd, hello: HelloSession) -> str:
        """Return why a neighbour is gone according to hellos."""
        if hello.state is HelloState.ADMIN_DOWN:
            return f"{end.switch} stops"
        if hello.remote_state is HelloState.ADMIN_DOWN:
            return f"{end.peer} announces that it is stopping or taking its port out of service"
        if hello.diagnostic is Diagnostic.NEIGHBOR_SIGNALED_DOWN:
            return f"{end.peer} reports that it does not hear {end.switch}"
        silent = f", and {end.peer} does not answer the controller" if end.peer in self._silent else ""
        return f"{end.switch} no longer hears {end.peer}{silent}"


_DEAD_PORTS: Final[Mapping[OperStatus, str]] = {
    OperStatus.DOWN: "down",
    OperStatus.LOWER_LAYER_DOWN: "without carrier",
    OperStatus.NOT_PRESENT: "gone",
}


def _set_condition(cable: _Cable, condition: LinkCondition, cause: str, now_ns: int) -> bool:
    """Note a cable's condition; return whether it has changed. Of several causes the first one stays."""
    if cable.condition is condition:
        return False
    cable.condition, cable.cause, cable.since_ns = condition, cause, now_ns
    return True


def _links(cable: _Cable) -> tuple[LinkKey, LinkKey]:
    near, other = cable.ends
    return LinkKey(near.switch, other.switch), LinkKey(other.switch, near.switch)


def _cables(topology: Topology) -> Iterator[tuple[CableEnd, CableEnd]]:
    """Yield the cables between switches, each once."""
    for link in topology.directed_links.values():
        tail, head = link.tail, link.head
        if tail.node in topology.switch and head.node in topology.switch and _first(tail, head):
            yield CableEnd(tail.node, tail.port, head.node), CableEnd(head.node, head.port, tail.node)


def _first(tail: Endpoint, head: Endpoint) -> bool:
    return (tail.node, tail.port) < (head.node, head.port)
