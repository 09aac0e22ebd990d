"""Programs that load, and their contents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from dataplane.program.model import CallNode, ConditionNode, TableNode, UnionStack
from dataplane.program.objects import (
    ActionCall,
    ActionSpec,
    DigestSpec,
    KeyField,
    MatchKind,
    MeterSpec,
    MeterUnit,
    PresetEntry,
    ProfileSpec,
    TableSpec,
)
from dataplane.program.operations import Binary, BinaryOp, FieldRef, HeaderRef, HeadersEqual, LogMessage, Truth
from tests.dataplane.program.mutation import OWN_PROGRAMS, PROGRAMS, document, p4info

FORWARDING = PROGRAMS / "forwarding.json"
BUILD = Path(__file__).parents[3] / "p4" / "build"


def test_tables() -> None:
    program = load_program(FORWARDING, p4info("forwarding"))
    assert program.name == "forwarding"
    assert program.tables == {
        "Inbound.filter": TableSpec(
            name="Inbound.filter",
            keys=(
                KeyField("hdr.ipv4.src_addr", MatchKind.TERNARY, 32),
                KeyField("hdr.ipv4.protocol", MatchKind.TERNARY, 8),
                KeyField("hdr.ipv4.$valid$", MatchKind.EXACT, 1),
            ),
            actions=("Inbound.allow", "Inbound.drop"),
            default=ActionCall("Inbound.allow"),
            const_default=True,
            size=1024,
            presets=(
                PresetEntry(((0x0A000000, 0xFF000000), (17, 0xFF), 1), 3, ActionCall("Inbound.allow")),
                PresetEntry(((0x0A000000, 0xFF000000), (0, 0), 1), 2, ActionCall("Inbound.drop", (1,))),
                PresetEntry(((0, 0), (0, 0), 0), 1, ActionCall("Inbound.drop", (2,))),
            ),
            is_const=True,
        ),
        "Inbound.routes": TableSpec(
            name="Inbound.routes",
            keys=(KeyField("hdr.ipv4.dst_addr", MatchKind.LPM, 32),),
            actions=("Inbound.forward", "Inbound.drop", "NoAction"),
            default=ActionCall("NoAction"),
            const_default=False,
            size=128,
            profile="Inbound.ecmp",
            direct_counter="Inbound.route_hits",
        ),
    }


def test_other_objects() -> None:
    program = load_program(FORWARDING, p4info("forwarding"))
    assert program.actions["Inbound.drop"] == ActionSpec("Inbound.drop", (("reason", 32),))
    assert program.profiles == {"Inbound.ecmp": ProfileSpec("Inbound.ecmp", 64, 0, selector=True)}
    assert (program.counters["Inbound.reasons"].size, program.registers["Inbound.packets_from"].width) == (4, 16)
    assert program.errors["PacketTooShort"] == 1
    assert program.find_field("intrinsic_metadata.mcast_grp") == FieldRef("standard_metadata", "mcast_grp")
    assert program.find_field("ipv4.ttl") == FieldRef("ipv4", "ttl")
    assert program.find_field("ipv4.nothing") is None


def test_calls_that_only_the_compiler_knows_are_no_tables() -> None:
    program = load_program(FORWARDING, p4info("forwarding"))
    kinds = {type(node) for node in program.ingress.nodes.values()}
    assert kinds == {TableNode, ConditionNode, CallNode}
    assert all(isinstance(program.ingress.nodes[name], TableNode) for name in program.tables)


def test_p4info_may_be_binary() -> None:
    info = text_format.Parse(p4info("forwarding").decode(), p4i.P4Info())
    text, binary = (load_program(FORWARDING, data) for data in (p4info("forwarding"), info.SerializeToString()))
    assert (binary, binary.p4info) == (text, text.p4info)


def test_without_p4info_the_json_speaks_for_itself() -> None:
    program = load_program(FORWARDING, None)
    assert program.tables["Inbound.routes"].default == ActionCall("NoAction")
    assert program.actions["Inbound.drop"].parameters == (("reason", 32),)
    assert program.p4info == p4i.P4Info()


def test_digest_changes_with_either_file() -> None:
    first = load_program(FORWARDING, p4info("forwarding")).digest
    assert first == load_program(FORWARDING, p4info("forwarding")).digest
    assert first != load_program(FORWARDING.read_bytes() + b"\n", p4info("forwarding")).digest
    assert first != load_program(FORWARDING, None).digest


def test_optional_key_is_what_the_p4info_says() -> None:
    raw, info = document("forwarding"), p4info("forwarding").replace(b"match_type: TERNARY", b"match_type: OPTIONAL")
    table = next(item for item in raw["pipelines"][0]["tables"] if item["name"] == "Inbound.filter")
    for entry in table["entries"]:
        entry["match_key"][0] = {"match_type": "ternary", "key": "0x00000000", "mask": "0x00000000"}
    program = load_program(json.dumps(raw).encode(), info)
    assert [entry.match for entry in program.tables["Inbound.filter"].presets] == [
        (None, 17, 1),
        (None, None, 1),
        (None, None, 0),
    ]


def test_table_that_the_compiler_dropped_can_still_be_written_to() -> None:
    field = b'match_fields { id: 1 name: "k" bitwidth: 8 match_type: EXACT }'
    gone = b'tables { preamble { id: 7 name: "Inbound.gone" } ' + field + b" }"
    table = load_program(FORWARDING, p4info("forwarding") + gone).tables["Inbound.gone"]
    assert table.keys == (KeyField("k", MatchKind.EXACT, 8),)


@pytest.mark.parametrize("name", [*OWN_PROGRAMS, "p4rt_entities"])
def test_own_programs_load_from_files(name: str) -> None:
    load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


def test_the_fabric_loads() -> None:
    program = load_program(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb")
    assert {info.preamble.name for info in program.p4info.tables} <= set(program.tables)


def test_meters() -> None:
    program = load_program(PROGRAMS / "stateful.json", p4info("stateful"))
    assert program.meters == {
        "Inbound.by_packets": MeterSpec("Inbound.by_packets", 4, MeterUnit.PACKETS),
        "Inbound.by_bytes": MeterSpec("Inbound.by_bytes", 4, MeterUnit.BYTES),
        "Inbound.policer": MeterSpec("Inbound.policer", 0, MeterUnit.BYTES, "Inbound.policed"),
    }
    node = program.ingress.nodes["Inbound.policed"]
    assert isinstance(node, TableNode)
    assert node.meter_target is not None
    assert program.tables["Inbound.policed"].direct_meter == "Inbound.policer"
    assert program.tables["Inbound.policed"].idle_timeout


def test_digest_sent_in_two_places_is_two_with_one_name() -> None:
    program = load_program(PROGRAMS / "stateful.json", p4info("stateful"))
    seen = DigestSpec("seen_t", (("index", 8), ("port", 9), ("wide", 96)))
    assert [digest.spec for digest in program.digests.values()] == [
        seen,
        DigestSpec("moved_t", (("what", 8), ("index", 8))),
        seen,
    ]
    assert len(set(program.digests)) == 3


def test_unnamed_digest_gets_its_p4info_name() -> None:
    raw = document("stateful")
    raw["learn_lists"][1]["name"] = "tuple_0"
    info = p4info("stateful").replace(b'name: "moved_t"\n    alias', b'name: "digest_0"\n    alias')
    digests = load_program(json.dumps(raw).encode(), info).digests
    assert digests["tuple_0"].spec.name == "digest_0"


def test_value_set_keys_come_from_p4info_or_the_parser() -> None:
    pairs = load_program(PROGRAMS / "choices.json", p4info("choices")).value_sets["Parse.pairs"]
    assert (pairs.size, [key.kind for key in pairs.keys]) == (4, [MatchKind.TERNARY, MatchKind.RANGE])
    bare = load_program(PROGRAMS / "choices.json", None).value_sets["Parse.pairs"]
    assert [(key.kind, key.width) for key in bare.keys] == [(MatchKind.EXACT, 8), (MatchKind.EXACT, 16)]


def test_union_stacks() -> None:
    program = load_program(PROGRAMS / "union_stacks.json", p4info("union_stacks"))
    assert program.union_stacks["options"] == UnionStack("options", ("options[0]", "options[1]", "options[2]"))
    assert program.rows("options")[1] == ("options[1].small", "options[1].large")
    stacks = load_program(PROGRAMS / "parsing.json", p4info("parsing"))
    assert all(stacks.rows(name) == tuple((item,) for item in stack.elements) for name, stack in stacks.stacks.items())


def test_validity_of_a_union_in_a_stack_that_p4c_calls_a_header() -> None:
    def condition(kind: object) -> object:
        raw = document("union_stacks")
        right = {"type": kind, "value": "options[0]"}
        raw["pipelines"][0]["conditionals"][0]["expression"] = {
            "type": "expression",
            "value": {"op": "valid_union", "left": None, "right": right},
        }
        node = load_program(json.dumps(raw).encode(), None).ingress.nodes[
            raw["pipelines"][0]["conditionals"][0]["name"]
        ]
        assert isinstance(node, ConditionNode)
        return node.condition

    assert condition("header") == condition("header_union")
    others: tuple[object, ...] = ("bool", [], {})
    for kind in others:
        with pytest.raises(ProgramError, match="no header union is called"):
            condition(kind)


def test_unions_are_equal_if_the_same_valid_header_is() -> None:
    raw = document("union_stacks")
    left, right = ({"type": "header_union", "value": f"options[{index}]"} for index in (0, 1))
    conditional = raw["pipelines"][0]["conditionals"][0]
    conditional["expression"] = {"type": "expression", "value": {"op": "==", "left": left, "right": right}}
    node = load_program(json.dumps(raw).encode(), None).ingress.nodes[conditional["name"]]
    small, large = (
        HeadersEqual(HeaderRef(f"options[0].{name}"), HeaderRef(f"options[1].{name}"), negated=False)
        for name in ("small", "large")
    )
    assert isinstance(node, ConditionNode)
    assert node.condition == Binary(BinaryOp.LOGICAL_OR, Binary(BinaryOp.LOGICAL_OR, Truth(value=False), small), large)


def test_log_messages_with_formats_and_without_values() -> None:
    def pieces(text: str, values: object) -> tuple[str, ...]:
        raw = document("arithmetic")
        calls = [call for action in raw["actions"] for call in action["primitives"] if call["op"] == "log_msg"]
        calls[0]["parameters"] = [{"type": "string", "value": text}, {"type": "parameters_vector", "value": values}]
        program = load_program(json.dumps(raw).encode(), None)
        nodes = [node for node in program.ingress.nodes.values() if isinstance(node, CallNode)]
        messages = [item for node in nodes for item in node.action.primitives if isinstance(item, LogMessage)]
        return messages[0].pieces

    value = {"type": "hexstr", "value": "0x1"}
    assert pieces("nothing", {}) == ("nothing",)
    assert pieces("{}={:d} \\{}", [value, value]) == ("", "=", " {}")


def test_registers_that_an_action_touches() -> None:
    program = load_program(PROGRAMS / "stateful.json", p4info("stateful"))
    nodes = [node for node in program.ingress.nodes.values() if isinstance(node, CallNode)]
    touched = {name for node in nodes for name in node.action.registers}
    assert touched == {"Inbound.cells", "Inbound.sums"}


def test_a_translated_type_is_as_wide_as_in_the_data_plane() -> None:
    info = text_format.Parse(p4info("forwarding").decode(), p4i.P4Info())
    for action in info.actions:
        for parameter in action.params:
            parameter.bitwidth = 49
            parameter.type_name.name = "port_t"
    for table in info.tables:
        for field in table.match_fields:
            field.bitwidth = 50
            field.type_name.name = "port_t"
    with pytest.raises(ProgramError, match="in the P4Info"):
        load_program(FORWARDING, info.SerializeToString())
    info.type_info.new_types["port_t"].translated_type.sdn_bitwidth = 49
    program = load_program(FORWARDING, info.SerializeToString())
    plain = load_program(FORWARDING, p4info("forwarding"))
    assert (program.tables, program.actions) == (plain.tables, plain.actions)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"gone\.json: No such file"):
        load_program(tmp_path / "gone.json", None)


FABRIC = (str(BUILD / "fabric.json"), str(BUILD / "fabric.p4info.txtpb"))
RACE = """
import sys, threading
from pathlib import Path
from dataplane.program.loader import load_program

program, p4info = Path(sys.argv[1]), Path(sys.argv[2])
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(4)

def load() -> None:
    barrier.wait()
    load_program(program, p4info)

threads = [threading.Thread(target=load) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("attempt", range(4))
def test_first_programs_may_load_in_several_threads(attempt: int) -> None:
    """A third of such processes crashed while msgspec looked at the program's type for the first time."""
    done = subprocess.run([sys.executable, "-c", RACE, *FABRIC], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), attempt
