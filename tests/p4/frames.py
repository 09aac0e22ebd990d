"""Golden frames, and invariants of good frames."""

from __future__ import annotations

from dataclasses import dataclass

from scapy.compat import raw
from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

HOST_MAC, ROUTER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
SRC4, DST4 = "10.0.0.1", "10.0.9.9"
SRC6, DST6 = "fc00::1", "fc00:9::9"
PAYLOAD = bytes(range(1, 60))
TCP_OPTIONS = [("MSS", 1460), ("NOP", None), ("WScale", 7), ("SAckOK", b""), ("Timestamp", (0x11223344, 0))]


@dataclass(frozen=True, slots=True)
class Shape:
    """Composition of a golden frame."""

    version: int = 4
    l4: str = "udp"
    vlan: bool = False
    l4_options: bool = False
    ip_options: bool = False
    checksum: bool = True
    dscp: int = 0x0A
    payload: bytes = PAYLOAD

    def __str__(self) -> str:
        flags = ("vlan", "l4_options", "ip_options")
        words = [word for word in flags if getattr(self, word)] + ([] if self.checksum else ["no_checksum"])
        return "-".join([f"ipv{self.version}", self.l4, *words, str(len(self.payload))])


SHAPES = [
    Shape(),
    Shape(l4="tcp"),
    Shape(l4="tcp", l4_options=True),
    Shape(version=6),
    Shape(version=6, l4="tcp", l4_options=True),
    Shape(vlan=True),
    Shape(version=6, l4="tcp", vlan=True),
    Shape(ip_options=True),
    Shape(l4="tcp", ip_options=True, l4_options=True, vlan=True),
    Shape(checksum=False),
    Shape(payload=b""),
    Shape(l4="tcp", payload=b""),
    Shape(payload=b"x" * 1200),
]


def build(shape: Shape = Shape(), *, src_port: int = 4000, dst_port: int = 5000, ttl: int = 64) -> bytes:
    """Return a frame from the host; the ECN bits are 1, so that losing them shows."""
    frame: Packet = Ether(src=HOST_MAC, dst=ROUTER_MAC)
    if shape.vlan:
        frame /= Dot1Q(vlan=42, prio=5)
    tos = shape.dscp << 2 | 1
    if shape.version == 4:
        ip_options = [IPOption(b"\x94\x04\x00\x00")] if shape.ip_options else []
        frame /= IP(src=SRC4, dst=DST4, tos=tos, ttl=ttl, id=0x1234, options=ip_options)
    else:
        frame /= IPv6(src=SRC6, dst=DST6, tc=tos, hlim=ttl, fl=0x12345)
    if shape.l4 == "tcp":
        options = TCP_OPTIONS if shape.l4_options else []
        frame /= TCP(sport=src_port, dport=dst_port, seq=7, ack=9, flags="PA", window=1000, options=options)
    else:
        udp = UDP(sport=src_port, dport=dst_port)
        frame /= udp if shape.checksum else UDP(sport=src_port, dport=dst_port, chksum=0)
    return raw(frame / Raw(shape.payload))


def assert_good(frame: bytes) -> None:
    """Lengths agree with the frame, and checksums with what scapy computes from scratch."""
    packet = Ether(frame)
    good = Ether(frame)
    layer4 = next(kind for kind in (TCP, UDP) if packet.haslayer(kind))
    if packet.haslayer(IP):
        assert packet[IP].len == len(raw(packet[IP])), "IPv4 total length"
        del good[IP].chksum
    else:
        assert packet[IPv6].plen == len(raw(packet[IPv6])) - 40, "IPv6 payload length"
    if layer4 is UDP:
        assert packet[UDP].len == len(raw(packet[UDP])), "UDP length"
    if layer4 is TCP or packet[UDP].chksum != 0:
        del good[layer4].chksum
    assert raw(good).hex() == frame.hex(), "a checksum is wrong"


def routed(frame: bytes, *, src_mac: int, dst_mac: int, hops: int = 1) -> bytes:
    """Return the frame as a router forwards it: other MAC addresses, lower TTL, nothing else."""
    packet = Ether(dst_mac.to_bytes(6, "big") + src_mac.to_bytes(6, "big") + frame[12:])
    if packet.haslayer(IP):
        packet[IP].ttl -= hops
        del packet[IP].chksum
    else:
        packet[IPv6].hlim -= hops
    return raw(packet)
