"""Runs programs over guarded memory, which kills the process at a byte too many: python -m ... NOTE EXAMPLES NAME...

Prints how many frames each of them deparsed, as proof that it got anywhere.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from dataplane.program.model import Digest, Program
from dataplane.program.objects import CounterSpec, DigestSpec, MeterSpec, MeterUnit, RegisterSpec
from dataplane.program.operations import Check, FieldRef, SizedConstant
from dataplane.switch.pipeline import Frame
from dataplane.switch.tables import ForwardingState
from tests.dataplane.switch.compiled.guarded_memory import Note
from tests.dataplane.switch.compiled.guarded_packets import Bursts, Steps, compile_for_guards, few_blocks
from tests.dataplane.switch.compiler.random_programs import Drawer
from tests.dataplane.switch.compiler.synthetic import chain, program_with
from tests.dataplane.switch.scenario_events import Arrival, Event, refused
from tests.dataplane.switch.scenarios import PORTS, PROGRAMS, load, scenarios, templates

LENGTHS, SHORT_LENGTHS = range(201), range(101)
"""Frame lengths: for most programs, and for those with short headers."""
SHORT = PROGRAMS.keys() - {"fabric", "fabric_aggregation"}
OBJECTS: dict[str, Any] = {
    "counters": {"c": CounterSpec("c", 5)},
    "registers": {"r": RegisterSpec("r", 3, 32), "odd": RegisterSpec("odd", 4, 77)},
    "meters": {"m": MeterSpec("m", 2, MeterUnit.BYTES)},
    "digests": {
        "d": Digest(
            DigestSpec("d", (("a", 8), ("b", 128), ("c", 9))),
            (FieldRef("wide", "u3"), FieldRef("wide", "u16"), SizedConstant(300, 9)),
        )
    },
    "field_lists": {0: (), 7: (FieldRef("own", "u16"), FieldRef("wide", "u3"), FieldRef("own", "s1"))},
}
OPTIMISED_FROM = 10
"""Examples. Code that is not optimised compiles in a tenth of the time, and makes accesses that others leave out."""
LIE = "lie"
"""Instead of a number of examples: claim that frames are a byte longer than they are."""


def random_program(seed: int) -> Program:
    """Return a program with random actions over headers of many widths, a varbit in mid-byte, and a stack."""
    drawer = Drawer(seed)
    drawn = [drawer.primitive() for _ in range(40)]
    ingress = [[item] for item in drawn if not isinstance(item, Check)][:8]
    return program_with(ingress, **OBJECTS, egress=chain("egress", [drawer.action(jumps=False)[:1]]))


def frames_of_every_length(name: str, rng: random.Random, most: int = 1) -> list[bytes]:
    """Return for each length random bytes, `most` of the program's frames cut or filled up, and the same mangled."""
    own = templates(name) if name in PROGRAMS else ()
    frames: list[bytes] = []
    for length in SHORT_LENGTHS if name in SHORT else LENGTHS:
        frames.append(rng.randbytes(length))
        for template in rng.sample(own, min(most, len(own))):
            frame = bytearray((template + rng.randbytes(length))[:length])
            frames.append(bytes(frame))
            for _ in range(min(3, length)):
                frame[rng.randrange(min(length, 20))] = rng.choice((0, 1, 2, 3, 0x45, 0x4F, 0x7F, 0xFF))
            frames.append(bytes(frame))
    return frames


def run_lengths(name: str, program: Program, steps: Steps, bursts: Bursts, examples: int) -> None:
    """Send frames of every length through a program without entries."""
    rng = random.Random(name)
    state = ForwardingState(program)
    steps.use(state)
    frames = frames_of_every_length(name, rng, examples)
    for number, frame in enumerate(frames):
        steps.send(rng.choice(PORTS), frame, all_capacities=number % 16 == 0)
    bursts.send(state, [Frame(rng.choice(PORTS), frame) for frame in frames])


def run_scenarios(name: str, program: Program, steps: Steps, bursts: Bursts, examples: int) -> None:
    """Send frames, valid and mangled, through a program with tables that reach all its parts."""

    def play(events: Sequence[Event]) -> None:
        state = ForwardingState(program)
        for event in events:
            if hasattr(event, "apply"):
                refused(event, state)  # type: ignore[arg-type]
        arrivals = [Frame(event.port, event.data) for event in events if isinstance(event, Arrival)]
        steps.use(state)
        for frame in arrivals:
            steps.send(frame.port, frame.data)
        bursts.send(state, arrivals)

    unhindered = list(HealthCheck)
    limits = settings(
        max_examples=examples, database=None, derandomize=True, deadline=None, suppress_health_check=unhindered
    )
    limits(given(scenarios(name))(play))()


def main(note_path: str, examples: str, *names: str) -> None:
    """Run programs of `PROGRAMS`, or random ones by their seeds."""
    few_blocks()
    note = Note(Path(note_path))
    for name in names:
        program = load(name) if name in PROGRAMS else replace(random_program(int(name)), name=name)
        print(run(name, program, note, examples), flush=True)


def run(name: str, program: Program, note: Note, examples: str) -> int:
    """Run a program; return how many frames it deparsed."""
    compiled = compile_for_guards(program, optimise=examples != LIE and int(examples) >= OPTIMISED_FROM)
    steps, bursts = Steps(compiled, note, 1), Bursts(compiled, note)
    if examples == LIE:
        steps.use(ForwardingState(program))
        for frame in frames_of_every_length(name, random.Random(1)):
            steps.send(1, frame, length=len(frame) + 1)
    else:
        run_lengths(name, program, steps, bursts, int(examples))
        if name in PROGRAMS:
            run_scenarios(name, program, steps, bursts, int(examples))
    return steps.deparsed


if __name__ == "__main__":
    main(*sys.argv[1:])
