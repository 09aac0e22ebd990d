"""Whole frames, judged by scapy and by reading them back."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from dataplane.errors import WireError
from dataplane.wire.ipv4 import Ipv4
from dataplane.wire.packet import UdpFrame, decode_udp_frame, ip_packet, tcp_frame, udp_frame
from dataplane.wire.tcp import Tcp

PAIRS = [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")]


def frame(src: str, dst: str, payload: bytes = b"hello", dscp: int = 0, vlan_id: int | None = None) -> bytes:
    return udp_frame(
        src_mac=0x020000000001,
        dst_mac=0x020000000002,
        src=ip_address(src),
        dst=ip_address(dst),
        src_port=5000,
        dst_port=6001,
        payload=payload,
        dscp=dscp,
        vlan_id=vlan_id,
    )


def received(data: bytes) -> UdpFrame:
    datagram = decode_udp_frame(data)
    assert datagram is not None
    return datagram


def test_ipv4_frame_has_the_bytes_of_the_rfcs() -> None:
    assert frame("10.0.0.1", "10.0.0.2").hex() == (
        "020000000002" "020000000001" "0800"
        "45000021" "00004000" "401126ca" "0a000001" "0a000002"
        "13881771" "000d7d06" "68656c6c6f"
    )  # fmt: skip


@pytest.mark.parametrize(("src", "dst"), PAIRS)
@pytest.mark.parametrize("vlan_id", [None, 7])
def test_scapy_computes_the_same_lengths_and_checksums(src: str, dst: str, vlan_id: int | None) -> None:
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    if vlan_id is not None:
        link = link / Dot1Q(vlan=vlan_id)
    is_v4 = "." in src
    ip = IP(src=src, dst=dst, tos=0x17 << 2, flags="DF", id=0) if is_v4 else IPv6(src=src, dst=dst, tc=0x17 << 2)
    expected = link / ip / UDP(sport=5000, dport=6001) / Raw(b"odd")
    assert frame(src, dst, b"odd", 0x17, vlan_id) == bytes(expected)


@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_scapy_builds_the_same_tcp_frame(src: str, dst: str) -> None:
    mss = bytes.fromhex("020405b4")
    ip = IP(src=src, dst=dst, flags="DF", id=0, ttl=9) if "." in src else IPv6(src=src, dst=dst, hlim=9)
    segment = TCP(sport=1, dport=2, seq=3, ack=4, flags="PA", window=5, options=[("MSS", 1460)])
    expected = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / segment / Raw(b"abc")
    header = Tcp(1, 2, sequence=3, acknowledgment=4, flags=0x18, window=5, options=mss)
    mine = tcp_frame(
        src_mac=0x020000000001,
        dst_mac=0x020000000002,
        src=ip_address(src),
        dst=ip_address(dst),
        header=header,
        payload=b"abc",
        ttl=9,
    )
    assert mine == bytes(expected)


@given(payload=st.binary(max_size=64), pair=st.sampled_from(PAIRS), vlan_id=st.none() | st.integers(0, 4095))
def test_what_is_built_is_read_back(payload: bytes, pair: tuple[str, str], vlan_id: int | None) -> None:
    data = frame(*pair, payload, 0x17, vlan_id)
    datagram = received(data + b"\0" * 9)  # Ethernet pads short frames
    assert (str(datagram.ip.src), str(datagram.ip.dst), datagram.ip.dscp) == (*pair, 0x17)
    assert (datagram.src_port, datagram.dst_port, datagram.payload) == (5000, 6001, payload)
    assert datagram.checksum_ok
    assert (datagram.vlan.vlan_id if datagram.vlan else None) == vlan_id


def test_a_zero_udp_checksum_is_right_in_ipv4_and_wrong_in_ipv6() -> None:
    v4, v6 = bytearray(frame(*PAIRS[0])), bytearray(frame(*PAIRS[1]))
    v4[40:42] = v6[60:62] = b"\0\0"
    assert received(bytes(v4)).checksum_ok
    assert not received(bytes(v6)).checksum_ok


@pytest.mark.parametrize("pair", PAIRS)
def test_a_flipped_bit_is_noticed(pair: tuple[str, str]) -> None:
    data = frame(*pair)
    assert not received(data[:-1] + bytes((data[-1] ^ 1,))).checksum_ok


@pytest.mark.parametrize("pair", PAIRS)
def test_every_truncation_of_a_frame_is_a_wire_error(pair: tuple[str, str]) -> None:
    data = frame(*pair, vlan_id=3)
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode_udp_frame(data[:size])


def test_other_traffic_is_none() -> None:
    arp = bytes.fromhex("ffffffffffff 020000000001 0806") + bytes(28)
    assert decode_udp_frame(arp) is None
    tcp = ip_packet(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 6, bytes(20))
    assert decode_udp_frame(bytes(12) + b"\x08\x00" + tcp) is None
    fragment = Ipv4(IPv4Address(1), IPv4Address(2), 17, 28, flags=1).checked().encode() + bytes(8)
    assert decode_udp_frame(bytes(12) + b"\x08\x00" + fragment) is None


def test_addresses_of_two_families_are_refused() -> None:
    with pytest.raises(WireError, match="different families"):
        ip_packet(IPv4Address("10.0.0.1"), IPv6Address("::1"), 17, b"")


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    for head in (b"", bytes(12) + b"\x08\x00\x45", bytes(12) + b"\x86\xdd\x60", bytes(12) + b"\x81\x00"):
        try:
            decode_udp_frame(head + junk)
        except WireError:
            continue
