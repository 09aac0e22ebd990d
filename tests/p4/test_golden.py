"""One packet over three switches at known times, byte by byte, on the built-in switch's virtual clock."""

from __future__ import annotations

from tests.p4.builtin_target import BuiltinTarget
from tests.p4.entries import COLLECTOR_PORT, DOWN_PORT, HOST_PORT, UP_PORT, Watch, sink, source, transit
from tests.p4.targets import frame_on, pass_through

IP_ADDRESSES = "0a0000010a000909"
PAYLOAD = b"millrace".hex()

FROM_HOST = (
    "020000000002020000000001 0800"
    f"45 29 0024 1234 0000 40 11 4b63 {IP_ADDRESSES}"  # DSCP 0x0a, ECN 1, TTL 64
    f"0fa0 1388 0010 1000 {PAYLOAD}"
)
HOP_1 = "00000065 00010003 00000000 00000000 000000003baa0c40 000000003baa0c40 00000001 00000003 00000000"
AFTER_SOURCE = (
    "0200000000a10200000000b1 0800"
    f"45 5d 0060 1234 0000 3f 11 4bf3 {IP_ADDRESSES}"  # DSCP 0x17: 60 bytes of INT follow UDP
    "0fa0 1388 004c 4508"
    "1 0 0e 00 28"  # INT-MD, 14 words, original DSCP
    f"2 000 0b 07 ff00 0000 0000 0000 {HOP_1} {PAYLOAD}"  # version 2, HopML 11, 7 hops remain, bits 0 to 7
)
HOP_2 = "00000066 00020003 00000000 00000000 000000003bb94e80 000000003bb94e80 00000002 00000003 00000000"
TO_SINK = f"2 000 0b 06 ff00 0000 0000 0000 {HOP_2} {HOP_1}"
AFTER_TRANSIT = (
    "0200000000a10200000000b1 0800"
    f"45 5d 008c 1234 0000 3e 11 4cc7 {IP_ADDRESSES}"
    f"0fa0 1388 0078 2fc3 1 0 19 00 28 {TO_SINK} {PAYLOAD}"
)
TO_HOST = f"0200000000a10200000000b1 080045 29 0024 1234 0000 3d 11 4e63 {IP_ADDRESSES}0fa0 1388 0010 1000 {PAYLOAD}"
REPORT = (
    "0200000000c20200000000c1 0800"
    "45 00 00dc 0000 4000 40 11 2315 0aff00010aff00fe"
    "7ffe 7ffe 00c8 0000"
    "20000000 00000067"  # version 2, first of node 103
    "1 4 2d 0a 2 0"  # INT, IPv4 inside, 45 words, 10 of metadata, F
    "7f00 0000 0000 0000"
    "00020001 00000000 00000000 000000003bc890c0 000000003bc890c0 00000002 00000001 00000000"
    f"45 5d 008c 1234 0000 3d 11 4dc7 {IP_ADDRESSES}"
    f"0fa0 1388 0078 2fc3 1 0 19 00 28 {TO_SINK}"
)


def plain_hex(text: str) -> str:
    return text.replace(" ", "")


def test_golden_bytes() -> None:
    switch = BuiltinTarget()
    sent = pass_through(switch, source(Watch()), HOST_PORT, bytes.fromhex(FROM_HOST), expect=1)
    assert frame_on(sent, DOWN_PORT).hex() == plain_hex(AFTER_SOURCE)
    sent = pass_through(switch, transit(), UP_PORT, frame_on(sent, DOWN_PORT), expect=1)
    assert frame_on(sent, DOWN_PORT).hex() == plain_hex(AFTER_TRANSIT)
    sent = pass_through(switch, sink(), UP_PORT, frame_on(sent, DOWN_PORT), expect=2)
    assert frame_on(sent, HOST_PORT).hex() == plain_hex(TO_HOST)
    assert frame_on(sent, COLLECTOR_PORT).hex() == plain_hex(REPORT)
