"""Number of threads of linear algebra libraries, and their cores; set before any of them is loaded."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Variables that the usual builds of BLAS, OpenMP and numexpr read once, when they are loaded."""
_BLAS: Final = re.compile(r"openblas.*\.so")
_BLAS_CALLS: Final = tuple(f"{stem}openblas_set_num_threads{end}" for stem in ("scipy_", "") for end in ("64_", ""))
"""C symbols; one ending in a single underscore is Fortran's, which takes the number's address."""


def pin(cores: int) -> tuple[int, ...]:
    """Pin this process to the first `cores` of its permitted ones, with as many threads; return them.

    If it may use fewer it keeps all of them: the caller decides whether that suffices.
    """
    chosen = tuple(sorted(os.sched_getaffinity(0)))[:cores]
    os.sched_setaffinity(0, chosen)
    os.environ.update(dict.fromkeys(VARIABLES, str(cores)))
    if "numpy" in sys.modules:  # in a fork of a warm process, whose libraries have read their environment
        tell_loaded(cores)
    return chosen


def tell_loaded(threads: int) -> None:
    """Set the number of threads of libraries that are already loaded; others read the environment."""
    import ctypes  # noqa: PLC0415 - not at every start

    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text(encoding="ascii", errors="replace").splitlines()
        for name in {line.rpartition(" ")[2] for line in lines if _BLAS.search(line)}:
            library = ctypes.CDLL(name)
            for call in _BLAS_CALLS:
                if hasattr(library, call):
                    getattr(library, call)(threads)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
