"""Storage of leases: keys with revisions, and transactions with conditions; calls block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataplane.closing import Closing

ABSENT = 0
"""Revision of a key that does not exist."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the revision of its last change."""

    value: bytes
    revision: int


class LeaseStorage(Closing):
    """Keys that several processes share; every method raises the error that its opener names, in one line.

    The revision is one number for the whole storage, which each transaction increments. A write that fails may or may
    not have taken effect.
    """

    @abstractmethod
    def read(self, keys: Sequence[str], *, after: int = 0) -> dict[str, Entry]:
        """Return the keys that exist, all as of one moment, and have changed after a revision."""

    @abstractmethod
    def below(self, prefix: str) -> dict[str, Entry]:
        """Return all keys that begin with a prefix, as of one moment."""

    @abstractmethod
    def write(self, changes: Mapping[str, bytes], expected: Mapping[str, int], *, durable: bool = False) -> int | None:
        """Set keys, all or none, if the `expected` ones are at these revisions; return the transaction's revision.

        Return None, with nothing changed, if one is not. A `durable` write, and all before it, survives a power
        failure; others may not.
        """
