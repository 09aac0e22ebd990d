"""Drop reasons of switches, the 8 bits of a drop report (Telemetry Report v2.0, section 3.3.1, RepMdBits bit 15).

The specification leaves the numbers to the implementation: these are ours, the same as `p4/shared/drop_reasons.p4`.
"""

from __future__ import annotations

from enum import IntEnum


class DropReason(IntEnum):
    """Each reason, except the traffic manager's full queue, is a named drop counter of the P4 program."""

    UNKNOWN = 0
    PARSER_ERROR = 1
    UNKNOWN_ETHERTYPE = 2
    BAD_IPV4_CHECKSUM = 3
    INT_AT_EDGE = 4
    INT_MALFORMED = 5
    TTL_EXPIRED = 6
    NO_ROUTE = 7
    INT_DISCARD = 8
    QUEUE_FULL = 9
    MTU_EXCEEDED = 10
    REPORT_AT_EDGE = 11
    SOURCE_SPOOFED = 12


def reason_name(reason: int | None) -> str:
    """Return a reason's name, "unknown" for None and "reason N" for a number of another implementation."""
    if reason is None:
        return DropReason.UNKNOWN.name.lower()
    try:
        return DropReason(reason).name.lower()
    except ValueError:
        return f"reason {reason}"
