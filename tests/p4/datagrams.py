"""UDP over IPv4 without checksum, to a switch under test and from it."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from typing import TypeVar

from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tests.p4.targets import Sent

_HEADER_BYTES = 42
Content = TypeVar("Content")
Ends = tuple[IPv4Address, int]
"""Address and UDP port."""


def datagram(src: Ends, dst: Ends, payload: bytes, *, ecn: int = 0, checksum: int | None = 0) -> bytes:
    """Return a frame; None has the checksum computed."""
    ip = IP(src=str(src[0]), dst=str(dst[0]), tos=ecn)
    ethernet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:b1")
    return raw(ethernet / ip / UDP(sport=src[1], dport=dst[1], chksum=checksum) / payload)


def arrivals(sent: Sent, decode: Callable[[bytes, int], Content]) -> list[tuple[int, str, str, int, int, Content]]:
    """Return port, addresses, UDP ports and content of sent datagrams; check lengths and checksums."""
    packets = []
    for port, data in sent:
        got = Ether(data)
        checksum = got[IP].chksum
        del got[IP].chksum
        assert Ether(raw(got))[IP].chksum == checksum
        assert (got[IP].len, got[UDP].len, got[UDP].chksum) == (len(data) - 14, len(data) - 34, 0)
        content = decode(data, _HEADER_BYTES)
        packets.append((port, got[IP].src, got[IP].dst, got[UDP].sport, got[UDP].dport, content))
    return packets
