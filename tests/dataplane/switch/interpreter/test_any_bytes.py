"""No frame makes the interpreter raise, and none vanishes without a counter."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.program.loader import load_program
from dataplane.switch.tables import CloneSession, Replica
from tests.dataplane.program.mutation import OWN_PROGRAMS
from tests.dataplane.switch.interpreter.harness import FABRIC, MakeBench, own_program

FABRIC_PROGRAM = load_program(FABRIC, FABRIC.with_suffix(".p4info.txtpb"))
PROGRAMS = {name: own_program(name) for name in (*OWN_PROGRAMS, "p4rt_entities")}

PREFIXES = [
    b"",
    bytes.fromhex("020000000001020000000002" + "0800" + "45"),
    bytes.fromhex("020000000001020000000002" + "86dd" + "60"),
    bytes.fromhex("020000000001020000000002" + "81000001" + "0800" + "4f"),
]


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.binary(max_size=90), port=st.integers(0, 511))
def test_own_programs(make_bench: MakeBench, name: str, data: bytes, port: int) -> None:
    bench = make_bench(PROGRAMS[name])
    sent = bench.send(port, data)
    assert len(sent) + sum(bench.pipeline.drops.values()) >= 1


@settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(prefix=st.sampled_from(PREFIXES), data=st.binary(max_size=200), port=st.integers(0, 511))
def test_fabric(make_bench: MakeBench, prefix: bytes, data: bytes, port: int) -> None:
    bench = make_bench(FABRIC_PROGRAM)
    bench.state.clone_sessions[250] = CloneSession((Replica(4),))
    sent = bench.send(port, prefix + data)
    assert len(sent) + sum(bench.pipeline.drops.values()) >= 1


def test_ports_and_lengths_beyond_their_fields_are_cut(make_bench: MakeBench) -> None:
    bench = make_bench(PROGRAMS["copies"])
    bench.state.multicast_groups[3] = (Replica(1 << 20, 1 << 20),)
    assert bench.send(1 << 20, bytes([3, 0, 3]))[0][0] == 1 << 20
