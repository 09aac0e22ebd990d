"""TCP options, by real bytes: those of Linux's SYNs and of acknowledgments with SACK."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire.tcp_options import TcpOptions, decode

LINUX_SYN = bytes.fromhex("020405b40402080a6b8b4567000000000103030a")
WITH_SACK = bytes.fromhex("0101080a0000000a0000000b0101051200000001000000030000000500000009")


def test_a_syn_of_linux() -> None:
    assert decode(LINUX_SYN) == TcpOptions(1460, 10, True, timestamps=(0x6B8B4567, 0))


def test_an_acknowledgment_with_two_blocks() -> None:
    options = TcpOptions(sack=((1, 3), (5, 9)), timestamps=(10, 11))
    assert options.encode() == WITH_SACK
    assert decode(WITH_SACK) == options


def test_blocks_that_have_no_room_are_left_out() -> None:
    blocks = tuple((number, number + 1) for number in range(6))
    assert decode(TcpOptions(sack=blocks).encode()).sack == blocks[:4]
    assert decode(TcpOptions(sack=blocks, timestamps=(1, 2)).encode()).sack == blocks[:3]


@pytest.mark.parametrize("data", [b"", b"\0", b"\1\1\1\1", b"\0\2\4", b"\x1e\4ab"])
def test_nothing_is_said(data: bytes) -> None:
    assert decode(data) == TcpOptions()


def test_a_scale_beyond_14_means_14() -> None:
    assert decode(b"\1\3\3\xff").window_scale == 14


@pytest.mark.parametrize("data", [b"\2", b"\2\3\0", b"\2\4\0", b"\3\2", b"\4\3\0", b"\5\3\0", b"\x08\x0a1", b"\x1e\1"])
def test_wrong_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="tcp options at byte 0"):
        decode(data)


@pytest.mark.parametrize("whole", [LINUX_SYN, WITH_SACK])
def test_each_truncation_says_less_or_is_refused(whole: bytes) -> None:
    for length in range(len(whole)):
        try:
            decode(whole[:length])
        except WireError:
            continue


NUMBERS = st.integers(0, (1 << 32) - 1)


@given(
    st.builds(
        TcpOptions,
        st.none() | st.integers(0, 0xFFFF),
        st.none() | st.integers(0, 14),
        st.booleans(),
        st.lists(st.tuples(NUMBERS, NUMBERS), max_size=1).map(tuple),
        st.none() | st.tuples(NUMBERS, NUMBERS),
    )
)
def test_options_are_read_back(options: TcpOptions) -> None:
    encoded = options.encode()
    assert len(encoded) % 4 == 0
    assert len(encoded) <= 40
    assert decode(encoded) == options
