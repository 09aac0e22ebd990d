"""The built-in switch with either of its pipelines, in virtual time, its tables written directly."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

from dataplane.clock import VirtualClock
from dataplane.program.loader import load_program
from dataplane.program.objects import ActionCall
from dataplane.switch.switch import PipelineFactory, PortSettings, Switch
from dataplane.switch.tables import CloneSession, ForwardingState, Group, GroupMember, Replica, TableEntry
from dataplane.switch.traffic import DEFLECT_SESSION
from tests.p4.entries import (
    COLLECTOR_PORT,
    CPU_PORT,
    DOWN_PORT,
    HOST_PORT,
    UP_PORT,
    CloneTo,
    DefaultAction,
    Entry,
    Item,
    Match,
    MulticastTo,
    Spread,
)
from tests.p4.targets import P4INFO, PROGRAM, Sent

_PORTS = (HOST_PORT, UP_PORT, DOWN_PORT, COLLECTOR_PORT)
_STEP_NS = 1_000_000
_QUEUE_FRAMES = 1024
_load = cache(load_program)


class BuiltinTarget:
    """A switch whose clock moves by a millisecond before each `send`; ports are infinitely fast by default."""

    shortest_frame = 0

    def __init__(
        self,
        ports: Iterable[PortSettings] | None = None,
        *,
        name: str = "builtin",
        pipeline_factory: PipelineFactory | None = None,
        program: tuple[Path, Path] = (PROGRAM, P4INFO),
    ) -> None:
        self.name = name
        self.clock = VirtualClock(1_000_000_000)
        self._program = _load(*program)
        self._names = {name.rpartition(".")[2]: name for name in (*self._program.tables, *self._program.actions)}
        self.switch = Switch(
            1,
            ports or [PortSettings(number, queue_frames=_QUEUE_FRAMES) for number in _PORTS],
            self.clock,
            deflect_session=DEFLECT_SESSION,
            pipeline_factory=pipeline_factory,
        )
        self._packets_in: list[bytes] = []
        self.switch.on_packet_in(self._packets_in.append)
        self._written: list[Callable[[], object]] = []
        """Functions that undo each write, in the order of the writes."""
        self._learned: list[tuple[int, ...]] = []
        self.switch.on_digests(lambda messages: self._learned.extend(message.values for message in messages))
        self.switch.commit(self._program)

    @property
    def state(self) -> ForwardingState:
        """The tables of the loaded program."""
        assert self.switch.state is not None
        return self.switch.state

    def reset(self) -> None:
        """Undo all writes, in a hundredth of the time of a new commit; commit again if packets wait."""
        if self.switch.next_event_ns() is not None:
            self._written.clear()
            self.switch.commit(self._program)
            return
        while self._written:
            self._written.pop()()
        for counter in self.state.counters.values():
            _clear(counter.cells)
        for register in self.state.registers.values():
            _clear(register.words)

    def write(self, items: Iterable[Item]) -> None:
        for item in items:
            match item:
                case Entry(table, match, action, arguments, priority):
                    self._insert(table, match, priority, call=self._call(action, arguments))
                case DefaultAction(table, action, arguments):
                    entries = self.state.tables[self._names[table]]
                    entries.set_default(self._call(action, arguments))
                    self._written.append(partial(entries.set_default, None))
                case Spread():
                    self._spread(item)
                case CloneTo(port, session):
                    self.state.clone_sessions[session] = CloneSession((Replica(port),))
                    self._written.append(partial(self.state.clone_sessions.pop, session, None))
                case MulticastTo(group, replicas):
                    self.state.multicast_groups[group] = tuple(Replica(port, number) for port, number in replicas)
                    self._written.append(partial(self.state.multicast_groups.pop, group, None))

    def send(self, port: int, *frames: bytes, expect: int) -> Sent:
        self.clock.advance_to(self.clock.now_ns() + _STEP_NS)
        self.switch.receive(port, frames)
        return self.run()

    def packet_out(self, payload: bytes, *, expect: int) -> Sent:
        self.switch.packet_out(payload)
        return self.run()

    def run(self) -> Sent:
        """Advance time until nothing waits; return the sent frames."""
        sent = [(departure.port, departure.data) for departure in self.switch.advance(self.clock.now_ns())]
        while (next_ns := self.switch.next_event_ns()) is not None:
            self.clock.advance_to(max(next_ns, self.clock.now_ns()))
            sent += [(departure.port, departure.data) for departure in self.switch.advance(self.clock.now_ns())]
        sent += [(CPU_PORT, data) for data in self._packets_in]
        self._packets_in.clear()
        return sorted(sent, key=lambda frame: frame[0])

    def count(self, counter: str) -> int:
        return next(array.packets[0] for name, array in self.state.counters.items() if name.endswith(f".{counter}"))

    def learned(self, *, expect: int) -> list[tuple[int, ...]]:
        learned, self._learned = self._learned, []
        return learned

    def _call(self, action: str, arguments: tuple[int, ...]) -> ActionCall:
        return ActionCall(self._names[action], arguments)

    def _insert(
        self, table: str, match: Match, priority: int = 0, *, call: ActionCall | None = None, group: int | None = None
    ) -> None:
        entries = self.state.tables[self._names[table]]
        key = tuple(match.get(field.name, (0, 0)) for field in entries.spec.keys)
        entries.insert(TableEntry(key, priority, call=call, group=group))
        self._written.append(partial(entries.delete, key, priority))

    def _spread(self, item: Spread) -> None:
        profile = next(profile for name, profile in self.state.profiles.items() if name.endswith(f".{item.selector}"))
        numbers = range(1, len(item.next_hops) + 1)
        for number, next_hop in zip(numbers, item.next_hops, strict=True):
            profile.insert_member(number, self._call("forward", next_hop))
            self._written.append(partial(profile.delete_member, number))
        members = tuple(GroupMember(number) for number in numbers)
        profile.insert_group(Group(item.group, members, max_size=32))
        self._written.append(partial(profile.delete_group, item.group))
        self._insert(item.table, item.match, group=item.group)


def _clear(words: memoryview) -> None:
    """Make words zero in their place: compiled code has their address."""
    words[:] = array("Q", bytes(8 * len(words)))
