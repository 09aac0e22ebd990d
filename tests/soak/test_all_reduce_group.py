"""The all-reduce job as a group of pods, as a user runs it: docs/examples/all_reduce_group."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGS_AFTER_S = 600
SAYS = r"""pods of group line run on h\d h\d h\d
step 0: 3 workers, the same bits at all of them: True, largest difference from numpy \de-07
step 1: 3 workers, the same bits at all of them: True, largest difference from numpy \de-07
step 2: 3 workers, the same bits at all of them: True, largest difference from numpy \de-07
torn down: no container, no namespace, no process of it is left
"""

pytestmark = [pytest.mark.root, pytest.mark.containers, pytest.mark.slow]


def test_containerised_workers_reduce_in_switches_and_clean_up() -> None:
    for program in ("runc", "conmon"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (Debian package)")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/examples/all_reduce_group/run.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(SAYS, done.stdout), done.stdout
