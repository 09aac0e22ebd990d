"""ProbeKernel: a version of an operator that dominates the cost of some class of tasks; immutable."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Kind, Line, Resource, Text
from controller.apiserver.resources.probe_task import Identifier, ImplementationSpec, Positive, SizeMap, Word
from dataplane.config import Strict
from dataplane.topology.values import NumberFormat


class ProbeKernelParts(Strict, frozen=True):
    """A kernel's operator, default sizes, code and tolerance."""

    identifier: Identifier
    category: Word
    operator: Word
    """Kind of operator that it represents."""
    implementations: Annotated[tuple[ImplementationSpec, ...], Meta(min_length=1, max_length=32)]
    number_format: NumberFormat | None = None
    sizes: SizeMap = msgspec.field(default_factory=dict)
    tolerance: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """Relative error up to which an output counts as correct."""
    truth: Line = ""
    """Reference for outputs."""
    splits: Line = ""
    """Size that is divided when several processes share the work."""
    code: Text = ""
    """Normalised syntax tree, for matching."""


class ProbeKernelSpec(ProbeKernelParts, frozen=True, kw_only=True):
    """The kernel and its version."""

    version: Positive


class ProbeKernelStatus(Strict, frozen=True):
    """Empty: its measurements are in ProbeResults."""


class ProbeKernel(Resource, frozen=True):
    """A version of a probe kernel; its name is IDENTIFIER.VERSION."""

    spec: ProbeKernelSpec
    status: ProbeKernelStatus = ProbeKernelStatus()
    kind: Literal["ProbeKernel"] = "ProbeKernel"

    def __post_init__(self) -> None:
        expected = f"{self.spec.identifier}.{self.spec.version}"
        if self.metadata.name != expected:
            raise ValueError(f"version {self.spec.version} of kernel {self.spec.identifier} is called {expected}")


PROBE_KERNEL = Kind(
    "ProbeKernel",
    "probekernels",
    ProbeKernel,
    fields={
        "identifier": lambda kernel: kernel.spec.identifier,
        "category": lambda kernel: kernel.spec.category,
        "operator": lambda kernel: kernel.spec.operator,
    },
)
