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
    [("https://github.com/p4lang/p4c-bm", "no_op"), (None, "modify_field"), (None, "add_to_field")],
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


def test_every_drop_of_the_pipeline_is_documented() -> None:
    page = PAGE.read_text("utf-8")
    assert [reason.name for reason in Reason if reason and f"`{reason.name.lower()}`" not in page] == []
