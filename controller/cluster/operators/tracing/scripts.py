"""Tracing of a script, or a named function, in a separate process: it may raise, crash, fork, or never end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.tracing.exchange import Request, read_answer, write_request
from controller.cluster.operators.tracing.values import Traced
from controller.cluster.operators.values import OperatorGraph

DEADLINE_S: Final = 120.0
"""Default deadline of a program."""
_GRACE_S: Final = 15.0
"""Time for a process to start and to write its trace, beyond the deadline."""
_FUNCTION: Final = re.compile(r"(?P<place>.+):(?P<function>[A-Za-z_][\w.]*)")
_START: Final = """\
import os, runpy
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
runpy.run_module("controller.cluster.operators.tracing.child", run_name="__main__", alter_sys=True)
"""
"""Runs on one core, chosen before numpy starts a thread per core: times are then comparable with kernels', and threads
do not wait for each other on a busy machine. Counts do not depend on it.
"""
_ROOT: Final = Path(__file__).parents[4]


def trace_script(
    path: Path | str,
    arguments: Sequence[str] = (),
    *,
    name: str = "",
    category: str = "",
    deadline_s: float = DEADLINE_S,
    output: IO[str] | int | None = None,
) -> Traced:
    """Return the graph of a script, run once with these arguments, in this folder, by this Python.

    Its output goes to `output` (a file; default: this process's own). A script that raises, crashes or exceeds
    `deadline_s` gives the graph of its work until then, as far as known, and a line in `problems`. OperatorError for a
    missing file or a file that is not Python.
    """
    return trace_target(
        str(path), arguments, name=name, category=category, deadline_s=deadline_s, output=output, function=""
    )


def trace_target(
    target: str,
    arguments: Sequence[str] = (),
    *,
    name: str = "",
    category: str = "",
    deadline_s: float = DEADLINE_S,
    output: IO[str] | int | None = None,
    function: str | None = None,
    is_watched: bool = True,
) -> Traced:
    """Return the graph of `script.py`, `script.py:function` or `package.module:function`, run like `trace_script`.

    A function's arguments are Python literals, otherwise strings. Untraced, it runs only for its times.
    """
    script, module, function_name = _parts(target, function)
    request = Request(
        script,
        module,
        function_name,
        tuple(arguments),
        name or function_name or Path(script).stem,
        category,
        deadline_s,
        os.environ.get("PYTHONPATH"),
        is_watched,
    )
    with tempfile.TemporaryDirectory(prefix="millrace-trace-") as folder:
        write_request(Path(folder), request)
        ending = _run(Path(folder), deadline_s, output)
        trace = read_answer(Path(folder))
    if trace is None:
        return Traced(OperatorGraph(request.name, (), (), category), 0.0, (ending or "it left no trace",))
    return trace


def _parts(target: str, function: str | None) -> tuple[str, str, str]:
    """Return the script, module and function in a target, '' for missing parts."""
    if function is None and (match := _FUNCTION.fullmatch(target)):
        source, function_name = match["place"], match["function"]
        if not source.endswith(".py"):
            return "", source, function_name
        return str(_checked(source)), "", function_name
    return str(_checked(target)), "", ""


def _checked(path: str) -> Path:
    if not Path(path).is_file():
        raise OperatorError(f"{path}: no such script; a function is script.py:function or module:function")
    return Path(path)


def _run(folder: Path, deadline_s: float, output: IO[str] | int | None) -> str:
    """Run the traced process to its end; return how it was killed or failed, '' if it ended normally."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(  # noqa: S603 - this Python, and the user's program
        [sys.executable, "-c", _START, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        start_new_session=True,
    )
    try:
        status = process.wait(deadline_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        return f"it was killed after {deadline_s + _GRACE_S:g} s: it did not stop after {deadline_s:g} s"
    finally:
        # The program's children share its session and are killed with it.
        _kill_all(process)
    if status < 0:
        return f"it was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"it ended with status {status} before its trace was written" if status else ""


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        # A session's leader also leads a process group, which has its number.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
