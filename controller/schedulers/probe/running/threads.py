"""How many threads libraries of linear algebra start, and on which cores: said before any of them is loaded."""

from __future__ import annotations

import os
from typing import Final

VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""What the usual builds of BLAS, OpenMP and numexpr read once, when they are loaded."""


def pin(cores: int) -> tuple[int, ...]:
    """Keep this process to the first `cores` of those that it may use, with so many threads; return them.

    Where it may use fewer it keeps all of them: its caller decides whether that will do.
    """
    chosen = tuple(sorted(os.sched_getaffinity(0)))[:cores]
    os.sched_setaffinity(0, chosen)
    os.environ.update(dict.fromkeys(VARIABLES, str(cores)))
    return chosen
