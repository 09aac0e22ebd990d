"""Frames of kinds that switches do not parse, through a source, a transit switch and a sink, on every target."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from dataplane.topology.values import HostNode
from tests.p4.entries import (
    HOP_BY_HOP,
    HOST_PORT,
    MD,
    MX,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    Watch,
    sink,
    source,
    transit,
)
from tests.p4.frames import DST4, DST6, SRC4, SRC6
from tests.p4.markers import ByDscp, ByProbe, ByUdpPort, Marker
from tests.p4.targets import Target, pass_through
from tests.payloads import inside, shapes
from tests.payloads.envelopes import GRE_PORT, TWO_TAGS, VLAN_TAG, Envelope, frame_to, routed

SRC = HostNode("src", 1, IPv4Address(SRC4), IPv6Address(SRC6))
DST = HostNode("dst", 2, IPv4Address(DST4), IPv6Address(DST6))
MARKS: dict[str, tuple[Marker, int]] = {
    "dscp": (ByDscp(), MD),
    "probe": (ByProbe(), HOP_BY_HOP),
    "port": (ByUdpPort(), MX),
    "new": (ByUdpPort(always_new_udp=True), MD),
}


def envelopes_beyond(rng: random.Random) -> list[Envelope]:
    """Return one of each kind that is routed, with IPv6 extensions, protocols behind IP, fragments, TCP options."""
    extensions = ((0,), (43,), (44,), (60,), (51,), (0, 43, 44, 60))
    gre = b"\x20\x00\x65\x58\x00\x00\x00\x07"
    return [
        *(Envelope(version=6, kind=kind, extensions=kinds) for kinds in extensions for kind in ("udp", "tcp")),
        *(
            Envelope(version=version, kind="other", protocol=protocol, tunnel=make(rng))
            for protocol, make in inside.BEHIND_IP.items()
            for version in (4, 6)
        ),
        *(Envelope(fragment=bits, tags=VLAN_TAG) for bits in (0x2000, 0x2001, 0x00B9, 0x4000, 0x8000)),
        *(Envelope(kind="gre in udp", dst_port=GRE_PORT, tunnel=gre, checksum=sum_) for sum_ in (None, 0)),
        *(Envelope(kind="tcp", tcp_options=inside.tcp_options(rng)) for _ in range(6)),
        Envelope(padding=18),
    ]


def frames_beyond(seed: str) -> list[bytes]:
    """Return frames with payloads that look like INT."""
    rng = random.Random(seed)
    headers = shapes.headers_for((0, ByProbe().marker))
    return [frame_to(0xB0, SRC, DST, envelope, shapes.draw(rng, headers)) for envelope in envelopes_beyond(rng)]


@pytest.mark.parametrize(("marker", "mode"), MARKS.values(), ids=MARKS)
def test_what_switches_do_not_look_into_comes_out_as_it_went_in(target: Target, marker: Marker, mode: int) -> None:
    originals = frames_beyond(str(mode))
    on_the_way = originals
    watch = Watch(0x8000, mode=mode, watch_id=63)
    for role, port in ((source(watch), HOST_PORT), (transit(), UP_PORT), (sink(), UP_PORT)):
        quiet = replace(role, reports=False, extra=marker.items)
        sent = pass_through(target, quiet, port, *on_the_way, expect=len(originals))
        on_the_way = [frame for _, frame in sent]
    expected = [routed(frame, NEXT_HOP_MAC, SWITCH_MAC, 3) for frame in originals]
    assert [frame.hex() for frame in on_the_way] == [frame.hex() for frame in expected]


def test_what_no_router_finds_ip_in_is_dropped_by_name(target: Target) -> None:
    rng = random.Random(1)
    tagged = [Envelope(tags=tags) for tags in TWO_TAGS]
    others = [Envelope(shim=make(rng)) for make in inside.BEFORE_IP]
    frames = [frame_to(0xB0, SRC, DST, envelope, bytes(60)) for envelope in (*tagged, *others)]
    role = replace(source(Watch()), reports=False)
    assert pass_through(target, role, HOST_PORT, *frames, expect=0) == []
    assert target.count("drop_unknown_ethertype") == len(frames)
