"""Tables, selectors, counters, registers and checksums: forwarding.p4."""

from __future__ import annotations

import struct

import pytest

from dataplane.program.calculations import CRCS
from dataplane.program.objects import ActionCall
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.interpreter.hashes import crc, csum16
from dataplane.switch.tables import Group, GroupMember, TableEntry
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench

ROUTES, ECMP, REASONS = "Inbound.routes", "Inbound.ecmp", "Inbound.reasons"
UDP, TCP = 17, 6

# Ethernet; IPv4 10.0.0.1 -> 10.1.2.3, UDP, TTL 64, right checksum; 4 bytes of payload
GOLDEN = bytes.fromhex(
    "0200000000020200000000010800" + "45000018000100004011" + "64d0" + "0a0000010a010203" + "deadbeef"
)


def ipv4(src: int = 0x0A000001, dst: int = 0x0A010203, protocol: int = UDP, ttl: int = 64) -> bytes:
    header = struct.pack("!BBHHHBBHII", 0x45, 0, 24, 1, 0, ttl, protocol, 0, src, dst)
    checksum = csum16(header).to_bytes(2, "big")
    return GOLDEN[:14] + header[:10] + checksum + header[12:] + b"\xde\xad\xbe\xef"


def forward(port: int) -> ActionCall:
    return ActionCall("Inbound.forward", (port,))


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """Return a switch that routes 10.1/16 to member 1 (port 2) and 10.1.2/24 to a group of ports 2, 3 and 4."""
    bench = make_bench("forwarding")
    profile, routes = bench.state.profiles[ECMP], bench.state.tables[ROUTES]
    for port in (2, 3, 4):
        profile.insert_member(port, forward(port))
    profile.insert_group(Group(7, tuple(GroupMember(member) for member in (4, 2, 3)), 8))
    routes.insert(TableEntry(((0x0A010000, 16),), member=2))
    routes.insert(TableEntry(((0x0A010200, 24),), group=7))
    return bench


def reasons(bench: Bench) -> list[int]:
    return list(bench.state.counters[REASONS].packets)


def test_forwarded_packet_is_right_to_the_byte(bench: Bench) -> None:
    assert ipv4() == GOLDEN
    [(port, data)] = bench.send(9, GOLDEN)
    header = bytes.fromhex("45000018000100003f11" + "65d0" + "0a0000010a010203")
    assert data.hex() == (GOLDEN[:6] + port.to_bytes(6, "big") + b"\x08\x00" + header + b"\xde\xad\xbe\xef").hex()
    assert bench.pipeline.drops == {}


@pytest.mark.parametrize("src", range(0x0A000001, 0x0A000011))
def test_selector_picks_by_crc16_of_its_input_over_members_by_id(bench: Bench, src: int) -> None:
    [(port, _)] = bench.send(1, ipv4(src=src))
    assert port == [2, 3, 4][crc(CRCS["crc16"])(src.to_bytes(4, "big") + bytes([UDP])) % 3]


def test_longest_prefix_and_member(bench: Bench) -> None:
    assert bench.send(1, ipv4(dst=0x0A01FF01))[0][0] == 2


def test_miss_runs_the_default_action_and_the_miss_branch(bench: Bench) -> None:
    assert bench.send(1, ipv4(dst=0x0B000001)) == []
    assert reasons(bench) == [1, 0, 0, 0]
    assert bench.pipeline.drops == {"ingress_drop": 1}


def test_empty_group_is_a_miss(bench: Bench) -> None:
    bench.state.profiles[ECMP].modify_group(Group(7, (), 8))
    assert bench.send(1, GOLDEN) == []
    assert reasons(bench)[0] == 1


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (ipv4(protocol=TCP), 1),
        (GOLDEN[:12] + b"\x86\xdd" + GOLDEN[14:], 2),
        (GOLDEN[:-5] + b"\x04" + GOLDEN[-4:], 3),
    ],
    ids=["entry with wildcard", "invalid header", "wrong checksum"],
)
def test_constant_entries_and_checksums_drop_by_name(bench: Bench, frame: bytes, reason: int) -> None:
    assert bench.send(1, frame) == []
    assert reasons(bench) == [int(index == reason) for index in range(4)]
    assert bench.state.counters[REASONS].bytes[reason] == len(frame)


def test_first_constant_entry_wins(bench: Bench) -> None:
    assert len(bench.send(1, ipv4(protocol=UDP))) == 1
    assert reasons(bench) == [0, 0, 0, 0]


def test_direct_counter_counts_hits_only(bench: Bench) -> None:
    for destination in (0x0A01FF01, 0x0A01FF02, 0x0B000001):
        bench.send(1, ipv4(dst=destination))
    entry = bench.state.tables[ROUTES].get(((0x0A010000, 16),))
    assert entry is not None
    assert (entry.packets, entry.bytes) == (2, 2 * len(GOLDEN))


def test_register_counts_by_port_and_ignores_ports_beyond_it(bench: Bench) -> None:
    for port in (1, 1, 7, 8, 300):
        bench.send(port, GOLDEN)
    assert bench.state.registers["Inbound.packets_from"] == [0, 2, 0, 0, 0, 0, 0, 1]


def test_register_is_cut_to_its_width(bench: Bench) -> None:
    bench.state.registers["Inbound.packets_from"][1] = 0xFFFF
    bench.send(1, GOLDEN)
    assert bench.state.registers["Inbound.packets_from"][1] == 0


def test_exit_skips_the_rest(bench: Bench) -> None:
    bench.send(1, GOLDEN[:-5] + b"\x04" + GOLDEN[-4:])
    assert bench.state.registers["Inbound.packets_from"] == [0] * 8


def test_new_entry_takes_effect_with_the_next_packet(bench: Bench) -> None:
    bench.state.profiles[ECMP].modify_member(2, forward(6))
    assert bench.send(1, ipv4(dst=0x0A01FF01))[0][0] == 6


@pytest.mark.parametrize("length", range(len(GOLDEN)))
def test_every_truncation_is_dropped_or_passed_but_never_raises(bench: Bench, length: int) -> None:
    sent = bench.send(1, GOLDEN[:length])
    assert bool(sent) is (length >= 34)
    assert bench.pipeline.parser_errors == ({} if length >= 34 else {"PacketTooShort": 1})
    assert sum(bench.pipeline.drops.values()) + len(sent) == 1


def test_profile_may_hold_an_action_that_only_another_table_has(bench: Bench) -> None:
    if not isinstance(bench.pipeline, InterpretedPipeline):
        pytest.skip("only the interpreter sees what is written past the profile's own methods")
    bench.state.profiles[ECMP].members[2] = ActionCall("Inbound.allow")
    assert bench.send(1, ipv4(dst=0x0A01FF01)) == []
    assert bench.pipeline.drops == {"action_not_in_table": 1}
