"""The lease of a pair: one holder at a time, with a fencing token that grows with each holder.

Two keys in a storage that the pair shares. `holder` changes only when the lease is taken or given back: its revision is
the fencing token. `renewed` changes with each renewal. Whoever stands by takes the lease when neither key has changed
for the lease's duration by its own monotonic clock, in a transaction on the condition that they still have not. The
holder counts the duration from before its last successful renewal was sent, so it ends for the holder first; clocks of
different machines need to run at the same rate, not show the same time. (Kubernetes elects its leaders likewise.)

A process may still be stopped between looking at its clock and writing. So all that it writes to carries the token, and
refuses one that is lower than what it has seen, or compares it in the transaction of the write (`save`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from controller.common.errors import LostLeaseError, StorageError
from controller.common.standby.values import StandbyStatus
from dataplane.clock import boot_time_ns
from dataplane.leases.storage import ABSENT, Entry, LeaseStorage
from dataplane.malformed import MALFORMED

RENEWALS: Final = 5
"""Renewals within the duration of a lease; its last part of as many is the margin in which nobody writes."""


class _Record(msgspec.Struct, frozen=True):
    """Content of the key `holder`; an empty holder has given the lease back."""

    holder: str
    address: str
    since_ns: int
    lease_ns: int


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease that this process holds until `until_ns` by its own clock."""

    token: int
    since_ns: int
    until_ns: int


class Lease:
    """One process's view of a lease. `step` is called by one thread; everything else may be called by any."""

    def __init__(
        self,
        storage: LeaseStorage,
        name: str,
        *,
        holder: str,
        address: str,
        lease_ns: int,
        now_ns: Callable[[], int] = boot_time_ns,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.name, self.holder, self._address = name, holder, address
        self._storage, self._lease_ns, self._now_ns, self._utc_ns = storage, lease_ns, now_ns, utc_ns
        self._holder_key, self._renewed_key = f"{name}/holder", f"{name}/renewed"
        self._held: _Held | None = None
        self._is_over = self._is_candidate = False
        self._renewals = 0
        self._seen: tuple[int, int] | None = None
        self._seen_ns = 0
        self._active = "", ""
        self._changes, self._problem = 0, ""

    @property
    def interval_ns(self) -> int:
        """Time between two renewals."""
        return self._lease_ns // RENEWALS

    @property
    def token(self) -> int | None:
        """The fencing token, None unless the lease is held and its margin has not begun."""
        held = self._held
        return None if held is None or self._now_ns() >= held.until_ns else held.token

    @property
    def is_over(self) -> bool:
        """Return whether the lease was held once and no longer is; it is not taken again."""
        return self._is_over or (self._held is not None and self.token is None)

    def stand(self) -> None:
        """Become a candidate: this process is ready to be active. Before that it only looks at the lease."""
        self._is_candidate = True

    def check(self) -> int:
        """Return the fencing token; raise LostLeaseError unless the lease is held now."""
        token = self.token
        if token is None:
            raise LostLeaseError(self._told())
        return token

    def status(self) -> StandbyStatus:
        """Return the role of this process."""
        token, held = self.token, self._held
        since_ns = None if token is None or held is None else held.since_ns
        return StandbyStatus(
            self.holder, token is not None, token, since_ns, *self._active, self._changes, self._problem
        )

    def step(self) -> None:
        """Renew the lease if it is held, else look whether it can be taken, and take it; raise no StorageError."""
        if self.is_over:
            self._end()
            return
        try:
            self._renew(self._held) if self._held is not None else self._look()
            self._problem = ""
        except StorageError as error:
            # The holder's clock runs on: without a renewal in time the lease is over.
            self._problem = str(error)

    def release(self) -> None:
        """Give the lease back, so that another process takes it at once; no effect if it is not held."""
        held, self._held = self._held, None
        self._is_over = True
        if held is None:
            return
        try:
            self._storage.write({self._holder_key: self._record("")}, {self._holder_key: held.token})
        except StorageError as error:
            self._problem = str(error)  # it expires by itself

    def save(self, values: Mapping[str, bytes], *, durable: bool = False) -> int:
        """Write values of the pair, if this process holds the lease when they are written; return their revision.

        `durable` ones survive a power failure. Raise LostLeaseError, with nothing written, if it does not hold it;
        StorageError if that is unknown.
        """
        token = self.check()
        named = {f"{self.name}/{key}": value for key, value in values.items()}
        revision = self._storage.write(named, {self._holder_key: token}, durable=durable)
        if revision is None:
            self._end()
            raise LostLeaseError(self._told())
        return revision

    def load(self, key: str, *, after: int = 0) -> Entry | None:
        """Return a value of the pair, None if it has not changed after a revision; raise StorageError."""
        return self._storage.read([f"{self.name}/{key}"], after=after).get(f"{self.name}/{key}")

    def _look(self) -> None:
        entries = self._storage.read([self._holder_key, self._renewed_key])
        now_ns = self._now_ns()
        record = self._record_of(entries.get(self._holder_key))
        holder, renewed = (_revision(entries, key) for key in (self._holder_key, self._renewed_key))
        self._active = (record.holder, record.address) if record is not None else ("", "")
        if (holder, renewed) != self._seen:
            self._seen, self._seen_ns = (holder, renewed), now_ns
        is_free = record is None or not record.holder or now_ns - self._seen_ns >= record.lease_ns
        if is_free and self._is_candidate:
            self._take(holder, renewed)

    def _take(self, holder: int, renewed: int) -> None:
        sent_ns = self._now_ns()
        token = self._storage.write(
            {self._holder_key: self._record(self.holder), self._renewed_key: b"0"},
            {self._holder_key: holder, self._renewed_key: renewed},
            durable=True,
        )
        if token is None:
            self._seen = None
            return
        self._active = self.holder, self._address
        self._changes += 1
        self._held = _Held(token, self._utc_ns(), self._until_ns(sent_ns))

    def _renew(self, held: _Held) -> None:
        sent_ns, self._renewals = self._now_ns(), self._renewals + 1
        renewal = {self._renewed_key: str(self._renewals).encode()}
        is_ours = self._storage.write(renewal, {self._holder_key: held.token}) is not None
        # An answer that comes after the end renews nothing: others may have acted on the end already.
        if not is_ours or self.is_over:
            self._end()
        else:
            self._held = _Held(held.token, held.since_ns, self._until_ns(sent_ns))

    def _end(self) -> None:
        self._held, self._is_over = None, True

    def _until_ns(self, sent_ns: int) -> int:
        return sent_ns + self._lease_ns - self.interval_ns

    def _record(self, holder: str) -> bytes:
        return msgspec.msgpack.encode(_Record(holder, self._address, self._utc_ns(), self._lease_ns))

    def _record_of(self, entry: Entry | None) -> _Record | None:
        if entry is None:
            return None
        try:
            return msgspec.msgpack.decode(entry.value, type=_Record)
        except MALFORMED as error:
            raise StorageError(f"lease {self.name}: cannot decode its holder: {error}") from error

    def _told(self) -> str:
        return f"lease {self.name}: {self.holder} does not hold it"


def _revision(entries: Mapping[str, Entry], key: str) -> int:
    return entries[key].revision if key in entries else ABSENT
