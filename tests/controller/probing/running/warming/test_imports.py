"""CPU time of a warm process's imports before forking, as known to its forks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controller.probing.running.warming.imports import import_timed, saved_s

BUSY = """
import time
until_s = time.process_time() + 0.02
while time.process_time() < until_s:
    pass
"""


def test_imports_count_for_the_libraries_that_a_run_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "busy_library").mkdir()
    for module in ("__init__", "part"):
        (tmp_path / "busy_library" / f"{module}.py").write_text(BUSY)
    monkeypatch.syspath_prepend(str(tmp_path))
    import_timed("busy_library")
    once_s = saved_s(["busy_library"])
    import_timed("busy_library.part")
    assert 0.02 <= once_s <= saved_s(["busy_library", "busy_library"]) - 0.02
    assert saved_s(["another_library"]) == 0
    sys.modules.pop("busy_library.part")
    sys.modules.pop("busy_library")
