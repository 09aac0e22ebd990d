"""INT-XD samples by a hash of invariant fields, so that all switches report the same packets."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from tests.p4.entries import COLLECTOR_PORT, DOWN_PORT, UP_PORT, XD, Watch, transit
from tests.p4.frames import Shape, build, routed
from tests.p4.markers import cut
from tests.p4.targets import Target, pass_through

SHAPES = {
    "udp": Shape(),
    "udp-ipv6": Shape(version=6, vlan=True),
    "tcp": Shape(l4="tcp", l4_options=True),
    "tcp-ipv6": Shape(version=6, l4="tcp"),
    "udp-without-checksum": Shape(checksum=False, ip_options=True),
}


def packets(shape: Shape) -> list[bytes]:
    """Return packets of different contents and lengths, of several flows."""
    return [
        build(replace(shape, payload=bytes([number]) * (20 + number % 5)), src_port=4000 + number // 2)
        for number in range(40)
    ]


def chosen(frame: bytes, one_in: int) -> bool:
    """Return whether a switch must select a packet."""
    parts = cut(frame)
    payload_bytes = (len(parts.body)).to_bytes(2, "big")
    if parts.ip[0] >> 4 == 4:
        addresses, identity = parts.ip[12:20], parts.ip[4:6] + bytes([parts.ip[6] & 0x1F, parts.ip[7]])
    else:
        addresses, identity = parts.ip[8:40], bytes([0, parts.ip[1] & 0xF]) + parts.ip[2:4]
    ports = parts.body[:4]
    sequence, checksum = (parts.body[4:8], parts.body[16:18]) if parts.protocol == 6 else (bytes(4), parts.body[6:8])
    key = addresses + bytes([parts.protocol]) + ports + identity + sequence + checksum + payload_bytes
    mixed = zlib.crc32(key) * 0x9E3779B1 & 0xFFFFFFFF
    return mixed * one_in < 1 << 32


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_switch_chooses_the_same_packets(target: Target, shape: Shape) -> None:
    frames = packets(shape)
    wanted = [frame for frame in frames if chosen(frame, 4)]
    assert 0 < len(wanted) < len(frames)
    for node_id in (101, 102):
        extra = tuple(Watch(0xE000, 4, mode=XD, watch_id=node_id).entries())
        sent = pass_through(target, replace(transit(node_id), extra=extra), UP_PORT, *frames, expect=40 + len(wanted))
        assert sum(port == COLLECTOR_PORT for port, _ in sent) == len(wanted)
        reported = {data[-(8 if shape.l4 == "udp" else 20) :].hex() for port, data in sent if port == COLLECTOR_PORT}
        if shape.checksum and not shape.l4_options:
            assert reported == {cut(frame).body[: 8 if shape.l4 == "udp" else 20].hex() for frame in wanted}
        # The next switch gets them with another TTL and other MAC addresses.
        frames = [data for port, data in sent if port == DOWN_PORT]
        assert [chosen(frame, 4) for frame in frames].count(True) == len(wanted)


@pytest.mark.parametrize("sample_every", [0, 1])
def test_one_in_one_is_every_packet(target: Target, sample_every: int) -> None:
    frames = packets(Shape())[:8]
    extra = tuple(Watch(0xE000, sample_every, mode=XD).entries())
    sent = pass_through(target, replace(transit(), extra=extra), UP_PORT, *frames, expect=16)
    assert sum(port == COLLECTOR_PORT for port, _ in sent) == 8


def test_a_packet_is_chosen_wherever_it_is_on_its_way() -> None:
    frames = packets(Shape())
    later = [routed(frame, src_mac=1, dst_mac=2, hops=9) for frame in frames]
    assert [chosen(frame, 4) for frame in frames] == [chosen(frame, 4) for frame in later]
