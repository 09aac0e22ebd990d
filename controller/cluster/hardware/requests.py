"""Requests of work to a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.cluster.hardware.errors import HardwareError
from dataplane.topology.values import DeviceKind

WHOLE: Final = 1000
"""A whole device, or a whole core, in thousandths."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Devices of a kind: `count` of them, with some thousandths each; parts of a device only with a count of one.

    `models` are the acceptable ones, empty: all. `memory_bytes` is per device; a request without memory (0) is admitted
    by its thousandths alone. Cores are requested by `Request.cpu_milli`.
    """

    kind: DeviceKind
    count: int = 1
    thousandths: int = WHOLE
    models: frozenset[str] = frozenset()
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.thousandths <= WHOLE or (self.count > 1 and self.thousandths != WHOLE):
            raise HardwareError(f"{self.count} devices of {self.thousandths} thousandths each cannot be requested")
        if self.memory_bytes < 0:
            raise HardwareError(f"{self.memory_bytes} bytes of a device's memory cannot be requested")
        if self.kind is DeviceKind.CPU:
            raise HardwareError("cores are requested in thousandths of cores, not as devices of kind cpu")

    def accepts(self, kind: DeviceKind, model: str) -> bool:
        """Return whether a device of this kind and model is acceptable."""
        return kind is self.kind and (not self.models or model in self.models)

    def __str__(self) -> str:
        models = f" {'|'.join(sorted(self.models))}" if self.models else ""
        return f"{self.kind}{models}"


@dataclass(frozen=True, slots=True)
class Request:
    """Resources that work holds of one node while it runs: thousandths of cores, memory, devices."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[DeviceRequest, ...] = ()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_bytes) < 0:
            raise HardwareError(
                f"{self.cpu_milli} thousandths of cores and {self.memory_bytes} bytes cannot be requested"
            )

    def __add__(self, other: Request) -> Request:
        """Return the combined request to one node."""
        return Request(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes, self.devices + other.devices
        )

    def times(self, count: int) -> Request:
        """Return the combined request of `count` equal requests to one node."""
        return Request(self.cpu_milli * count, self.memory_bytes * count, self.devices * count)
