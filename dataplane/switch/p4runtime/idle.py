"""Idle entries: entries that no packet hits for their time to live (specification, sections 9.1.8 and 15.4).

Each entry with a time to live has one alarm. When it rings, a hit since then postpones it; without one the entry is
reported, and again after another time to live.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from dataplane.switch.tables import ForwardingState, TableEntry
from dataplane.switch.tables.match import Match

SHORTEST_NS = 1_000_000
"""Shorter times to live are raised to this: entries are not checked more often."""

REPORT_ENTRIES = 1_024
"""Maximum entries reported by one `due`; the rest follow in the next."""

Key = tuple[str, Match, int]


@dataclass(slots=True, order=True)
class _Alarm:
    due_ns: int
    number: int  # equal times ring in the order they were set
    key: Key


class IdleWatch:
    """The alarms of one state's entries; the caller holds the state's lock."""

    def __init__(self) -> None:
        self._due_ns: dict[Key, int] = {}
        self._alarms: list[_Alarm] = []
        self._number = 0

    def watch(self, table: str, entry: TableEntry) -> None:
        """Set the alarm of a new or changed entry; without a time to live there is none."""
        key = (table, entry.match, entry.priority)
        if entry.idle_timeout_ns:
            self._set(key, entry.last_hit_us * 1_000 + max(entry.idle_timeout_ns, SHORTEST_NS))
        else:
            self._due_ns.pop(key, None)

    def watch_all(self, state: ForwardingState) -> None:
        """Set the alarms of a whole state."""
        for name, table in state.tables.items():
            if table.spec.idle_timeout:
                for entry in table:
                    self.watch(name, entry)

    def due(self, state: ForwardingState, now_ns: int) -> list[tuple[str, TableEntry]]:
        """Return the entries, with their tables' names, that have been idle for their time, at most REPORT_ENTRIES."""
        idle: list[tuple[str, TableEntry]] = []
        while len(idle) < REPORT_ENTRIES and (due_ns := self.next_due_ns()) is not None and due_ns <= now_ns:
            key = heappop(self._alarms).key
            entry = state.tables[key[0]].get(key[1], key[2])
            if entry is None or not entry.idle_timeout_ns:
                del self._due_ns[key]
                continue
            life_ns = max(entry.idle_timeout_ns, SHORTEST_NS)
            hit_due_ns = entry.last_hit_us * 1_000 + life_ns
            if hit_due_ns > now_ns:
                self._ring(key, hit_due_ns)
            else:
                idle.append((key[0], entry))
                self._ring(key, now_ns + life_ns)
        return idle

    def next_due_ns(self) -> int | None:
        """Return when the first alarm rings, or None if there is none."""
        while self._alarms:
            first = self._alarms[0]
            if self._due_ns.get(first.key) == first.due_ns:
                return first.due_ns
            heappop(self._alarms)  # its entry has another alarm, or none
        return None

    def _set(self, key: Key, due_ns: int) -> None:
        """Set an alarm, unless one rings earlier and will be moved then."""
        present_ns = self._due_ns.get(key)
        if present_ns is None or due_ns < present_ns:
            self._ring(key, due_ns)

    def _ring(self, key: Key, due_ns: int) -> None:
        self._due_ns[key] = due_ns
        self._number += 1
        heappush(self._alarms, _Alarm(due_ns, self._number, key))
        if len(self._alarms) > 2 * len(self._due_ns) + 64:
            self._alarms = [alarm for alarm in self._alarms if self._due_ns.get(alarm.key) == alarm.due_ns]
            heapify(self._alarms)
