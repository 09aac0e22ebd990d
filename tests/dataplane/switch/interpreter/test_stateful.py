"""Meters, digests, registers of any width, idle entries and counters next to a profile: stateful.p4."""

from __future__ import annotations

import struct

import pytest

from dataplane.program.objects import ActionCall
from dataplane.switch.tables import MeterConfig, TableEntry
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench

PACKETS, BYTES, DIGEST, TWO_DIGESTS, EXCHANGE, SUBTRACT = range(1, 7)
GREEN, YELLOW, RED, NEVER = 0, 1, 2, 0xFF
POLICED, MARKED, SHARED = "Inbound.policed", "Inbound.marked", "Inbound.shared"
TAIL = bytes(4)
FRAME_BYTES = 16 + len(TAIL)


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench("stateful")


def order(what: int, index: int, wide: int = 0) -> bytes:
    return bytes([what, index, 0, 0]) + wide.to_bytes(12, "big") + TAIL


def colours(data: bytes) -> tuple[int, int]:
    """Return the colour of the indirect and of the direct meter."""
    return data[2], data[3]


def wide(data: bytes) -> int:
    return int.from_bytes(data[4:16], "big")


def test_meter_that_nobody_has_set_is_green(bench: Bench) -> None:
    assert [colours(bench.send_one(1, order(PACKETS, 2))) for _ in range(5)] == [(GREEN, NEVER)] * 5


def test_meter_of_packets(bench: Bench) -> None:
    """Two packets fit the committed burst, two more the peak one; a millisecond brings one of each back."""
    bench.state.meters["Inbound.by_packets"].write(3, MeterConfig(1_000, 2, 1_000, 4))
    seen = [colours(bench.send_one(1, order(PACKETS, 3)))[0] for _ in range(6)]
    assert seen == [GREEN, GREEN, YELLOW, YELLOW, RED, RED]
    bench.now_us += 1_000
    assert colours(bench.send_one(1, order(PACKETS, 3)))[0] == GREEN
    assert colours(bench.send_one(1, order(PACKETS, 2)))[0] == GREEN, "each cell is a meter of its own"


def test_meter_of_bytes_charges_the_length_on_arrival(bench: Bench) -> None:
    bench.state.meters["Inbound.by_bytes"].write(0, MeterConfig(1, FRAME_BYTES, 1, 2 * FRAME_BYTES))
    assert [colours(bench.send_one(1, order(BYTES, 0)))[0] for _ in range(3)] == [GREEN, YELLOW, RED]


@pytest.mark.parametrize("what", [PACKETS, BYTES])
def test_meter_index_out_of_range_leaves_the_field_alone(bench: Bench, what: int) -> None:
    assert colours(bench.send_one(1, order(what, 4)))[0] == NEVER


def test_direct_meter_is_asked_on_a_hit_only(bench: Bench) -> None:
    bench.insert(POLICED, (7,), ActionCall("Inbound.police"))
    bench.state.tables[POLICED].write_meter((7,), 0, MeterConfig(1, FRAME_BYTES, 1, 2 * FRAME_BYTES))
    assert [colours(bench.send_one(1, order(0, 7)))[1] for _ in range(3)] == [GREEN, YELLOW, RED]
    assert colours(bench.send_one(1, order(0, 8)))[1] == NEVER


def test_hits_keep_an_idle_entry_alive(bench: Bench) -> None:
    bench.state.tables[POLICED].insert(TableEntry((7,), call=ActionCall("NoAction"), idle_timeout_ns=1_000_000))
    bench.send(1, order(0, 8))
    entry = bench.state.tables[POLICED].get((7,))
    assert entry is not None
    assert entry.last_hit_us < bench.now_us
    bench.send(1, order(0, 7))
    assert entry.last_hit_us == bench.now_us


def test_direct_counter_of_a_table_with_a_profile(bench: Bench) -> None:
    bench.state.profiles[SHARED].insert_member(1, ActionCall("Inbound.mark", (0x55,)))
    bench.state.tables[MARKED].insert(TableEntry(((7, 0xFF),), 1, member=1))
    bench.state.tables[MARKED].insert(TableEntry(((0, 0),), 2, member=1))
    assert bench.send_one(1, order(0, 7))[0] == 0x55
    counted = [entry.packets for entry in bench.state.tables[MARKED]]
    assert counted == [0, 1]


def test_digest_has_the_values_at_the_end_of_ingress(bench: Bench) -> None:
    number = 0x0123456789ABCDEF01234567
    bench.send(300, order(DIGEST, 9, number))
    assert bench.digests() == [("seen_t", (9, 300, number))]
    assert bench.digests() == []


def test_last_digest_of_a_packet_counts_even_if_it_is_dropped(bench: Bench) -> None:
    assert bench.send(2, order(TWO_DIGESTS, 5, 1)) == []
    assert bench.digests() == [("seen_t", (5, 2, 1))]


def test_full_queue_of_digests_counts_the_newest(bench: Bench) -> None:
    for index in range(1_030):
        bench.send(1, order(DIGEST, index % 256, index))
    kept = list(bench.digests())
    assert [values[2] for _, values in kept] == list(range(1_024))
    assert bench.pipeline.drops == {"digest_queue_full": 6}


def test_register_wider_than_a_word(bench: Bench) -> None:
    first, second = (1 << 96) - 1, 0x1_00000000_00000000
    assert wide(bench.send_one(1, order(EXCHANGE, 2, first))) == 0
    assert wide(bench.send_one(1, order(EXCHANGE, 2, second))) == first
    assert wide(bench.send_one(1, order(EXCHANGE, 9, second))) == 0, "out of range: nothing is read, nothing written"
    assert list(bench.state.registers["Inbound.cells"]) == [0, 0, second, 0]


def test_register_of_signed_numbers(bench: Bench) -> None:
    sums = [struct.unpack("!h", bench.send_one(1, order(SUBTRACT, 1))[14:16])[0] for _ in range(3)]
    assert sums == [-30_000, -32_768, -32_768]
