"""A program, its state and the interpreter, with a queue between ingress and egress that is always empty."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, Frame, Placement
from dataplane.switch.tables import ForwardingState, TableEntry

PROGRAMS = Path(__file__).parents[2] / "programs"
FABRIC = Path(__file__).parents[4] / "p4" / "build" / "fabric.json"

Sent = list[tuple[int, bytes]]

MAX_PASSAGES = 200


def own_program(name: str) -> Program:
    return load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


class Bench:
    """Sends packets through one interpreted program."""

    def __init__(self, program: Program, *, seed: int = 1) -> None:
        self.state = ForwardingState(program)
        self.pipeline = InterpretedPipeline(program, self.state, rng=random.Random(seed))
        self.now_us = 1_000
        self.placed: list[Placement] = []

    def insert(self, table: str, match: tuple[Any, ...], call: ActionCall, priority: int = 0) -> None:
        self.state.tables[table].insert(TableEntry(match, priority, call=call))

    def send(self, port: int, data: bytes, *, depth: int = 0, waited_us: int = 0) -> Sent:
        """Return what leaves, in order; every packet finds `depth` frames waiting and waits `waited_us`."""
        self.now_us += 100
        waiting = self.pipeline.ingress([Frame(port, data)], self.now_us)
        self.placed = []
        sent: Sent = []
        while waiting:
            placement = waiting.pop(0)
            self.placed.append(placement)
            assert len(self.placed) < MAX_PASSAGES, "goes round for ever"
            result = self.pipeline.egress([self._dequeue(placement, depth, waited_us)], self.now_us + waited_us)
            sent += [(output.port, output.data) for output in result.outputs]
            waiting += result.placements
        return sent

    def send_one(self, port: int, data: bytes) -> bytes:
        """Return the one packet that leaves."""
        sent = self.send(port, data)
        assert len(sent) == 1, sent
        return sent[0][1]

    def _dequeue(self, placement: Placement, depth: int, waited_us: int) -> Dequeued:
        return Dequeued(
            placement.packet,
            placement.port,
            placement.priority,
            enq_timestamp_us=self.now_us,
            enq_qdepth=depth,
            deq_timedelta_us=waited_us,
            deq_qdepth=depth,
        )
