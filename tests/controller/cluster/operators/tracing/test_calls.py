"""Calls of own functions, reported equally by sys.setprofile and sys.monitoring of installed newer Pythons."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cluster.operators.tracing.instruments import calls

PROGRAM = """
import importlib.util, json, sys

spec = importlib.util.spec_from_file_location("calls", sys.argv[1])
calls = importlib.util.module_from_spec(spec)
spec.loader.exec_module(calls)
seen = []

def recursive(n):
    return 1 if n == 0 else recursive(n - 1)

def generator():
    yield 1
    yield 2

def raising():
    raise ValueError

def watched():
    told = lambda frame: seen.append(["+", frame.f_code.co_name])
    left = lambda code, value: seen.append(["-", code.co_name])
    with calls.calls_reported(lambda name: name == __file__, told, left) as works:
        recursive(1)
        list(generator())
        json.dumps({"a": 1})
        try:
            raising()
        except ValueError:
            pass
    return works

works = [watched(), watched()]
print(json.dumps([sys.version_info[:2] >= (3, 12), works, seen]))
"""
ONCE = [
    *(["+", "recursive"], ["+", "recursive"], ["-", "recursive"], ["-", "recursive"]),
    *(["+", "generator"], ["-", "generator"]) * 3,
    *(["+", "raising"], ["-", "raising"]),
]


@pytest.mark.parametrize("python", [sys.executable, "python3.12", "python3.13", "python3.14"])
def test_calls_and_returns_are_reported_in_order(python: str, tmp_path: Path) -> None:
    interpreter = shutil.which(python)
    if interpreter is None or subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} is missing")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [interpreter, str(tmp_path / "program.py"), calls.__file__]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    _, works, seen = json.loads(output)
    assert works == [True, True]
    assert seen == ONCE * 2
