"""Packets a second against table size and pipeline length, memory to memory, with programs/sweep.p4."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

from finsy.proto import p4r
from rich.table import Table

from dataplane.program.loader import load_program
from dataplane.program.objects import ActionCall
from dataplane.switch.tables import ForwardingState, TableEntry
from tests.benchmarks.traffic.memory import CompiledMemory
from tests.p4runtime_client import Client, Names, exact, insert, lpm, pipeline_config, ternary

PROGRAM = Path(__file__).parents[1] / "programs" / "sweep.json"
P4INFO = PROGRAM.with_suffix(".p4info.txtpb")
EXACT, TERNARY, PREFIX = 1, 2, 3
STAGES = (0, 1, 2, 4, 8, 16)
SIZES = {EXACT: (1_000, 100_000, 1_000_000), TERNARY: (1_000, 10_000, 100_000), PREFIX: (1_000, 100_000, 1_000_000)}
QUICK_SIZE = 10_000
MASKS = 16
"""Different masks of the ternary table: every eighth bit of either field."""
_FRAMES = 1 << 14
_SPREAD = 2_654_435_761
_TABLES = {EXACT: "Inbound.exact_table", TERNARY: "Inbound.ternary_table", PREFIX: "Inbound.prefix_table"}
_FORWARD = ActionCall("Inbound.forward", (2,))


def tables(*, quick: bool) -> Iterator[Table]:
    """Measure, and yield a table for each question."""
    program = load_program(PROGRAM, P4INFO)
    compiled = CompiledMemory(program)
    lengths = Table("tables in a row", "Mpps")
    for stages in STAGES:
        state = ForwardingState(program)
        for stage in range(stages):
            for key in range(1_024):
                call = ActionCall(f"Inbound.change_{stage}", (1,))
                state.tables[f"Inbound.stage_{stage}"].insert(TableEntry((key,), call=call))
        lengths.add_row(str(stages), _mpps(compiled, state, [_frame(0, stages, key, 0) for key in range(1_024)]))
    yield lengths
    for lookup, name in ((EXACT, "exact"), (PREFIX, "lpm"), (TERNARY, f"ternary, {MASKS} masks")):
        sizes = Table(f"entries, {name}", "Mpps")
        for size in SIZES[lookup]:
            if not quick or size <= QUICK_SIZE:
                sizes.add_row(f"{size:,}", _mpps(compiled, *_filled(ForwardingState(program), lookup, size)))
        yield sizes


def commit(client: Client) -> None:
    """Send the program to a switch."""
    client.commit(PROGRAM, P4INFO)


def batches(count: int, batch: int, lookup: int = EXACT) -> Iterator[list[p4r.Update]]:
    """Yield batches of updates that insert `count` different entries into the table of a kind of lookup."""
    names = Names(pipeline_config(PROGRAM, P4INFO).p4info)
    action = p4r.TableAction(action=names.action("Inbound.forward", 2))
    for first in range(0, count, batch):
        numbers = range(first, min(count, first + batch))
        yield [insert(names.table_entry(_TABLES[lookup], *_entry(number, lookup, action))) for number in numbers]


def table_id(lookup: int) -> int:
    """Return the id of the table of a kind of lookup."""
    return Names(pipeline_config(PROGRAM, P4INFO).p4info).table_entry(_TABLES[lookup], [], None).table_entry.table_id


def _entry(number: int, lookup: int, action: p4r.TableAction) -> tuple[list[p4r.FieldMatch], p4r.TableAction, int]:
    """Return match, action and priority of an entry."""
    if lookup == EXACT:
        return [exact(1, _key(number))], action, 0
    if lookup == PREFIX:
        return [lpm(1, number << 8 & 0xFFFF_FFFF, 24)], action, 0
    mask = _mask(number)
    return [ternary(1, _key(number) & mask, mask), ternary(2, number, 0xFFFF_FFFF)], action, 1 + number % 1_000


def _filled(state: ForwardingState, lookup: int, size: int) -> tuple[ForwardingState, list[bytes]]:
    """Return a state with `size` entries in a table, and frames whose keys hit them in no order."""
    rng = random.Random(size)
    chosen = [rng.randrange(size) for _ in range(_FRAMES)]
    for number in range(size):
        if lookup == EXACT:
            state.tables["Inbound.exact_table"].insert(TableEntry((_key(number),), call=_FORWARD))
        elif lookup == PREFIX:
            value = _key(number) & 0xFFFF_FF00
            entry = TableEntry(((value, 24),), call=_FORWARD)
            if state.tables["Inbound.prefix_table"].get(entry.match) is None:
                state.tables["Inbound.prefix_table"].insert(entry)
        else:
            mask, value = _mask(number), _key(number)
            match = ((value & mask, mask), (number, 0xFFFF_FFFF))
            state.tables["Inbound.ternary_table"].insert(TableEntry(match, 1 + number % 1_000, call=_FORWARD))
    return state, [_frame(lookup, 0, _key(number), number) for number in chosen]


def _mask(number: int) -> int:
    return 0xFFFF_FFFF ^ (1 << number % MASKS)


def _key(number: int) -> int:
    return number * _SPREAD % (1 << 32)


def _frame(lookup: int, stages: int, key: int, other: int) -> bytes:
    return struct.pack(">BBHII", lookup, stages, 0, key, other) + bytes(116)


def _mpps(compiled: CompiledMemory, state: ForwardingState, frames: list[bytes]) -> str:
    rate = compiled.measure(state, frames)
    assert rate.sent_share == 1.0, f"only {rate.sent_share:.3f} of the frames came out"
    return f"{rate.pps / 1e6:.2f}"
