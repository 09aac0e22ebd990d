"""Numbered states of the feed: their changes since an earlier one, and the reader that makes whole states of those."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from collectors.feed import feed_pb2 as messages
from collectors.feed.snapshots import changed_snapshot, changes_message, snapshot_of
from collectors.state.link_states import LinkStates, link_states_of
from collectors.state.path_states import PathColumns, columns_of
from collectors.statistics.columns import UNKNOWN, Flags, Integers
from collectors.values import Snapshot
from dataplane.clock import NS_PER_S
from dataplane.rpc.errors import MessageError

_REPORTERS_EVERY_NS: Final = NS_PER_S
_KEPT: Final = 8
"""Messages of one state that are kept: subscribers of one interval ask for the same."""
_WHOLE: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Changed:
    """The numbers of the states in which links, each by its place, flows and counts of reporters last changed.

    Changes since a state before `oldest` cannot be told.
    """

    oldest: int
    links: Integers
    flows: int
    reporters: int
    reporters_ns: int


class NumberedState:
    """A state and its messages, each of which is made once, when it is first asked for, in any thread."""

    def __init__(
        self, epoch: int, number: int, snapshot: Snapshot, changed: _Changed, encode: Callable[[Snapshot], bytes]
    ) -> None:
        self.epoch, self.number, self.snapshot, self.changed = epoch, number, snapshot, changed
        self._encode = encode
        self._guard = threading.Lock()
        self._made: dict[int, bytes] = {}

    def message(self, epoch: int = 0, since: int = _WHOLE) -> bytes:
        """Return the changes since another state; the whole state if nothing is known of that one."""
        is_known = epoch == self.epoch and self.changed.oldest <= since <= self.number
        wanted = since if is_known else _WHOLE
        with self._guard:
            if wanted not in self._made:
                if len(self._made) >= _KEPT:
                    self._made.clear()
                self._made[wanted] = self._encoded(wanted)
            return self._made[wanted]

    def _encoded(self, since: int) -> bytes:
        number = messages.Snapshot(epoch=self.epoch, number=self.number, since=since).SerializeToString()
        # Messages one after the other are one message with the fields of both.
        if since == _WHOLE:
            return self._encode(self.snapshot) + number
        changed = self.changed
        changes = changes_message(
            self.snapshot,
            np.flatnonzero(changed.links > since),
            same_flows=changed.flows <= since,
            same_reporters=changed.reporters <= since,
        )
        return changes.SerializeToString() + number


class NumberedStates:
    """Numbers a collector's states and finds what has changed between two; `encode` makes a whole state's message."""

    def __init__(
        self, encode: Callable[[Snapshot], bytes], monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._encode, self._monotonic_ns = encode, monotonic_ns
        # Numbers of a restarted collector must not be taken for those of its predecessor.
        self._epoch = secrets.randbits(63) | 1
        self._last: NumberedState | None = None

    def take(self, snapshot: Snapshot) -> NumberedState:
        """Return the state of a snapshot, which is newer than the last."""
        snapshot = replace(snapshot, links=link_states_of(snapshot.links))
        number = 1 if self._last is None else self._last.number + 1
        changed = self._changed(snapshot, number)
        self._last = NumberedState(self._epoch, number, snapshot, changed, self._encode)
        return self._last

    def _changed(self, snapshot: Snapshot, number: int) -> _Changed:
        last, now_ns, links = self._last, self._monotonic_ns(), link_states_of(snapshot.links)
        before = None if last is None else link_states_of(last.snapshot.links)
        if last is None or before is None or before.places is not links.places:
            return _Changed(number, np.full(len(links), number), number, number, now_ns)
        then = last.changed
        is_due = now_ns - then.reporters_ns >= _REPORTERS_EVERY_NS
        same_flows = _same_flows(columns_of(last.snapshot.paths), columns_of(snapshot.paths))
        return _Changed(
            then.oldest,
            np.where(_changed_links(before, last.snapshot.taken_ns, links, snapshot.taken_ns), number, then.links),
            then.flows if same_flows else number,
            number if is_due else then.reporters,
            now_ns if is_due else then.reporters_ns,
        )


def _changed_links(before: LinkStates, before_ns: int, now: LinkStates, now_ns: int) -> Flags:
    """Return which links have changed otherwise than by growing older."""
    changed: Flags = _newest_ns(before, before_ns) != _newest_ns(now, now_ns)
    for name, column in now.columns.items():
        other = before.columns[name]
        if name == "age_ns" or column is other:
            continue
        differs = column != other
        if column.dtype == np.float64:
            differs &= ~(np.isnan(column) & np.isnan(other))
        changed |= differs
    return changed


def _newest_ns(links: LinkStates, taken_ns: int) -> Integers:
    """Return when each link's newest sample was taken, UNKNOWN where there is none."""
    age_ns = links.integers("age_ns")
    return np.where(age_ns == UNKNOWN, UNKNOWN, taken_ns - age_ns)


_IDENTITY: Final = ("src", "dst", "protocol", "src_port", "dst_port", "route")


def _same_flows(before: PathColumns, now: PathColumns) -> bool:
    """Return whether two states have the same flows on the same routes in the same order."""
    if len(before) != len(now) or (before.routes is not now.routes and before.routes != now.routes):
        return False
    pairs = [(getattr(before, name), getattr(now, name)) for name in _IDENTITY]
    same = all(one is other or np.array_equal(one, other) for one, other in pairs)
    return same and (before.addresses is now.addresses or list(before.addresses) == list(now.addresses))


class StateReader:
    """Makes snapshots of messages, be they whole states or changes."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._epoch = self._number = 0

    @property
    def request(self) -> messages.GetSnapshotRequest:
        """The request for all that has changed since the last message."""
        return messages.GetSnapshotRequest(epoch=self._epoch, since=self._number)

    def read(self, message: messages.Snapshot) -> Snapshot:
        """Return the newest state that messages have told of; raise MessageError for one that does not fit."""
        last = self._snapshot
        if last is not None and message.epoch == self._epoch and message.number < self._number:
            return last  # an answer that the stream has overtaken: later changes are of what is known already
        if message.since == _WHOLE:
            self._snapshot, self._epoch, self._number = snapshot_of(message), message.epoch, message.number
        elif last is None or message.epoch != self._epoch or message.since > self._number:
            raise MessageError("Snapshot has changes of a state that was not sent")
        elif message.number > self._number:
            self._snapshot, self._number = changed_snapshot(last, message), message.number
        assert self._snapshot is not None
        return self._snapshot
