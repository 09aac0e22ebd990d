"""All instruments together; those of a library start once it is imported."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import multiprocessing.process
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from time import perf_counter
from typing import Any

from controller.cluster.operators.tracing.instruments import scipy_modules
from controller.cluster.operators.tracing.instruments.calls import unprofiled
from controller.cluster.operators.tracing.instruments.own_functions import OwnFunctions
from controller.cluster.operators.tracing.instruments.replacing import Replacements
from controller.cluster.operators.tracing.instruments.sources import replace_sources
from controller.cluster.operators.tracing.places import is_user_code
from controller.cluster.operators.tracing.recording import Recorder


def replace_starts(replacements: Replacements, recorder: Recorder) -> None:
    """Report every start of a process as a problem."""
    for owner, name in (
        (os, "fork"),
        (os, "forkpty"),
        (os, "posix_spawn"),
        (subprocess.Popen, "__init__"),
        (multiprocessing.process.BaseProcess, "start"),
    ):
        replacements.replace(owner, name, _reporting(getattr(owner, name), recorder))


def _reporting(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @wraps(original)
    def reporting(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the original
        recorder.problem("it started other processes, which are not in the graph")
        return original(*args, **kwargs)

    return reporting


@contextmanager
def instrumented(recorder: Recorder) -> Iterator[None]:
    """Report this process's operations to a recorder while the block runs."""
    replacements = Replacements()
    with ExitStack() as stack:
        stack.callback(replacements.restore)
        replace_sources(replacements)
        replace_starts(replacements, recorder)
        scipy = scipy_modules.replacing(replacements)
        torch = _torch(stack)

        def refresh() -> None:
            scipy()
            torch()

        refresh()
        replacements.rebind()
        for owner, name in ((builtins, "__import__"), (importlib, "import_module")):
            replacements.replace(owner, name, _followed(getattr(owner, name), refresh, recorder))
        stack.enter_context(OwnFunctions(recorder).watched())
        yield


def _followed(original: Callable[..., Any], refresh: Callable[[], None], recorder: Recorder) -> Callable[..., Any]:
    """Return an instrumented import; computations of a library during its import are not the program's."""

    @wraps(original)
    def followed(name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if not recorder.is_listening:
            return original(name, *args, **kwargs)
        began = perf_counter()
        if name in sys.modules or _is_own(name):
            module = original(name, *args, **kwargs)
        else:
            with recorder.inside(), unprofiled():
                module = original(name, *args, **kwargs)
            recorder.imported(perf_counter() - began)
        refresh()
        return module

    return followed


def _is_own(name: str) -> bool:
    """Return whether a module to import belongs to the program itself."""
    top = name.partition(".")[0]
    if not top:
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return True
    return spec is None or is_user_code(spec.origin or "<frozen")


def _torch(stack: ExitStack) -> Callable[[], None]:
    """Return a function that starts recording torch's operations once torch has been imported."""
    begun = False

    def refresh() -> None:
        nonlocal begun
        module = sys.modules.get("torch")
        if begun or module is None or scipy_modules.is_initialising(module):
            return
        begun = True
        from controller.cluster.operators.tracing.instruments.torch_mode import instruments  # noqa: PLC0415

        begin, end = instruments()
        begin()
        stack.callback(end)

    return refresh
