"""Probe tasks written by an expert: "large dense direct solve" is three dgemm.

A file names kernels of the library; the library supplies whatever the file leaves out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Name
from controller.apiserver.resources.probe_task import Identifier, LinkSpec, Positive, SizeMap, Word
from controller.probing.building import use_names
from controller.probing.errors import ProbeError
from controller.probing.library import KernelLibrary, choose, sizes_for
from controller.probing.values import KernelUse, Library, Link, ProbeKernel, ProbeTask
from dataplane.config import Document, Strict, load_document, loads_document
from dataplane.topology.values import DeviceKind


class ExpertUse(Strict, frozen=True):
    """A kernel, how often it runs, and at which sizes; `executions` are those in a target that it stands for."""

    kernel: Identifier
    name: Name | None = None
    """Name in links and in results' times; by default the kernel's own."""
    version: Positive | None = None
    repetitions: Annotated[int, Meta(ge=1, le=100_000)] = 1
    executions: Positive | None = None
    sizes: SizeMap = msgspec.field(default_factory=dict)
    """Sizes that differ from the defaults."""
    device: DeviceKind | None = None
    """By default the reader's device."""
    library: Library | None = None


class ExpertFile(Strict, frozen=True):
    """A file; `millrace` is the version of the format."""

    millrace: Literal[1]
    name: Name
    kernels: Annotated[tuple[ExpertUse, ...], Meta(min_length=1, max_length=256)]
    links: Annotated[tuple[LinkSpec, ...], Meta(max_length=4096)] = ()
    category: Word | None = None
    """By default that of the first kernel."""
    task_type: Name | None = None
    """The probe stands for tasks of this type."""
    about: Line = ""
    seed: Count = 0


def load(path: Path, library: KernelLibrary, *, device: DeviceKind = DeviceKind.CPU) -> ProbeTask:
    """Return the probe task that an expert's file describes; raise ConfigError with file, line and key."""
    return _resolve(load_document(path, ExpertFile), library, device)


def loads(text: str, library: KernelLibrary, *, file: str = "<text>", device: DeviceKind = DeviceKind.CPU) -> ProbeTask:
    """Return the probe task that YAML or JSON text describes; raise ConfigError with file, line and key."""
    document = loads_document(text, ExpertFile, file=file, as_json=text.lstrip().startswith("{"))
    return _resolve(document, library, device)


def _resolve(document: Document[ExpertFile], library: KernelLibrary, device: DeviceKind) -> ProbeTask:
    spec = document.value
    names = use_names([use.kernel for use in spec.kernels])
    uses: list[KernelUse] = []
    category = spec.category
    for index, use in enumerate(spec.kernels):
        try:
            kernel = library.kernel(use.kernel, use.version)
            uses.append(_use(kernel, use, use.name or names[index], use.device or device))
        except ProbeError as error:
            raise document.error(error.problem, f"kernels[{index}].{error.at or 'kernel'}") from None
        category = category or kernel.category
    links = tuple(Link(link.src, link.dst) for link in spec.links)
    try:
        return ProbeTask(
            spec.name, category or "", tuple(uses), links, task_type=spec.task_type or "", ratio=1, seed=spec.seed
        )
    except ProbeError as error:
        raise document.error(error.problem, error.at.replace("uses", "kernels")) from None


def _use(kernel: ProbeKernel, use: ExpertUse, name: str, device: DeviceKind) -> KernelUse:
    return KernelUse(
        name,
        kernel.identifier,
        kernel.version,
        sizes_for(kernel, use.sizes),
        use.repetitions,
        use.executions or use.repetitions,
        choose(kernel, device, use.library),
        kernel.tolerance,
        splits=kernel.splits,
    )
