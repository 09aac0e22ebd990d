"""The process that traces a script, on one core (see `scripts`): run as a program with a folder as argument."""

from __future__ import annotations

import ast
import importlib
import os
import runpy
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.cluster.operators.tracing.exchange import Request, read_request, write_answer
from controller.cluster.operators.tracing.recording import Recorder
from controller.cluster.operators.tracing.running import finished, run_traced, time_callable
from controller.cluster.operators.tracing.values import Traced

_STUCK_S = 1.0
"""Grace after the deadline for a program to return to Python before its call is abandoned."""


def main(folder: Path) -> None:
    """Run the request in a folder, and write the trace there."""
    request = read_request(folder)
    _restore_path(request)
    recorder, pid = Recorder(), os.getpid()
    threading.Thread(target=_exit_when_stuck, args=(request, folder, recorder), daemon=True).start()
    program, deadline_s = _program(request), request.deadline_s
    if request.is_watched:
        traced = run_traced(recorder, program, (), {}, name=request.name, deadline_s=deadline_s)
    else:
        traced = time_callable(program, deadline_s=deadline_s)
    # A program that forks gets here in each of its processes.
    if os.getpid() == pid:
        _write(request, folder, traced)


def _write(request: Request, folder: Path, traced: Traced) -> None:
    write_answer(folder, replace(traced, graph=replace(traced.graph, category=request.category)))


def _exit_when_stuck(request: Request, folder: Path, recorder: Recorder) -> None:
    """Write the trace and exit if a call into a library does not return after the deadline."""
    threading.Event().wait(request.deadline_s + _STUCK_S)
    recorder.problem(
        f"it was stopped after {request.deadline_s:g} s, in a call that did not return: that call is not in the graph"
    )
    _write(request, folder, finished(recorder, request.name, request.deadline_s))
    os._exit(0)


def _restore_path(request: Request) -> None:
    """Restore the environment that the program would have without a tracer."""
    os.environ.pop("PYTHONPATH", None)
    if request.pythonpath is not None:
        os.environ["PYTHONPATH"] = request.pythonpath
    sys.path[0] = str(Path(request.script).resolve().parent) if request.script else os.getcwd()  # noqa: PTH109


def _program(request: Request) -> Callable[[], Any]:
    if request.script and not request.function:
        sys.argv = [request.script, *request.arguments]
        return lambda: runpy.run_path(request.script, run_name="__main__")
    sys.argv = [request.script or request.module]
    return lambda: _function(request)(*(_value(argument) for argument in request.arguments))


def _function(request: Request) -> Callable[..., Any]:
    """Return the function to trace; importing its module is traced, too."""
    module = request.module or Path(request.script).stem
    target: Any = importlib.import_module(module)
    for part in request.function.split("."):
        target = getattr(target, part)
    if not callable(target):
        raise TypeError(f"{module}:{request.function} is not callable")
    function: Callable[..., Any] = target
    return function


def _value(text: str) -> object:
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
