"""Trial of a probe kernel before others rely on it: each implementation that can run here must run once correctly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels import loading
from controller.probing.values import ProbeKernel
from dataplane.topology.values import DeviceKind


def code_of(kernel: ProbeKernel, entry: str) -> str:
    """Return the normalised syntax tree of a function that a kernel stands for; raise ProbeKernelError for none."""
    from controller.cluster.operators.tracing.syntax import normalised  # noqa: PLC0415 - imports much

    name = f"{kernel.identifier}.{kernel.version}"
    code = normalised(loading.function_of(name, entry))
    if not code:
        raise ProbeKernelError(f"kernel {name}: {entry} has no source to parse")
    return code


def tried(kernel: ProbeKernel, seed: int = 0) -> Iterator[str]:
    """Yield a line for each implementation that gave a correct output; raise ProbeKernelError for one that fails.

    Implementations for devices other than processors are loaded, not run.
    """
    name = f"{kernel.identifier}.{kernel.version}"
    for implementation in kernel.implementations:
        what = f"{implementation.device.value}, {implementation.library.value}"
        if implementation.device is not DeviceKind.CPU:
            loading.load(name, implementation)
            yield f"{what}: loads; not run, as it needs another device"
            continue
        with closing(loading.prepare(name, implementation, dict(kernel.sizes), seed)) as prepared:
            begun_s = time.perf_counter()
            output = prepared.run(())
            took_s = time.perf_counter() - begun_s
            error = prepared.accuracy(output)
        if not error <= kernel.tolerance:
            raise ProbeKernelError(f"kernel {name}: {what}: its error is {error:.3g}, above {kernel.tolerance:.3g}")
        yield f"{what}: {took_s:.3g} s, error {error:.3g}"
