"""The kernels of the cost map, compiled together on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from controller.cluster.cost_map.kernels.fold import expand, fold, overlay, refold, sort_switches
from dataplane.native import Kernel, Library, kernel_library


@cache
def compiled(kernel: Kernel[..., Any]) -> Callable[..., Any]:
    """Return the compiled form of a kernel, which releases the interpreter's lock; see `Library.bind`."""
    return _library().bind(kernel)


@cache
def _library() -> Library:
    return kernel_library(sort_switches, fold, refold, expand, overlay)
