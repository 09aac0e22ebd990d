"""A collector's own lease: one key, which only the process that wrote it last renews.

Renewals compare the key's revision. A process that finds that another has taken its name ends its membership, and
takes the name again once that one's lease has run out: two processes of one name are never both members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from collectors.errors import CollectorError
from collectors.shards.values import PREFIX, CollectorRecord
from dataplane.clock import boot_time_ns
from dataplane.leases.storage import ABSENT, Entry, LeaseStorage
from dataplane.malformed import MALFORMED

RENEWALS: Final = 5
"""Renewals within the duration of a lease."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A collector as its lease announces it: name, host and port that switches report to, its feed's address."""

    name: str
    host: str
    udp_port: int
    feed: str


class Membership:
    """One collector's lease. `step` and `release` are called by one thread, properties by any."""

    def __init__(
        self,
        storage: LeaseStorage,
        me: Announcement,
        *,
        lease_ns: int,
        now_ns: Callable[[], int] = boot_time_ns,
        prefix: str = PREFIX,
    ) -> None:
        self._storage, self._me, self._lease_ns, self._now_ns = storage, me, lease_ns, now_ns
        self._key = prefix + me.name
        self._held: tuple[CollectorRecord, int] | None = None
        self._due_ns = 0
        self._seen: tuple[int, int] | None = None
        self._sent_ns = self._tried = 0
        self.lapses = 0
        """Number of renewals that came so late that others may have taken this collector for dead."""
        self.problem = ""
        """Reason for which the lease cannot be taken or renewed, '' if it can."""

    @property
    def generation(self) -> int | None:
        """The generation of the lease, None while it is not held."""
        held = self._held
        return None if held is None else held[0].generation

    def step(self) -> None:
        """Renew the lease when that is due, else look whether it can be taken, and take it; raise no CollectorError."""
        if self._held is not None and self._now_ns() < self._due_ns:
            return
        try:
            if self._held is None:
                self._look()
            else:
                self._renew(*self._held)
        except CollectorError as error:
            self.problem = str(error)

    def release(self) -> None:
        """Give the lease back, so that switches move at once; no effect if it is not held."""
        held, self._held = self._held, None
        if held is None:
            return
        record, revision = held
        try:
            gone = CollectorRecord(record.generation, record.lease_ns, 0)
            self._storage.write({self._key: msgspec.msgpack.encode(gone)}, {self._key: revision})
        except CollectorError as error:
            self.problem = str(error)  # it runs out by itself

    def _renew(self, record: CollectorRecord, revision: int) -> None:
        self._write(msgspec.structs.replace(record, renewals=record.renewals + 1), revision)
        if self._held is None:
            self._seen = None
            self._look()

    def _look(self) -> None:
        entry, now_ns = self._storage.read([self._key]).get(self._key), self._now_ns()
        if entry is None:
            self._write(self._record(1), ABSENT)
            return
        record = record_of(self._me.name, entry)
        if record.feed and record.generation == self._tried:
            # Ours: the answer to an earlier write was lost, but not the write.
            self._write(msgspec.structs.replace(record, renewals=record.renewals + 1), entry.revision)
            return
        if self._seen is None or self._seen[0] != entry.revision:
            self._seen = entry.revision, now_ns
        if not record.feed or now_ns - self._seen[1] >= record.lease_ns:
            self._write(self._record(record.generation + 1), entry.revision)
        else:
            self.problem = f"collector {self._me.name}: another process, with its feed at {record.feed}, has this name"

    def _write(self, record: CollectorRecord, revision: int) -> None:
        # No two processes write one generation: each write depends on the revision before it.
        sent_ns, self._tried = self._now_ns(), record.generation
        changes = {self._key: msgspec.msgpack.encode(record)}
        written = self._storage.write(changes, {self._key: revision}, durable=record.renewals == 0)
        self._held = None if written is None else (record, written)
        self._due_ns = sent_ns + self._lease_ns // RENEWALS
        if written is not None:
            # Others time by their own clocks how long the key has not changed: the last part is the margin.
            self.lapses += self._now_ns() - self._sent_ns >= self._lease_ns - self._lease_ns // RENEWALS
            self._sent_ns, self.problem = sent_ns, ""

    def _record(self, generation: int) -> CollectorRecord:
        me = self._me
        return CollectorRecord(generation, self._lease_ns, 0, me.host, me.udp_port, me.feed)


def record_of(name: str, entry: Entry) -> CollectorRecord:
    """Return the content of a collector's key; raise CollectorError."""
    try:
        return msgspec.msgpack.decode(entry.value, type=CollectorRecord)
    except MALFORMED as error:
        raise CollectorError(f"lease of collector {name}: cannot decode it: {error}") from error
