"""Malformed, unsupported or inconsistent programs are refused with file, place and name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from tests.dataplane.program.mutation import DELETE, JsonPath, changed, document, p4info

BASE = document("forwarding")
INFO = p4info("forwarding")


FILTER = next(
    ("pipelines", 0, "tables", index)
    for index, table in enumerate(BASE["pipelines"][0]["tables"])
    if table["name"] == "Inbound.filter"
)
ROUTES = next(
    ("pipelines", 0, "tables", index)
    for index, table in enumerate(BASE["pipelines"][0]["tables"])
    if table["name"] == "Inbound.routes"
)


def text(path: JsonPath) -> str:
    """Return a path as errors spell it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


@pytest.mark.parametrize(
    ("path", "value", "construct", "problem"),
    [
        (("parsers",), DELETE, None, "missing required field `parsers`"),
        (("parsers", 0, "name"), 7, "parsers[0].name", "Expected `str`, got `int`"),
        (("parsers", 0, "name"), "other", "parsers", "not exactly one called 'parser'"),
        (("__meta__", "version"), [3, 0], "__meta__.version", "not 2.x"),
        (("header_types", 1, "fields", 0), ["x", -1, False], "header_types[1].fields[0]", "width of -1 bits"),
        (("header_types", 1, "fields", 0), ["x", 1 << 40, False], "header_types[1].fields[0]", "not possible"),
        (("header_types", 1, "fields", 0), ["x"], "header_types[1].fields[0]", "name, width and sign"),
        (("headers", 0, "header_type"), "none_t", "headers[0]", "no header type is called 'none_t'"),
        (("headers", 1, "name"), BASE["headers"][0]["name"], "headers[1]", "declared twice"),
        (("parsers", 0, "init_state"), "nowhere", "parsers[0].init_state", "no state is called 'nowhere'"),
        (
            ("parsers", 0, "parse_states", 0, "transitions", 0, "value"),
            "0x10000",
            "parsers[0].parse_states[0].transitions[0]",
            "does not fit 16 bits",
        ),
        (
            ("parsers", 0, "parse_states", 0, "transitions", 0, "next_state"),
            "nowhere",
            "parsers[0].parse_states[0].transitions[0]",
            "no state",
        ),
        (
            ("parsers", 0, "parse_states", 0, "parser_ops", 0, "parameters", 0, "value"),
            "gone",
            "parsers[0].parse_states[0].parser_ops[0].parameters[0]",
            "no header is called 'gone'",
        ),
        (("deparsers", 0, "order", 0), "gone", "deparsers[0].order[0]", "no header is called 'gone'"),
        (("deparsers", 0, "order", 0), "standard_metadata", "deparsers[0].order[0]", "metadata"),
        ((*FILTER, "key", 0, "target"), ["ipv4", "gone"], text((*FILTER, "key", 0)), "no field 'gone'"),
        ((*FILTER, "key", 0, "match_type"), "fuzzy", text((*FILTER, "key", 0)), "match type 'fuzzy'"),
        ((*FILTER, "action_ids", 0), 999, text((*FILTER, "action_ids", 0)), "no action has the id 999"),
        ((*FILTER, "next_tables"), {}, text((*FILTER, "next_tables")), "what follows"),
        ((*FILTER, "next_tables", "Inbound.allow"), "gone", "pipelines[0]", "named 'gone'"),
        ((*FILTER, "next_tables", "Inbound.allow"), "Inbound.filter", "pipelines[0]", "follows itself"),
        ((*FILTER, "default_entry", "action_data"), ["0x1"], text((*FILTER, "default_entry")), "takes 0 arguments"),
        (
            (*FILTER, "entries", 0, "match_key", 1, "key"),
            "0x111",
            text((*FILTER, "entries", 0, "match_key", 1)),
            "does not fit 8 bits",
        ),
        ((*FILTER, "entries", 1, "action_entry", "action_data"), ["zz"], None, "not a hexadecimal string"),
        ((*ROUTES, "action_profile"), "gone", text((*ROUTES, "action_profile")), "no action profile is called 'gone'"),
        (("register_arrays", 0, "size"), 1 << 40, "register_arrays[0]", "cells is not possible"),
        (("calculations", 0, "algo"), "md5", "calculations[0].algo", "hash algorithm 'md5' is not supported"),
        (("checksums", 0, "calculation"), "gone", "checksums[0].calculation", "no calculation is called 'gone'"),
        (("checksums", 0, "type"), "ipv4", "checksums[0].type", "a checksum of type 'ipv4' is not supported"),
        (("errors", 1), ["NoError", 3], "errors[1]", "'NoError' is declared twice"),
        (("errors", 1), ["Other", 0], "errors[1]", "not a unique code"),
        (("header_unions",), [{"name": "u", "header_ids": [99]}], "header_unions[0].header_ids", "of this union only"),
        (
            ("parsers", 0, "parse_states", 0, "parser_ops", 0, "parameters", 0, "type"),
            "union_stack",
            "parsers[0].parse_states[0].parser_ops[0].parameters[0]",
            "extraction to 'union_stack' is not supported",
        ),
        (("meter_arrays",), [{"name": "policer"}], "meter_arrays[0]", "missing required field `type`"),
        (
            ("meter_arrays",),
            [{"name": "policer", "type": "flows", "size": 1}],
            "meter_arrays[0].type",
            "a meter of type 'flows' is not supported",
        ),
        (
            ("meter_arrays",),
            [{"name": "policer", "type": "bytes", "rate_count": 1, "size": 1}],
            "meter_arrays[0].rate_count",
            "meter policer with 1 rates is not supported",
        ),
        (
            ("meter_arrays",),
            [{"name": "policer", "type": "bytes", "size": -1}],
            "meter_arrays[0]",
            "an array of -1 cells is not possible",
        ),
        (
            ("meter_arrays",),
            [{"name": "policer", "type": "bytes", "is_direct": True}],
            "meter_arrays[0]",
            "direct meter policer has no table",
        ),
        ((*ROUTES, "direct_meters"), "policer", text((*ROUTES, "direct_meters")), "does not agree with meter_arrays"),
        (
            ("learn_lists",),
            [{"name": "seen", "id": 1, "elements": [{"type": "hexstr", "value": "0x1"}]}],
            "learn_lists[0].elements[0]",
            "'hexstr' in digest seen is not supported",
        ),
        (
            ("learn_lists",),
            [{"name": "seen", "id": 1, "elements": []}] * 2,
            "learn_lists[1]",
            "1 is not a unique id",
        ),
        (
            ("parse_vsets",),
            [{"name": "ports", "compressed_bitwidth": 0}],
            "parse_vsets[0]",
            "a width of 0 bits is not possible",
        ),
        (
            ("parsers", 0, "parse_states", 0, "transitions", 0, "type"),
            "parse_vset",
            "parsers[0].parse_states[0].transitions[0]",
            "no parser value set is called",
        ),
        (
            ("header_union_stacks",),
            [{"name": "us", "union_type": "u", "header_union_ids": [0]}],
            "header_union_stacks[0]",
            "no header union type is called 'u'",
        ),
        (
            (*FILTER, "key", 0, "target"),
            {"type": "expression"},
            text((*FILTER, "key", 0)),
            "an expression in a table's key",
        ),
        (("extern_instances",), [{"name": "box"}], "extern_instances[0]", "extern instance box is not supported"),
    ],
)
def test_place_and_problem(path: JsonPath, value: object, construct: str | None, problem: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(problem)) as caught:
        load_program(changed(BASE, path, value), INFO)
    assert caught.value.file == "<json>"
    if construct is not None:
        assert caught.value.construct == construct
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "parameters", "problem"),
    [
        ("fly", [], "primitive 'fly' is not supported"),
        ("generate_digest", [{"type": "hexstr", "value": "0x0"}] * 2, "no digest has the id 0"),
        (
            "execute_meter",
            [
                {"type": "meter_array", "value": "m"},
                {"type": "hexstr", "value": "0x0"},
                {"type": "field", "value": ["ipv4", "ttl"]},
            ],
            "no meter is called 'm'",
        ),
        ("assign_union", [{"type": "header_union", "value": "u"}] * 2, "no header union is called 'u'"),
        (
            "push",
            [{"type": "header_union_stack", "value": "u"}, {"type": "hexstr", "value": "0x1"}],
            "no union stack is called",
        ),
        ("assign", [], "assign takes 2 parameters, not 0"),
        ("assign", [{"type": "hexstr", "value": "0x1"}] * 2, "cannot be assigned to"),
        ("assign", [{"type": "field", "value": ["ipv4", "$valid$"]}, {"type": "hexstr", "value": "0x1"}], "valid bit"),
        ("assign", [{"type": "field", "value": ["ipv4", "ttl"]}, {"type": "bool", "value": True}], "a truth value"),
        ("assign", [{"type": "field", "value": ["ipv4", "ttl"]}, {"type": "runtime_data", "value": 9}], "no parameter"),
        ("add_header", [{"type": "header", "value": "standard_metadata"}], "always valid"),
        ("_jump", [{"type": "hexstr", "value": "0x63"}], "no primitive 99"),
        ("resubmit", [{"type": "hexstr", "value": "0x63"}], "no field list has the id 99"),
        ("register_write", [{"type": "register_array", "value": "gone"}] * 3, "no register is called 'gone'"),
        ("assign_header", [{"type": "header", "value": name} for name in ("ipv4", "ethernet")], "copies a ethernet_t"),
        (
            "push",
            [{"type": "header", "value": "ipv4"}, {"type": "hexstr", "value": "0x1"}],
            "a header stack is expected",
        ),
    ],
)
def test_primitive(op: str, parameters: list[Any], problem: str) -> None:
    data = changed(BASE, ("actions", 0, "primitives"), [{"op": op, "parameters": parameters}])
    with pytest.raises(ProgramError, match=re.escape(problem)) as caught:
        load_program(data, INFO)
    assert (caught.value.construct or "").startswith("actions[0].primitives[0]")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("bitwidth: 32", "bitwidth: 31", "of 32 bits, in the P4Info"),
        ("match_type: LPM", "match_type: EXACT", "is lpm of 32 bits, in the P4Info exact"),
        ('name: "hdr.ipv4.dst_addr"', 'name: "hdr.ipv4.to"', "hdr.ipv4.dst_addr is not in the P4Info"),
        ('name: "Inbound.routes"', 'name: "Inbound.paths"', "table Inbound.routes is not in the P4Info"),
        ('name: "Inbound.forward"', 'name: "Inbound.send"', "only one of JSON and P4Info has the action Inbound."),
        ("bitwidth: 9", "bitwidth: 10", "action Inbound.forward: has other parameters in the JSON"),
        ('name: "Inbound.reasons"', 'name: "Inbound.causes"', "counter Inbound.causes: is not in the JSON"),
        ("size: 4\n", "size: 5\n", "counter Inbound.reasons: has 5 cells, in the JSON 4"),
        ("size: 8\n", "size: 9\n", "register Inbound.packets_from: has 9 cells, in the JSON 8"),
        ("with_selector: true", "", "action profile Inbound.ecmp: has a selector on one side only"),
    ],
)
def test_json_and_p4info_that_do_not_belong_together(old: str, new: str, problem: str) -> None:
    info = INFO.decode()
    assert old in info
    with pytest.raises(ProgramError, match=re.escape(problem)):
        load_program(json.dumps(BASE).encode(), info.replace(old, new, 1).encode())


