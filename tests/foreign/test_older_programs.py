"""Programs and P4Infos that other compilers and versions wrote."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from google.protobuf import json_format

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from dataplane.program.objects import ActionCall
from dataplane.program.operations import FieldRef
from dataplane.switch.abi import Reason
from tests.dataplane.switch.interpreter.harness import PIPELINES, Bench
from tests.foreign.bmv2_json import document, load, p4info

FRAME = bytes.fromhex("000a0001ff")
CRC_OF_1 = zlib.crc32(bytes([0, 1]))
PAGE = Path(__file__).parents[2] / "docs" / "network" / "switch.md"


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_hash_and_drop_of_older_compilers(pipeline: str) -> None:
    """The old primitive `drop` drops; a hash's maximum of 2^64 leaves it whole, one of 2^64 + 1 too."""
    program = document()
    program["actions"][1]["primitives"] = [{"op": "drop", "parameters": []}]
    program["calculations"] = [
        {"name": "crc", "id": 0, "algo": "crc32", "input": [{"type": "field", "value": ["a", "y"]}]}
    ]
    for name, action, maximum in (("send", 2, 1 << 64), ("reflect", 3, (1 << 64) + 1)):
        program["actions"][action]["primitives"] = [
            {
                "op": "modify_field_with_hash_based_offset",
                "parameters": [
                    {"type": "field", "value": ["standard_metadata", "egress_spec"]},
                    {"type": "hexstr", "value": "0x0"},
                    {"type": "calculation", "value": "crc"},
                    {"type": "hexstr", "value": hex(maximum)},
                ],
            }
        ]
        program["pipelines"][0]["tables"][0]["next_tables"] = {"to": name, "drop": None}
        program["pipelines"][0]["tables"][0]["base_default_next"] = name
    bench = Bench(load(program), PIPELINES[pipeline])
    assert bench.send(1, FRAME) == [(CRC_OF_1 & 0x1FF, FRAME)]
    bench.insert("t", (0x0A,), ActionCall("drop"))
    assert bench.send(1, FRAME) == []
    assert bench.pipeline.drops["ingress_drop"] == 1


@pytest.mark.parametrize(
    ("compiler", "op"),
    [("https://github.com/p4lang/p4c-bm", "bit_xor"), (None, "modify_field"), (None, "add_to_field")],
)
def test_programs_of_p4c_bm_are_named_as_p4_14(compiler: str | None, op: str) -> None:
    program = document()
    program["__meta__"] = {"version": [2, 5]} if compiler is None else {"version": [2, 5], "compiler": compiler}
    program["actions"][1]["primitives"] = [{"op": op, "parameters": []}]
    del program["pipelines"][0]["tables"][0]["action_ids"]
    with pytest.raises(ProgramError, match=r"is a P4-14 program, compiled by p4c-bm.*--std p4-14"):
        load(program)


def test_other_faults_keep_their_own_message() -> None:
    program = document()
    program["actions"][1]["primitives"] = [{"op": "modify_field", "parameters": []}]
    with pytest.raises(ProgramError, match="primitive 'modify_field' is not supported"):
        load(program)


def test_p4info_as_json_loads(tmp_path: Path) -> None:
    file = tmp_path / "p.p4info.json"
    file.write_text(json_format.MessageToJson(p4info()))
    loaded = load_program(json.dumps(document()).encode(), file)
    assert loaded.p4info == p4info()
    for wrong in ('{"tables": 7}', "{", '{"nothing": []}'):
        file.write_text(wrong)
        with pytest.raises(ProgramError, match=r"p.p4info.json: is not a P4Info in JSON: "):
            load_program(json.dumps(document()).encode(), file)


@pytest.mark.parametrize(("flag", "binding"), [(True, None), (True, "t"), (False, "t")])
def test_table_counts_by_its_own_flag(flag: bool, binding: str | None) -> None:
    """The flag of the table decides, as in bmv2; compilers of 2017 wrote it without a counter, or a counter alone."""
    program = document()
    program["pipelines"][0]["tables"][0]["with_counters"] = flag
    if binding is not None:
        program["counter_arrays"] = [{"name": "count", "id": 0, "is_direct": True, "binding": binding}]
    bench = Bench(load(program), PIPELINES["interpreter"])
    bench.insert("t", (0x0A,), ActionCall("to", (7,)))
    bench.send(1, FRAME)
    entry = bench.state.tables["t"].get((0x0A,), 0)
    assert entry is not None
    assert (entry.packets, entry.bytes) == ((1, len(FRAME)) if flag else (0, 0))


def test_actions_by_name_of_files_without_their_ids() -> None:
    program = document()
    table = program["pipelines"][0]["tables"][0]
    del table["action_ids"]
    assert load(program).tables["t"].actions == ("to", "drop")
    program["actions"][3]["name"] = "drop"
    with pytest.raises(ProgramError, match=r"tables\[0\]\.actions\[1\]: 2 actions are named 'drop'"):
        load(program)
    table["actions"] = ["to", "gone"]
    with pytest.raises(ProgramError, match=r"tables\[0\]\.actions\[1\]: no actions are named 'gone'"):
        load(program)


def test_keys_without_names_are_those_of_the_p4info_by_place() -> None:
    program = document()
    key = program["pipelines"][0]["tables"][0]["key"][0]
    del key["name"]
    assert load(program, p4info()).tables["t"].keys[0].name == "x"
    assert load(program).tables["t"].keys[0].name == "a.x"
    key["name"] = "y"
    with pytest.raises(ProgramError, match="key field y is not in the P4Info"):
        load(program, p4info())


def test_lookahead_of_a_header_that_sets_its_valid_bit() -> None:
    """As in bmv2, where the field is a copy of the flag: nothing changes, and nothing may read it."""
    program = document()
    state = program["parsers"][0]["parse_states"][0]
    set_valid = {"op": "set", "parameters": [{"type": "field", "value": ["a", "$valid$"]}, {"type": "lookahead"}]}
    state["parser_ops"].append(set_valid)
    bench = Bench(load(program), PIPELINES["interpreter"])
    bench.insert("t", (0x0A,), ActionCall("to", (7,)))
    assert bench.send(1, FRAME) == [(7, FRAME)]
    program["pipelines"][0]["tables"][0]["key"][0]["target"] = ["a", "$valid$"]
    with pytest.raises(ProgramError, match=r"parser_ops\[1\]: setting a.\$valid\$, which is read elsewhere, is not"):
        load(program)


def test_constant_in_a_field_list_is_not_copied() -> None:
    program = document()
    program["field_lists"] = [
        {
            "id": 1,
            "name": "kept",
            "elements": [
                {"type": "hexstr", "value": "0x1", "bitwidth": 8},
                {"type": "field", "value": ["scalars", "port"]},
            ],
        }
    ]
    assert load(program).field_lists == {1: (FieldRef("scalars", "port"),)}


def test_every_drop_of_the_pipeline_is_documented() -> None:
    page = PAGE.read_text("utf-8")
    assert [reason.name for reason in Reason if reason and f"`{reason.name.lower()}`" not in page] == []
