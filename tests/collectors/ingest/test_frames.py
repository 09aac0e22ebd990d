"""Frames in bulk to payloads, against the wire module frame by frame."""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collectors.decode.payloads import payloads_of
from collectors.ingest.frames import FrameReader
from dataplane.errors import WireError
from dataplane.wire.packet import decode_udp_frame, udp_frame

PORT = 32766
V4, V6 = ("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")


def frame(payload: bytes, addresses: tuple[str, str] = V4, port: int = PORT, vlan_id: int | None = None) -> bytes:
    src, dst = map(ip_address, addresses)
    return udp_frame(
        src_mac=2, dst_mac=4, src=src, dst=dst, src_port=9, dst_port=port, payload=payload, vlan_id=vlan_id
    )


def read(frames: list[bytes]) -> tuple[list[bytes], int]:
    reader, block = FrameReader(PORT), payloads_of(frames)
    payloads = reader.payloads(block.data, block.places, block.lengths)
    return [payloads.payload(number) for number in range(len(payloads))], reader.malformed


def plainly(data: bytes) -> tuple[list[bytes], bool]:
    """Return what the wire module says of one frame: its payload, or whether it is malformed."""
    try:
        datagram = decode_udp_frame(data)
    except WireError:
        return [], True
    if datagram is None or datagram.dst_port != PORT:
        return [], False
    return ([datagram.payload], False) if datagram.checksum_ok else ([], True)


@pytest.mark.parametrize("addresses", [V4, V6])
@pytest.mark.parametrize("vlan_id", [None, 5])
def test_payloads_of_any_length_come_out_whole(addresses: tuple[str, str], vlan_id: int | None) -> None:
    sent = [bytes(range(size % 256)) for size in range(80)]
    assert read([frame(payload, addresses, vlan_id=vlan_id) for payload in sent]) == (sent, 0)


def test_other_traffic_is_neither_found_nor_counted() -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    assert read([frame(b"x", port=PORT + 1), arp, frame(b"y")]) == ([b"y"], 0)


def test_the_first_of_several_fragments_is_counted() -> None:
    first, later, others = bytearray(frame(b"part")), bytearray(frame(b"part")), bytearray(frame(b"part", port=1))
    first[20], later[21], others[20] = 0x20, 1, 0x20
    assert read([bytes(first), bytes(later), bytes(others)]) == ([], 1)


@pytest.mark.parametrize("addresses", [V4, V6])
def test_what_is_cut_or_changed_on_the_way_is_counted(addresses: tuple[str, str]) -> None:
    whole = frame(b"twelve bytes", addresses)
    payload_at = len(whole) - 12
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(payload_at, len(whole))]
    assert read(changed) == ([], len(changed))
    assert read([whole[:size] for size in range(payload_at - 4, len(whole))]) == ([], 16)


@given(
    addresses=st.sampled_from([V4, V6]),
    vlan_id=st.sampled_from([None, 5]),
    size=st.integers(0, 40),
    at=st.integers(12, 90),
    flip=st.integers(0, 255),
    cut=st.integers(0, 60),
)
def test_damaged_frames_are_what_the_wire_module_says(
    addresses: tuple[str, str], vlan_id: int | None, size: int, at: int, flip: int, cut: int
) -> None:
    data = bytearray(frame(bytes(range(size)), addresses, vlan_id=vlan_id))
    data[at % len(data)] ^= flip
    # Fragments have a test of their own.
    fragment_at = 20 if vlan_id is None else 24
    assume(addresses is not V4 or at % len(data) not in (fragment_at, fragment_at + 1))
    damaged = bytes(data[: max(len(data) - cut, 0)])
    payloads, malformed = read([damaged])
    expected, refused = plainly(damaged)
    assert payloads == expected
    # The wire module refuses other ports, too.
    assert malformed <= refused


def test_the_senders_are_told() -> None:
    block = payloads_of([b"", frame(b"a"), frame(b"b", V6)])
    payloads = FrameReader(PORT).payloads(block.data, block.places.copy(), block.lengths.copy())
    assert [payloads.source(number) for number in range(2)] == [("10.0.0.1", 9), ("2001:db8::1", 9)]
    assert np.array_equal(payloads.lengths, [1, 1])


@pytest.mark.parametrize("from_cables", [False, True])
@pytest.mark.parametrize("vlan_id", [None, 5])
def test_no_cable_carries_this_machines_own_addresses(from_cables: bool, vlan_id: int | None) -> None:
    pairs = ("10.0.0.1", V4[1]), ("127.0.0.1", V4[1]), V6, ("127.255.255.254", V4[1]), ("128.0.0.1", V4[1])
    block = payloads_of([frame(b"report", pair, vlan_id=vlan_id) for pair in pairs])
    payloads = FrameReader(PORT, from_cables=from_cables).payloads(block.data, block.places, block.lengths)
    own = {"127.0.0.1", "127.255.255.254"} if from_cables else set()
    expected = [0 if src in own or ":" in src else int(ip_address(src)) for src, _ in pairs]
    assert [payloads.address(number) for number in range(len(pairs))] == expected
