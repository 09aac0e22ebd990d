"""In-band Network Telemetry (INT) v2.1: shims, INT-MD with its stack, INT-MX, in every encapsulation.

https://github.com/p4lang/p4-applications/tree/master/telemetry/specs

What marks an INT packet behind TCP or UDP is a domain's choice (section 5.7.2); `conf.contribs["INT"]` has it:

- `dscp`, in the bits of `dscp_mask` (default 0x17, all six bits), or None;
- `dport`, the UDP destination port that stands for INT, or None;
- `marker`, the 64-bit probe marker, or None.

GRE tunnels carry INT under protocol 0x88b5, which `bind_layers(GRE, INTShimGRE, proto=...)` may add to; VXLAN-GPE under
next protocol 0x82; Geneve in options of class 0x0103.
"""

# scapy.contrib.description = In-band Network Telemetry (INT) v2.1
# scapy.contrib.status = loads

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from scapy.base_classes import BasePacket
from scapy.config import conf
from scapy.contrib.geneve import GeneveOptions
from scapy.data import ETHER_TYPES, IP_PROTOS
from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    FlagsField,
    PacketLenField,
    PacketListField,
    ShortField,
    XByteField,
    XIntField,
    XLongField,
    XShortEnumField,
    XShortField,
    XStrLenField,
)
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw, bind_bottom_up, bind_layers, bind_top_down

# INT metadata as Scapy fields: a hop's entry on an INT-MD stack, and its values in a telemetry report.
#
# INT v2.1, section 5.8, and Telemetry Report v2.0, section 3.3.1.


INSTRUCTIONS = (
    "node_id",
    "level1",
    "hop_latency",
    "queue",
    "ingress_timestamp",
    "egress_timestamp",
    "level2",
    "tx_utilization",
    "buffer",
    "reserved9",
    "reserved10",
    "reserved11",
    "reserved12",
    "reserved13",
    "reserved14",
    "last",
)
"""The instruction bits' names, most significant (bit 0) first; "last": checksum complement, or drop reason."""

FLAG_NAMES = list(reversed(INSTRUCTIONS))
"""In FlagsField's order: the least significant bit first."""

LAST = 0x0001
_FIELDS: dict[str, tuple[tuple[str, int], ...]] = {
    "node_id": (("node_id", 32),),
    "level1": (("ingress_interface", 16), ("egress_interface", 16)),
    "hop_latency": (("hop_latency", 32),),
    "queue": (("queue_id", 8), ("queue_occupancy", 24)),
    "ingress_timestamp": (("ingress_timestamp", 64),),
    "egress_timestamp": (("egress_timestamp", 64),),
    "level2": (("level2_ingress_interface", 32), ("level2_egress_interface", 32)),
    "tx_utilization": (("tx_utilization", 32),),
    "buffer": (("buffer_id", 8), ("buffer_occupancy", 24)),
    **{name: ((name, 32),) for name in INSTRUCTIONS[9:15]},
}


class Part(Packet):
    """One of several consecutive parts that know their own length."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Leave the remainder to the next part."""
        return b"", s


def metadata_words(bits: int) -> int:
    """Return the number of words for a bitmap, bit 15 included: two for timestamps and level 2 interfaces."""
    return bits.bit_count() + (bits & 0x0E00).bit_count()


def instruction_fields(bits_of: Callable[[Any, frozenset[str]], int]) -> list[ConditionalField]:
    """Return the fields of instruction bits 0 to 14, each present if its bit is set; all ones is "not available".

    `bits_of` returns a packet's bitmap, given the names of the fields in question.
    """
    fields: list[ConditionalField] = []
    for bit, (_, group) in enumerate(_FIELDS.items()):
        condition = _asked(bits_of, 0x8000 >> bit, frozenset(name for name, _ in group))
        fields += [ConditionalField(BitField(name, (1 << size) - 1, size), condition) for name, size in group]
    return fields


def _asked(bits_of: Callable[[Any, frozenset[str]], int], bit: int, names: frozenset[str]) -> Callable[[Any], bool]:
    return lambda packet: bool(bits_of(packet, names) & bit)


conf.contribs.setdefault("INT", {"dscp": 0x17, "dscp_mask": 0x3F, "dport": None, "marker": None})

