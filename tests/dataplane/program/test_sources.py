"""The tests' compiled programs are p4c's output of their sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.dataplane.program.mutation import OWN_PROGRAMS, PROGRAMS


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on the PATH")
@pytest.mark.parametrize("name", OWN_PROGRAMS)
def test_committed_output_is_up_to_date(name: str, tmp_path: Path) -> None:
    json, info = tmp_path / f"{name}.json", tmp_path / f"{name}.p4info.txtpb"
    command = ["p4c-bm2-ss", f"{name}.p4", "-o", str(json), "--p4runtime-files", str(info)]
    subprocess.run(command, cwd=PROGRAMS, check=True, capture_output=True)
    for made in (json, info):
        assert made.read_bytes() == (PROGRAMS / made.name).read_bytes()


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on the PATH")
def test_a_committed_entries_file_is_what_p4c_writes(tmp_path: Path) -> None:
    made = [tmp_path / f"presets.{ending}" for ending in ("json", "p4info.txtpb", "entries.txtpb")]
    json, info, entries = map(str, made)
    command = ["p4c-bm2-ss", "-o", json, "--p4runtime-files", info, "--p4runtime-entries-files", entries]
    subprocess.run([*command, "presets.p4"], cwd=PROGRAMS, check=True, capture_output=True)
    for file in made:
        assert file.read_bytes() == (PROGRAMS / file.name).read_bytes()
