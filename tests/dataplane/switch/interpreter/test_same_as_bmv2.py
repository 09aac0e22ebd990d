"""Random packets of each small program come out of the interpreter and of simple_switch_grpc with the same bytes.

Blanked, as they differ: times, random numbers, and a field that is read from a header that is not valid.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable

import finsy
import pytest

from dataplane.switch.interpreter.hashes import csum16
from dataplane.switch.tables import CloneSession, Replica
from tests.dataplane.switch.interpreter.bmv2_process import Bmv2Process
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench, Sent

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on the PATH"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
]

FRAMES = 120
SHORTEST_FRAME = 14
"""Minimum frame length that a packet socket accepts."""

PORTS = (1, 2, 3, 4, 10, 11, 15, 16, 20, 21)
SESSIONS = {1: ((11, 0),), 5: ((15, 1), (16, 2), (15, 3)), 9: ((10, 0),)}
GROUPS = {3: ((20, 7), (21, 8))}
BLANKS = {"copies": slice(8, 12), "parsing": slice(3, 4), "arithmetic": slice(40, 41)}


def payload(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([16, 20, 33, 60, 200]))


def copies_frame(rng: random.Random) -> bytes:
    ingress, egress = rng.choice([0, 1, 2, 3, 4, 5, 7]), rng.choice([0, 0, 1, 2, 3, 4])
    return bytes([ingress, egress, rng.choice([0, 1, 3, 5, 9, 16, 20, 40, 200])]) + payload(rng)


def parsing_frame(rng: random.Random) -> bytes:
    kind = rng.choice([1, 1, 1, 2, 2, 3, 4, 0xEE, 0xC5, 0xD0])
    argument = rng.choice([0, 1, 2, 0x80, 0x83, 0x84, 0x21, 0x22, 0x23, 0x24, 5, 9, 10])
    options = bytes([0x40 | rng.randrange(10)]) if kind == 2 else b""
    return bytes([kind, argument]) + options + payload(rng)


def forwarding_frame(rng: random.Random) -> bytes:
    ethernet = bytes(12) + rng.choice([b"\x08\x00", b"\x86\xdd"])
    return ethernet + bytes([rng.choice([0x45, 0x55])]) + payload(rng) + bytes(20)


def unions_frame(rng: random.Random) -> bytes:
    return bytes([rng.randrange(4), rng.randrange(5)]) + payload(rng)


def union_stacks_frame(rng: random.Random) -> bytes:
    """Return a frame whose options are parsed as far as they go; bmv2 pushes and pops unions in another way."""
    kinds = [rng.choice([1, 2]) for _ in range(rng.randrange(5))]
    options = b""
    for following, kind in zip([*kinds[1:], 0], kinds, strict=False):
        size = rng.choice([0, 1, 2, 4, 5])
        options += bytes([following]) + (rng.randbytes(1) if kind == 1 else bytes([size]) + rng.randbytes(size))
    what = rng.choice([0, 3, 4, 5, 6, 7])
    return bytes([kinds[0] if kinds else 0, what, 0]) + options + payload(rng)


def numbers_frame(rng: random.Random) -> bytes:
    what = rng.choice([0, 13, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x83, 0x90])
    edges = [bytes(16), b"\xff" * 16, b"\x80" + bytes(15), b"\x7f" + b"\xff" * 15, bytes(8) + b"\xff" * 8]
    wide = [rng.choice([*edges, rng.randbytes(16)]) for _ in range(4)]
    operands = wide[0] + wide[1] + wide[2][:9] + wide[3][:9]
    items = b"".join(
        bytes([rng.choice([0x00, 0x10, 0x23, 0xF0])]) + rng.randbytes(rng.choice([1, 2, 15])) for _ in range(3)
    )
    return (
        bytes([what, rng.choice([0, 1, 2, 3, 7, 8, 16, 64, 71, 72, 127, 128, 255])]) + operands + items + payload(rng)
    )


def choices_frame(rng: random.Random) -> bytes:
    second = rng.choice([0, 0x10, 0x11, 0x1F, 0x2F, 0x1234, 0x1235, 0x12FF, 0x4444])
    return (
        bytes([rng.choice([0x11, 0x12, 0x13, 0x22, 0x33])])
        + second.to_bytes(2, "big")
        + bytes([rng.randrange(6)])
        + payload(rng)
    )


def algorithms_frame(rng: random.Random) -> bytes:
    what, fields, data = rng.randrange(8), rng.randbytes(2), rng.randbytes(rng.choice([16, 17, 33, 200]))
    right = csum16(bytes([what]) + fields + data) if rng.random() < 0.5 else rng.randrange(1 << 16)
    return bytes([what]) + fields + right.to_bytes(2, "big") + data


MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "copies": copies_frame,
    "parsing": parsing_frame,
    "arithmetic": payload,
    "forwarding": forwarding_frame,
    "unions": unions_frame,
    "union_stacks": union_stacks_frame,
    "numbers": numbers_frame,
    "choices": choices_frame,
    "algorithms": algorithms_frame,
}


def blanked(name: str, sent: Sent) -> Sent:
    blank = BLANKS.get(name, slice(0, 0))
    kept = [(port, data) for port, data in sent if port in PORTS and len(data) >= SHORTEST_FRAME]
    return sorted(
        (port, data[: blank.start] + bytes(blank.stop - blank.start) + data[blank.stop :]) for port, data in kept
    )


def set_up_copies(bench: Bench, bmv2: Bmv2Process) -> None:
    for session, replicas in SESSIONS.items():
        bmv2.insert(finsy.P4CloneSessionEntry(session, replicas=list(replicas)))
        bench.state.clone_sessions[session] = CloneSession(tuple(Replica(*replica) for replica in replicas))
    for group, replicas in GROUPS.items():
        bmv2.insert(finsy.P4MulticastGroupEntry(group, replicas=list(replicas)))
        bench.state.multicast_groups[group] = tuple(Replica(*replica) for replica in replicas)


@pytest.mark.parametrize("name", MAKERS)
def test_same_bytes(make_bench: MakeBench, name: str) -> None:
    rng = random.Random(f"{name} 1")
    bench = make_bench(name)
    with Bmv2Process(name, PORTS) as bmv2:
        if name == "copies":
            set_up_copies(bench, bmv2)
        for _ in range(FRAMES):
            frame = MAKERS[name](rng)
            ours = blanked(name, bench.send(1, frame))
            theirs = blanked(name, bmv2.send(1, frame, expect=len(ours)))
            assert ours == theirs, frame.hex()
