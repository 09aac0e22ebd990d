"""The line that tells why a program ended, among those that do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dataplane.local.endings import how_ended, read_lines, why_ended

READY = "2026-11-30 08:30:32,127 INFO millrace.switch: switch 2 ready: ports 1@p1, program none yet"
TOLD = {
    "command's error": (["millrace paths: ready: unix:/p.sock", "millrace: x.db: disk full"], "x.db: disk full"),
    "switch's error": ([READY, "millrace switch: --grpc: address in use", READY], "--grpc: address in use"),
    "agent's error": (["millrace agent: got no start time"], "got no start time"),
    "record before others": (
        [
            "2026-11-30T08:30:51.462Z ERROR millrace.collector: history: no space left",
            "2026-11-30T08:30:51.463Z INFO millrace.collector: stopping",
        ],
        "history: no space left",
    ),
    "plain record": (
        ["millrace paths: ERROR: the database is damaged", "millrace paths: WARNING: 3 flows wait"],
        "the database is damaged",
    ),
    "record in JSON": (
        ['{"time": "t", "level": "error", "message": "no"}', '{"time": "t", "level": "info", "message": "bye"}'],
        "no",
    ),
    "exception of several lines": (
        [READY, "Traceback (most recent call last):", '  File "x.py", line 1', "ValueError: bad", "see the manual"],
        "ValueError: bad",
    ),
    "error after a stack trace that was logged": (
        ["Traceback (most recent call last):", "  frame", "KeyError: 3", READY, "millrace: the port is taken"],
        "the port is taken",
    ),
    "usage": (["Usage: millrace x", "Try 'millrace x --help'", "", "Error: No such option"], "Error: No such option"),
}


@pytest.mark.parametrize("output", TOLD.values(), ids=TOLD)
def test_line_that_tells_is_found(output: tuple[list[str], str]) -> None:
    lines, told = output
    assert why_ended(1, lines) == f"ended with status 1: {told}"


def test_records_below_error_are_no_reason() -> None:
    assert why_ended(3, [READY]) == f"ended with status 3 without saying why; its last line: {READY}"
    assert why_ended(1, ["x.py:3: DeprecationWarning: old", "  old()"]).startswith("ended with status 1 without")
    assert why_ended(1, ["", " "]) == "ended with status 1: no output"
    assert why_ended(0, [READY]) == "ended with status 0"


def test_signals_are_named_and_only_faults_have_a_line() -> None:
    fault = [READY, "terminate called after throwing an instance of 'std::bad_alloc'"]
    assert why_ended(-9, fault) == "killed by SIGKILL"
    assert why_ended(-6, fault) == f"killed by SIGABRT: {fault[1]}"
    assert why_ended(-11, [READY]) == "killed by SIGSEGV"
    assert how_ended(-50) == "killed by signal 50"


def test_interpreter_tells_why_it_ended(tmp_path: Path) -> None:
    """This version of Python writes the stack trace, of several exceptions."""
    log = tmp_path / "log"
    program = "try:\n 1 / 0\nexcept ArithmeticError as error:\n raise OSError('no route\\nto it') from error"
    with log.open("wb") as file:
        file.write(f"{READY}\nmillrace switch: an earlier process's error\n".encode())
        file.flush()
        begin = file.tell()
        status = subprocess.run([sys.executable, "-c", program], check=False, stderr=file).returncode
    assert why_ended(status, read_lines(log, begin)) == "ended with status 1: OSError: no route"
    assert read_lines(tmp_path / "none") == []
