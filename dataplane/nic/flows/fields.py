"""Fields of a frame that flow rules can match, and their places in the flow key.

The key is eight words, bit 0 the lowest; a field that the frame lacks is 0, and its bit of `Layer` is clear:

    0  eth.dst 16-63, eth.type 0-15
    1  eth.src 16-63, vlan.pcp 13-15, vlan.id 0-11
    2  ip.src, lower half of an IPv6 address, or an IPv4 address 0-31
    3  ip.src, upper half
    4  ip.dst, lower half, or an IPv4 address 0-31
    5  ip.dst, upper half
    6  ip.version 60-63, ip.fragment 56, ip.protocol 48-55, ip.dscp 42-47, ip.ecn 40-41, ip.ttl 32-39,
       source port 16-31, destination port 0-15
    7  frame.length 32-63, nic.queue 16-31, tcp.flags 8-15, Layer 0-7

`vlan.*` is the outermost tag; `eth.type` follows the tags, of which two are skipped. `ip.protocol` follows IPv6
extension headers, of which eight are skipped. A fragment, also the first one, has no ports, so that a rule takes all
fragments of a packet or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntFlag
from types import MappingProxyType
from typing import Final

KEY_WORDS: Final = 8
PORTS_WORD: Final = 6
"""Version, fragment, protocol, traffic class, time to live and ports."""
FRAME_WORD: Final = 7
"""Length, queue, TCP flags, layers."""
MOST_TAGS: Final = 2
MOST_EXTENSIONS: Final = 8


class Layer(IntFlag):
    """Headers present in a frame, each complete."""

    ETHERNET = 1
    VLAN = 2
    IP = 4
    UDP = 8
    TCP = 16


class Kind(Enum):
    """Notation of a field's values."""

    NUMBER = "number"
    MAC = "MAC address"
    ADDRESS = "IP address"


@dataclass(frozen=True, slots=True)
class FlowField:
    """A field in the key: `width` bits starting at bit `shift` of `word`, possibly extending into the next word."""

    name: str
    word: int
    shift: int
    width: int
    layers: Layer
    kind: Kind = Kind.NUMBER

    @property
    def most(self) -> int:
        """The largest value."""
        return (1 << self.width) - 1

    @property
    def first_bit(self) -> int:
        """Its lowest bit, counted through all words."""
        return self.word * 64 + self.shift


_ETHERNET = Layer.ETHERNET
_IP = Layer.ETHERNET | Layer.IP
_UDP = _IP | Layer.UDP
_TCP = _IP | Layer.TCP

FIELDS: Final[Mapping[str, FlowField]] = MappingProxyType(
    {
        field.name: field
        for field in (
            FlowField("eth.dst", 0, 16, 48, _ETHERNET, Kind.MAC),
            FlowField("eth.src", 1, 16, 48, _ETHERNET, Kind.MAC),
            FlowField("eth.type", 0, 0, 16, _ETHERNET),
            FlowField("vlan.id", 1, 0, 12, _ETHERNET | Layer.VLAN),
            FlowField("vlan.pcp", 1, 13, 3, _ETHERNET | Layer.VLAN),
            FlowField("ip.version", PORTS_WORD, 60, 4, _IP),
            FlowField("ip.src", 2, 0, 128, _IP, Kind.ADDRESS),
            FlowField("ip.dst", 4, 0, 128, _IP, Kind.ADDRESS),
            FlowField("ip.protocol", PORTS_WORD, 48, 8, _IP),
            FlowField("ip.dscp", PORTS_WORD, 42, 6, _IP),
            FlowField("ip.ecn", PORTS_WORD, 40, 2, _IP),
            FlowField("ip.ttl", PORTS_WORD, 32, 8, _IP),
            FlowField("ip.fragment", PORTS_WORD, 56, 1, _IP),
            FlowField("udp.src", PORTS_WORD, 16, 16, _UDP),
            FlowField("udp.dst", PORTS_WORD, 0, 16, _UDP),
            FlowField("tcp.src", PORTS_WORD, 16, 16, _TCP),
            FlowField("tcp.dst", PORTS_WORD, 0, 16, _TCP),
            FlowField("tcp.flags", FRAME_WORD, 8, 8, _TCP),
            FlowField("frame.length", FRAME_WORD, 32, 32, Layer(0)),
            FlowField("nic.queue", FRAME_WORD, 16, 16, Layer(0)),
        )
    }
)
"""By name. `ip.ttl` is the hop limit of IPv6; `tcp.flags` goes from CWR (128) to FIN (1)."""
