"""The choice of reports that become hop records: an even sample of all, and none while the collector is behind.

`RecordBudget` chooses in plain Python, `collectors.native.kernels.records` in native memory; both choose the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from collectors.record_columns import RecordColumns
from collectors.values import FlowKey, HopRecord, RecordKind
from dataplane.clock import NS_PER_S

ROOM: Final = 16_384
"""Number of hops that may wait; reports whose hops do not fit are withheld."""
PERIOD_NS: Final = 100_000_000
"""Time between two adjustments of the sample's share to the number of reports."""
ALL: Final = 1 << 32
"""The share that takes every report."""
MIX: Final = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9
"""Multipliers of a finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF


class Choice(Enum):
    """The fate of a report's records."""

    TAKEN = "taken"
    WITHHELD = "withheld"
    NOT_SAMPLED = "not sampled"
    SHED = "shed"
    NOT_WANTED = "not wanted"


class KeptRecords(Protocol):
    """Records taken out of a log; their conversion to columns does not need the state's lock."""

    def sample(self, wanted_per_s: int) -> RecordColumns:
        """Return the records of an even sample of about `wanted_per_s` reports per second."""
        ...


class RecordLog(Protocol):
    """Keeps the records that subscribers want until they are taken."""

    def want(self, reports_per_s: int, *, is_capped: bool) -> None:
        """Make records of this many reports per second, 0 for none; if that is capped, subscribers want more."""
        ...

    def say_behind(self, is_behind: bool) -> None:
        """Set whether the collector is behind; if so, no records are made."""
        ...

    def choose(self, choice: int, now_ns: int) -> bool:
        """Return whether a report becomes records, given its `choice_of`; count it otherwise."""
        ...

    def put(self, records: Sequence[HopRecord], choice: int) -> None:
        """Keep the records of a chosen report; count it if there is no room."""
        ...

    def take(self) -> KeptRecords:
        """Return the records since the last call."""
        ...


def choice_of(kind: RecordKind, node_id: int, sequence: int, packet_id: int, flow: FlowKey) -> int:
    """Return 32 bits that are equal in all hops of a packet, and spread evenly over packets.

    The hops of a stack arrive in one report, identified by its number.
    """
    if kind is RecordKind.STACK:
        return mixed(node_id << 32 | sequence)
    ports = flow.src_port << 16 | flow.dst_port
    ends = (int(flow.src) << 32 ^ int(flow.dst)) & _WORD
    return mixed(packet_id ^ ends ^ ports << 16)


def mixed(number: int) -> int:
    """Return a 32-bit hash of a number: every bit of it changes the result."""
    number = number * MIX[0] & _WORD
    number = (number ^ number >> 29) * MIX[1] & _WORD
    return number >> 32


class RecordBudget:
    """Chooses a bounded number of reports per second: if there are more, an even sample of adaptive share."""

    def __init__(self) -> None:
        self.per_s = 0
        self.is_behind = False
        self.seen_per_s = 0
        """Reports in the last period, a second."""
        self._share, self._is_capped = ALL, False
        self._seen = self._begun_ns = self._full_ns = 0

    def want(self, reports_per_s: int, *, is_capped: bool) -> None:
        """Choose this many reports per second from now on, 0 for none; if that is capped, subscribers want more."""
        self.per_s, self._share, self._is_capped = reports_per_s, ALL, is_capped

    def choose(self, choice: int, now_ns: int) -> Choice:
        """Return the fate of a report's records."""
        if not self.per_s:
            return Choice.NOT_WANTED
        self._follow(now_ns)
        self._seen += 1
        if self.is_behind:
            return Choice.SHED
        self._full_ns = max(self._full_ns, now_ns)
        gap_ns = NS_PER_S // self.per_s
        if choice >= self._share or now_ns + NS_PER_S < self._full_ns + gap_ns:
            return Choice.WITHHELD if self._is_capped else Choice.NOT_SAMPLED
        self._full_ns += gap_ns
        return Choice.TAKEN

    def _follow(self, now_ns: int) -> None:
        elapsed_ns = now_ns - self._begun_ns
        if 0 <= elapsed_ns < PERIOD_NS:
            return
        self.seen_per_s = self._seen * NS_PER_S // elapsed_ns if elapsed_ns > 0 else 0
        self._share = share_of(self.per_s, self.seen_per_s)
        self._begun_ns, self._seen = now_ns, 0


def share_of(per_s: int, seen_per_s: int) -> int:
    """Return the bound of 32-bit choices that keeps `per_s` of the reports seen."""
    return ALL if seen_per_s <= per_s else (per_s << 32) // seen_per_s


def sample_of(wanted_per_s: int, kept_per_s: int, seen_per_s: int) -> int:
    """Return the share of choices for a subscriber's number of reports per second, given the number kept."""
    return ALL if wanted_per_s >= kept_per_s else share_of(wanted_per_s, seen_per_s)
