"""Python bindings of the software queue kernels; those called for each packet take addresses only."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from dataplane.native import Kernel, Library, kernel_library
from dataplane.native.doorbell import arm_bell, disarm_bell, sleep_on, strike
from dataplane.nic.buffers.kernels.buffers import free_buffers
from dataplane.nic.buffers.kernels.software_queues import acquire, any_waits, copy_out_all, discard, give_back, watch
from dataplane.nic.buffers.kernels.transmitting import abandon, send_copy


@dataclass(frozen=True, slots=True)
class QueueKernels:
    """Bound kernels."""

    acquire: Callable[..., int]
    give_back: Callable[..., bool]
    copy_out_all: Callable[..., int]
    discard: Callable[..., int]
    any_waits: Callable[..., bool]
    watch: Callable[..., bool]
    arm_bell: Callable[..., None]
    disarm_bell: Callable[..., None]
    sleep_on: Callable[..., bool]
    strike: Callable[..., None]
    free_buffers: Callable[..., int]
    send_copy: Callable[..., int]
    abandon: Callable[..., int]


_BOOL, _ADDRESS, _U32, _U64 = ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64


@functools.cache
def queue_kernels() -> QueueKernels:
    """Return the kernels, compiled by the first call."""
    kernels = (
        acquire,
        give_back,
        copy_out_all,
        discard,
        any_waits,
        watch,
        arm_bell,
        disarm_bell,
        sleep_on,
        strike,
        free_buffers,
        send_copy,
        abandon,
    )
    library = kernel_library(*kernels)
    return QueueKernels(
        acquire=_bind_plainly(library, acquire, _U32, _ADDRESS, _ADDRESS, _U32),
        give_back=_bind_plainly(library, give_back, _BOOL, _ADDRESS, _ADDRESS),
        copy_out_all=_bind_plainly(
            library, copy_out_all, _U32, _ADDRESS, _U32, _ADDRESS, _U64, _ADDRESS, _ADDRESS, _U32
        ),
        discard=library.bind(discard),
        any_waits=_bind_plainly(library, any_waits, _BOOL, _ADDRESS, _U32),
        watch=library.bind(watch),
        arm_bell=library.bind(arm_bell),
        disarm_bell=library.bind(disarm_bell),
        sleep_on=library.bind(sleep_on),
        strike=library.bind(strike),
        free_buffers=library.bind(free_buffers),
        send_copy=_bind_plainly(library, send_copy, _U64, _ADDRESS, ctypes.c_char_p, _U32),
        abandon=library.bind(abandon),
    )


def _bind_plainly(
    library: Library,
    kernel: Kernel[..., object],
    result: Any,  # noqa: ANN401 - a ctypes type
    *arguments: Any,  # noqa: ANN401
) -> Callable[..., Any]:
    """Bind like `Library.bind`, without its conversions, which take longer than the call."""
    function = ctypes.CFUNCTYPE(result, *arguments)(library.call_address(kernel))
    cast("Any", function).library = library
    return function
