"""The collector's kernels as Python calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from collectors.native.kernels.accounting import take_reports
from collectors.native.kernels.flows import take_packet
from collectors.native.kernels.frames import find_payloads
from collectors.native.kernels.routes import take_path
from collectors.native.kernels.samples import take_sample
from collectors.native.kernels.sequence import observe
from collectors.native.kernels.windows import begin_batch, read_figures
from dataplane.native import kernel_library


@dataclass(frozen=True, slots=True)
class KernelCalls:
    """Functions that run without the interpreter's lock; what they take say the kernels."""

    begin_batch: Callable[..., None]
    take_reports: Callable[..., int]
    take_sample: Callable[..., None]
    take_path: Callable[..., None]
    take_packet: Callable[..., None]
    read_figures: Callable[..., None]
    observe: Callable[..., int]
    find_payloads: Callable[..., int]


@functools.cache
def kernel_calls() -> KernelCalls:
    """Return the kernels, compiled at the first call and from the cache later."""
    library = kernel_library(
        begin_batch, take_reports, take_sample, take_path, take_packet, read_figures, observe, find_payloads
    )
    return KernelCalls(
        library.bind(begin_batch),
        library.bind(take_reports),
        library.bind(take_sample),
        library.bind(take_path),
        library.bind(take_packet),
        library.bind(read_figures),
        library.bind(observe),
        library.bind(find_payloads),
    )
