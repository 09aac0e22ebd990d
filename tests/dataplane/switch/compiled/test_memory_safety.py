"""No packet, however malformed, makes compiled code read or write outside its buffers.

Programs run in processes of their own, over memory between forbidden pages: see `guarded_packets`. Frames of every
length from 0 to 100, or to 200 where headers are long, random and mangled, go through empty tables and through filled
ones. MILLRACE_EXAMPLES sets the number of scenarios with filled tables a program, and of its own frames a length, 2 if
it is not given; from 10 on code is optimised.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dataplane.switch.compiled import guarded_run
from tests.dataplane.switch.compiled.guarded_memory import Note
from tests.dataplane.switch.compiled.guarded_run import LIE
from tests.dataplane.switch.scenarios import PROGRAMS, ROOT

EXAMPLES = os.environ.get("MILLRACE_EXAMPLES", "2")
PARTS = {"fabric"}
"""Programs contained in others: fabric_aggregation includes fabric."""
LONG = "fabric_aggregation"
RANDOM_SEEDS = ("4", "22")
_SHORT = (*sorted(PROGRAMS.keys() - PARTS - {LONG}), *RANDOM_SEEDS)
_PROCESSES = 3
TOGETHER = ((LONG,), *(_SHORT[first::_PROCESSES] for first in range(_PROCESSES)))
"""Programs grouped by process: starting one takes as long as a short program."""
LIMIT_S = 1500


def run(tmp_path: Path, examples: str, *names: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run programs in a process; return its exit status and last activity."""
    note = tmp_path / "note"
    command = [sys.executable, "-m", guarded_run.__name__, str(note), examples, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done, Note.read(note)


@pytest.mark.parametrize("names", TOGETHER, ids=",".join)
def test_no_frame_leads_outside_of_a_buffer(tmp_path: Path, names: tuple[str, ...]) -> None:
    done, note = run(tmp_path, EXAMPLES, *names)
    assert done.returncode != -signal.SIGSEGV, f"touched a forbidden page in {note}"
    assert done.returncode == 0, f"{note}\n{done.stderr}"
    deparsed = dict(zip(names, map(int, done.stdout.split()), strict=True))
    assert min(deparsed.values()) > 1000, deparsed


def test_one_byte_too_many_is_noticed(tmp_path: Path) -> None:
    """A program with wrong frame lengths dies, and the note shows where."""
    done, note = run(tmp_path, LIE, "parsing")
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert note.startswith("parsing: ")
