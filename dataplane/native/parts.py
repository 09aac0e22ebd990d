"""Parallel compilation of large modules in two processes: LLVM holds one lock per process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from dataplane.native.errors import NativeError

LEAST_BYTES: Final = 200_000
"""Assembly size in bytes below which starting another process takes longer than compiling."""
_FUNCTION = re.compile(r"^define [^\n]*\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r'@"([^"]+)"')
_CHILD = (
    "import sys; sys.path[:] = {path!r}; from dataplane.native.library import compile_object; "
    "sys.stdout.buffer.write(compile_object(sys.stdin.read()))"
)


def part(text: str, apart: Collection[str]) -> tuple[str, str]:
    """Split LLVM assembly into two parts: without the bodies of the named functions, and those with their callees.

    Internal functions that both need are in both, so that each is optimised as a whole; they may keep no state in
    variables.
    """
    functions = {_name(body): body for body in _FUNCTION.findall(text)}
    others = _FUNCTION.sub("", text)
    exported = [name for name, body in functions.items() if not body.startswith("define internal ")]
    theirs = {name: body.replace("define internal ", "define ", 1) for name, body in functions.items() if name in apart}
    ours = {name: _declaration(body) for name, body in theirs.items()}
    return (
        others + "\n".join(_reached(exported, {**functions, **ours})),
        others + "\n".join(_reached(list(theirs), {**functions, **theirs})),
    )


def compile_parts(first: str, second: str, compile_here: Callable[[str], bytes]) -> tuple[bytes, ...]:
    """Return the object code of both, the second's from another process; raise NativeError if either is invalid.

    If no other process can be started, both are compiled here.
    """
    child = _CHILD.format(path=sys.path)
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError:
        return compile_here(first), compile_here(second)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):  # it ended before reading everything: its status says why
            process.stdin.write(second.encode())
        with suppress(BrokenPipeError):
            process.stdin.close()
        ours = compile_here(first)
        theirs, problem = process.stdout.read(), process.stderr.read().decode(errors="replace")
    if process.returncode != 0:
        raise NativeError(f"compiling in another process failed: {problem.strip().rpartition(chr(10))[2]}")
    return ours, theirs


def worth_parting(text: str) -> bool:
    """Return whether another process helps: a long text, a second processor, and a Python that we may run."""
    return len(text) >= LEAST_BYTES and _processors() > 1 and os.access(sys.executable, os.X_OK)


def _processors() -> int:
    """Return the number of processors this process may use; all of them on systems other than Linux."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _reached(roots: list[str], functions: dict[str, str]) -> list[str]:
    reached: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in functions and name not in reached:
            reached[name] = functions[name]
            waiting += _NAME.findall(functions[name])
    return list(reached.values())


def _name(body: str) -> str:
    match = _NAME.search(body)
    assert match is not None
    return match[1]


def _declaration(body: str) -> str:
    return body.partition("\n")[0].replace("define ", "declare ", 1) + "\n"
