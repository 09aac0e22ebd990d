"""Frames between hosts: real bytes, and bodies that callers may not send."""

from __future__ import annotations

import struct
import zlib

import pytest

from controller.memory.errors import RefusedError
from controller.memory.frames import MOST_BODY_BYTES, Frame, Header, Kind, Status, decode, encode
from controller.memory.messages import MOST_KEYS, Copy, Run, decoded
from dataplane.errors import WireError

READ = bytes.fromhex("4d524231 03 01 0000 0000000000000007 0000000000000002 00000000 00000000".replace(" ", ""))


def test_frame_has_these_bytes() -> None:
    assert encode(Frame(Kind.READ, 1, 7, 2)) == READ
    body = b"block"
    block = struct.pack("!4sBBHQQII", b"MRB1", 4, 2, 0, 1 << 62, 9, 5, zlib.crc32(body)) + body
    assert encode(Frame(Kind.WRITE, 2, 1 << 62, 9, body)) == block
    assert decode(block) == Frame(Kind.WRITE, 2, 1 << 62, 9, body, Status.OK, zlib.crc32(body))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (READ[:31], "31 bytes, not 32"),
        (b"MRB2" + READ[4:], "does not begin with MRB1"),
        (READ[:4] + b"\x63" + READ[5:], "99 is not a valid Kind"),
        (READ[:6] + b"\x00\x63" + READ[8:], "99 is not a valid Status"),
        (READ[:8] + b"\xff" + READ[9:], "is more than 9223372036854775807"),
        (READ[:24] + struct.pack("!I", MOST_BODY_BYTES + 1) + READ[28:], "more than 4194304"),
        (READ[:24] + struct.pack("!I", 3) + READ[28:], "a body of 0 bytes, not 3"),
        (READ[:28] + b"\0\0\0\x01", "does not match its checksum"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode(data)


def test_checksum_of_a_block_goes_with_it() -> None:
    header = Frame(Kind.READ, body=b"x", checksum=5).header()
    assert Header.decode(header.encode()).checksum == 5


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", Run),
        (b'{"reads": [-1]}', Run),
        (b'{"reads": [18446744073709551616]}', Run),
        (b'{"reads": [%s]}' % b",".join([b"1"] * (MOST_KEYS + 1)), Run),
        (b'{"int_operations": 99999999999999999}', Run),
        (b'{"other": 1}', Run),
        (b'{"source": "", "tier": 99}', Copy),
        (b"[" * 4000, Run),
    ],
)
def test_bodies_beyond_their_limits_are_refused(body: bytes, kind: type[Run] | type[Copy]) -> None:
    with pytest.raises(RefusedError, match="not a body of"):
        decoded(body, kind)
