"""Runtime files in the style of p4lang's tutorials: every way of writing a match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError
from dataplane.stf.entries import fill_from_file
from dataplane.switch.switch import Switch
from dataplane.switch.tables.match import Match
from tests.foreign.bmv2_json import document, load


def matches(folder: Path, kind: str, written: Any) -> list[Match]:
    """Return the matches in a table after its file with one entry."""
    program = document()
    program["pipelines"][0]["tables"][0]["key"][0]["match_type"] = kind
    switch = Switch(0, [], VirtualClock())
    switch.commit(load(program))
    entry = {"table": "t", "match": {"x": written}, "action_name": "to", "action_params": {"port": 2}}
    file = folder / "s1-runtime.json"
    file.write_text(json.dumps({"target": "bmv2", "table_entries": [entry]}))
    fill_from_file(switch, file)
    assert switch.state is not None
    return [entry.match for entry in switch.state.tables["t"]]


@pytest.mark.parametrize(
    ("kind", "written", "match"),
    [
        ("exact", 1, 1),
        ("exact", [1], 1),
        ("exact", ["0x01"], 1),
        ("lpm", [0x100], (0x100, 16)),
        ("lpm", [0x100, 8], (0x100, 8)),
        ("lpm", [0x100, 0], (0, 0)),
        ("ternary", [3], (3, 0xFFFF)),
        ("ternary", [3, 1], (1, 1)),
        ("range", [3], (3, 3)),
        ("range", [3, 7], (3, 7)),
    ],
)
def test_matches_are_values_or_lists(tmp_path: Path, kind: str, written: object, match: object) -> None:
    assert matches(tmp_path, kind, written) == [(match,)]


@pytest.mark.parametrize(
    ("kind", "written", "problem"),
    [
        ("exact", [], r"\[\] is neither one value nor two"),
        ("exact", [1, 2], r"\[1, 2\] is not one value"),
        ("ternary", [1, 2, 3], r"\[1, 2, 3\] is neither one value nor two"),
        ("lpm", [1, 17], "17 is no prefix length of 16 bits"),
        ("lpm", [1, -1], "-1 is no prefix length of 16 bits"),
        ("exact", ["one"], "'one' is neither a number nor an address"),
    ],
)
def test_wrong_matches_name_file_entry_and_field(tmp_path: Path, kind: str, written: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"s1-runtime.json: table_entries\[0\].*t: x.*{problem}"):
        matches(tmp_path, kind, written)
