from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet

from dataplane.native import kernel_library
from dataplane.nic.flows.fields import KEY_WORDS
from dataplane.nic.flows.kernels.flow_key import read_key
from tests.dataplane.nic.flows.frames import frames, whole_frames
from tests.reference.flow_key import key_words, read_fields

PAGE = mmap.PAGESIZE
ETHER = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
PORTS = UDP(sport=1000, dport=32766) / b"report"
V4 = IP(src="10.0.0.1", dst="10.0.0.2", ttl=9, tos=0xB9)
V6 = IPv6(src="2001:db8::1", dst="2001:db8::2", hlim=9, tc=0xB9)


@functools.cache
def read_key_kernel() -> Callable[..., int]:
    return kernel_library(read_key).bind(read_key)


def read(address: int | bytes, length: int, queue: int = 0) -> tuple[list[int], int]:
    """Return the key's words and the flow's hash."""
    key = (ctypes.c_uint64 * KEY_WORDS)(*[0xAA] * KEY_WORDS)
    digest = read_key_kernel()(address, length, queue, key)
    return list(key), digest


def flow_hash(frame: bytes) -> int:
    return read(frame, len(frame))[1]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[int, int]]:
    """Start and end of a readable page whose neighbours are inaccessible."""
    memory = mmap.mmap(-1, 3 * PAGE)
    address = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(address)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for page in (start, start + 2 * PAGE):
        assert mprotect(page, PAGE, 0) == 0
    yield start + PAGE, start + 2 * PAGE
    for page in (start, start + 2 * PAGE):
        assert mprotect(page, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    del address
    memory.close()


@settings(max_examples=400)
@given(frames(), st.integers(0, 2**32 - 1))
def test_the_kernel_reads_what_the_reference_reads(frame: bytes, queue: int) -> None:
    assert read(frame, len(frame), queue)[0] == key_words(read_fields(frame, queue))


@given(whole_frames())
def test_a_frame_cut_anywhere_is_read_no_further_than_its_end(guarded: tuple[int, int], frame: bytes) -> None:
    first, end = guarded
    for length in range(len(frame) + 1):
        wanted = key_words(read_fields(frame[:length]))
        ctypes.memmove(end - length, frame, length)
        assert read(end - length, length)[0] == wanted  # the next byte would be a fault
        ctypes.memmove(first, frame, length)
        ctypes.memset(first + length, 0xFF, PAGE - length)
        assert read(first, length)[0] == wanted  # nor do the bytes behind make a difference


def fields_of(packet: Packet) -> dict[str, object]:
    frame = bytes(packet)
    fields = read_fields(frame)
    assert read(frame, len(frame))[0] == key_words(fields)
    return dict(fields)


IP_FIELDS = {"ip.dscp": 46, "ip.ecn": 1, "ip.ttl": 9, "ip.fragment": 0}
PORT_FIELDS = {"ip.protocol": 17, "udp.src": 1000, "udp.dst": 32766}
V4_FIELDS = IP_FIELDS | {"ip.version": 4, "ip.src": IPv4Address("10.0.0.1"), "ip.dst": IPv4Address("10.0.0.2")}
V6_FIELDS = IP_FIELDS | {"ip.version": 6, "ip.src": IPv6Address("2001:db8::1"), "ip.dst": IPv6Address("2001:db8::2")}
TAGGED = {"vlan.id": 5, "vlan.pcp": 3}


@pytest.mark.parametrize(
    ("packet", "wanted"),
    [
        (ETHER / ARP(), {"eth.type": 0x0806}),
        (ETHER / V4 / PORTS, {"eth.type": 0x0800} | V4_FIELDS | PORT_FIELDS),
        (ETHER / IP(**(V4.fields | {"options": [IPOption_Router_Alert()]})) / PORTS, V4_FIELDS | PORT_FIELDS),
        (ETHER / V4 / TCP(sport=1, dport=2, flags="SA"), {"tcp.src": 1, "tcp.dst": 2, "tcp.flags": 0x12}),
        (ETHER / Dot1Q(vlan=5, prio=3, dei=1) / V4 / PORTS, {"eth.type": 0x0800} | TAGGED | PORT_FIELDS),
        (ETHER / Dot1AD(vlan=5, prio=3) / Dot1Q(vlan=6) / V4 / PORTS, {"eth.type": 0x0800} | TAGGED | PORT_FIELDS),
        (ETHER / Dot1AD(vlan=5, prio=3) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / V4, {"eth.type": 0x8100} | TAGGED),
        (ETHER / V6 / PORTS, {"eth.type": 0x86DD} | V6_FIELDS | PORT_FIELDS),
        (ETHER / V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting(addresses=["::1"]) / PORTS, V6_FIELDS | PORT_FIELDS),
        (ETHER / V6 / IPv6ExtHdrDestOpt() / AH(nh=17, payloadlen=4, icv=bytes(12)) / PORTS, V6_FIELDS | PORT_FIELDS),
        (ETHER / V6 / IPv6ExtHdrFragment(offset=0, m=0) / PORTS, V6_FIELDS | PORT_FIELDS),
        (ETHER / V6 / IPv6ExtHdrFragment(offset=0, m=1) / PORTS, {"ip.fragment": 1, "ip.protocol": 17}),
    ],
)
def test_fields_of_packets_that_scapy_makes(packet: Packet, wanted: dict[str, object]) -> None:
    fields = fields_of(packet)
    assert {name: fields.get(name) for name in wanted} == wanted


def test_a_chain_of_extension_headers_without_end_is_left() -> None:
    chain = V6
    for _ in range(9):
        chain = chain / IPv6ExtHdrDestOpt()
    assert fields_of(ETHER / chain / PORTS)["ip.protocol"] == 60
    assert "udp.dst" not in fields_of(ETHER / chain / PORTS)


def test_padding_is_no_port() -> None:
    frame = bytes(ETHER / IP(src="10.0.0.1", dst="10.0.0.2", proto=17, len=24)) + bytes(36)
    assert "udp.dst" not in read_fields(frame)
    assert read(frame, len(frame))[0] == key_words(read_fields(frame))


@pytest.mark.parametrize("ip", [IP, IPv6])
@pytest.mark.parametrize("transport", [UDP, TCP])
def test_a_flow_has_one_hash_in_both_directions(ip: type[Packet], transport: type[Packet]) -> None:
    ends = ("10.0.0.1", "10.0.0.2") if ip is IP else ("2001:db8::1", "2001:db8::2")

    def frame(source: int, ports: tuple[int, int]) -> bytes:
        there = ip(src=ends[source], dst=ends[1 - source])
        return bytes(ETHER / there / transport(sport=ports[0], dport=ports[1]))

    assert flow_hash(frame(0, (7, 8))) == flow_hash(frame(1, (8, 7)))
    assert len({flow_hash(frame(0, (7, 8))), flow_hash(frame(0, (8, 7))), flow_hash(frame(0, (7, 9)))}) == 3


def test_all_fragments_of_a_packet_have_one_hash() -> None:
    pieces = [IP(src="10.0.0.1", dst="10.0.0.2", proto=17, flags=flags, frag=at) / data for flags, at, data in [
        ("MF", 0, bytes(UDP(sport=5, dport=6)) + bytes(16)),
        ("MF", 3, bytes(range(24))),
        (0, 6, b"rest"),
    ]]  # fmt: skip
    back = IP(src="10.0.0.2", dst="10.0.0.1", proto=17, flags="MF") / bytes(24)
    assert len({flow_hash(bytes(ETHER / piece)) for piece in [*pieces, back]}) == 1


def test_fragments_whose_next_headers_differ_have_one_hash() -> None:
    """Only the first fragment's counts (RFC 8200, section 4.5)."""
    pieces = [V6 / IPv6ExtHdrFragment(offset=at, m=1, nh=header) / bytes(16) for at, header in ((0, 60), (2, 17))]
    assert len({flow_hash(bytes(ETHER / piece)) for piece in pieces}) == 1


def test_what_is_no_ip_hashes_by_its_mac_addresses() -> None:
    there = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01", type=0x88B5) / b"one"
    back = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02", type=0x88B5) / b"another"
    other = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:03", type=0x88B5) / b"one"
    assert flow_hash(bytes(there)) == flow_hash(bytes(back)) != flow_hash(bytes(other))


def test_hashes_spread_over_buckets() -> None:
    frame = bytearray(bytes(ETHER / V4 / PORTS))
    buckets = [0] * 64
    for port in range(6_400):
        frame[34:36] = port.to_bytes(2, "big")
        buckets[flow_hash(bytes(frame)) % 64] += 1
    assert 50 < min(buckets) <= max(buckets) < 160
