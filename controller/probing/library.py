"""The library of probe kernels: the built-in ones, overlaid with those of the API's store.

The built-in ones need no store. A stored kernel of the same identifier and version replaces a built-in one; another
version is added, and a name without a version means the newest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels import loading
from controller.probing.kernels.built_in import BUILT_IN
from controller.probing.values import Implementation, Library, ProbeKernel, Sizes, sizes_of
from dataplane.topology.values import DeviceKind


class KernelLibrary:
    """Kernels by identifier and version; `stored` are those of the API's store."""

    def __init__(self, stored: Iterable[ProbeKernel] = (), *, built_in: Iterable[ProbeKernel] = BUILT_IN) -> None:
        self._kernels: dict[str, dict[int, ProbeKernel]] = {}
        for kernel in (*built_in, *stored):
            self._kernels.setdefault(kernel.identifier, {})[kernel.version] = kernel

    def kernels(self, category: str | None = None) -> tuple[ProbeKernel, ...]:
        """Return the newest version of each kernel, of a category or of all, in order of their identifiers."""
        newest = (versions[max(versions)] for _, versions in sorted(self._kernels.items()))
        return tuple(kernel for kernel in newest if category is None or kernel.category == category)

    def versions(self, identifier: str) -> tuple[ProbeKernel, ...]:
        """Return all versions of a kernel, the oldest first; raise ProbeKernelError if there is none."""
        if not self._kernels:
            raise ProbeKernelError(f"no kernel {identifier}: the library is empty")
        if identifier not in self._kernels:
            near = sorted(difflib.get_close_matches(identifier, self._kernels, 2, 0.7))
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(sorted(self._kernels))}"
            raise ProbeKernelError(f"no kernel {identifier}{hint}")
        versions = self._kernels[identifier]
        return tuple(versions[version] for version in sorted(versions))

    def kernel(self, identifier: str, version: int | None = None) -> ProbeKernel:
        """Return a kernel, its newest version if none is named; raise ProbeKernelError if there is none."""
        versions = self.versions(identifier)
        if version is None:
            return versions[-1]
        chosen = next((kernel for kernel in versions if kernel.version == version), None)
        if chosen is None:
            available = ", ".join(str(kernel.version) for kernel in versions)
            raise ProbeKernelError(f"no version {version} of kernel {identifier}; known: {available}")
        return chosen

    def has(self, identifier: str, version: int) -> bool:
        """Return whether there is a version of a kernel."""
        return version in self._kernels.get(identifier, {})

    def named(self, name: str) -> ProbeKernel:
        """Return the kernel of a name: dgemm (its newest version) or dgemm.2; raise ProbeKernelError."""
        identifier, dot, version = name.partition(".")
        if dot and not (version.isascii() and version.isdecimal()):
            raise ProbeKernelError(f"invalid kernel name {name!r}: write IDENTIFIER or IDENTIFIER.VERSION")
        return self.kernel(identifier, int(version) if dot else None)


def sizes_for(kernel: ProbeKernel, wanted: Mapping[str, int]) -> Sizes:
    """Return a kernel's sizes with some of them changed; raise ProbeKernelError for sizes that it does not have."""
    defaults = dict(kernel.sizes)
    if strange := sorted(wanted.keys() - defaults.keys()):
        raise ProbeKernelError(f"kernel {kernel.identifier} has no size {strange[0]}; known: {', '.join(defaults)}")
    return sizes_of(defaults | dict(wanted))


def choose(kernel: ProbeKernel, device: DeviceKind, library: Library | None = None) -> Implementation:
    """Return a kernel's first implementation for a device, of a library if one is named; raise ProbeKernelError."""
    of_device = [implementation for implementation in kernel.implementations if implementation.device is device]
    implementation = next(
        (implementation for implementation in of_device if library in {None, implementation.library}), None
    )
    if implementation is None:
        available = ", ".join(
            f"{implementation.device.value} {implementation.library.value}" for implementation in kernel.implementations
        )
        wanted = device.value if library is None else f"{device.value} {library.value}"
        raise ProbeKernelError(f"kernel {kernel.identifier} has no implementation for {wanted}; known: {available}")
    return implementation


def prepare(
    kernel: ProbeKernel,
    wanted: Mapping[str, int],
    seed: int,
    *,
    device: DeviceKind = DeviceKind.CPU,
    library: Library | None = None,
    memory_bytes: int | None = None,
) -> loading.Checked:
    """Return a kernel with its data at sizes, by default its own; raise ProbeKernelError in one line.

    `memory_bytes` is what a unit has; None for what this process may take.
    """
    implementation = choose(kernel, device, library)
    name = f"{kernel.identifier}.{kernel.version}"
    sizes = dict(sizes_for(kernel, wanted))
    return loading.prepare(name, implementation, sizes, seed, memory_bytes=memory_bytes)
