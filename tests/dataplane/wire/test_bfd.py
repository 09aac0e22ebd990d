"""BFD control packets: bytes from the RFC's layout, every truncation, what must be discarded, and scapy's opinion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.bfd import BFD

from dataplane.errors import WireError
from dataplane.wire import bfd
from dataplane.wire.bfd import Bfd, State

# Version 1, diagnostic 3 (neighbour signalled down), state INIT, multiplier 3, 50 ms both ways.
SAMPLE = bytes.fromhex("2380 0318 80000401 80000802 0000c350 0000c350 00000000")
VALUE = Bfd(
    state=State.INIT,
    diagnostic=3,
    detect_multiplier=3,
    my_discriminator=0x80000401,
    your_discriminator=0x80000802,
    desired_min_tx_us=50_000,
    required_min_rx_us=50_000,
)
# Between two routers of another maker (UP, control plane independent, 1 s, multiplier 5).
SEEN = bytes.fromhex("20c80518 00000001 00000002 000f4240 000f4240 00000000")

U32 = st.integers(0, (1 << 32) - 1)
packets = st.builds(
    Bfd,
    state=st.just(State.UP) | st.sampled_from(State),
    detect_multiplier=st.integers(1, 255),
    my_discriminator=st.integers(1, (1 << 32) - 1),
    your_discriminator=st.integers(1, (1 << 32) - 1),
    desired_min_tx_us=U32,
    required_min_rx_us=U32,
    required_min_echo_rx_us=U32,
    diagnostic=st.integers(0, 31),
    poll=st.booleans(),
    final=st.booleans(),
    control_plane_independent=st.booleans(),
    demand=st.booleans(),
)


def test_a_packet_is_read_and_written_as_laid_out() -> None:
    assert bfd.decode(SAMPLE) == VALUE
    assert VALUE.encode() == SAMPLE
    assert VALUE.size == len(SAMPLE) == bfd.SIZE
    assert bfd.decode(b"\xff\xff" + SAMPLE + b"\0\0\0", 2) == VALUE
    seen = bfd.decode(SEEN)
    assert (seen.state, seen.detect_multiplier, seen.control_plane_independent) == (State.UP, 5, True)
    assert (seen.my_discriminator, seen.your_discriminator, seen.desired_min_tx_us) == (1, 2, 1_000_000)
    assert seen.encode() == SEEN


@pytest.mark.parametrize("size", range(bfd.SIZE))
def test_a_packet_cut_short_is_refused(size: int) -> None:
    with pytest.raises(WireError, match=f"needs 24 bytes, {size} left"):
        bfd.decode(SAMPLE[:size])


@pytest.mark.parametrize(
    ("offset", "byte", "problem"),
    [
        (0, 0x03, "version 0"),
        (0, 0x43, "version 2"),
        (1, 0x84, "has authentication"),
        (1, 0x81, "multipoint"),
        (2, 0, "multiplier of 0"),
        (3, 23, "length of 23"),
        (3, 26, "length of 26"),
        (3, 255, "length of 255"),
    ],
)
def test_what_must_be_discarded_is_refused(offset: int, byte: int, problem: str) -> None:
    data = bytearray(SAMPLE)
    data[offset] = byte
    with pytest.raises(WireError, match=problem):
        bfd.decode(bytes(data))


@pytest.mark.parametrize(("state", "is_refused"), [(0, False), (1, False), (2, True), (3, True)])
def test_only_who_is_down_speaks_to_nobody(state: int, is_refused: bool) -> None:
    data = SAMPLE[:1] + bytes([state << 6]) + SAMPLE[2:8] + bytes(4) + SAMPLE[12:]
    if is_refused:
        with pytest.raises(WireError, match="without a receiver's discriminator"):
            bfd.decode(data)
    else:
        assert bfd.decode(data).your_discriminator == 0
    with pytest.raises(WireError, match="discriminator of 0"):
        bfd.decode(SAMPLE[:4] + bytes(4) + SAMPLE[8:])


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WireError, match="detect_multiplier 256 does not fit 8 bits"):
        Bfd(State.UP, 256, 1, 2).encode()


@given(packets)
def test_what_is_written_is_read_back_and_scapy_agrees(packet: Bfd) -> None:
    data = packet.encode()
    assert bfd.decode(data) == packet
    theirs = BFD(data)
    assert (theirs.version, theirs.diag, theirs.sta) == (1, packet.diagnostic, packet.state)
    assert (theirs.detect_mult, theirs.len) == (packet.detect_multiplier, bfd.SIZE)
    assert (theirs.my_discriminator, theirs.your_discriminator) == (packet.my_discriminator, packet.your_discriminator)
    assert (theirs.min_tx_interval, theirs.min_rx_interval) == (packet.desired_min_tx_us, packet.required_min_rx_us)
    assert theirs.echo_rx_interval == packet.required_min_echo_rx_us
    assert bytes(theirs) == data


@given(st.binary(max_size=64))
def test_any_bytes_are_a_packet_or_refused(data: bytes) -> None:
    try:
        packet = bfd.decode(data)
    except WireError:
        return
    assert packet.encode()[:2] == data[:2]
