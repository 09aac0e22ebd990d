"""Ethernet, VLAN, IPv4, IPv6, TCP, UDP: real bytes, every truncation, round trips, and scapy's opinion."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether

from dataplane.errors import WireError
from dataplane.wire import ethernet, ipv4, ipv6, tcp, udp, vlan
from dataplane.wire.ethernet import Ethernet
from dataplane.wire.ipv4 import Ipv4
from dataplane.wire.ipv6 import Ipv6
from dataplane.wire.tcp import Tcp
from dataplane.wire.udp import Udp
from dataplane.wire.vlan import Vlan


class Header(Protocol):
    @property
    def size(self) -> int: ...

    def encode(self) -> bytes: ...


Decode = Callable[[bytes, int], Header]

# Assembled by hand from the layouts; the IPv4 header is one seen on a wire, with its own checksum.
SAMPLES: list[tuple[str, Decode, str, Header]] = [
    ("ethernet", ethernet.decode, "020000000002 020000000001 86dd", Ethernet(0x020000000002, 0x020000000001, 0x86DD)),
    ("vlan", vlan.decode, "b00a 0800", Vlan(priority=5, drop_eligible=True, vlan_id=10, ether_type=0x0800)),
    (
        "ipv4",
        ipv4.decode,
        "4500003c 1c464000 4006b1e6 ac100a63 ac100a0c",
        Ipv4(
            IPv4Address("172.16.10.99"),
            IPv4Address("172.16.10.12"),
            protocol=6,
            total_length=60,
            identification=0x1C46,
            flags=0b010,
            ttl=64,
            checksum=0xB1E6,
        ),
    ),
    (
        "ipv4 with router alert",
        ipv4.decode,
        "465e0020 00010003 01110000 0a000001 e0000016 94040000",
        Ipv4(
            IPv4Address("10.0.0.1"),
            IPv4Address("224.0.0.22"),
            protocol=17,
            total_length=32,
            dscp=0x17,
            ecn=2,
            identification=1,
            fragment_offset=3,
            ttl=1,
            options=bytes.fromhex("94040000"),
        ),
    ),
    (
        "ipv6",
        ipv6.decode,
        "65d12345 000d1140 20010db8000000000000000000000001 20010db8000000000000000000000002",
        Ipv6(
            IPv6Address("2001:db8::1"),
            IPv6Address("2001:db8::2"),
            next_header=17,
            payload_length=13,
            dscp=0x17,
            ecn=1,
            flow_label=0x12345,
            hop_limit=64,
        ),
    ),
    ("udp", udp.decode, "1388 1771 000d a7f4", Udp(5000, 6001, 13, 0xA7F4)),
    (
        "tcp with maximum segment size",
        tcp.decode,
        "1f90 0050 01020304 05060708 6112 ffff e57e 0009 020405b4",
        Tcp(8080, 80, 0x01020304, 0x05060708, 1, 0x12, 0xFFFF, 0xE57E, 9, bytes.fromhex("020405b4")),
    ),
]
IDS = [sample[0] for sample in SAMPLES]


@pytest.mark.parametrize(("_name", "decode", "text", "value"), SAMPLES, ids=IDS)
def test_bytes_and_value_agree_both_ways(_name: str, decode: Decode, text: str, value: Header) -> None:
    data = bytes.fromhex(text)
    assert decode(data, 0) == value
    assert decode(b"\xee" * 3 + data + b"\xee", 3) == value
    assert value.encode() == data
    assert value.size == len(data)


@pytest.mark.parametrize(("_name", "decode", "text", "_value"), SAMPLES, ids=IDS)
def test_every_truncation_is_a_wire_error_that_names_the_place(
    _name: str, decode: Decode, text: str, _value: Header
) -> None:
    data = bytes.fromhex(text)
    for size in range(len(data)):
        with pytest.raises(WireError) as caught:
            decode(b"\xee" * 5 + data[:size], 5)
        assert caught.value.offset == 5
        assert caught.value.header in _name


@pytest.mark.parametrize(
    ("decode", "text", "problem"),
    [
        (ipv4.decode, "6500003c 1c464000 4006b1e6 ac100a63 ac100a0c", "version is 6, not 4"),
        (ipv4.decode, "4400003c 1c464000 4006b1e6 ac100a63 ac100a0c", "header length of 16 bytes is below 20"),
        (ipv4.decode, "45000013 1c464000 4006b1e6 ac100a63 ac100a0c", "total length 19 is below the header's 20"),
        (ipv6.decode, "4" + "0" * 79, "version is 4, not 6"),
        (udp.decode, "1388 1771 0007 0000", "length 7 is below 8"),
        (tcp.decode, "1f90 0050 01020304 05060708 4012 ffff e57e 0009", "header length of 16 bytes is below 20"),
    ],
)
def test_what_breaks_a_headers_rules_is_refused(decode: Decode, text: str, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode(bytes.fromhex(text), 0)


@pytest.mark.parametrize(
    "value",
    [
        Ethernet(1 << 48, 0, 0),
        Vlan(priority=8, drop_eligible=False, vlan_id=0, ether_type=0),
        Vlan(priority=0, drop_eligible=False, vlan_id=4096, ether_type=0),
        Ipv4(IPv4Address(0), IPv4Address(0), 256, 20),
        Ipv4(IPv4Address(0), IPv4Address(0), 6, 20, options=b"\1\1\1"),
        Ipv4(IPv4Address(0), IPv4Address(0), 6, 20, options=bytes(44)),
        Ipv6(IPv6Address(0), IPv6Address(0), 6, -1),
        Udp(65536, 0, 8),
        Tcp(0, 0, options=b"\1"),
        Tcp(0, 0, sequence=1 << 32),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(value: Header) -> None:
    with pytest.raises(WireError):
        value.encode()


def bits(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << count) - 1)


OPTIONS = st.integers(0, 10).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words))
VALUES: dict[str, tuple[Decode, st.SearchStrategy[Any]]] = {
    "ethernet": (ethernet.decode, st.builds(Ethernet, bits(48), bits(48), bits(16))),
    "vlan": (vlan.decode, st.builds(Vlan, bits(3), st.booleans(), bits(12), bits(16))),
    "ipv4": (
        ipv4.decode,
        st.builds(
            Ipv4,
            st.ip_addresses(v=4),
            st.ip_addresses(v=4),
            protocol=bits(8),
            total_length=st.integers(60, 65535),
            dscp=bits(6),
            ecn=bits(2),
            identification=bits(16),
            flags=bits(3),
            fragment_offset=bits(13),
            ttl=bits(8),
            checksum=bits(16),
            options=OPTIONS,
        ),
    ),
    "ipv6": (
        ipv6.decode,
        st.builds(
            Ipv6,
            st.ip_addresses(v=6),
            st.ip_addresses(v=6),
            next_header=bits(8),
            payload_length=bits(16),
            dscp=bits(6),
            ecn=bits(2),
            flow_label=bits(20),
            hop_limit=bits(8),
        ),
    ),
    "udp": (udp.decode, st.builds(Udp, bits(16), bits(16), st.integers(8, 65535), bits(16))),
    "tcp": (
        tcp.decode,
        st.builds(Tcp, bits(16), bits(16), bits(32), bits(32), bits(4), bits(8), bits(16), bits(16), bits(16), OPTIONS),
    ),
}


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_every_value_survives_the_wire(name: str, data: st.DataObject) -> None:
    decode, values = VALUES[name]
    value = data.draw(values)
    assert decode(value.encode(), 0) == value


@pytest.mark.parametrize("name", VALUES)
@given(junk=st.binary(max_size=80), offset=st.integers(0, 90))
def test_any_bytes_decode_or_raise_wire_error(name: str, junk: bytes, offset: int) -> None:
    decode, _ = VALUES[name]
    try:
        value = decode(junk, offset)
    except WireError:
        return
    assert value.encode() == junk[offset : offset + value.size]


@given(header=VALUES["ipv4"][1])
def test_only_the_computed_ipv4_checksum_is_valid(header: Ipv4) -> None:
    right = header.checked()
    assert right.valid
    assert int(IP(right.encode()).chksum) == right.checksum
    assert header.valid == (header.checksum % 0xFFFF == right.checksum % 0xFFFF)


def test_scapy_reads_the_same_fields() -> None:
    link = Ether(bytes.fromhex("020000000002 020000000001 8100 b00a 0800"))
    tag = vlan.decode(bytes(link), 14)
    assert (link.dst, link.src) == ("02:00:00:00:00:02", "02:00:00:00:00:01")
    assert ethernet.format_mac(ethernet.decode(bytes(link)).dst) == link.dst
    assert (tag.priority, tag.vlan_id) == (link[Dot1Q].prio, link[Dot1Q].vlan)
    built = bytes(IP(src="10.0.0.1", dst="10.0.0.2", tos=0x5D, id=7, flags="DF", ttl=9) / UDP(sport=5, dport=6))
    mine = ipv4.decode(built)
    assert (mine.dscp, mine.ecn, mine.identification, mine.ttl, mine.valid) == (0x17, 1, 7, 9, True)
    assert udp.decode(built, mine.size).dst_port == 6
    built = bytes(IPv6(src="2001:db8::1", dst="2001:db8::2", tc=0x5D, fl=3) / TCP(sport=5, seq=8, flags="SA"))
    theirs = ipv6.decode(built)
    assert (theirs.dscp, theirs.ecn, theirs.flow_label, theirs.payload_length) == (0x17, 1, 3, 20)
    assert tcp.decode(built, 40).flags == 0x12
    assert tcp.decode(built, 40).sequence == 8
