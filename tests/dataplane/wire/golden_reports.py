"""Golden Telemetry Reports v2.0, the UDP payload: every kind that a switch sends, around golden packets.

Each header was written by hand from the specification's drawings; the remarks walk through it, numbers of sections in
brackets. The truncated packet, the report's last part, is the beginning of a golden frame: all of its headers.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataplane.wire.marking import Marking
from tests.dataplane.wire import golden_frames
from tests.dataplane.wire.golden_frames import Golden, bytes_of


@dataclass(frozen=True)
class GoldenReport:
    """Group header and individual reports as text; each individual report ends with this many bytes of a frame."""

    title: str
    group: str
    individuals: tuple[tuple[str, Golden, int], ...]

    @property
    def payload(self) -> bytes:
        """The report's UDP payload."""
        parts = [bytes_of(text) + frame.packet[:size] for text, frame, size in self.individuals]
        return bytes_of(self.group) + b"".join(parts)

    @property
    def marking(self) -> Marking:
        """Marking that identifies the packets within."""
        return self.individuals[0][1].marking


XD = (
    """
    1 4 0d 04 2 0             # RepType 1 = INT, InType 4 = IPv4; 13 words: 2 fixed, 4 of metadata, 7 of the packet; F
    7100 0000 0000 0000       # RepMdBits (3.3.1): bits 1, 2, 3, 7; no domain
    0001 0002                 # bit 1: in by interface 1, out by 2
    000003e8                  # bit 2: hop latency 1000
    00 000003                 # bit 3: queue 0 with 3 in it
    000186a0                  # bit 7: TX utilisation 100000
    """,
    golden_frames.XD_UDP,
    28,
)
MX = (
    """
    1 4 11 01 2 0             # INT, IPv4; 17 words: 2 + 1 + 14; F
    1000 0000 0000 0000       # the MX header's instructions 9000 without bit 0: the node id is in the group header
    05 000011                 # bit 3: queue 5 with 17 in it
    """,
    golden_frames.MX_TCP,
    56,
)
SINK = (
    """
    1 4 15 01 2 0             # INT, IPv4; 21 words: 2 + 1 + 18, the packet with shim, MD header and two hops; F
    1000 0000 0000 0000
    06 000022                 # the sink's own: queue 6 with 34 in it
    """,
    golden_frames.MD_TCP,
    72,
)
INTERMEDIATE = (
    """
    1 5 1b 01 3 0             # INT, InType 5 = IPv6; 27 words, 2 + 1 + 24; F, I: the stack ends here
    1000 0000 0000 0000
    05 000011
    """,
    golden_frames.MD_TCP_OPTIONS_V6,
    96,
)
HOP_BY_HOP = (
    """
    1 4 0e 01 3 0             # INT, IPv4; 14 words: 2 + 1 + 11; F and I
    1000 4d52 0000 8006       # domain 0x4d52; DSMdstatus: hop by hop, 6 hops remain behind this one
    05 000011
    """,
    golden_frames.HOP_BY_HOP,
    44,
)
DROP = (
    """
    1 4 0d 04 8 0             # INT, IPv4; 13 words: 2 + 4 + 7; D alone: this flow is not tracked
    4801 0000 0000 0000       # RepMdBits: bits 1, 4, 15
    0001 0002                 # interfaces
    0000000000001000          # bit 4: ingress timestamp, 8 bytes
    03 09 0000                # bit 15: of queue 3, reason 9 (full), padding
    """,
    golden_frames.XD_UDP,
    28,
)
QUEUE = (
    """
    1 4 0c 03 4 0             # INT, IPv4; 12 words: 2 + 3 + 7; Q alone
    5100 0000 0000 0000       # RepMdBits: bits 1, 3, 7
    0001 0002
    00 000058                 # queue 0 with 88 in it
    000186a0
    """,
    golden_frames.XD_UDP,
    28,
)
TO_THE_END = (
    """
    1 4 ff 02 2 0             # the length 0xff: up to the end of the UDP payload
    2000 4d52 4000 0000       # bit 2; domain 0x4d52, DSMdBits bit 1
    000003e8                  # baseline metadata
    02 3f 0000                # domain metadata: a destination path, TTL 63
    """,
    golden_frames.MX_TCP,
    64,
)

ONE = "2 00 00001 00000001        # group (3.2): version 2, hardware 0, sequence number 1; node 1"
TWO = "2 00 00002 00000002        # sequence number 2; node 2"
LAST = "2 01 00003 00000003        # hardware 0, sequence number 0x100003, of 22 bits; node 3"
CARD = "2 14 12345 0000002a        # hardware 5 (000101 in the 6 bits behind the version), sequence 0x12345; node 42"

REPORTS = {
    "xd": GoldenReport("an XD report of node 1", ONE, (XD,)),
    "mx": GoldenReport("an MX report of node 2", TWO, (MX,)),
    "sink": GoldenReport("the sink's report of an MD packet", LAST, (SINK,)),
    "intermediate": GoldenReport("an intermediate report of node 2", TWO, (INTERMEDIATE,)),
    "hop by hop": GoldenReport("a hop by hop report of node 2", TWO, (HOP_BY_HOP,)),
    "drop": GoldenReport("a drop report", ONE, (DROP,)),
    "queue": GoldenReport("a congested queue's report", ONE, (QUEUE,)),
    "group": GoldenReport("four reports in a group, of a line card", CARD, (XD, DROP, QUEUE, TO_THE_END)),
}
"""All of them, by name."""
