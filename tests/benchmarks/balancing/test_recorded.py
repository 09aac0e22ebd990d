"""Recorded duty cycles are read as they are written, and wrong files say where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.balancing.family import FULL
from tests.benchmarks.balancing.recorded import RecordedError, duty_cycles, levels_of


def written(folder: Path, *lines: str) -> Path:
    file = folder / "cycles.csv"
    file.write_text("\n".join(("device,minute,duty", *lines)) + "\n")
    return file


def test_a_recording_becomes_levels(tmp_path: Path) -> None:
    cycles = duty_cycles(written(tmp_path, "a,0,0.25", "a,1,1.0", "a,3,0.5"))
    assert cycles is not None
    assert cycles["a"].tolist() == [0.25, 1.0, 0.0, 0.5]
    levels = levels_of(cycles, 8, seed=1, device=0)
    assert sorted(levels.tolist()) == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5, FULL, FULL]
    assert np.array_equal(levels[:4], levels[4:])


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    assert duty_cycles(tmp_path / "none.csv") is None


@pytest.mark.parametrize(("line", "problem"), [("a,0,1.5", "line 2: .* 1.5"), ("a,x,1", "line 2"), ("a,-1,1", "-1")])
def test_a_wrong_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(RecordedError, match=problem):
        duty_cycles(written(tmp_path, line))
