"""The collector's kernels, callable from Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collectors.native.kernels.batch import take_reports
from collectors.native.kernels.decode.frames import find_payloads
from collectors.native.kernels.receive import receive_reports
from collectors.native.kernels.records import choose_record
from collectors.native.kernels.sequence import observe
from collectors.native.kernels.state.buckets import read_buckets
from collectors.native.kernels.state.flows import take_packet
from collectors.native.kernels.state.gaps import take_stamp
from collectors.native.kernels.state.routes import take_path
from collectors.native.kernels.state.samples import take_sample
from collectors.native.kernels.state.windows import begin_batch, read_figures
from collectors.native.kernels.stitch.singles import find_hop_index, take_single_record
from collectors.native.kernels.stitch.splits import is_split, note_split, take_part_record
from dataplane.native import Kernel, kernel_library


@dataclass(frozen=True, slots=True)
class KernelCalls:
    """Functions that run without the interpreter's lock; the kernels define their arguments."""

    begin_batch: Callable[..., None]
    take_reports: Callable[..., int]
    receive_reports: Callable[..., int]
    take_sample: Callable[..., None]
    take_path: Callable[..., None]
    take_packet: Callable[..., None]
    take_stamp: Callable[..., None]
    choose_record: Callable[..., int]
    read_figures: Callable[..., int]
    read_buckets: Callable[..., int]
    observe: Callable[..., int]
    find_payloads: Callable[..., int]
    find_hop_index: Callable[..., int]
    take_single_record: Callable[..., None]
    take_part_record: Callable[..., None]
    note_split: Callable[..., None]
    is_split: Callable[..., int]


@functools.cache
def kernel_calls() -> KernelCalls:
    """Return the kernels, compiled at the first call and from the cache later."""
    kernels: tuple[Kernel[..., Any], ...] = (
        begin_batch,
        take_reports,
        receive_reports,
        take_sample,
        take_path,
        take_packet,
        take_stamp,
        choose_record,
        read_figures,
        read_buckets,
        observe,
        find_payloads,
        find_hop_index,
        take_single_record,
        take_part_record,
        note_split,
        is_split,
    )
    library = kernel_library(*kernels)
    return KernelCalls(*(library.bind(each) for each in kernels))
