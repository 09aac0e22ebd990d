"""Several workers change one register: no read-modify-write is torn or lost, in one action or over several nodes."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from dataplane.program.objects import CounterSpec, RegisterSpec
from dataplane.program.operations import (
    Assign,
    Binary,
    BinaryOp,
    Constant,
    Count,
    FieldRef,
    Primitive,
    RegisterRead,
    RegisterWrite,
)
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import QueuedBench, own_program
from tests.dataplane.switch.compiler.synthetic import program_with

EXCHANGE, CELLS = 5, "Inbound.cells"  # in stateful.p4
ROUNDS, BURST = 60, 40
PORTS = tuple(PortSettings(number, queue_frames=1 << 14) for number in (1, 2))
SUM = FieldRef("own", "u13")
READ = RegisterRead(SUM, "r", Constant(1))
ADD = Assign(SUM, Binary(BinaryOp.ADD, SUM, Constant(1)))
WRITE = RegisterWrite("r", Constant(1), SUM)
ONWARDS = Assign(FieldRef("standard_metadata", "egress_spec"), Constant(2))
COUNT = Count("c", Constant(0))


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_an_exchange_of_a_wide_cell_is_exact(threads: int) -> None:
    """Each packet stores its 96-bit number and takes the previous one: all occur once, none is torn."""
    numbers = itertools.count(1)
    given: Counter[bytes] = Counter({bytes(12): 1})
    taken: Counter[bytes] = Counter()
    with QueuedBench(PORTS, threads) as bench:
        state = bench.switch.commit(own_program("stateful"))
        for _ in range(ROUNDS):
            for queue in range(threads):
                wide = [number.to_bytes(4, "big") * 3 for number in itertools.islice(numbers, BURST)]
                given.update(wide)
                bench.send(1, queue, [bytes([EXCHANGE, 1, 0, 0]) + value for value in wide])
            bench.settle()
            taken.update(frame[4:16] for frame in bench.receive()[1])
        bench.assert_accounted()
        taken[state.registers[CELLS][1].to_bytes(12, "big")] += 1
    assert given == taken


@pytest.mark.parametrize("actions", [[[READ, ADD, WRITE]], [[READ], [ADD], [WRITE]]], ids=["one action", "three nodes"])
@pytest.mark.parametrize("threads", [2, 4])
def test_a_register_counts_every_packet(threads: int, actions: list[list[Primitive]]) -> None:
    objects: dict[str, Any] = {"registers": {"r": RegisterSpec("r", 2, 64)}, "counters": {"c": CounterSpec("c", 1)}}
    digest = f"test_threads_registers {len(actions)}".encode().hex()
    program = program_with([[ONWARDS], *actions, [COUNT]], **objects, digest=digest)
    with QueuedBench(PORTS, threads) as bench:
        state = bench.switch.commit(program)
        for _ in range(ROUNDS):
            for queue in range(threads):
                bench.send(1, queue, [bytes(200)] * BURST)
            bench.receive()
        bench.settle()
        bench.assert_accounted()
    packets = ROUNDS * BURST * threads
    assert state.counters["c"].read(0) == (packets, 200 * packets)
    assert state.registers["r"][1] == packets
