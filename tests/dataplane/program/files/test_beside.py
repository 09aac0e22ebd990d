"""Files next to a program's JSON are found by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.program.files.beside import ENTRIES_ENDINGS, P4INFO_ENDINGS, find_entries, find_p4info


@pytest.mark.parametrize("ending", P4INFO_ENDINGS)
def test_a_p4info_is_found_by_each_of_its_names(tmp_path: Path, ending: str) -> None:
    assert find_p4info(tmp_path / "basic.json") is None
    (tmp_path / f"basic{ending}").touch()
    assert find_p4info(tmp_path / "basic.json") == tmp_path / f"basic{ending}"


@pytest.mark.parametrize("ending", ENTRIES_ENDINGS)
def test_entries_are_found_by_each_of_their_names(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"basic{ending}").touch()
    assert find_entries(tmp_path / "basic.json") == tmp_path / f"basic{ending}"


@pytest.mark.parametrize("program", ["", ".", "/"])
def test_nothing_is_beside_what_has_no_name(program: str) -> None:
    assert find_p4info(Path(program)) is None
    assert find_entries(Path(program)) is None
