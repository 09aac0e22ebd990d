"""A fabric in the kernel through every case, both programs, for equal shares of a time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from tests.payloads.cases import named_cases
from tests.payloads.kernel import PROGRAMS, kernel_bed
from tests.payloads.lines import DATAGRAM_BYTES, FRAGMENTED_BYTES, plain_lines
from tests.payloads.oracle import Verdict, headers_of
from tests.payloads.talk import KernelCounts, Talk
from tests.payloads.tunnels import add_tunnels
from tests.payloads.wire import frames_on

KERNEL_CASES: Final = tuple((program, *case) for program in PROGRAMS for case in named_cases())


@dataclass(frozen=True, slots=True)
class Round:
    """Outcome of a case's frames, and the sockets' results so far; `absent` are devices that do not exist.

    `refused` is what queues, ports and devices have dropped up to then.
    """

    name: str
    verdict: Verdict
    counts: KernelCounts
    absent: tuple[str, ...]
    refused: dict[str, int]


def kernel_rounds(seed: int, seconds: float, frames: int, rate: float) -> Iterator[Round]:
    """Yield a round for each case: frames, then talk at a rate until the case's share of the time is over."""
    with kernel_bed() as bed, ExitStack() as stack:
        tunnels, absent = add_tunnels(bed)
        talk, wire = Talk(bed, stack, (*plain_lines(), *tunnels)), stack.enter_context(frames_on(bed))
        began = time.monotonic()
        for number, (program, name, domain, watches) in enumerate(KERNEL_CASES, 1):
            if bed.program != program:
                bed.start(program)
            bed.configure(domain, watches)
            rng = random.Random(f"{seed}/{program}/{name}")
            verdict = wire.exchange(domain, rng, frames)
            until = began + seconds * number / len(KERNEL_CASES)
            longest = FRAGMENTED_BYTES if domain.mtu_bytes is None else DATAGRAM_BYTES
            talk.run(rng, headers_of(domain), max(0.5, until - time.monotonic()), rate, longest)
            yield Round(f"{program}: {name}", verdict, talk.counts, tuple(absent), dict(bed.refused()))
