"""ProbeKernel: a version of an operator that dominates the cost of some class of tasks; immutable."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Line, Resource, Text
from controller.apiserver.resources.kind import Kind, Rights, Server, Strategy, Usage
from controller.apiserver.resources.probe_task import (
    PROBE_TASK,
    Identifier,
    ImplementationSpec,
    Positive,
    SizeMap,
    Word,
)
from controller.common.errors import StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Right
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
            raise ValueError(f"version {self.spec.version} of kernel {self.spec.identifier} must be named {expected}")


class ProbeKernelStrategy(Strategy[ProbeKernel]):
    """Probe kernels: a version is immutable, and deleted only while no probe task names it."""

    def validate(self, current: ProbeKernel | None, wanted: ProbeKernel) -> None:
        """Refuse a change of the spec: results name the version that they were measured with."""
        if current is not None and current.spec != wanted.spec:
            name = current.metadata.name
            raise StaleError(f"ProbeKernel {name} cannot change: results name it; create a new version")

    async def check_unused(self, current: ProbeKernel, server: Server) -> None:
        """Refuse a version that probe tasks use."""
        spec = current.spec
        users = [
            probe.metadata.name
            for probe in await server.selected(PROBE_TASK, "kernel", spec.identifier)
            if any((use.kernel, use.version) == (spec.identifier, spec.version) for use in probe.spec.uses)
        ]
        if users:
            rest = f" and {len(users) - 1} more" if len(users) > 1 else ""
            raise StaleError(f"ProbeKernel {current.metadata.name} is used by ProbeTask {users[0]}{rest}")

    def usage(self, resource: ProbeKernel) -> Usage:
        """Count nothing but the object and its size."""
        return Usage()


PROBE_KERNEL = Kind(
    "ProbeKernel",
    "probekernels",
    ProbeKernel,
    fields={
        "identifier": lambda kernel: kernel.spec.identifier,
        "category": lambda kernel: kernel.spec.category,
        "operator": lambda kernel: kernel.spec.operator,
    },
    columns={
        "category": lambda kernel: kernel.spec.category,
        "operator": lambda kernel: kernel.spec.operator,
        "devices": lambda kernel: " ".join(
            sorted({implementation.device.value for implementation in kernel.spec.implementations})
        ),
    },
    # Centres run the code in probe kernels, so writing them takes a right of its own.
    rights=Rights(is_public=True, users_right=Right.KERNELS),
    strategy=ProbeKernelStrategy(),
)
