"""Mutated programs: loading succeeds or raises ProgramError, and a loaded program runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from tests.dataplane.program.mutation import DELETE, OWN_PROGRAMS, changed, document, p4info, paths
from tests.examples import examples

DOCUMENTS = {name: document(name) for name in OWN_PROGRAMS}
PATHS = {name: paths(DOCUMENTS[name]) for name in OWN_PROGRAMS}

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 40),
    st.sampled_from([1 << 31, 1 << 64, 0.5, "", "0x", "0x0", "-0x1", "0xffff", "$valid$", "default", "hexstr"]),
    st.sampled_from(["field", "header", "expression", "lookahead", "+", "-", "<<", "/", "?", "valid", "d2b", "b2d"]),
    st.sampled_from(["ipv4", "ethernet", "labels", "labels[0]", "kind", "order", "standard_metadata", "scalars"]),
)
VALUES = st.one_of(
    LEAVES,
    st.lists(LEAVES, max_size=3),
    st.dictionaries(st.sampled_from(["type", "value", "op", "left", "right", "name"]), LEAVES, max_size=3),
    st.just(DELETE),
)
FRAMES = [bytes(0), bytes(64), bytes(range(1, 120)), b"\x01\x80\x02\x04\x06\x08", b"\x02\xff\x43\xa1\xa2\xa3\x77"]


def loads(data: bytes, info: bytes | None) -> bool:
    """Return whether a program loads; refusals have one line."""
    try:
        load_program(data, info)
    except ProgramError as error:
        if "\n" in str(error):
            pytest.fail(f"more than one line: {error}")
        return False
    return True


def run_frames(data: bytes) -> None:
    """Run frames through a program."""
    program = load_program(data, None)
    state = ForwardingState(program)
    pipeline = InterpretedPipeline(program, state, rng=SplitMix(1))
    for frame in FRAMES:
        placed = pipeline.ingress([Frame(1, frame)], 10)
        for item in placed:
            pipeline.egress([Dequeued(item.packet, item.port, item.priority, 10, 0, 0, 0)], 20)


@pytest.mark.parametrize("name", OWN_PROGRAMS)
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_mutated_json(name: str, data: Any) -> None:
    path = data.draw(st.sampled_from(PATHS[name]))
    mutated = changed(DOCUMENTS[name], path, data.draw(VALUES))
    if loads(mutated, p4info(name)) and loads(mutated, None):
        run_frames(mutated)


@pytest.mark.parametrize("name", OWN_PROGRAMS)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_exchanged_parts(name: str, data: Any) -> None:
    """One part of the document replaces another: well formed, but mostly misplaced."""
    base = DOCUMENTS[name]
    target, source = (data.draw(st.sampled_from(PATHS[name])) for _ in range(2))
    part = base
    for step in source:
        part = part[step]
    mutated = changed(base, target, part)
    if loads(mutated, None):
        run_frames(mutated)


def test_a_field_without_bits_takes_what_is_assigned() -> None:
    path = ("header_types", 0, "fields", 0, 1)
    document = changed(DOCUMENTS["parsing"], path, 0)
    assert loads(document, None)
    run_frames(document)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(ProgramError):
        load_program(data, None)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_mutated_p4info(data: Any) -> None:
    text = p4info("forwarding")
    position = data.draw(st.integers(0, len(text) - 1))
    replacement = data.draw(st.binary(max_size=4))
    mutated = text[:position] + replacement + text[position + data.draw(st.integers(0, 30)) :]
    loads(changed(DOCUMENTS["forwarding"], ("program",), "x"), mutated)
