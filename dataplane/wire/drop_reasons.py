"""Drop reasons of switches, the 8 bits of a drop report (Telemetry Report v2.0, section 3.3.1, RepMdBits bit 15).

The specification leaves the numbers to the implementation. `make tables` writes this table to the P4 program, the
Scapy layers, the Wireshark dissectors and docs/network/reports.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class DropReason(IntEnum):
    """Number of a reason in a report, and the packets dropped for it.

    Each reason, except the traffic manager's full queue, is a named drop counter of the P4 program.
    """

    packets: str
    """Description of the dropped packets, a cell of the page's table."""

    def __new__(cls, number: int, packets: str = "") -> Self:
        """Make a member of a row of the table."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.packets = packets
        return member

    UNKNOWN = 0, "the report does not state a reason"
    PARSER_ERROR = 1, "unreadable"
    UNKNOWN_ETHERTYPE = 2, "unreadable"
    BAD_IPV4_CHECKSUM = 3, "unreadable"
    INT_AT_EDGE = 4, "with telemetry from where none is allowed, or that does not fit the packet"
    INT_MALFORMED = 5, "with telemetry from where none is allowed, or that does not fit the packet"
    TTL_EXPIRED = 6, "not routable"
    NO_ROUTE = 7, "not routable"
    INT_DISCARD = 8, "the D bit of INT, at the sink, in the report that it sends anyway"
    QUEUE_FULL = 9, "the traffic manager had no room"
    MTU_EXCEEDED = 10, "longer than its egress port's MTU"
    REPORT_AT_EDGE = 11, "from a host to the collector's report port: counted, and never reported: it might be forged"
    SOURCE_SPOOFED = 12, "not from the sending host's address: counted, and never reported: the flow is another host's"


def reason_name(reason: int | None) -> str:
    """Return a reason's name, "unknown" for None and "reason N" for a number of another implementation."""
    if reason is None:
        return DropReason.UNKNOWN.name.lower()
    try:
        return DropReason(reason).name.lower()
    except ValueError:
        return f"reason {reason}"
