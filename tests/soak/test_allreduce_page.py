"""The beginning of docs/allreduce.md as it is written: its files, and its lines in a shell."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import ROOT, examples_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


def test_a_training_from_nothing_as_the_page_says(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    page = (ROOT / "docs/allreduce.md").read_text(encoding="utf-8")
    for example in examples_of(page):
        if example.file is not None:
            (tmp_path / example.file).write_text(example.text, encoding="utf-8")
    script = page.partition("```sh\n")[2].partition("```")[0]
    assert script.startswith("millrace fabric up star.yaml")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    # Lines of workers that end at the same time may stand in one.
    losses = dict(re.findall(r"(h\d): by the switch; loss (\de[-+]\d+)", said))
    assert sorted(losses) == ["h1", "h2", "h3", "h4"], said
    assert all(float(loss) < 1e-3 for loss in losses.values())
    assert "job line: h1 h2 h3 h4 are members: a mean is over 4 workers" in said
