"""Packets with traces of hops that are not INT's.

IOAM: a host's packet with an empty trace of namespace 7, as it left two Linux 6.18 routers, ids 1 and 2, interfaces 11
to 21 and 12 to 22. IFA 2.0: no device was at hand; the layout is that of draft-kumar-ippm-ifa-08, in the namespace of
HPE's AOS-CX.
"""

from __future__ import annotations

from typing import Final

_ADDRESSES = "fd000000000000000000000000000001 fd000002000000000000000000000002"
_DATAGRAM = "0fa01388000d9ed3 68656c6c6f"

_FREE = "00000000" * 10
WITH_ROOM: Final = bytes.fromhex(
    f"60000000006d003e {_ADDRESSES} 110b0100 315a0000 0007280a c8800000 {_FREE} 3e000002 000c0016 ffffffff"
    f" 3effffffffffffff 3f000001 000b0015 ffffffff 3fffffffffffffff {_DATAGRAM}"
)
"""Room is left for two more: node ids short and wide, interfaces, transit delays."""
PORTS: Final = bytes.fromhex(
    f"60000000003d003e {_ADDRESSES} 11050100 312a0000 00071802 c4000000 00000000 00000000 3e000002 000c0016 ffffffff"
    f" 3f000001 000b0015 ffffffff {_DATAGRAM}"
)
STAMPED: Final = bytes.fromhex(
    f"600000000045003e {_ADDRESSES} 11060100 31320000 00072800 f8000000 3e000002 000c0016 6b0dc706 0008986b ffffffff"
    f" 3f000001 000b0015 6b0dc706 00089854 ffffffff {_DATAGRAM}"
)

PLACES: Final = bytes.fromhex("10000240 40500001")
"""The first words of the newest hop of IFA's stacks."""
_STACK = (
    "00004010 10000240 40500001 00030001 00000000 000009c4 00000000 00000000 00000000"
    " 10000141 40000001 00020004 00000000 00000384 00000000 00000000 00000000"
)
IFA_UDP: Final = bytes.fromhex(
    f"45000069 00010000 40fd0000 0a000001 0a000002 2f1100ff 0fa01388 000d0000 {_STACK} 68656c6c6f"
)
IFA_TCP: Final = bytes.fromhex(
    f"45000075 00010000 40fd0000 0a000001 0a000002 2f0600ff 0fa01388 00000001 00000002 50180200 00000000"
    f" {_STACK} 68656c6c6f"
)
