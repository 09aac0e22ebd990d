"""Tables change while several workers look things up: every packet finds the entries that stay."""

from __future__ import annotations

import random
import threading

import pytest

from dataplane.program.objects import ActionCall
from dataplane.switch.tables import ForwardingState, Group, GroupMember, TableEntry
from dataplane.switch.tables.match import prefix_mask
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import QueuedBench, own_program
from tests.dataplane.switch.compiled.test_threads_replacement import repeat
from tests.dataplane.switch.interpreter.test_forwarding import ECMP, REASONS, ROUTES, forward, ipv4

PORTS = tuple(PortSettings(number, queue_frames=1 << 14) for number in (1, 2, 3, 4))
ROUNDS, BURST = 80, 32
STABLE = range(16)
POLICED, MARKED = "Inbound.policed", "Inbound.marked"  # in stateful.p4
BEST = 1_000_000


def policed(index: int) -> TableEntry:
    return TableEntry((index,), call=ActionCall("Inbound.police", ()))


def marked(value: int, mask: int, priority: int, mark: int) -> TableEntry:
    """Return an entry of the ternary table with the member that writes a mark."""
    return TableEntry(((value & mask, mask),), priority, member=mark)


class ExactAndTernary:
    """Entries that come and go next to permanent ones: the tables grow, shrink, and change their order."""

    def __init__(self, state: ForwardingState, rng: random.Random) -> None:
        self._state, self._rng = state, rng
        profile = state.profiles["Inbound.shared"]
        for index in range(max(STABLE)):
            profile.insert_member(index + 1, ActionCall("Inbound.mark", (index + 1,)))
        for index in STABLE:
            state.tables[POLICED].insert(policed(index))
            state.tables[MARKED].insert(marked(index, 0xFF, BEST, 1 + index % max(STABLE)))

    def change(self) -> None:
        """Insert a number of others, and remove them again."""
        others = self._rng.sample(range(max(STABLE) + 1, 256), self._rng.randint(1, 200))
        masks = [(other, self._rng.randint(0, 255), self._rng.randint(1, BEST - 1)) for other in others[:40]]
        exact, ternary = self._state.tables[POLICED], self._state.tables[MARKED]
        entries = {(entry.match, entry.priority): entry for entry in (marked(*mask, 1) for mask in masks)}
        for other in others:
            with self._state.lock:
                exact.insert(policed(other))
        for entry in entries.values():
            with self._state.lock:
                ternary.insert(entry)
        for entry in entries.values():
            with self._state.lock:
                ternary.delete(entry.match, entry.priority)
        for other in others:
            with self._state.lock:
                exact.delete((other,), 0)


@pytest.mark.parametrize("threads", [2, 4])
def test_exact_and_ternary_entries_that_stay_are_always_found(threads: int) -> None:
    stopping, failures, rng = threading.Event(), list[BaseException](), random.Random(threads)
    with QueuedBench(PORTS, threads) as bench:
        state = bench.switch.commit(own_program("stateful"))
        writer = repeat(ExactAndTernary(state, random.Random(1)).change, stopping, failures)
        for _ in range(ROUNDS):
            for queue in range(threads):
                bench.send(1, queue, [bytes([0, rng.choice(STABLE), 0, 0]) + bytes(60) for _ in range(BURST)])
            bench.settle()
            frames = bench.receive()[1]
            assert len(frames) == threads * BURST
            # `direct` is 0xff where the exact table had no entry, `what` stays 0 where the ternary one had none.
            wrong = [frame[:4].hex() for frame in frames if frame[3] != 0 or frame[0] != 1 + frame[1] % max(STABLE)]
            assert not wrong
        stopping.set()
        writer.join()
        bench.assert_accounted()
    assert not failures, failures


class Routes:
    """A permanent route among others: longer neighbours, shorter covering ones, groups that change."""

    def __init__(self, state: ForwardingState, rng: random.Random) -> None:
        self._state, self._rng = state, rng
        self.table, self.profile = state.tables[ROUTES], state.profiles[ECMP]
        for port in (2, 3, 4):
            self.profile.insert_member(port, forward(port))
        self.profile.insert_group(Group(7, tuple(GroupMember(member) for member in (2, 3)), 8))
        self.table.insert(TableEntry(((0x0A010203, 32),), member=2))
        self.table.insert(TableEntry(((0x0A020000, 16),), group=7))

    def change(self) -> None:
        """Insert routes around the permanent ones, change the group, and remove the routes again."""
        rng, made = self._rng, dict[tuple[int, int], TableEntry]()
        for _ in range(rng.randint(1, 40)):
            length = rng.randint(8, 31)
            value = (0x0A010203 ^ 1 << rng.randint(0, 31 - 8)) & prefix_mask(32, length)
            made[value, length] = TableEntry(((value, length),), member=4)
        for entry in made.values():
            with self._state.lock:
                self.table.insert(entry)
        places = tuple(GroupMember(member, rng.randint(1, 3)) for member in rng.choice([(2,), (3,), (2, 3), (3, 2)]))
        with self._state.lock:
            self.profile.modify_group(Group(7, places, 8))
        for entry in made.values():
            with self._state.lock:
                self.table.delete(entry.match, 0)


def test_routes_that_stay_are_always_found() -> None:
    stopping, failures, rng = threading.Event(), list[BaseException](), random.Random(3)
    with QueuedBench(PORTS, 2) as bench:
        state = bench.switch.commit(own_program("forwarding"))
        writer = repeat(Routes(state, random.Random(1)).change, stopping, failures)
        for _ in range(ROUNDS):
            for queue in range(2):
                sources = [0x0A000001 + rng.randrange(1000) for _ in range(BURST)]
                bench.send(1, queue, [ipv4(src, 0x0A010203) for src in sources])
                bench.send(1, queue, [ipv4(src, 0x0A020000 + rng.randrange(1 << 16)) for src in sources])
            bench.settle()
            received = bench.receive()
            assert not received[4]
            assert sum(frame[30:34] == bytes([10, 1, 2, 3]) for frame in received[2]) == 2 * BURST
            assert sum(map(len, received.values())) == 4 * BURST
        stopping.set()
        writer.join()
        bench.assert_accounted()
    assert not failures, failures
    assert list(state.counters[REASONS].packets) == [0, 0, 0, 0]
