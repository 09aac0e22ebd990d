"""Named content on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire.store import SIZE, Kind, Message, Reason, decode

NAME = 0x00112233445566778899AABBCCDDEEFF
DATA = Message(
    Kind.DATA, NAME, segment=7, version=3, freshness_ms=1000, content=b"\xab" * 256, size=1, tag=0x10, number=9
)
HEX = "12110000 00000007 00112233445566778899aabbccddeeff 00000003 000003e8 00000010 00000009"
WORD = st.integers(0, 2**32 - 1)
MESSAGES = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    name=st.integers(0, 2**128 - 1),
    segment=WORD,
    version=WORD,
    freshness_ms=WORD,
    content=st.sampled_from([b"", b"\1" * 256, bytes(1024)]),
    size=st.integers(0, 15),
    reason=st.sampled_from(Reason),
    tag=WORD,
    number=WORD,
)


def test_data_is_these_bytes() -> None:
    assert DATA.encode() == bytes.fromhex(HEX) + DATA.content


@given(MESSAGES)
def test_every_message_comes_back(message: Message) -> None:
    assert decode(b"??" + message.encode() + b"padding", 2) == message


def test_every_truncation_is_refused() -> None:
    encoded = DATA.encode()
    for length in (*range(SIZE + 1), len(encoded) - 1):
        with pytest.raises(WireError, match="store at byte"):
            decode(encoded[:length])


@pytest.mark.parametrize(
    ("at", "byte", "problem"),
    [
        (0, 0x22, "version is 2"),
        (0, 0x10, "0 is not a valid Kind"),
        (1, 0x50, "5 quarters"),
        (2, 9, "9 is not a valid"),
    ],
)
def test_what_is_unknown_is_refused(at: int, byte: int, problem: str) -> None:
    encoded = bytearray(DATA.encode())
    encoded[at] = byte
    with pytest.raises(WireError, match=problem):
        decode(bytes(encoded))


@pytest.mark.parametrize(
    "message",
    [
        Message(Kind.PUT, NAME, content=bytes(255)),
        Message(Kind.PUT, NAME, content=bytes(1280)),
        Message(Kind.PUT, 2**128),
        Message(Kind.PUT, NAME, version=-1),
        Message(Kind.PUT, NAME, number=2**32),
    ],
)
def test_what_does_not_fit_is_not_encoded(message: Message) -> None:
    with pytest.raises(WireError):
        message.encode()
