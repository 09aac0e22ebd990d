"""The kernels of the path algorithms as callables, compiled together on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from controller.network.algorithms.kernels.flow_evaluation import evaluate_flows, flag_flows
from controller.network.algorithms.kernels.search import find_path
from controller.network.algorithms.kernels.trees import grow_tree, grow_trees, repair_trees
from controller.network.algorithms.kernels.width_trees import grow_widths, repair_widths
from dataplane.native import Kernel, Library, kernel_library

_KERNELS: Final = (
    grow_tree,
    grow_trees,
    repair_trees,
    find_path,
    grow_widths,
    repair_widths,
    flag_flows,
    evaluate_flows,
)


@cache
def compiled(kernel: Kernel[..., Any]) -> Callable[..., Any]:
    """Return the function that calls a kernel, without the interpreter's lock; see `Library.bind`."""
    return _library().bind(kernel)


@cache
def _library() -> Library:
    return kernel_library(*_KERNELS)
