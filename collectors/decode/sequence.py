"""Classification of reports by sequence number, 22 bits per node and hardware id.

`collectors.native.sequence` keeps the accounts, `collectors.reference.sequence` is the same in plain Python.

A repetition has the same number and, by its mark, the same content. A number that comes again with other content is
contested: one of the two reports is not the switch's, and which one is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, Protocol

from collectors.values import ReporterState
from dataplane.wire.report_group import SEQUENCE_BITS, ReportGroup

MODULUS: Final = 1 << SEQUENCE_BITS

_HEADER_BYTES: Final = 8
_FACTOR: Final = 0xD134_2543_DE82_EF95
"""A multiplier from L'Ecuyer's search (1999)."""


class Arrival(Enum):
    """Verdict on a report by its sequence number."""

    NEW = "new"
    LATE = "late"
    TOO_OLD = "too old"
    REPEATED = "repeated"  # with the same content
    RESTART = "restart"
    FAR_AHEAD = "far ahead"
    CONTESTED = "contested"  # it came before, with other content


def content_mark(payload: bytes) -> int:
    """Return 32 bits that distinguish a report's content, except its number, from others'; equal to the kernel's.

    The sum of its words of 8 bytes and, the other way round, its last 8 bytes: stamps are in it, which a forger cannot
    predict.
    """
    if len(payload) < _HEADER_BYTES:
        return 0
    words: tuple[int, ...] = struct.unpack_from(f"<{(len(payload) - _HEADER_BYTES) // 8}Q", payload, _HEADER_BYTES)
    total = sum(words) + int.from_bytes(payload[-8:], "big") + len(payload)
    return total * _FACTOR >> 32 & 0xFFFF_FFFF


class Accounting(Protocol):
    """The accounts of every reporter."""

    def observe(self, group: ReportGroup, mark: int, now_ns: int) -> Arrival:
        """Account one report packet; its `content_mark` separates a repetition from another report with its number."""
        ...

    def end(self, node_ids: Collection[int]) -> None:
        """End the accounts of switches that report elsewhere now: the next report of each begins anew, without a loss.

        What was counted stays.
        """
        ...

    def states(self) -> Mapping[tuple[int, int], ReporterState]:
        """Return every account, by node id and hardware id."""
        ...