INT_TYPES = {1: "MD", 2: "Destination", 3: "MX"}
GRE_PROTO_INT = 0x88B5
VXLAN_NEXT_INT = 0x82
GENEVE_CLASS_INT = 0x0103


class INTMarker(Packet):
    """A probe marker, in front of a shim."""

    name = "INT probe marker"
    fields_desc = [XLongField("marker", 0)]


class _Shim(Packet):
    """Common part of the three shims: the length of the INT header after them, and the layer after that."""

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the length: the words of the INT header, without its payload."""
        if self.length is None:
            words = len(self.payload.self_build()) // 4 if self.payload else 0
            pkt = pkt[:1] + struct.pack("!B", words & 0xFF) + pkt[2:]
        return pkt + pay

    def guess_behind(self, payload: bytes) -> type[Packet]:
        """Return the layer after the INT header."""
        raise NotImplementedError


class INTShim(_Shim):
    """The shim after TCP and UDP."""

    name = "INT shim"
    fields_desc = [
        BitEnumField("type", 1, 4, INT_TYPES),
        BitEnumField("npt", 0, 2, {0: "unchanged", 1: "UDP payload", 2: "new UDP"}),
        BitField("reserved", 0, 2),
        ByteField("length", None),
        ConditionalField(ByteField("reserved2", 0), lambda pkt: pkt.npt != 1),
        ConditionalField(BitField("dscp", 0, 6), lambda pkt: pkt.npt == 0),
        ConditionalField(BitField("reserved3", 0, 2), lambda pkt: pkt.npt == 0),
        ConditionalField(ShortField("dport", 0), lambda pkt: pkt.npt == 1),
        ConditionalField(ByteEnumField("proto", 6, IP_PROTOS), lambda pkt: pkt.npt == 2),
        ConditionalField(XByteField("reserved4", 0), lambda pkt: pkt.npt == 3),
    ]

    def guess_behind(self, payload: bytes) -> type[Packet]:
        """Return the layer after the INT header: the original L4 header's payload, or another L4 header."""
        if self.npt == 2:
            return _as_payload_of(IP(proto=self.proto), payload)
        below = self.underlayer
        if isinstance(below, INTMarker):
            below = below.underlayer
        if self.npt == 1:
            return _as_payload_of(UDP(sport=getattr(below, "sport", 0), dport=self.dport), payload)
        return conf.raw_layer if below is None else _as_payload_of(below, payload)


class INTShimGRE(_Shim):
    """The shim after GRE; `G` says that the INT source inserted the GRE header."""

    name = "INT shim of GRE"
    fields_desc = [
        BitEnumField("type", 1, 4, INT_TYPES),
        BitField("G", 0, 1),
        BitField("reserved", 0, 3),
        ByteField("length", None),
        XShortEnumField("proto", 0x0800, ETHER_TYPES),
    ]

    def guess_behind(self, payload: bytes) -> type[Packet]:
        """Return the layer after the INT header, by its EtherType."""
        return _as_payload_of(GRE(proto=self.proto), payload)


class INTShimVXLAN(_Shim):
    """The shim after VXLAN-GPE; `G` says that the original packet was plain VXLAN."""

    name = "INT shim of VXLAN-GPE"
    fields_desc = [
        BitEnumField("type", 1, 4, INT_TYPES),
        BitField("reserved", 0, 4),
        ByteField("length", None),
        BitField("G", 0, 1),
        BitField("reserved2", 0, 7),
        ByteEnumField("next_protocol", 3, {1: "IPv4", 2: "IPv6", 3: "Ethernet", VXLAN_NEXT_INT: "INT"}),
    ]

    def guess_behind(self, payload: bytes) -> type[Packet]:
        """Return the layer after the INT header, by VXLAN-GPE's next protocol."""
        layers: dict[int, type[Packet]] = {1: IP, 2: IPv6, 3: Ether, VXLAN_NEXT_INT: INTShimVXLAN}
        return layers.get(self.next_protocol, conf.raw_layer)


