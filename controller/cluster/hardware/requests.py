"""What work asks a node for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.cluster.hardware.errors import HardwareError
from dataplane.topology.values import DeviceKind

WHOLE: Final = 1000
"""A whole device, in thousandths; a whole core, too."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Devices of a kind: `count` of them, of each so many thousandths; less than a whole one only of one device.

    `models` are those that will do, all if there are none. `memory_bytes` is of each device; a request that does not
    say how much it needs (0) is admitted by its thousandths alone. Cores are asked for by `Request.cpu_milli`.
    """

    kind: DeviceKind
    count: int = 1
    thousandths: int = WHOLE
    models: frozenset[str] = frozenset()
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.thousandths <= WHOLE or (self.count > 1 and self.thousandths != WHOLE):
            raise HardwareError(f"{self.count} devices of {self.thousandths} thousandths each cannot be asked for")
        if self.memory_bytes < 0:
            raise HardwareError(f"{self.memory_bytes} bytes of a device's memory cannot be asked for")
        if self.kind is DeviceKind.CPU:
            raise HardwareError("cores are asked for in thousandths of cores, not as devices of kind cpu")

    def accepts(self, kind: DeviceKind, model: str) -> bool:
        """Return whether a device of this kind and model will do."""
        return kind is self.kind and (not self.models or model in self.models)

    def __str__(self) -> str:
        models = f" {'|'.join(sorted(self.models))}" if self.models else ""
        return f"{self.kind}{models}"


@dataclass(frozen=True, slots=True)
class Request:
    """What work holds of one node while it runs: thousandths of cores, memory, devices."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[DeviceRequest, ...] = ()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_bytes) < 0:
            raise HardwareError(f"{self.cpu_milli} thousandths of cores and {self.memory_bytes} bytes cannot be")

    def __add__(self, other: Request) -> Request:
        """Return what both together ask of one node."""
        return Request(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes, self.devices + other.devices
        )

    def times(self, count: int) -> Request:
        """Return what `count` equal ones ask of one node together."""
        return Request(self.cpu_milli * count, self.memory_bytes * count, self.devices * count)
