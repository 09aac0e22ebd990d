"""The committed program with a fault put back, as JSON for a switch: what the oracle has to notice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dataplane.program.loader import load_program
from dataplane.program.model import Program

Patch = Callable[[dict[str, Any]], None]
"""Changes a program's JSON in place; asserts that there is something to change."""


def marker_before_check(program: dict[str, Any]) -> None:
    """Take a probe marker out of the packet before it is known whether INT behind it fits: a marker without a shim is
    no payload to ingress, and INT is put before it, and taken out with it."""
    states = {state["name"]: state for state in program["parsers"][0]["parse_states"]}
    check, extract, peek = (
        states[name] for name in ("check_int_behind_marker", "parse_probe_marker", "peek_probe_marker")
    )
    assert _redirect(peek, check["name"], extract["name"]) == 2
    assert _redirect(extract, "parse_int", "check_int") == 1


def payload_marker_forgotten(program: dict[str, Any]) -> None:
    """Omit the marker when restoring a payload that only looks like INT."""
    (action,) = (candidate for candidate in program["actions"] if candidate["name"].endswith("int_is_payload"))
    kept = [primitive for primitive in action["primitives"] if "payload_probe_marker" not in json.dumps(primitive)]
    assert len(kept) == len(action["primitives"]) - 1
    action["primitives"] = kept


def second_tag_over_the_first(program: dict[str, Any]) -> None:
    """Follow VLAN tags as far as they go, with room for one: the inner tag takes the outer one's place."""
    states = {state["name"]: state for state in program["parsers"][0]["parse_states"]}
    ethernet, vlan = states["parse_ethernet"]["transitions"], states["parse_vlan"]["transitions"]
    (tag,) = (candidate for candidate in ethernet if candidate["next_state"] == "parse_vlan")
    ethernet.insert(0, {**tag, "value": "0x88a8"})
    vlan.insert(0, dict(tag))


def _redirect(state: dict[str, Any], old: str, new: str) -> int:
    """Have a state's transitions go elsewhere; return how many did."""
    transitions = [transition for transition in state["transitions"] if transition["next_state"] == old]
    for transition in transitions:
        transition["next_state"] = new
    return len(transitions)


def mutant(patch: Patch, program: Path, p4info: Path, folder: Path) -> Program:
    """Return a program with a patch; the patched JSON goes to a folder."""
    document = json.loads(program.read_bytes())
    patch(document)
    path = folder / f"{patch.__name__}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return load_program(path, p4info)
