"""The two programs that plain_packets.py compares: alike for a host's own packets, and one of them stops others'."""

from __future__ import annotations

import pytest

from dataplane.program.model import Program
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Frame
from dataplane.switch.random_numbers import SplitMix
from tests.benchmarks.traffic.plain_packets import (
    HOST_PORT,
    UP_PORT,
    edge_state,
    plain_frames,
    program_before,
    program_now,
)

_LAST_OF_SOURCE = {4: 14 + 12 + 3, 6: 14 + 8 + 15}
"""Offset of the last byte of the source address."""


def ports_of(program: Program, version: int, frame: bytes) -> list[int]:
    """Return by which ports a frame of the host leaves."""
    pipeline = InterpretedPipeline(program, edge_state(program, version), rng=SplitMix(1))
    return [placed.port for placed in pipeline.ingress([Frame(HOST_PORT, frame)], 1)]


@pytest.mark.parametrize("version", [4, 6])
def test_the_filter_is_the_difference(version: int) -> None:
    frame = bytearray(plain_frames(version)[0])
    assert [ports_of(program, version, bytes(frame)) for program in (program_now(), program_before())] == [
        [UP_PORT]
    ] * 2
    frame[_LAST_OF_SOURCE[version]] += 1
    if version == 4:
        frame[24:26] = (int.from_bytes(frame[24:26], "big") - 1).to_bytes(2, "big")  # IPv4's checksum of it
    assert ports_of(program_now(), version, bytes(frame)) == []
    assert ports_of(program_before(), version, bytes(frame)) == [UP_PORT]
