"""A program, its state and a pipeline, with a queue between ingress and egress that is always empty.

Every test here takes its pipeline from `make_pipeline`, so that each way of executing a program passes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, Frame, Pipeline, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState, TableEntry

PROGRAMS = Path(__file__).parents[2] / "programs"
FABRIC = Path(__file__).parents[4] / "p4" / "build" / "fabric.json"

Sent = list[tuple[int, bytes]]
MakePipeline = Callable[[Program, ForwardingState, SplitMix], Pipeline]

MAX_PASSAGES = 200


def _interpreted(program: Program, state: ForwardingState, rng: SplitMix) -> Pipeline:
    return InterpretedPipeline(program, state, rng=rng)


PIPELINES: dict[str, MakePipeline] = {"interpreter": _interpreted, "compiled": compiled_pipeline}
"""Pipelines that the tests of this folder run on, by name."""


class MakeBench(Protocol):
    """Makes a bench around a program."""

    def __call__(self, program: Program | str, *, seed: int = 1) -> Bench:
        """Return a bench; a string names one of our own programs."""
        ...


def own_program(name: str) -> Program:
    return load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


class Bench:
    """Sends packets through one program."""

    def __init__(self, program: Program, make_pipeline: MakePipeline, *, seed: int = 1) -> None:
        self.program = program
        self.state = ForwardingState(program)
        self.pipeline = make_pipeline(program, self.state, SplitMix(seed))
        self.now_us = 1_000
        self.placed: list[Placement] = []

    def insert(self, table: str, match: tuple[Any, ...], call: ActionCall, priority: int = 0) -> None:
        self.state.tables[table].insert(TableEntry(match, priority, call=call))

    def send(self, port: int, data: bytes, *, depth: int = 0, waited_us: int = 0) -> Sent:
        """Return the output in order; every packet finds `depth` frames waiting and waits `waited_us`."""
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

    def digests(self) -> Iterable[tuple[str, tuple[int, ...]]]:
        """Return the digests since the last call, as (name, values)."""
        return [(message.digest, message.values) for message in self.pipeline.take_digests()]

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
