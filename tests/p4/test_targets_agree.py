"""The built-in switch and bmv2 produce the same bytes from the same packets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.p4.entries import (
    COLLECTOR_PORT,
    HOP_BY_HOP,
    HOST_PORT,
    UP_PORT,
    Item,
    Role,
    Spread,
    Watch,
    mac,
    sink,
    source,
    transit,
)
from tests.p4.frames import SHAPES, Shape, build
from tests.p4.targets import Sent, Target
from tests.p4.telemetry import HOP_BY_HOP_FLAG, OUR_DOMAIN, IntHeaders, with_int

pytestmark = [pytest.mark.bmv2, pytest.mark.root]

TIMELESS = 0xC27F
"""The instructions whose answers do not depend on a clock or on what else was sent."""

STACK = bytes(range(1, 61))
MARKED = IntHeaders(TIMELESS, 5, STACK)
MARKED_HOP_BY_HOP = IntHeaders(TIMELESS, 5, domain_id=OUR_DOMAIN, domain_flags=HOP_BY_HOP_FLAG)

SCENARIOS: dict[str, tuple[Role, int, list[bytes]]] = {
    "source": (source(Watch(TIMELESS, watch_id=20)), HOST_PORT, [build(shape) for shape in SHAPES]),
    "source-sampled": (source(Watch(TIMELESS, 3, watch_id=21)), HOST_PORT, [build(shape) for shape in SHAPES]),
    "source-hop-by-hop": (source(Watch(TIMELESS, mode=HOP_BY_HOP)), HOST_PORT, [build(shape) for shape in SHAPES]),
    "source-is-sink": (replace(sink(), watch=Watch(TIMELESS)), HOST_PORT, [build(shape) for shape in SHAPES]),
    "transit": (transit(), UP_PORT, [with_int(build(shape), MARKED) for shape in SHAPES]),
    "transit-hop-by-hop": (transit(), UP_PORT, [with_int(build(shape), MARKED_HOP_BY_HOP) for shape in SHAPES]),
    "sink": (sink(), UP_PORT, [with_int(build(shape), MARKED) for shape in SHAPES]),
    "sink-hop-by-hop": (sink(), UP_PORT, [with_int(build(shape), MARKED_HOP_BY_HOP) for shape in SHAPES]),
}


def without_sequence(sent: Sent) -> list[tuple[int, str]]:
    """Return frames by port as hex; the number in a report, which outlives a reset in bmv2, is blanked."""
    return [
        (
            port,
            (data[:42] + bytes([data[42] & 0xFF, 0, 0, 0]) + data[46:]).hex() if port == COLLECTOR_PORT else data.hex(),
        )
        for port, data in sent
    ]


def run_both(
    builtin: Target, bmv2: Target, items: Sequence[Item], port: int, frames: Sequence[bytes]
) -> tuple[Sent, Sent]:
    """Return both outputs for the frames; wait until bmv2 has sent as many as the other."""
    for target in (builtin, bmv2):
        target.reset()
        target.write(items)
    ours = builtin.send(port, *frames, expect=0)
    return ours, bmv2.send(port, *frames, expect=len(ours))


@pytest.mark.parametrize(("role", "port", "frames"), SCENARIOS.values(), ids=SCENARIOS.keys())
def test_same_bytes(builtin: Target, bmv2: Target, role: Role, port: int, frames: list[bytes]) -> None:
    ours, theirs = run_both(builtin, bmv2, role.items(), port, frames)
    assert len(ours) >= len(frames)
    assert without_sequence(ours) == without_sequence(theirs)


@pytest.mark.parametrize("version", [4, 6])
def test_same_way_for_a_flow(builtin: Target, bmv2: Target, version: int) -> None:
    next_hops = tuple((port, mac(port)) for port in (2, 3, 4))
    spread = Spread(f"ipv{version}_routes", f"ipv{version}_ecmp", {"dst_addr": (0, 0)}, 1, next_hops)
    frames = [build(Shape(version=version), src_port=port) for port in range(100, 160)]
    ours, theirs = run_both(builtin, bmv2, [spread], HOST_PORT, frames)
    assert len(ours) == len(frames)
    assert without_sequence(ours) == without_sequence(theirs)


def damaged(frame: bytes, rng: random.Random) -> bytes:
    """Return the frame with a few bytes of its headers changed, or cut short."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(12, min(len(data), 90))] = rng.randrange(256)
    return bytes(
        data[: rng.choice([len(data), len(data), rng.randrange(20, len(data))])]
    )  # the kernel strips a tag with nothing behind


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("role", [transit(), sink()], ids=["transit", "sink"])
def test_same_fate_for_damaged_packets(builtin: Target, bmv2: Target, role: Role, seed: int) -> None:
    """Same ports, lengths and drop counters; bytes would differ where the damage asks for timestamps."""
    rng = random.Random(seed)
    goods = [with_int(build(shape), rng.choice([MARKED, MARKED_HOP_BY_HOP])) for shape in SHAPES]
    frames = [damaged(rng.choice(goods), rng) for _ in range(150)]
    ours, theirs = run_both(builtin, bmv2, role.items(), UP_PORT, frames)
    assert [(port, len(data)) for port, data in ours] == [(port, len(data)) for port, data in theirs]
    drops = [name for name in COUNTERS if builtin.count(name) != bmv2.count(name)]
    assert drops == []


COUNTERS = (
    "drop_parser_error",
    "drop_unknown_ethertype",
    "drop_bad_ipv4_checksum",
    "drop_int_at_edge",
    "drop_int_malformed",
    "drop_ttl_expired",
    "drop_no_route",
    "drop_int_discard",
    "drop_report_at_edge",
    "drop_source_spoofed",
    "int_transit",
    "int_skipped",
    "int_hops_exceeded",
    "int_sunk",
    "int_reports",
)
