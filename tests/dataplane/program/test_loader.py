"""Programs that load, and what they are then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from dataplane.program.model import CallNode, ConditionNode, TableNode
from dataplane.program.objects import ActionCall, ActionSpec, ConstEntry, KeyField, MatchKind, ProfileSpec, TableSpec
from dataplane.program.operations import FieldRef
from tests.dataplane.program.mutation import PROGRAMS, document, p4info

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
            const_entries=(
                ConstEntry(((0x0A000000, 0xFF000000), (17, 0xFF), 1), 3, ActionCall("Inbound.allow")),
                ConstEntry(((0x0A000000, 0xFF000000), (0, 0), 1), 2, ActionCall("Inbound.drop", (1,))),
                ConstEntry(((0, 0), (0, 0), 0), 1, ActionCall("Inbound.drop", (2,))),
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
    assert [entry.match for entry in program.tables["Inbound.filter"].const_entries] == [
        (None, 17, 1),
        (None, None, 1),
        (None, None, 0),
    ]


def test_table_that_the_compiler_dropped_can_still_be_written_to() -> None:
    gone = (
        b'tables { preamble { id: 7 name: "Inbound.gone" } match_fields { name: "k" bitwidth: 8 match_type: EXACT } }'
    )
    table = load_program(FORWARDING, p4info("forwarding") + gone).tables["Inbound.gone"]
    assert table.keys == (KeyField("k", MatchKind.EXACT, 8),)


@pytest.mark.parametrize("name", ["forwarding", "parsing", "copies", "arithmetic", "unions", "p4rt_entities"])
def test_own_programs_load_from_files(name: str) -> None:
    load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


def test_the_fabric_loads() -> None:
    program = load_program(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb")
    assert {info.preamble.name for info in program.p4info.tables} <= set(program.tables)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"gone\.json: No such file"):
        load_program(tmp_path / "gone.json", None)
