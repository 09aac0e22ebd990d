"""Sums in the switch: equal to the reference packet for packet, over random schedules."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dataplane.allreduce.reference.aggregator import Aggregator, Job
from dataplane.wire.aggregation import NO_FLAGS, Aggregation, Flags, Kind, Operation
from tests.p4.aggregating import NONCE, SERVER, Hosted, expected, fabric_items, from_child, from_parent, seen
from tests.p4.targets import Target

ROOT = Hosted(1, Job(epoch=3, children=0b111, cells=4, nonce=NONCE), children=3)
LEAF = Hosted(2, Job(epoch=5, children=0b1011, cells=8, leaf=True, nonce=NONCE + 1), children=4, first_cell=4)
JOBS = {job.number: job for job in (ROOT, LEAF)}
LANES = (0, 1, -1, 2**31 - 1, -(2**31), 0x7FFF8000, -32768)
STEPS = {"builtin": 150, "compiled": 600, "bmv2": 60}


@pytest.fixture
def switch(aggregating: Target) -> Target:
    """Return a switch that adds up for two jobs: as the root of one, as a leaf of the other."""
    aggregating.write([*fabric_items(), *ROOT.items(), *LEAF.items()])
    return aggregating


class Schedule:
    """Random packets of both jobs, now and then old, of another epoch, length or nonce, or from the parent."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        # Registers persist from test to test, so the numbers must continue; the first ones wrap around.
        self._item = dict.fromkeys(JOBS, (seed - 1) * 2**20 - 3)

    def packet(self) -> tuple[Hosted, int | None, Aggregation, int]:
        """Return job, child (None: the parent; SERVER: the main server), packet and ECN bits."""
        chance = self._chance
        job = JOBS[chance.choice(list(JOBS))]
        self._item[job.number] += chance.random() < 0.08
        item = (self._item[job.number] + chance.choice((0, 0, 0, 1, 1, -1, 2))) % 2**32
        from_above = job.job.leaf and chance.random() < 0.2
        from_server = not job.job.leaf and chance.random() < 0.05
        kinds = (Kind.RESULT, Kind.AGAIN, Kind.REFUSED) if from_above else (Kind.CONTRIBUTION,) * 19 + (Kind.PULL,)
        kinds = (Kind.DISTRIBUTE, Kind.DISTRIBUTE, Kind.PULL) if from_server else kinds
        flags = chance.choice((NO_FLAGS, NO_FLAGS, Flags.SATURATED, Flags.FINAL, Flags.DISTRIBUTED))
        operation = Operation.SUM if item % 3 and chance.random() < 0.98 else Operation.MAX
        packet = Aggregation(
            kind=chance.choice(kinds),
            job=job.number,
            item=item,
            epoch=job.job.epoch - (chance.random() < 0.07),
            workers=chance.randrange(1, 5),
            operation=operation,
            values=self._values(4 if chance.random() < 0.9 else chance.randrange(4)),
            flags=flags | (Flags.CALL if chance.random() < 0.1 else NO_FLAGS),
            nonce=job.job.nonce ^ (chance.random() < 0.05) << chance.randrange(64),
            check=chance.choice((2**64 - 1, 0, chance.getrandbits(64))),
        )
        child = SERVER if from_server else chance.randrange(job.children)
        return job, None if from_above else child, packet, chance.choice((0, 0, 1, 3))

    def _values(self, quarters: int) -> bytes:
        chance = self._chance
        lanes = (chance.choice((chance.getrandbits(32) - 2**31, chance.choice(LANES))) for _ in range(64 * quarters))
        return b"".join(lane.to_bytes(4, "big", signed=True) for lane in lanes)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_packet_is_answered_as_the_reference_says(switch: Target, seed: int) -> None:
    reference = Aggregator({number: job.job for number, job in JOBS.items()})
    schedule = Schedule(seed)
    for _ in range(STEPS[switch.name]):
        job, child, packet, ecn = schedule.packet()
        heard = replace(packet, flags=packet.flags | Flags.CONGESTED) if ecn == 3 else packet
        if child is None:
            right = expected(reference.from_parent(heard), job.children)
            sent = switch.send(*from_parent(packet, ecn=ecn), expect=len(right))
        else:
            take = reference.from_server if child == SERVER else reference.from_child
            right = expected(take(child, heard), job.children)
            sent = switch.send(*from_child(child, packet, ecn=ecn), expect=len(right))
        assert seen(sent) == right, packet
    assert {"again", "complete", "epoch", "repeated", "opened", "added", "stale", "forged"} <= reference.counts.keys()


@pytest.mark.parametrize(
    ("at", "bytes_there"),
    [(42, b"\x11"), (54, b"\x12"), (54, b"\x15"), (40, b"\0\1"), (38, b"\1\x27"), (52, b"\0\0"), (58, b"\0")],
    ids=[
        "another version",
        "more quarters than there are",
        "more than four",
        "a checksum",
        "another length",
        "of nobody",
        "nonce",
    ],
)
def test_what_is_not_quite_a_contribution_is_not_added(switch: Target, at: int, bytes_there: bytes) -> None:
    ones = Aggregation(Kind.CONTRIBUTION, ROOT.number, item=2**22, epoch=3, values=bytes(256), nonce=NONCE)
    for child in range(ROOT.children):
        port, data = from_child(child, ones)
        assert switch.send(port, data[:at] + bytes_there + data[at + len(bytes_there) :], expect=0) == []


def test_nobody_speaks_for_a_job_that_he_is_no_child_of(switch: Target) -> None:
    ones = Aggregation(Kind.CONTRIBUTION, ROOT.number, item=2**23, epoch=3, values=b"\0\0\0\1" * 64, nonce=NONCE)
    stranger = from_child(ROOT.children, ones)  # a child of the other job
    sent = [
        arrival
        for child in range(3)
        for port, data in (stranger, from_child(child, ones))
        for arrival in seen(switch.send(port, data, expect=3 if child == 2 and data != stranger[1] else 0))
    ]
    assert len(sent) == 3
    assert {int.from_bytes(packet.values[:4], "big") for *_, packet in sent} == {3}
