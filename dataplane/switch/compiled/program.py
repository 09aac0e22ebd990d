"""Compiles a program to machine code in this process, through the cache on disk.

One module holds the compiler's output for the program and the kernels around it, so that they are optimised as one.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from dataplane.native import (
    Array,
    Kernel,
    Library,
    Module,
    cache_key,
    compile_module,
    constant_table,
    kernel,
    load_cached,
    u8,
)
from dataplane.native.cache import default_dir
from dataplane.program.model import Program
from dataplane.switch.compiled.loop import bursts, loop
from dataplane.switch.compiler import emit_program
from dataplane.switch.compiler.lowering.routine import LogText

LOGGER = logging.getLogger("millrace.switch")

_PACKAGES = ("dataplane.nic", "dataplane.program", "dataplane.switch")
"""Packages whose source determines the code, besides the program."""
_CacheDir = Path | Literal["default"] | None
_APART = ("p4_egress", "p4_deparse")
"""About half of a large program's code; called from the other half, and too long to be inlined anyway."""
_libraries: WeakValueDictionary[tuple[str, _CacheDir], Library] = WeakValueDictionary()
"""Code in use in this process, shared by a fabric's switches even where nothing can be stored."""
_compiling = threading.Lock()


class Purpose(Enum):
    """A program's mode of use: Python hands it bursts, or workers forward without Python."""

    BURSTS = "bursts"
    FORWARDING = "forwarding"

    @property
    def kernels(self) -> tuple[Kernel[..., Any], ...]:
        """Return the kernels that the library exports."""
        return bursts.KERNELS if self is Purpose.BURSTS else loop.KERNELS


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program's code; `region_bytes` is the space that a packet needs for its headers and metadata."""

    program: Program
    library: Library
    region_bytes: int
    log_messages: tuple[LogText, ...]


def compile_program(
    program: Program,
    purpose: Purpose = Purpose.BURSTS,
    *,
    threads: int = 1,
    cache_dir: _CacheDir = "default",
) -> CompiledProgram:
    """Return a program's machine code for up to `threads` threads at a time, from the cache if it is there.

    Raises ProgramError naming the construct that cannot be compiled. Takes seconds for large programs; a cache hit (see
    `dataplane.native`) takes a fraction of one. Code in use in this process is shared.
    """
    key = cache_key(program.digest, purpose.value, "one" if threads == 1 else "many", packages=_PACKAGES)
    with _compiling:
        library = _libraries.get((key, cache_dir)) or load_cached(key, cache_dir)
        if library is None:
            with _one_at_a_time(key, cache_dir):
                library = load_cached(key, cache_dir) or compile_module(
                    _make_module(program, purpose, threads), key=key, cache_dir=cache_dir, apart=_APART
                )
        _libraries[key, cache_dir] = library
    notes = json.loads(ctypes.string_at(library.bind(_notes_kernel(b""))()))
    messages = [LogText(tuple(pieces), tuple(map(tuple, values))) for pieces, values in notes["log_messages"]]
    return CompiledProgram(program, library, notes["region_bytes"], tuple(messages))


@contextmanager
def _one_at_a_time(key: str, cache_dir: _CacheDir) -> Iterator[None]:
    """Make a fabric's processes, which start together, compile their program once; without a cache, do nothing."""
    with ExitStack() as stack:
        if cache_dir is not None:
            directory = default_dir() if cache_dir == "default" else cache_dir
            with suppress(OSError):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Few files for many keys: they are never deleted.
                lock = stack.enter_context((directory / f"compiling-{key[0]}.lock").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_module(program: Program, purpose: Purpose, threads: int) -> Module:
    LOGGER.info("compiling %s, for some seconds; later starts find the code in the cache", program.name)
    module = Module(f"{purpose.value} of {program.name}")
    layout = emit_program(program, module, threads=threads, internal=True)
    for function in purpose.kernels:
        module.export(function)
    messages = [(text.pieces, text.values) for text in layout.log_messages]
    notes = {"region_bytes": layout.region_bytes, "log_messages": messages}
    module.export(_notes_kernel(json.dumps(notes).encode() + b"\0"))
    return module


def _notes_kernel(notes: bytes) -> Kernel[[], Array[int]]:
    """Return a kernel that returns the cache's notes on a program besides its code: JSON, ended by a 0."""
    table = constant_table(u8, notes)

    @kernel(name="program_notes")
    def program_notes() -> Array[u8]:
        """Return a pointer to the notes."""
        return table

    return program_notes
