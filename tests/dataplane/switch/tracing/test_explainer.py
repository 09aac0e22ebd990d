"""Explanations of a packet: golden texts of a small program, and shadow states without side effects."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.program.objects import ActionCall
from dataplane.switch.pipeline import Frame
from dataplane.switch.tables import CloneSession, ForwardingState, Replica, TableEntry
from dataplane.switch.tracing import steps
from dataplane.switch.tracing.explainer import MOST_PASSAGES, Explainer
from dataplane.switch.tracing.shadow import ShadowState
from dataplane.switch.tracing.showing.show import trace_json
from dataplane.switch.tracing.showing.text import trace_text
from dataplane.switch.tracing.steps import Dropped, PacketTrace, Ran, TableApplied
from tests.dataplane.switch.interpreter.harness import own_program
from tests.dataplane.switch.registers import used_cells
from tests.dataplane.switch.scenario_events import Arrival, Pause, PortChange, refused
from tests.dataplane.switch.scenarios import PROGRAMS, load, scenarios
from tests.examples import examples

GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[4] / "docs" / "network" / "trace.md"
UDP = "02000000000202000000000108004500002000010000401163040a0001010a0002c8c0de0007000c000001020304"
WRONG = UDP[:46] + "06" + UDP[48:]


def forwarding() -> ForwardingState:
    state = ForwardingState(own_program("forwarding"))
    state.profiles["Inbound.ecmp"].insert_member(7, ActionCall("Inbound.forward", (2,)))
    state.tables["Inbound.routes"].insert(TableEntry(((0x0A000200, 24),), member=7))
    return state


def explain(name: str, data: str, state: ForwardingState | None = None, port: int = 1) -> PacketTrace:
    program = own_program(name)
    return Explainer(program, state or ForwardingState(program)).explain(Frame(port, bytes.fromhex(data)), 1_000)


TEXTS = {
    "forwarded": lambda: explain("forwarding", UDP, forwarding()),
    "dropped": lambda: explain("forwarding", UDP),
    "wrong_checksum": lambda: explain("forwarding", WRONG, forwarding()),
    "short": lambda: explain("forwarding", UDP[:40]),
    "resubmitted": lambda: explain("copies", "020007aabb"),
    "stack": lambda: explain("parsing", "0105020407ff"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_as_written(name: str) -> None:
    assert f"{trace_text(TEXTS[name]())}\n" == (GOLDEN / f"{name}.txt").read_text("utf-8")


def test_a_clone_and_a_group_are_told_with_their_copies() -> None:
    state = ForwardingState(own_program("copies"))
    state.clone_sessions[3] = CloneSession((Replica(4, 1), Replica(5)), packet_length_bytes=5)
    trace = explain("copies", "010003aabbcc", state)
    queued = [(step.copy, step.port) for step in trace.steps() if isinstance(step, steps.Queued)]
    assert queued == [(1, 4), (2, 5), (0, 2)]
    assert [port for port, _ in trace.sent()] == [4, 5, 2]
    assert [passage.copy for passage in trace.passages] == [0, 1, 2, 0]


def test_a_drop_names_the_statement_that_brought_it() -> None:
    (dropped,) = (step for step in explain("forwarding", UDP).steps() if isinstance(step, Dropped))
    assert dropped.source is not None
    assert (dropped.reason, dropped.source.file, dropped.source.line) == ("ingress_drop", "forwarding.p4", 64)


def test_a_packet_that_goes_round_for_ever_is_cut_off() -> None:
    state = ForwardingState(own_program("copies"))
    state.clone_sessions[1] = CloneSession((Replica(1),))
    trace = explain("copies", "000401" + "00" * 8, state)
    turns = sum(passage.pipeline == "egress" for passage in trace.passages)
    assert turns <= MOST_PASSAGES
    assert bool(trace.unknown) is (turns == MOST_PASSAGES)


def test_each_step_is_json_with_the_keys_of_the_page() -> None:
    """The table in docs/network/trace.md has each kind with its keys, and no others."""
    kinds = {kind.kind: [field.name for field in fields(kind)] for kind in get_args(steps.Step)}
    rows = [line.split("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    written = {row[1].strip(" `"): [key.strip(" `") for key in row[2].split(",")] for row in rows}
    assert {kind: written.get(kind) for kind in kinds} == kinds
    trace = json.loads(trace_json(explain("forwarding", UDP, forwarding())))
    for step in (step for passage in trace["passages"] for step in passage["steps"]):
        assert list(step) == ["kind", *kinds[step["kind"]]]


def test_json_has_wide_and_negative_numbers_as_hexadecimal() -> None:
    trace = json.loads(trace_json(explain("forwarding", UDP, forwarding())))
    ethernet = trace["passages"][0]["steps"][1]["header"]
    assert ethernet["fields"][0] == {"name": "dst_addr", "width_bits": 48, "value": "0x020000000002"}
    assert (trace["sent"][0]["port"], trace["drops"], trace["version"]) == (2, [], 1)


# ---- the shadow of a state


def arrays(state: ForwardingState) -> dict[str, object]:
    state_arrays: dict[str, object] = {name: used_cells(cells) for name, cells in state.registers.items()}
    state_arrays |= {f"counter {name}": counter.cells.tolist() for name, counter in state.counters.items()}
    state_arrays |= {f"meter {name}": meter.cells.tolist() for name, meter in state.meters.items()}
    for name, table in state.tables.items():
        cells = [entry.meter_cell.words.tolist() if entry.meter_cell else None for entry in table]
        state_arrays[f"table {name}"] = cells, [(entry.packets, entry.bytes, entry.last_hit_us) for entry in table]
    return state_arrays


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"fabric_aggregation"}))
@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_a_shadow_shows_what_the_packet_does_and_keeps_the_state(name: str, data: st.DataObject) -> None:
    program = load(name)
    state = ForwardingState(program)
    shadow = ShadowState(state)
    told, real = Explainer(program, shadow, exact=False), Explainer(program, state)
    for event in data.draw(scenarios(name)):
        if not isinstance(event, Arrival):
            if not isinstance(event, Pause | PortChange):
                refused(event, state)
            continue
        before, told.rng.state = arrays(state), real.rng.state
        shadow.reset()
        trace = told.explain(Frame(event.port, event.data), 7_000)
        assert arrays(state) == before
        done = real.explain(Frame(event.port, event.data), 7_000)
        assert (trace.sent(), trace.drops()) == (done.sent(), done.drops())


def test_what_the_shadow_reads_of_shared_cells_is_marked() -> None:
    state = forwarding()
    trace = Explainer(own_program("forwarding"), ShadowState(state), exact=False).explain(
        Frame(1, bytes.fromhex(UDP)), 1_000
    )
    marked = {step.primitive for step in trace.steps() if isinstance(step, Ran) and not step.exact}
    assert marked == {"register_read", "register_write"}
    assert [step.member for step in trace.steps() if isinstance(step, TableApplied)] == [None, 7]