def test_p4info_of_another_program() -> None:
    with pytest.raises(ProgramError, match="is not in the P4Info"):
        load_program(json.dumps(BASE).encode(), p4info("unions"))


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ('meters { preamble { id: 1 name: "m" } }', "meter m: is not in the JSON"),
        ('value_sets { preamble { id: 1 name: "v" } }', "value set v: is not in the JSON"),
        ('externs { extern_type_name: "e" }', "e: an extern is not supported"),
        ("tables { nonsense: 1 }", "is not a P4Info"),
    ],
)
def test_p4info_with_objects_that_are_not_there(extra: str, problem: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(problem)):
        load_program(json.dumps(BASE).encode(), INFO + extra.encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_what_is_no_program_at_all(data: bytes) -> None:
    with pytest.raises(ProgramError):
        load_program(data, INFO)


def nested(depth: int) -> bytes:
    """Return the program with a condition that is nested `depth` deep."""
    node: dict[str, Any] = {"type": "field", "value": ["ipv4", "ttl"]}
    for _ in range(depth):
        node = {"type": "expression", "value": {"op": "&", "left": node, "right": {"type": "hexstr", "value": "0xff"}}}
    zero = {"type": "hexstr", "value": "0x0"}
    condition = {"type": "expression", "value": {"op": "==", "left": node, "right": zero}}
    return changed(BASE, ("pipelines", 0, "conditionals", 0, "expression"), condition)


def test_deep_expressions() -> None:
    load_program(nested(100), INFO)
    with pytest.raises(ProgramError, match="nested more than"):
        load_program(nested(300), INFO)


def test_json_that_nests_too_deep_is_refused() -> None:
    with pytest.raises(ProgramError, match="is not JSON: maximum recursion depth exceeded"):
        load_program(b'{"nobody_knows": ' + b"[" * 100_000, INFO)
