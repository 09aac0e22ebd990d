"""The kernels of the pool as callables, compiled together on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from controller.learning.environment.kernels.planning import plan
from controller.learning.environment.kernels.playing import play
from controller.learning.environment.kernels.stepping import advance, step
from dataplane.native import Kernel, Library, kernel_library


@cache
def compiled(kernel: Kernel[..., Any]) -> Callable[..., Any]:
    """Return the function that calls a kernel, without the interpreter's lock; see `Library.bind`."""
    return _library().bind(kernel)


@cache
def _library() -> Library:
    return kernel_library(advance, plan, play, step)
