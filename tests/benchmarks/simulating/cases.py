"""Small cases of transfers that share links: which the simulation and packets are both given."""

from __future__ import annotations

from dataclasses import dataclass

from dataplane.topology.file import loads
from dataplane.topology.values import Topology

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes from a host to another from a moment on."""

    src: str
    dst: str
    nbytes: int
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """Transfers over a topology in which each pair has one path.

    `is_one_bottleneck` says that all of them share one narrowest link, so that senders with equal windows share it
    fairly; where several links are full it is not, and senders get explicit rates.
    """

    name: str
    topology: Topology
    transfers: tuple[Transfer, ...]
    is_one_bottleneck: bool


def _topology(name: str, text: str) -> Topology:
    head = f"millrace: 1\nname: {name}\ndefaults:\n  access: {{rate: 40 Mbit/s, delay: 20 us, queue_frames: 4096}}\n"
    return loads(head + text, file=name)


DUMBBELL = _topology(
    "dumbbell",
    """
switches: [{name: s1}, {name: s2}]
hosts: [{name: a1, switch: s1}, {name: a2, switch: s1}, {name: a3, switch: s1},
        {name: b1, switch: s2}, {name: b2, switch: s2}, {name: b3, switch: s2}]
links: [{a: s1, b: s2, rate: 20 Mbit/s, delay: 500 us, queue_frames: 4096}]
""",
)
PARKING_LOT = _topology(
    "parking-lot",
    """
switches: [{name: s1}, {name: s2}, {name: s3}]
hosts: [{name: a1, switch: s1}, {name: a2, switch: s1}, {name: m1, switch: s2}, {name: m2, switch: s2},
        {name: z1, switch: s3}, {name: z2, switch: s3}]
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 300 us, queue_frames: 4096},
        {a: s2, b: s3, rate: 25 Mbit/s, delay: 300 us, queue_frames: 4096}]
""",
)
STAR = _topology(
    "star",
    """
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s1}, {name: h4, switch: s1},
        {name: h5, switch: s1}]
links: []
""",
)

CASES = (
    Case("one transfer over three links", DUMBBELL, (Transfer("a1", "b1", 400_000),), is_one_bottleneck=True),
    Case(
        "three share a cable, two come in the middle",
        DUMBBELL,
        (
            Transfer("a1", "b1", 500_000),
            Transfer("a2", "b2", 300_000, 60 * MS),
            Transfer("a3", "b3", 150_000, 130 * MS),
        ),
        is_one_bottleneck=True,
    ),
    Case(
        "incast: four to one host",
        STAR,
        tuple(Transfer(f"h{n}", "h5", 200_000 * n, 10 * MS * n) for n in range(1, 5)),
        is_one_bottleneck=True,
    ),
    Case(
        "parking lot: one over both cables, one over each",
        PARKING_LOT,
        (
            Transfer("a1", "z1", 250_000),
            Transfer("a2", "m1", 250_000, 20 * MS),
            Transfer("m2", "z2", 600_000, 50 * MS),
        ),
        is_one_bottleneck=False,
    ),
    Case(
        "hosts' own links and a cable at once",
        DUMBBELL,
        (
            Transfer("a1", "b1", 300_000),
            Transfer("a1", "a2", 600_000),
            Transfer("a3", "b1", 200_000, 40 * MS),
            Transfer("b2", "a2", 400_000, 70 * MS),
        ),
        is_one_bottleneck=False,
    ),
)
