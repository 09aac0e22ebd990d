"""The policies' kernels, compiled together on first use and ready to call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from controller.scheduling.containers.kernels.fragments import fragment_changes
from controller.scheduling.containers.kernels.stranded import stranded_changes
from dataplane.native import Kernel, Library, kernel_library


@cache
def compiled(kernel: Kernel[..., Any]) -> Callable[..., Any]:
    """Return the function that calls a kernel without holding the interpreter lock; see `Library.bind`."""
    return _library().bind(kernel)


@cache
def _library() -> Library:
    return kernel_library(fragment_changes, stranded_changes)