class _Header(Packet):
    """Common part of INT headers: the shim, or the enclosing Geneve option, gives their length."""

    def given_bytes(self) -> int | None:
        """Return the header's length according to its carrier, None if there is no carrier."""
        carrier = self.underlayer if self.underlayer is not None else self.parent
        if not isinstance(carrier, _Shim | INTGeneveOption) or carrier.length is None:
            return None
        return 4 * int(carrier.length)

    def rest_after(self, fixed: int) -> int:
        """Return the number of bytes after the header's `fixed` ones, 0 if unknown."""
        return max((self.given_bytes() or 0) - fixed, 0)

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the layer that the shim names."""
        below = self.underlayer
        return below.guess_behind(payload) if isinstance(below, _Shim) else conf.raw_layer


def _bits_of_hop(hop: Packet, names: frozenset[str]) -> int:
    """Return the instructions of the header around a hop; without one, every bit of which the hop has a field."""
    if isinstance(hop.parent, INTMD):
        return int(hop.parent.instructions)
    return 0xFFFF if names & set(hop.fields) else 0


class INTHop(Part):
    """One hop's metadata on an INT-MD stack; the header's `instructions` determine the fields."""

    name = "INT hop"
    fields_desc = [
        *instruction_fields(_bits_of_hop),
        XStrLenField("domain", b"", length_from=lambda pkt: pkt.domain_bytes()),
        ConditionalField(
            XIntField("checksum_complement", 0xFFFFFFFF),
            lambda pkt: bool(_bits_of_hop(pkt, frozenset({"checksum_complement"})) & LAST),
        ),
    ]

    def domain_bytes(self) -> int:
        """Return the number of bytes beyond those of the bitmap."""
        instructions = int(self.parent.instructions) if isinstance(self.parent, INTMD) else 0
        return max(len(self.original or b"") - 4 * metadata_words(instructions), 0)


class _StackField(PacketListField):
    """The hops of an INT-MD header, newest first: HopML words each, the source's, the last, possibly more."""

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[BasePacket]]:
        """Return the data after the stack, and its hops; bytes that are no whole hop are Raw."""
        given = pkt.given_bytes()
        hop = 4 * pkt.hop_ml
        size = len(s) - (len(s) % hop if hop else len(s)) if given is None else max(given - 12, 0)
        stack, rest = s[:size], s[size:]
        count = len(stack) // hop if hop else 0
        if not count:
            return rest, [Raw(stack, _parent=pkt)] if stack else []
        starts = [hop * index for index in range(count)]
        ends = [*starts[1:], len(stack)]
        return rest, [INTHop(stack[start:end], _parent=pkt) for start, end in zip(starts, ends, strict=True)]


