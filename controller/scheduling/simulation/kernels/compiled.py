"""The simulation's kernels, compiled together on first use and ready to call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from controller.scheduling.simulation.kernels.sharing import (
    add_flow,
    first_to_finish,
    remove_flow,
    set_capacity,
    settle,
)
from dataplane.native import Kernel, Library, kernel_library


@cache
def compiled(kernel: Kernel[..., Any]) -> Callable[..., Any]:
    """Return the function that calls a kernel without holding the interpreter lock; see `Library.bind`."""
    return _library().bind(kernel)


@cache
def _library() -> Library:
    return kernel_library(add_flow, remove_flow, set_capacity, settle, first_to_finish)
