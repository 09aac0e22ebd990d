"""Tracing of a callable in this process."""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

from controller.cluster.operators.tracing import folding, state
from controller.cluster.operators.tracing.arrays import plain, traced
from controller.cluster.operators.tracing.instruments.instrumenting import instrumented
from controller.cluster.operators.tracing.places import is_user_code
from controller.cluster.operators.tracing.recording import Recorder
from controller.cluster.operators.tracing.values import Traced
from controller.cluster.operators.values import OperatorGraph

_AGAIN_S: Final = 0.05
"""Interval at which a program past its deadline is interrupted again."""

_SOON_S: Final = 0.001
_MOST_TRIES: Final = 20
"""Limit of consecutive delays because the tracer itself is running; each takes `_SOON_S`."""
_OWN_FOLDER: Final = str(Path(__file__).parent)


class _DeadlineError(BaseException):
    """The program runs longer than allowed: programs must not catch this."""


def trace_callable(
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    *,
    name: str = "",
    keywords: Mapping[str, Any] | None = None,
    deadline_s: float | None = None,
) -> Traced:
    """Return the graph of a function's computation, by running it once; its result is that of an untraced run.

    A function that raises, or exceeds `deadline_s`, gives the graph of its work until then and a line in `problems`. A
    single call that never returns to Python cannot be stopped from within: trace a script for that. OperatorError if
    another trace is running in this process.
    """
    label = name or getattr(function, "__name__", "callable")
    return run_traced(Recorder(), function, arguments, keywords or {}, name=label, deadline_s=deadline_s)


def run_traced(
    recorder: Recorder,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    name: str,
    deadline_s: float | None,
) -> Traced:
    """Run a function and return what a recorder recorded."""
    with state.tracing(recorder), instrumented(recorder):
        args, kwargs = traced(tuple(arguments)), {key: traced(argument) for key, argument in keywords.items()}
        before_s = recorder.overhead_s
        call = _timed(recorder, lambda: function(*args, **kwargs), deadline_s)
        own_s = recorder.overhead_s - before_s
    trace = finished(recorder, name, call.run_time_s - own_s, plain(call.result))
    return replace(trace, cpu_time_s=max(call.cpu_time_s - own_s, 0.0))


def time_callable(function: Callable[..., Any], arguments: Sequence[Any] = (), *, deadline_s: float | None) -> Traced:
    """Run a function untraced and return only its times: tracing makes calls of a few microseconds look longer."""
    recorder = Recorder()
    call = _timed(recorder, lambda: function(*arguments), deadline_s)
    name = getattr(function, "__name__", "callable")
    problems = tuple(recorder.problems)
    return Traced(OperatorGraph(name, ()), call.run_time_s, problems, result=call.result, cpu_time_s=call.cpu_time_s)


@dataclass(frozen=True, slots=True)
class _TimedCall:
    """A call's result, None if it failed, and its times."""

    result: Any
    run_time_s: float
    cpu_time_s: float


def _timed(recorder: Recorder, call: Callable[[], Any], deadline_s: float | None) -> _TimedCall:
    """Call a function; an exception becomes a problem of the recorder."""
    result = None
    cpu_s, waited_s, began_s = process_time(), _waited_s(), perf_counter()
    try:
        with _stopped_at(deadline_s):
            result = call()
    except _DeadlineError:
        recorder.problem(f"it was stopped after {deadline_s:g} s: the rest is not in the graph")
    except SystemExit as error:
        if error.code not in {None, 0}:
            recorder.problem(f"it exited with status {error.code}")
    except Exception as error:  # noqa: BLE001 - any exception of the program becomes a line
        recorder.problem(_ending(error))
    return _TimedCall(result, perf_counter() - began_s - (_waited_s() - waited_s), process_time() - cpu_s)


def _waited_s() -> float:
    """Return this thread's total wait for a core, 0 if the kernel does not report it."""
    try:
        words = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
        # The second figure is the wait on a run queue, in nanoseconds.
        return int(words[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def finished(recorder: Recorder, name: str, run_time_s: float, result: object = None) -> Traced:
    """Return a recorder's trace, with a problem if it is empty."""
    operators = recorder.finish(run_time_s)
    if not operators:
        recorder.problem("no operator was recorded: it uses nothing that is traced")
    return folding.traced(name, operators, max(run_time_s, 0.0), tuple(recorder.problems), result)


@contextmanager
def _stopped_at(deadline_s: float | None) -> Iterator[None]:
    """Raise _DeadlineError in this thread at the deadline, repeatedly until the program has ended.

    Once is not enough: Python prints and drops an exception raised while a destructor or a weak reference's callback
    runs, and a program may catch everything.
    """
    if deadline_s is None:
        yield
        return
    has_ended = threading.Event()
    stopper = threading.Thread(target=_stop, args=(threading.get_ident(), deadline_s, has_ended), daemon=True)
    report = sys.unraisablehook

    def report_others(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not _DeadlineError:
            report(dropped)

    # Do not report a stop that Python drops: it will be repeated.
    sys.unraisablehook = report_others
    stopper.start()
    try:
        yield
    finally:
        _join(stopper, has_ended)
        sys.unraisablehook = report


def _stop(thread: int, deadline_s: float, has_ended: threading.Event) -> None:
    """Raise _DeadlineError in a thread until it has ended; preferably while it runs the program's code."""
    wait_s, tries = deadline_s, 0
    while not has_ended.wait(wait_s):
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - the only way to another thread's frames
        if tries < _MOST_TRIES and frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDER):
            wait_s, tries = _SOON_S, tries + 1
            continue
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_DeadlineError))
        wait_s, tries = _AGAIN_S, 0


def _join(stopper: threading.Thread, has_ended: threading.Event) -> None:
    """Stop raising exceptions, and absorb one that is pending: it comes too late."""
    while True:
        try:
            has_ended.set()
            stopper.join()
            # An exception raised while join returned arrives at a function's start.
            _arrive()
        except _DeadlineError:
            continue
        return


def _arrive() -> None:
    pass


def _ending(error: BaseException) -> str:
    """Return how a program ended, in one line: the exception, and its place in the program's code."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)]
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    text = " ".join(str(error).split())
    return f"it ended with {type(error).__name__}{': ' if text else ''}{text[:200]}{where}"