class INTMD(_Header):
    """An INT-MD header and its stack; `hop_ml` is computed from the instructions unless it is given."""

    name = "INT-MD"
    fields_desc = [
        BitField("version", 2, 4),
        BitField("D", 0, 1),
        BitField("E", 0, 1),
        BitField("M", 0, 1),
        BitField("reserved", 0, 12),
        BitField("hop_ml", None, 5),
        ByteField("remaining_hops", 0),
        FlagsField("instructions", 0, 16, FLAG_NAMES),
        XShortField("domain_id", 0),
        XShortField("domain_instructions", 0),
        XShortField("domain_flags", 0),
        _StackField("stack", [], INTHop),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in HopML: the baseline's words, and the newest hop's domain words."""
        if self.hop_ml is None:
            domain = len(self.stack[0].domain) // 4 if self.stack and isinstance(self.stack[0], INTHop) else 0
            words = metadata_words(int(self.instructions)) + domain
            pkt = pkt[:2] + struct.pack("!B", pkt[2] & 0xE0 | words & 0x1F) + pkt[3:]
        return pkt + pay


class INTMX(_Header):
    """An INT-MX header and the domain metadata that its source inserted."""

    name = "INT-MX"
    fields_desc = [
        BitField("version", 2, 4),
        BitField("D", 0, 1),
        BitField("reserved", 0, 27),
        FlagsField("instructions", 0, 16, FLAG_NAMES),
        XShortField("domain_id", 0),
        XShortField("domain_instructions", 0),
        XShortField("domain_flags", 0),
        XStrLenField("source_inserted", b"", length_from=lambda pkt: pkt.rest_after(12)),
    ]


class INTDestination(_Header):
    """An INT Destination header; the specification leaves its format open."""

    name = "INT Destination"
    fields_desc = [XStrLenField("data", b"", length_from=lambda pkt: pkt.rest_after(0))]


def _geneve_header(data: bytes, _parent: Packet | None = None) -> Packet:
    kinds: dict[int, type[Packet]] = {1: INTMD, 2: INTDestination, 3: INTMX}
    kind = kinds.get(getattr(_parent, "type", 0), conf.raw_layer)
    return kind(data, _parent=_parent)


class INTGeneveOption(Part):
    """The option of a Geneve header that holds an INT header."""

    name = "INT option of Geneve"
    fields_desc = [
        XShortField("classid", GENEVE_CLASS_INT),
        ByteEnumField("type", 1, INT_TYPES),
        BitField("reserved", 0, 3),
        BitField("length", None, 5),
        PacketLenField(
            "header",
            None,  # type: ignore[arg-type]  # None is no packet
            _geneve_header,
            length_from=lambda pkt: 4 * pkt.length,
        ),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the length."""
        if self.length is None:
            pkt = pkt[:3] + struct.pack("!B", pkt[3] & 0xE0 | (len(pkt) - 4) // 4 & 0x1F) + pkt[4:]
        return pkt + pay


class INTByMark(Packet):
    """Placeholder for the layer after TCP or UDP: INT if the packet is marked, else the layer bound to the ports."""

    name = "INT by mark"

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: Any, **kargs: Any) -> type[Packet]:
        """Return the layer of a payload; `_underlayer` is its TCP or UDP header."""
        below = kargs.get("_underlayer")
        if below is None or not _pkt:
            return INTShim
        marker = conf.contribs["INT"]["marker"]
        if marker is not None and _pkt[:8] == struct.pack("!Q", marker):
            return INTMarker
        if len(_pkt) >= 4 and _pkt[0] >> 4 in INT_TYPES and _is_marked(below):
            return INTShim
        return _as_payload_of(below, _pkt)


def _is_marked(l4: Packet) -> bool:
    marks = conf.contribs["INT"]
    if isinstance(l4, UDP) and marks["dport"] is not None and l4.dport == marks["dport"]:
        return True
    network = l4.underlayer
    if marks["dscp"] is None or not isinstance(network, IP | IPv6):
        return False
    traffic_class = network.tos if isinstance(network, IP) else network.tc
    return bool((traffic_class >> 2 ^ marks["dscp"]) & marks["dscp_mask"] == 0)


def _as_payload_of(below: Packet, payload: bytes) -> type[Packet]:
    """Return the layer that the payload would have without INT."""
    for layer in below.aliastypes:
        guesses: list[tuple[dict[str, Any], type[Packet]]] = layer.payload_guess
        for fields, kind in guesses:
            if kind is not INTByMark and _matches(below, fields):
                return kind
    return below.default_payload_class(payload)


def _matches(packet: Packet, fields: dict[str, Any]) -> bool:
    try:
        return all(value == packet.getfieldval(name) for name, value in fields.items())
    except AttributeError:
        return False


def _geneve_option(_pkt: bytes = b"", *args: Any, **kargs: Any) -> type[Packet]:
    is_int = _pkt[:2] == struct.pack("!H", GENEVE_CLASS_INT) and _pkt[2:3] in (b"\x01", b"\x02", b"\x03")
    return INTGeneveOption if is_int else GeneveOptions


for _lower in (TCP, UDP):
    _lower.payload_guess = [({}, INTByMark), *_lower.payload_guess]
GeneveOptions.dispatch_hook = _geneve_option  # type: ignore[attr-defined]  # looked up by name
bind_layers(INTMarker, INTShim)
for _shim in (INTShim, INTShimGRE, INTShimVXLAN):
    bind_layers(_shim, INTMD, type=1)
    bind_layers(_shim, INTDestination, type=2)
    bind_layers(_shim, INTMX, type=3)
bind_layers(GRE, INTShimGRE, proto=GRE_PROTO_INT)
bind_bottom_up(VXLAN, INTShimVXLAN, NextProtocol=VXLAN_NEXT_INT)
bind_top_down(VXLAN, INTShimVXLAN, flags=12, NextProtocol=VXLAN_NEXT_INT)
bind_top_down(INTShimVXLAN, INTShimVXLAN, next_protocol=VXLAN_NEXT_INT)
