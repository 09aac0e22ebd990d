"""A small bmv2 JSON program, as p4c writes it: one header, one table, and whatever a test changes in it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from finsy.proto import p4i
from google.protobuf import text_format

from dataplane.program.loader import load_program
from dataplane.program.model import Program

_STANDARD = [
    *(["ingress_port", 9, False], ["egress_spec", 9, False], ["egress_port", 9, False]),
    *(["instance_type", 32, False], ["packet_length", 32, False], ["mcast_grp", 16, False], ["_padding", 5, False]),
]
_EGRESS_SPEC = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
_PORT = {"type": "field", "value": ["scalars", "port"]}
DROP = {"op": "mark_to_drop", "parameters": [{"type": "header", "value": "standard_metadata"}]}
SELECTOR = {"algo": "crc16", "input": [{"type": "field", "value": ["a", "y"]}]}

_PROGRAM: dict[str, Any] = {
    "header_types": [
        {"name": "scalars_0", "id": 0, "fields": [["port", 9, False], ["_padding", 7, False]]},
        {"name": "standard_metadata", "id": 1, "fields": _STANDARD},
        {"name": "a", "id": 2, "fields": [["x", 16, False], ["y", 16, False]]},
    ],
    "headers": [
        {"name": "scalars", "id": 0, "header_type": "scalars_0", "metadata": True},
        {"name": "standard_metadata", "id": 1, "header_type": "standard_metadata", "metadata": True},
        {"name": "a", "id": 2, "header_type": "a", "metadata": False},
    ],
    "header_stacks": [],
    "errors": [["NoError", 0], ["PacketTooShort", 1]],
    "parsers": [
        {
            "name": "parser",
            "id": 0,
            "init_state": "start",
            "parse_states": [
                {
                    "name": "start",
                    "id": 0,
                    "parser_ops": [{"op": "extract", "parameters": [{"type": "regular", "value": "a"}]}],
                    "transitions": [{"type": "default", "value": None, "mask": None, "next_state": None}],
                    "transition_key": [],
                }
            ],
        }
    ],
    "deparsers": [{"name": "deparser", "id": 0, "order": ["a"], "primitives": []}],
    "counter_arrays": [],
    "meter_arrays": [],
    "register_arrays": [],
    "calculations": [],
    "actions": [
        {
            "name": "to",
            "id": 0,
            "runtime_data": [{"name": "port", "bitwidth": 9}],
            "primitives": [{"op": "assign", "parameters": [_PORT, {"type": "runtime_data", "value": 0}]}],
        },
        {"name": "drop", "id": 1, "runtime_data": [], "primitives": [DROP]},
        {
            "name": "send",
            "id": 2,
            "runtime_data": [],
            "primitives": [{"op": "assign", "parameters": [_EGRESS_SPEC, _PORT]}],
        },
        {
            "name": "reflect",
            "id": 3,
            "runtime_data": [],
            "primitives": [{"op": "assign", "parameters": [_EGRESS_SPEC, {"type": "hexstr", "value": "0x005"}]}],
        },
    ],
    "pipelines": [
        {
            "name": "ingress",
            "id": 0,
            "init_table": "t",
            "tables": [
                {
                    "name": "t",
                    "id": 0,
                    "key": [{"match_type": "exact", "name": "x", "target": ["a", "x"], "mask": None}],
                    "match_type": "exact",
                    "type": "simple",
                    "max_size": 16,
                    "with_counters": False,
                    "support_timeout": False,
                    "direct_meters": None,
                    "action_ids": [0, 1],
                    "actions": ["to", "drop"],
                    "base_default_next": "send",
                    "next_tables": {"to": "send", "drop": None},
                }
            ],
            "action_profiles": [],
            "conditionals": [],
            "action_calls": [
                {"name": "send", "id": 0, "action_id": 2, "next_node": None},
                {"name": "reflect", "id": 1, "action_id": 3, "next_node": None},
            ],
        },
        {"name": "egress", "id": 1, "init_table": None, "tables": [], "action_profiles": [], "conditionals": []},
    ],
    "checksums": [],
    "program": "foreign.p4",
    "__meta__": {"version": [2, 23], "compiler": "https://github.com/p4lang/p4c"},
}

_P4INFO = """
tables {
  preamble { id: 0x02000001 name: "t" alias: "t" }
  match_fields { id: 1 name: "x" bitwidth: 16 match_type: EXACT }
  action_refs { id: 0x01000001 }
  action_refs { id: 0x01000002 }
  size: 16
}
actions {
  preamble { id: 0x01000001 name: "to" alias: "to" }
  params { id: 1 name: "port" bitwidth: 9 }
}
actions { preamble { id: 0x01000002 name: "drop" alias: "drop" } }
"""


def document(kind: str = "simple") -> dict[str, Any]:
    """Return a program whose table is of a type of bmv2: simple, indirect or indirect_ws.

    An entry's `to` gives the port that the call `send`, which follows the table, sends to; `reflect`, to port 5, is
    called by nobody.
    """
    program = copy.deepcopy(_PROGRAM)
    if kind != "simple":
        ingress = program["pipelines"][0]
        ingress["tables"][0] |= {"type": kind, "action_profile": "ap"}
        profile = {"name": "ap", "id": 0, "max_size": 8}
        ingress["action_profiles"] = [profile | ({"selector": SELECTOR} if kind == "indirect_ws" else {})]
    return program


def p4info(kind: str = "simple") -> p4i.P4Info:
    """Return the P4Info of `document(kind)`."""
    info = text_format.Parse(_P4INFO, p4i.P4Info())
    if kind != "simple":
        info.tables[0].implementation_id = 0x11000001
        profile = info.action_profiles.add(table_ids=[0x02000001], with_selector=kind == "indirect_ws", size=8)
        profile.preamble.id, profile.preamble.name, profile.preamble.alias = 0x11000001, "ap", "ap"
    return info


def load(program: dict[str, Any], info: p4i.P4Info | None = None) -> Program:
    """Load a document, with a P4Info or without one."""
    return load_program(json.dumps(program).encode(), None if info is None else info.SerializeToString())


def write(program: dict[str, Any], file: Path) -> Path:
    """Write a document to a file; return the file."""
    file.write_text(json.dumps(program))
    return file
