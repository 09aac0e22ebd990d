"""Routing: longest prefix, ECMP over the 5-tuple, explicit paths that override it; and the controller's own frames."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.p4.entries import (
    CPU_PORT,
    DOWN_PORT,
    HOST_PORT,
    SWITCH_MAC,
    UP_PORT,
    DefaultAction,
    Entry,
    Item,
    Spread,
    Watch,
    mac,
    sink,
)
from tests.p4.frames import Shape, build, routed
from tests.p4.targets import Target, frame_on
from tests.p4.telemetry import IntHeaders, with_int

TO_2, TO_3, TO_4 = ((port, mac(port)) for port in (2, 3, 4))
DST = {4: 0x0A000909, 6: 0xFC00_0009 << 96 | 9}
SRC = {4: 0x0A000001, 6: 0xFC00 << 112 | 1}
FULL = {4: 32, 6: 128}


def ports_of(target: Target, items: list[Item], *frames: bytes) -> list[int]:
    target.reset()
    target.write(items)
    return [port for port, _ in target.send(HOST_PORT, *frames, expect=len(frames))]


def route(version: int, bits: int, *next_hops: tuple[int, int], group: int = 1) -> Spread:
    prefix = DST[version] >> (FULL[version] - bits) << (FULL[version] - bits) if bits else 0
    return Spread(f"ipv{version}_routes", f"ipv{version}_ecmp", {"dst_addr": (prefix, bits)}, group, next_hops)


def destination_path(version: int, bits: int, next_hop: tuple[int, int]) -> Entry:
    prefix = DST[version] >> (FULL[version] - bits) << (FULL[version] - bits)
    return Entry(f"ipv{version}_destination_paths", {"dst_addr": (prefix, bits)}, "forward", next_hop)


def flow_path(version: int, next_hop: tuple[int, int], priority: int, **match: tuple[int, int]) -> Entry:
    return Entry(f"ipv{version}_flow_paths", match, "forward", next_hop, priority)


@pytest.mark.parametrize("version", [4, 6])
def test_paths_override_routes_and_flows_override_destinations(target: Target, version: int) -> None:
    frame = build(Shape(version=version))
    items: list[Item] = [route(version, FULL[version] - 8, TO_2)]
    assert ports_of(target, items, frame) == [2]
    items.append(destination_path(version, 24, TO_3))
    assert ports_of(target, items, frame) == [3]
    items.append(flow_path(version, TO_4, 1, dst_port=(5000, 0xFFFF)))
    assert ports_of(target, items, frame) == [4]
    items.append(flow_path(version, TO_2, 2, src_addr=(SRC[version] & 1, 1), protocol=(17, 0xFF)))
    assert ports_of(target, items, frame) == [2]
    assert ports_of(target, items, build(Shape(version=version, l4="tcp"), dst_port=1)) == [3]


@pytest.mark.parametrize("version", [4, 6])
def test_the_longest_prefix_wins(target: Target, version: int) -> None:
    paths = [destination_path(version, bits, next_hop) for bits, next_hop in ((8, TO_2), (FULL[version], TO_4))]
    assert ports_of(target, [*paths], build(Shape(version=version))) == [4]


@pytest.mark.parametrize("shape", [Shape(), Shape(version=6), Shape(l4="tcp", vlan=True)], ids=str)
def test_routed_frame_changes_only_in_addresses_and_hops(target: Target, shape: Shape) -> None:
    target.reset()
    target.write(
        [
            route(shape.version, 8, TO_3),
            Entry("egress_ports", {"egress_port": 3}, "set_egress_port", (SWITCH_MAC, 0, 0, 0)),
        ]
    )
    sent = frame_on(target.send(UP_PORT, build(shape), expect=1), 3)
    assert sent.hex() == routed(build(shape), src_mac=SWITCH_MAC, dst_mac=mac(3)).hex()


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("l4", ["udp", "tcp"])
def test_ecmp_keeps_a_flow_together_and_spreads_flows(target: Target, version: int, l4: str) -> None:
    shape = Shape(version=version, l4=l4)
    flows = [build(shape, src_port=port) for port in range(1000, 1060)]
    items: list[Item] = [route(version, 8, TO_2, TO_3, TO_4)]
    target.reset()
    target.write(items)
    once = [target.send(HOST_PORT, flow, expect=1)[0][0] for flow in flows[:10]]
    again = [target.send(HOST_PORT, flow, expect=1)[0][0] for flow in flows[:10]]
    assert once == again
    shares = Counter(port for port, _ in target.send(HOST_PORT, *flows, expect=len(flows)))
    assert set(shares) == {2, 3, 4}
    assert min(shares.values()) >= 8, shares


@pytest.mark.parametrize("version", [4, 6])
def test_a_second_switch_spreads_what_a_first_one_sent_its_way(target: Target, version: int) -> None:
    """With a multiplier of its own: flows that chose alike at one switch choose differently at the next."""
    flows = [build(Shape(version=version), src_port=port) for port in range(1000, 1120)]
    ways = []
    for multiplier in (0x9E3779B1, 0x85EBCA6B):
        target.reset()
        hashing = DefaultAction("path_hash", "set_path_hash_multiplier", (multiplier,))
        target.write([route(version, 8, TO_2, TO_3), hashing])
        ways.append([port for flow in flows for port, _ in target.send(HOST_PORT, flow, expect=1)])
    pairs = Counter(zip(*ways, strict=True))
    assert len(pairs) == 4
    assert min(pairs.values()) >= 15, pairs


def test_telemetry_does_not_move_a_flow(target: Target) -> None:
    """ECMP must choose alike for the marked and the unmarked packets of a flow."""
    target.reset()
    target.write([route(4, 8, TO_2, TO_3, TO_4)])
    for port in range(1000, 1016):
        plain = build(src_port=port)
        marked = with_int(plain, IntHeaders(0x8000, 8, bytes(8)))
        ways = {target.send(UP_PORT, frame, expect=1)[0][0] for frame in (plain, marked)}
        assert len(ways) == 1


def test_a_group_without_members_is_no_route(target: Target) -> None:
    if target.name == "bmv2":
        pytest.skip("bmv2 takes no entry whose group is empty")
    target.reset()
    target.write([route(4, 8)])
    assert target.send(HOST_PORT, build(), expect=0) == []
    assert target.count("drop_no_route") == 1


@pytest.mark.parametrize("tag", [b"", b"\x81\x00\x00\x2a"], ids=["untagged", "vlan"])
def test_punted_frames_reach_the_controller_whole(target: Target, tag: bytes) -> None:
    lldp = bytes.fromhex("0180c200000e020000000001") + tag + b"\x88\xcc" + bytes(range(50))
    target.reset()
    target.write([Entry("punt", {"ether_type": 0x88CC}, "send_to_cpu")])
    sent = target.send(DOWN_PORT, lldp, expect=1)
    assert [(port, data.hex()) for port, data in sent] == [
        (CPU_PORT, ((DOWN_PORT << 7).to_bytes(2, "big") + lldp).hex())
    ]


@pytest.mark.parametrize(
    "frame",
    [build(), bytes(60), b"\x01" * 9, with_int(build(), IntHeaders())],
    ids=["udp", "zeros", "nine-bytes", "marked"],
)
def test_packet_out_leaves_as_it_is(target: Target, frame: bytes) -> None:
    if len(frame) < target.shortest_frame:
        pytest.skip(f"a frame of {len(frame)} bytes cannot leave {target.name}")
    role = replace(sink(), watch=Watch())
    target.reset()
    target.write(role.items())
    sent = target.packet_out((DOWN_PORT << 7).to_bytes(2, "big") + frame, expect=1)
    assert [(port, data.hex()) for port, data in sent] == [(DOWN_PORT, frame.hex())]


def test_node_id_can_be_changed_while_running(target: Target) -> None:
    marked = with_int(build(), IntHeaders(0x8000, 8))
    for node_id in (5, 6):
        target.reset()
        target.write([route(4, 8, TO_3), DefaultAction("node", "set_node", (node_id,))])
        assert frame_on(target.send(UP_PORT, marked, expect=1), 3)[58:62] == node_id.to_bytes(4, "big")
