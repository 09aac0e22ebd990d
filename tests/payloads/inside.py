"""Contents of hosts' frames that switches do not parse: headers before IP, and after it.

Of each standard the header with fields that make sense, so that a parser that did look would go on into the payload.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION = 0, 43, 44, 51, 60
_UDP: Final = 17

Prefix = Callable[[random.Random], bytes]
"""Makes what stands before a payload."""


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071): a number modulo 0xffff is the sum of its 16-bit digits."""
    total = int.from_bytes(data + bytes(len(data) % 2), "big") % 0xFFFF
    return 0xFFFF - total if total or not any(data) else 0


def _udp(rng: random.Random) -> bytes:
    return struct.pack("!HHHH", rng.getrandbits(16), rng.choice((4789, 5599, 5001)), 8 + rng.randrange(200), 0)


def _ipv4(rng: random.Random) -> bytes:
    """IP in IP (RFC 2003)."""
    head = struct.pack("!BBHIBBH", 0x45, rng.choice((0, 0x5C)), 28 + rng.randrange(200), 7, 64, _UDP, 0)
    head += rng.randbytes(8)
    return head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + _udp(rng)


def _ipv6(rng: random.Random) -> bytes:
    """IPv6 in IPv4 (RFC 4213), or in IPv6 (RFC 2473)."""
    first = rng.choice((6 << 28, 0x65C00000))
    return struct.pack("!IHBB", first, 8 + rng.randrange(200), _UDP, 64) + rng.randbytes(32) + _udp(rng)


def _mpls(rng: random.Random) -> bytes:
    """Two labels (RFC 3032) and IPv4."""
    labels = struct.pack("!II", rng.getrandbits(20) << 12 | 64, rng.getrandbits(20) << 12 | 1 << 8 | 64)
    return labels + _ipv4(rng)


def _esp(rng: random.Random) -> bytes:
    """RFC 4303: SPI, sequence number; the rest is a cipher's."""
    return struct.pack("!II", 0x1000 | rng.getrandbits(8), rng.getrandbits(32))


def _ah(rng: random.Random) -> bytes:
    """RFC 4302, over UDP."""
    return struct.pack("!BBHII", _UDP, 4, 0, 0x1000, rng.getrandbits(32)) + rng.randbytes(12) + _udp(rng)


def _sctp(rng: random.Random) -> bytes:
    """RFC 9260: the common header and a DATA chunk's."""
    ports = struct.pack("!HHII", 5000, rng.choice((5001, 5599)), rng.getrandbits(32), rng.getrandbits(32))
    return ports + struct.pack("!BBHIHHI", 0, 3, 16 + rng.randrange(200), 1, 0, 0, 0)


def _dccp(rng: random.Random) -> bytes:
    """RFC 4340: a request."""
    return struct.pack("!HHBBHBBHII", 5000, 5001, 5, 0, rng.getrandbits(16), 1, 0, 0, 1, rng.getrandbits(32))


def _udp_lite(rng: random.Random) -> bytes:
    """RFC 3828: where UDP's length is, the bytes that the checksum covers."""
    return struct.pack("!HHHH", 5000, rng.choice((5001, 4789)), rng.choice((0, 8, 12)), rng.getrandbits(16))


def _echo(rng: random.Random) -> bytes:
    return struct.pack("!BBHHH", rng.choice((8, 128)), 0, rng.getrandbits(16), 1, 1)


def _ethernet(rng: random.Random) -> bytes:
    """EtherIP (RFC 3378)."""
    return b"\x30\x00" + rng.randbytes(12) + b"\x08\x00" + _ipv4(rng)


def _l2tp(rng: random.Random) -> bytes:
    """L2TPv3 over IP (RFC 3931)."""
    return struct.pack("!II", rng.randrange(1, 1 << 32), 0) + _ethernet(rng)[2:]


def _mobility(rng: random.Random) -> bytes:
    """RFC 6275: an extension header of IPv6 that nothing follows."""
    return struct.pack("!BBBBHH", 59, 0, 1, 0, rng.getrandbits(16), 0)


BEHIND_IP: Final[dict[int, Prefix]] = {
    1: _echo,
    4: _ipv4,
    33: _dccp,
    41: _ipv6,
    50: _esp,
    51: _ah,
    58: _echo,
    97: _ethernet,
    115: _l2tp,
    132: _sctp,
    135: _mobility,
    136: _udp_lite,
    137: _mpls,
}
"""By IP protocol; others follow IP directly."""


def _with_type(ether_type: int, make: Prefix) -> Prefix:
    return lambda rng: struct.pack("!H", ether_type) + make(rng)


def _pppoe(rng: random.Random) -> bytes:
    """RFC 2516: a session's packet, IPv4 inside."""
    return struct.pack("!BBHHH", 0x11, 0, rng.getrandbits(16), 200, 0x0021) + _ipv4(rng)


def _snap(rng: random.Random) -> bytes:
    """IEEE 802.2: a length where Ethernet has its type, and SNAP, which says IPv4."""
    return b"\xaa\xaa\x03\0\0\0\x08\0" + _ipv4(rng)


BEFORE_IP: Final[tuple[Prefix, ...]] = (
    _with_type(0x8847, _mpls),
    _with_type(0x8848, _mpls),
    _with_type(0x8864, _pppoe),
    _with_type(0x0064, _snap),
    _with_type(0x88E5, lambda rng: rng.randbytes(14)),  # MACsec
    _with_type(0x8915, lambda rng: rng.randbytes(40)),  # RoCE v1
    _with_type(0x9000, lambda rng: rng.randbytes(4)),
)
"""From the EtherType on; IP, if there is any, is out of a router's sight."""


def tcp_options(rng: random.Random) -> bytes:
    """Return TCP's options as hosts have them, mostly, in whole words (RFC 9293, 2018, 2385, 7323, 7413, 8684)."""
    stamps = b"\x01\x01\x08\x0a" + rng.randbytes(8)
    return rng.choice(
        (
            b"",
            b"",
            stamps,
            b"\x02\x04\x05\xb4\x04\x02\x08\x0a" + rng.randbytes(8) + b"\x01\x03\x03\x07",
            stamps + b"\x01\x01\x05\x1a" + rng.randbytes(24),  # three blocks of SACK
            b"\x01\x01\x13\x12" + rng.randbytes(16),  # a signature
            b"\x22\x0a" + rng.randbytes(8) + b"\x01\x01",  # Fast Open's cookie
            b"\x1e\x0c\x20\x05" + rng.randbytes(8),  # Multipath TCP
            b"\xfd\x04\x0f\x89",
            rng.randbytes(4 * rng.randrange(11)),
        )
    )


def extended(kinds: Sequence[int], protocol: int, body: bytes) -> tuple[bytes, int]:
    """Return an IPv6 payload behind extension headers (RFC 8200) of these kinds, and what IPv6 says comes next."""
    for kind in reversed(kinds):
        body, protocol = _extension(kind, protocol) + body, kind
    return body, protocol


def _extension(kind: int, following: int) -> bytes:
    if kind == FRAGMENT:
        return struct.pack("!BBHI", following, 0, 1, 0x01020304)
    if kind == ROUTING:  # segment routing (RFC 8754), its end reached
        return struct.pack("!BBBBBBH", following, 2, 4, 0, 0, 0, 0) + bytes(16)
    if kind == AUTHENTICATION:
        return struct.pack("!BBHII", following, 4, 0, 0x1000, 7) + b"\x5a" * 12
    return struct.pack("!BBBBI", following, 0, 1, 4, 0)  # PadN
