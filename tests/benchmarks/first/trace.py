"""Packets explained per second: the forwarding program, its routes and frames, one thread.

`trace_pps` includes the text for people. The table breaks it down: the interpreter alone, with its steps as values,
with their text, with their JSON.

    .venv/bin/python -m tests.benchmarks.first.trace [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from statistics import median

from rich.console import Console
from rich.table import Table

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState, TableEntry
from dataplane.switch.tracing.explainer import Explainer
from dataplane.switch.tracing.showing.show import trace_json
from dataplane.switch.tracing.showing.text import trace_text
from tests.benchmarks.traffic import forwarding

ROUNDS, FRAMES = 5, 2_000
QUICK_ROUNDS, QUICK_FRAMES = 1, 200

Handle = Callable[[Frame], object]


def state_of(program: Program) -> ForwardingState:
    """Return the program's state with its routes, all by one member."""
    state = ForwardingState(program)
    state.profiles["Inbound.ecmp"].insert_member(1, ActionCall("Inbound.forward", (2,)))
    for number in range(forwarding.ROUTES):
        state.tables["Inbound.routes"].insert(TableEntry(((forwarding.network(number), 24),), member=1))
    return state


def handlers(program: Program) -> dict[str, Handle]:
    """Return the ways to handle a frame, by name, each over its own state."""
    plain = InterpretedPipeline(program, state_of(program), rng=SplitMix(1))
    explainer = Explainer(program, state_of(program))

    def forward(frame: Frame) -> object:
        (placed,) = plain.ingress([frame], 0)
        return plain.egress([Dequeued(placed.packet, placed.port, placed.priority, 0, 0, 0, 0)], 0)

    return {
        "interpreted": forward,
        "explained": lambda frame: explainer.explain(frame, 0),
        "explained as text": lambda frame: trace_text(explainer.explain(frame, 0)),
        "explained as JSON": lambda frame: trace_json(explainer.explain(frame, 0)),
    }


def frames_per_second(handle: Handle, frames: list[Frame]) -> float:
    """Return how many frames a second are handled; CPU time, as the machine may have other work."""
    began_s = time.process_time()
    for frame in frames:
        handle(frame)
    return len(frames) / (time.process_time() - began_s)


def measure(*, quick: bool) -> dict[str, float | None]:
    """Return `trace_pps`, the median over rounds in which all take their turns, and print the table."""
    program = load_program(forwarding.PROGRAM, forwarding.P4INFO)
    rounds, count = (QUICK_ROUNDS, QUICK_FRAMES) if quick else (ROUNDS, FRAMES)
    frames = [Frame(1, data) for data in islice(cycle(forwarding.make_frames()), count)]
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, handle in handlers(program).items():
            rates.setdefault(name, []).append(frames_per_second(handle, frames))
    table = Table(f"{rounds} rounds of {count} frames", "packets a second")
    for name, figures in rates.items():
        table.add_row(name, f"{median(figures):,.0f}")
    Console().print(table)
    return {"trace_pps": median(rates["explained as text"])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of few frames")
    sys.stdout.write(f"{json.dumps(measure(quick=parser.parse_args().quick))}\n")
