"""Tracing a script, or a function by its name, in a process of its own: it may raise, crash, fork, or never end."""

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
"""Of programs that nobody names a longer time for."""
_GRACE_S: Final = 15.0
"""How long a process may take to start, and to write what it has seen, beyond the deadline."""
_FUNCTION: Final = re.compile(r"(?P<place>.+):(?P<function>[A-Za-z_][\w.]*)")
_START: Final = """\
import os, runpy
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
runpy.run_module("controller.cluster.operators.tracing.child", run_name="__main__", alter_sys=True)
"""
"""On one core, said before numpy starts a thread for each: times are then those of one core, as kernels' are, and
threads do not wait for each other where others use the machine. What is counted does not depend on it."""
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
    """Return the graph of a script that is run once with these arguments, in this folder, by this Python.

    What it prints goes to `output` (a file; default: this process's own). A script that raises, crashes or runs longer
    than `deadline_s` gives the graph of what it did until then, as far as that is known, and a line in `problems`.
    OperatorError for a file that is not there or no Python.
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
    """Return the graph of `script.py`, `script.py:function` or `package.module:function`, run as `trace_script` does.

    A function's arguments are Python literals, texts where they are none. Unwatched it runs for its times alone.
    """
    script, module, called = _parts(target, function)
    request = Request(
        script,
        module,
        called,
        tuple(arguments),
        name or called or Path(script).stem,
        category,
        deadline_s,
        os.environ.get("PYTHONPATH"),
        is_watched,
    )
    with tempfile.TemporaryDirectory(prefix="millrace-trace-") as folder:
        write_request(Path(folder), request)
        ending = _run(Path(folder), deadline_s, output)
        found = read_answer(Path(folder))
    if found is None:
        return Traced(OperatorGraph(request.name, (), (), category), 0.0, (ending or "it left no trace",))
    return found


def _parts(target: str, function: str | None) -> tuple[str, str, str]:
    """Return script, module and function that a target names, '' for what it does not."""
    if function is None and (found := _FUNCTION.fullmatch(target)):
        place, called = found["place"], found["function"]
        if not place.endswith(".py"):
            return "", place, called
        return str(_checked(place)), "", called
    return str(_checked(target)), "", ""


def _checked(path: str) -> Path:
    if not Path(path).is_file():
        raise OperatorError(f"{path}: there is no such script; a function is script.py:function or module:function")
    return Path(path)


def _run(folder: Path, deadline_s: float, output: IO[str] | int | None) -> str:
    """Run the traced process to its end; return how it ended where that was not by itself, '' else."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(  # noqa: S603 - this very Python, and what the user asks for
        [sys.executable, "-c", _START, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        start_new_session=True,
    )
    try:
        status = process.wait(deadline_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        return (
            f"it was killed after {deadline_s + _GRACE_S:g} s: it did not let itself be stopped after {deadline_s:g} s"
        )
    finally:
        # Whatever the program has started is in its session, and ends with it.
        _kill_all(process)
    if status < 0:
        return f"it was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"it ended with status {status} before its trace was written" if status else ""


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
