"""Files of probe kernels, YAML or JSON, and their resource in the API: strict, errors with file, line, key; and back.

A file is the resource's spec preceded by `millrace`, the version of the format; without `version` it is the next one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from controller.apiserver.resources import Metadata, ProbeKernel
from controller.apiserver.resources.probe_kernel import ProbeKernelParts, ProbeKernelSpec
from controller.apiserver.resources.probe_task import Positive
from controller.probing import values
from controller.probing.errors import ProbeError
from controller.probing.values import Implementation, Library, sizes_of
from dataplane.config import Document, load_document, loads_document


class ProbeKernelFile(ProbeKernelParts, frozen=True, kw_only=True):
    """A file; `millrace` is the version of the format."""

    millrace: Literal[1]
    version: Positive | None = None


def load(path: Path, *, next_version: int = 1) -> values.ProbeKernel:
    """Return the kernel in a file; raise ConfigError with file, line and key."""
    return _resolve(load_document(path, ProbeKernelFile), next_version)


def loads(text: str, *, file: str = "<text>", next_version: int = 1) -> values.ProbeKernel:
    """Return the kernel in YAML or JSON text; raise ConfigError with file, line and key."""
    return _resolve(loads_document(text, ProbeKernelFile, file=file), next_version)


def dumps(kernel: values.ProbeKernel) -> str:
    """Return the kernel as YAML that `loads` reads back as an equal value."""
    import yaml  # noqa: PLC0415 - only who writes one needs it

    text: str = yaml.safe_dump(
        {"millrace": 1, **_document(kernel)}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    return text


def of_spec(spec: ProbeKernelSpec) -> values.ProbeKernel:
    """Return the kernel that a resource holds; raise ProbeError with the place of a wrong value."""
    return _kernel(spec, spec.version)


def resource_of(kernel: values.ProbeKernel) -> ProbeKernel:
    """Return the resource that holds a kernel."""
    spec = msgspec.convert(_document(kernel), ProbeKernelSpec)
    return ProbeKernel(metadata=Metadata(name=f"{kernel.identifier}.{kernel.version}"), spec=spec)


def _resolve(document: Document[ProbeKernelFile], next_version: int) -> values.ProbeKernel:
    try:
        return _kernel(document.value, document.value.version or next_version)
    except ProbeError as error:
        raise document.error(error.problem, error.at) from None


def _kernel(spec: ProbeKernelParts, version: int) -> values.ProbeKernel:
    codes = tuple(
        Implementation(
            implementation.device, Library(implementation.library), implementation.entry, implementation.threads
        )
        for implementation in spec.implementations
    )
    return values.ProbeKernel(
        spec.identifier,
        version,
        spec.category,
        spec.operator,
        spec.number_format,
        sizes_of(spec.sizes),
        codes,
        spec.tolerance,
        code=spec.code,
        splits=spec.splits,
        truth=spec.truth,
    )


def _document(kernel: values.ProbeKernel) -> dict[str, Any]:
    """Return a kernel as plain data, without values that equal the defaults."""
    document = {
        "identifier": kernel.identifier,
        "version": kernel.version,
        "category": kernel.category,
        "operator": kernel.operator,
        "number_format": None if kernel.number_format is None else kernel.number_format.value,
        "sizes": dict(kernel.sizes) or None,
        "tolerance": kernel.tolerance,
        "truth": kernel.truth or None,
        "splits": kernel.splits or None,
        "code": kernel.code or None,
        "implementations": [
            {
                "device": implementation.device.value,
                "library": implementation.library.value,
                "entry": implementation.entry,
            }
            | ({"threads": True} if implementation.threads else {})
            for implementation in kernel.implementations
        ],
    }
    return {key: value for key, value in document.items() if value is not None}
