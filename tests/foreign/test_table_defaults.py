"""Tables without default action, which p4c writes for profiles and selectors: a miss runs nothing and goes on."""

from __future__ import annotations

from typing import Any

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import ProgramError
from dataplane.program.objects import ActionCall
from dataplane.program.operations import FieldRef
from dataplane.stf import PipelineName
from dataplane.stf.parse import parse_stf
from dataplane.stf.pipelines import pipeline_factory
from dataplane.stf.run import run_stf
from dataplane.switch.compiler.analysis.clear_elision import uncleared
from dataplane.switch.p4runtime import P4RuntimeCore
from dataplane.switch.pipeline import Frame
from dataplane.switch.runtime_api.api import serve
from dataplane.switch.runtime_api.records import EntryType
from dataplane.switch.switch import PortSettings, Switch
from dataplane.switch.tables import ForwardingState, TableEntry
from dataplane.switch.tables.carry import carry_over
from dataplane.switch.tracing.explainer import Explainer
from dataplane.switch.tracing.showing.text import trace_text
from tests.dataplane.switch.interpreter.harness import PIPELINES, Bench
from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell
from tests.dataplane.switch.runtime_api.conftest import Client
from tests.foreign.bmv2_json import document, load, p4info

FRAME = bytes.fromhex("000a0001ff")
OTHER = bytes.fromhex("000b0001ff")
KINDS = ("simple", "indirect", "indirect_ws")


def table_of(program: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = program["pipelines"][0]["tables"][0]
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_loads_with_and_without_p4info(kind: str) -> None:
    assert load(document(kind)).tables["t"].default is None
    assert load(document(kind), p4info(kind)).tables["t"].default is None


@pytest.mark.parametrize("kind", ["simple", "indirect_ws"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_miss_runs_nothing_and_goes_on(pipeline: str, kind: str) -> None:
    bench = Bench(load(document(kind)), PIPELINES[pipeline])
    table = bench.state.tables["t"]
    if table.profile is None:
        table.insert(TableEntry((0x0A,), call=ActionCall("to", (7,))))
    else:
        table.profile.insert_member(1, ActionCall("to", (7,)))
        table.insert(TableEntry((0x0A,), member=1))
    assert bench.send(1, FRAME) == [(7, FRAME)]
    assert bench.send(1, OTHER) == [(0, OTHER)]  # not what the packet before it left in the metadata
    table.set_default(ActionCall("to", (3,)))
    assert bench.send(1, OTHER) == [(3, OTHER)]
    table.set_default(None)
    assert bench.send(1, OTHER) == [(0, OTHER)]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_miss_follows_its_branch(pipeline: str) -> None:
    program = document()
    table_of(program)["next_tables"] = {"__HIT__": "send", "__MISS__": "reflect"}
    bench = Bench(load(program), PIPELINES[pipeline])
    bench.insert("t", (0x0A,), ActionCall("to", (7,)))
    assert bench.send(1, FRAME) == [(7, FRAME)]
    assert bench.send(1, OTHER) == [(5, OTHER)]


def test_field_that_only_actions_write_is_cleared_before_a_miss() -> None:
    program = document()
    program["actions"][1]["primitives"] = [
        {
            "op": "assign",
            "parameters": [{"type": "field", "value": ["scalars", "port"]}, {"type": "hexstr", "value": "0x1"}],
        }
    ]
    port = FieldRef("scalars", "port")
    assert port not in uncleared(load(program)).fields
    table_of(program)["default_entry"] = {"action_id": 1, "action_const": False, "action_data": []}
    assert port in uncleared(load(program)).fields


def test_no_action_is_the_default_where_it_is_an_action() -> None:
    program = document()
    program["actions"].append({"name": "NoAction", "id": 4, "runtime_data": [], "primitives": []})
    table = table_of(program)
    table["action_ids"].append(4)
    table["next_tables"]["NoAction"] = "send"
    assert load(program).tables["t"].default == ActionCall("NoAction")


def test_foreign_default_of_the_p4info_is_refused() -> None:
    info = p4info()
    action = info.actions.add()
    action.preamble.id, action.preamble.name, action.preamble.alias = 0x01000003, "other", "other"
    info.tables[0].initial_default_action.action_id = 0x01000003
    with pytest.raises(ProgramError, match=r"tables\[0\]: other, its default action in the P4Info, is not one of"):
        load(document(), info)


def test_entries_are_carried_to_a_program_with_a_default() -> None:
    source, program = ForwardingState(load(document())), document()
    table_of(program)["default_entry"] = {
        "action_id": 1,
        "action_const": False,
        "action_data": [],
        "action_entry_const": False,
    }
    target = ForwardingState(load(program))
    source.tables["t"].insert(TableEntry((0x0A,), call=ActionCall("to", (7,))))
    carry_over(source, target, source.program.actions, target.program.actions)
    assert target.tables["t"].default == ActionCall("drop")
    assert len(target.tables["t"]) == 1


def test_trace_says_that_there_is_no_default() -> None:
    program = load(document())
    trace = trace_text(Explainer(program, ForwardingState(program)).explain(Frame(1, FRAME), 1_000))
    assert "missed, 0 entries, no default action\n" in trace


def test_stf_runs_without_a_default() -> None:
    text = "add t x:0x0a to(port:7)\npacket 1 000a0001\nexpect 7 000a0001\npacket 1 000b0001\nexpect 0 000b0001"
    outcome = run_stf(load(document()), parse_stf(text, "t.stf"), "t.stf", pipeline_factory(PipelineName.INTERPRETER))
    assert outcome.differences == ()


def test_p4runtime_reads_a_default_entry_without_action() -> None:
    switch = FakeSwitch()
    switch.commit(load(document("indirect_ws"), p4info("indirect_ws")))
    shell = Shell(P4RuntimeCore(switch), p4info("indirect_ws"))
    default = shell.entry("t", is_default_action=True)
    assert shell.read(default) == [default]
    switch.commit(load(document(), p4info()))
    assert shell.read(default) == [default]
    shell.modify(shell.entry("t", action=shell.action("to", b"\x07"), is_default_action=True))
    assert shell.read(default)[0].table_entry.action.action.action_id == shell.id("actions", "to")
    shell.modify(default)
    assert shell.read(default) == [default]


def test_runtime_api_reads_a_default_entry_without_action() -> None:
    switch = Switch(0, [PortSettings(1)], VirtualClock())
    switch.commit(load(document("indirect_ws")))
    with serve(switch, 0) as port, Client(port) as client:
        assert client.bm_mt_get_default_entry(0, "t").action_type == EntryType.NONE
        client.bm_mt_clear_entries(0, "t", True)
        assert client.bm_mt_get_default_entry(0, "t").action_type == EntryType.NONE
