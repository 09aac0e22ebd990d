"""Tracing a callable in this process."""

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
from controller.cluster.operators.tracing.instruments.all_of_them import instrumented
from controller.cluster.operators.tracing.places import is_user_code
from controller.cluster.operators.tracing.recording import Recorder
from controller.cluster.operators.tracing.values import Traced
from controller.cluster.operators.values import OperatorGraph

_AGAIN_S: Final = 0.05
"""How long a program has to end before it is told once more that its time is up."""

_SOON_S: Final = 0.001
_MOST_TRIES: Final = 20
"""How often a program is left alone because the tracer itself is at work in it, for how long each."""
_OWN_FOLDER: Final = str(Path(__file__).parent)


class _DeadlineError(BaseException):
    """The program runs longer than it may: nothing in it is to catch this."""


def trace_callable(
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    *,
    name: str = "",
    keywords: Mapping[str, Any] | None = None,
    deadline_s: float | None = None,
) -> Traced:
    """Return the graph of what a function computes, by running it once; its result is that of an untraced run.

    A function that raises, or runs longer than `deadline_s`, gives the graph of what it did until then, and a line in
    `problems`; a single call that never returns to Python cannot be stopped from within: trace a script for that.
    OperatorError where another trace runs in this process.
    """
    called = name or getattr(function, "__name__", "callable")
    return run_traced(Recorder(), function, arguments, keywords or {}, name=called, deadline_s=deadline_s)


def run_traced(
    recorder: Recorder,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    name: str,
    deadline_s: float | None,
) -> Traced:
    """Return what a recorder has seen of a function's run."""
    with state.tracing(recorder), instrumented(recorder):
        args, kwargs = traced(tuple(arguments)), {key: traced(one) for key, one in keywords.items()}
        before_s = recorder.overhead_s
        ran = _timed(recorder, lambda: function(*args, **kwargs), deadline_s)
        own_s = recorder.overhead_s - before_s
    found = finished(recorder, name, ran.run_time_s - own_s, plain(ran.result))
    return replace(found, cpu_time_s=max(ran.cpu_time_s - own_s, 0.0))


def time_callable(function: Callable[..., Any], arguments: Sequence[Any] = (), *, deadline_s: float | None) -> Traced:
    """Run a function unwatched and return its times alone: tracing makes calls of some microseconds look longer."""
    recorder = Recorder()
    ran = _timed(recorder, lambda: function(*arguments), deadline_s)
    name = getattr(function, "__name__", "callable")
    problems = tuple(recorder.problems)
    return Traced(OperatorGraph(name, ()), ran.run_time_s, problems, result=ran.result, cpu_time_s=ran.cpu_time_s)


@dataclass(frozen=True, slots=True)
class _Ran:
    """A call's result, None if it ended otherwise, and its times."""

    result: Any
    run_time_s: float
    cpu_time_s: float


def _timed(recorder: Recorder, call: Callable[[], Any], deadline_s: float | None) -> _Ran:
    """Call; how it ended, if not by returning, is a problem of the recorder's."""
    result = None
    cpu_s, waited_s, began_s = process_time(), _waited_s(), perf_counter()
    try:
        with _until(deadline_s):
            result = call()
    except _DeadlineError:
        recorder.problem(f"it was stopped after {deadline_s:g} s: what it would have done then is not in the graph")
    except SystemExit as error:
        if error.code not in {None, 0}:
            recorder.problem(f"it ended by itself with status {error.code}")
    except Exception as error:  # noqa: BLE001 - whatever a program raises is told in a line
        recorder.problem(_ending(error))
    return _Ran(result, perf_counter() - began_s - (_waited_s() - waited_s), process_time() - cpu_s)


def _waited_s() -> float:
    """Return how long this thread has waited for a core so far, 0 where the kernel does not say."""
    try:
        words = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
        return int(words[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def finished(recorder: Recorder, name: str, run_time_s: float, result: object = None) -> Traced:
    """Return what a recorder has seen; say so where it has seen nothing."""
    operators = recorder.finish(run_time_s)
    if not operators:
        recorder.problem("no operator was seen: it computes with nothing that is traced")
    return folding.traced(name, operators, max(run_time_s, 0.0), tuple(recorder.problems), result)


@contextmanager
def _until(deadline_s: float | None) -> Iterator[None]:
    """Raise _DeadlineError in this thread once time is up, and again until the program has ended.

    Once is not enough: an exception that comes while a destructor or a callback of a weak reference runs is printed
    and dropped by Python, and a program may catch all that there is.
    """
    if deadline_s is None:
        yield
        return
    has_ended = threading.Event()
    stopper = threading.Thread(target=_stop, args=(threading.get_ident(), deadline_s, has_ended), daemon=True)
    say = sys.unraisablehook

    def say_others(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not _DeadlineError:
            say(dropped)

    # A stop that Python drops comes again: nobody is told of it.
    sys.unraisablehook = say_others
    stopper.start()
    try:
        yield
    finally:
        _join(stopper, has_ended)
        sys.unraisablehook = say


def _stop(thread: int, deadline_s: float, has_ended: threading.Event) -> None:
    """Raise _DeadlineError in a thread until it has ended; where it can, while it runs code of the program's."""
    wait_s, tries = deadline_s, 0
    while not has_ended.wait(wait_s):
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - the one way to another thread's frames
        if tries < _MOST_TRIES and frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDER):
            wait_s, tries = _SOON_S, tries + 1
            continue
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_DeadlineError))
        wait_s, tries = _AGAIN_S, 0


def _join(stopper: threading.Thread, has_ended: threading.Event) -> None:
    """Have no more exceptions raised, and none under way: one that comes here is late."""
    while True:
        try:
            has_ended.set()
            stopper.join()
            # An exception that was raised while join returned arrives where a function begins.
            _arrive()
        except _DeadlineError:
            continue
        return


def _arrive() -> None:
    pass


def _ending(error: BaseException) -> str:
    """Return how a program ended, in one line: what it raised, and where in its own code."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)]
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    text = " ".join(str(error).split())
    return f"it ended with {type(error).__name__}{': ' if text else ''}{text[:200]}{where}"
