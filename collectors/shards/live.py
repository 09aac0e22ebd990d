"""The collectors that hold their leases, as one process sees them by its own clock.

A key that has not changed for the duration of its lease belongs to a dead collector. Nobody tells how old a key was
when it was first seen, so for as long the first answer waits, unless each key changes before. Time in which the storage
does not answer says nothing about collectors: it does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collectors.errors import CollectorError
from collectors.shards.membership import record_of
from collectors.shards.values import PREFIX, CollectorRecord, LiveCollector
from dataplane.clock import boot_time_ns
from dataplane.leases.storage import Entry, LeaseStorage


@dataclass(frozen=True, slots=True)
class _Seen:
    """A key's newest record, since when it has been so, and whether it is known to be alive then."""

    record: CollectorRecord
    revision: int
    since_ns: int
    is_certain: bool


class LiveCollectors:
    """Looks at the leases of all collectors; `step` is called by one thread, properties by any."""

    def __init__(self, storage: LeaseStorage, now_ns: Callable[[], int] = boot_time_ns) -> None:
        self._storage, self._now_ns = storage, now_ns
        self._seen: dict[str, _Seen] = {}
        self._has_looked = self._is_blind = False
        self.live: tuple[LiveCollector, ...] | None = None
        """The live collectors in order of name; None while that is not known yet."""
        self.problem = ""
        """Reason for which the leases cannot be read, '' if they can."""

    def step(self) -> None:
        """Look at all leases; raise no CollectorError. Without an answer the last live collectors stay."""
        try:
            entries = self._storage.below(PREFIX)
        except CollectorError as error:
            self.problem, self._is_blind = str(error), True
            return
        now_ns, before, self.problem = self._now_ns(), self._seen, ""
        self._seen = {}
        for key, entry in entries.items():
            try:
                self._seen[key] = self._looked_at(key, entry, before.get(key), now_ns)
            except CollectorError as error:
                # One that cannot be read, as of a later version, is left out: the others go on.
                self.problem = str(error)
        self._has_looked, self._is_blind = True, False
        self._judge(now_ns)

    def _looked_at(self, key: str, entry: Entry, last: _Seen | None, now_ns: int) -> _Seen:
        if last is None or last.revision != entry.revision:
            is_certain = last is not None or self._has_looked
            return _Seen(record_of(key.removeprefix(PREFIX), entry), entry.revision, now_ns, is_certain)
        return _Seen(last.record, last.revision, now_ns, last.is_certain) if self._is_blind else last

    def _judge(self, now_ns: int) -> None:
        live = {
            key.removeprefix(PREFIX): seen
            for key, seen in self._seen.items()
            if seen.record.feed and now_ns - seen.since_ns < seen.record.lease_ns
        }
        if self.live is None and not all(seen.is_certain for seen in live.values()):
            return
        self.live = tuple(
            LiveCollector(name, seen.record.generation, seen.record.host, seen.record.udp_port, seen.record.feed)
            for name, seen in sorted(live.items())
        )
