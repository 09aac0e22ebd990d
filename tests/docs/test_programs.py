"""Runs docs/examples/*.py as their docstrings say, and compares their output with the one shown.

What a program prints is the last indented block of its docstring; `...` stands for anything, as doctest's ELLIPSIS.
"""

from __future__ import annotations

import ast
import doctest
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
OWN = EXAMPLES / "own_program"
DIGESTS = OWN / "forwarder.sha256"
HANGS_AFTER_S = 300.0
LONGEST_LINES = 120
"""An example is read in one go."""


def docstring_of(program: Path) -> str:
    return ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""


def output_of(docstring: str) -> str:
    blocks = re.findall(r"(?:^ {4}.*\n)+", docstring + "\n", re.MULTILINE)
    return textwrap.dedent(blocks[-1])


def matches(want: str, got: str) -> bool:
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_prints_what_its_docstring_says(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert matches(output_of(docstring_of(program)), done.stdout), done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_says_how_to_run_it_and_is_short(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    assert f"\n    python docs/examples/{program.name}" in docstring_of(program)
    assert text.count("\n") <= LONGEST_LINES


def test_the_page_of_examples_has_all_of_them() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w/]+\.py)\)", page)) == {program.name for program in PROGRAMS}


def test_wrong_output_is_told() -> None:
    want = output_of("Does this.\n\n    python x.py\n\nprints\n\n    1\n    ...\n    3\n\nSee that.")
    assert matches(want, "1\n2\n3\n")
    assert not matches(want, "1\n2\n4\n")


def test_the_forwarder_is_what_was_compiled() -> None:
    recorded = dict(line.split()[::-1] for line in DIGESTS.read_text(encoding="utf-8").splitlines())
    entries = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in OWN.iterdir() if path.name != DIGESTS.name
    }
    assert entries == recorded, (
        f"compile again, as {OWN.name}/forwarder.p4 says, then: sha256sum forwarder.[jp]* > {DIGESTS.name}"
    )


@pytest.mark.p4c
def test_the_forwarder_compiles_to_what_is_there(tmp_path: Path) -> None:
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        pytest.skip("needs p4c-bm2-ss")
    outputs = ["--p4runtime-files", str(tmp_path / "forwarder.p4info.txtpb"), "-o", str(tmp_path / "forwarder.json")]
    subprocess.run([compiler, "--arch", "v1model", *outputs, "forwarder.p4"], cwd=OWN, check=True)
    assert (tmp_path / "forwarder.p4info.txtpb").read_text() == (OWN / "forwarder.p4info.txtpb").read_text()
    assert _without_version(tmp_path / "forwarder.json") == _without_version(OWN / "forwarder.json")


def _without_version(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    content.pop("__meta__")
    return content
