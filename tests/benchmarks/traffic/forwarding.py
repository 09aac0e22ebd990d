"""Forwarding of the switches under test: tests/dataplane/programs/forwarding.p4, its routes, and frames for them."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

from finsy.proto import p4r

from dataplane.wire.packet import udp_frame
from tests.benchmarks.traffic.cables import OUT_PORT
from tests.p4runtime_client import Client, Names, insert, lpm, pipeline_config

PROGRAMS = Path(__file__).parents[2] / "dataplane" / "programs"
PROGRAM, P4INFO = PROGRAMS / "forwarding.json", PROGRAMS / "forwarding.p4info.txtpb"
ROUTES = 100
"""/24 prefixes; the program has room for 128."""
FLOWS = 1_000
FRAME_BYTES = 128
STAMP_OFFSET = 14 + 20 + 8
_MEMBERS = 4


def install(client: Client) -> None:
    """Commit the program and write its routes, all through one group of four members that send to the same port."""
    config = pipeline_config(PROGRAM, P4INFO)
    client.commit_config(config)
    names = Names(config.p4info)
    profile = names.profile_id("Inbound.ecmp")
    members = [
        p4r.ActionProfileMember(
            action_profile_id=profile, member_id=number, action=names.action("Inbound.forward", OUT_PORT)
        )
        for number in range(1, _MEMBERS + 1)
    ]
    client.write([insert(p4r.Entity(action_profile_member=member)) for member in members])
    group = p4r.ActionProfileGroup(action_profile_id=profile, group_id=1, max_size=16)
    for member in members:
        group.members.add(member_id=member.member_id, weight=1)
    client.write([insert(p4r.Entity(action_profile_group=group))])
    action = p4r.TableAction(action_profile_group_id=1)
    client.write(
        [insert(names.table_entry("Inbound.routes", [lpm(1, network(number), 24)], action)) for number in range(ROUTES)]
    )


def network(number: int) -> int:
    """Return the network of a route."""
    return int(IPv4Address("10.1.0.0")) + (number << 8)


def make_frames() -> list[bytes]:
    """Return UDP frames of as many flows, each to one of the routes."""
    return [
        udp_frame(
            src_mac=0x02_00_00_00_01_00,
            dst_mac=0x02_00_00_00_02_00,
            src=IPv4Address("10.0.0.1") + number % 50,
            dst=IPv4Address(network(number % ROUTES) + 1 + number // ROUTES),
            src_port=1_000 + number,
            dst_port=2_000,
            payload=bytes(FRAME_BYTES - STAMP_OFFSET),
        )
        for number in range(FLOWS)
    ]
