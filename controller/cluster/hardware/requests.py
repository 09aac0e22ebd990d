"""Requests of work to a node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from controller.cluster.hardware.errors import HardwareError
from dataplane.topology.values import DeviceKind

WHOLE: Final = 1000
"""A whole device, or a whole core, in thousandths."""
ACCELERATORS: Final = tuple(kind for kind in DeviceKind if kind is not DeviceKind.CPU)
"""All kinds that are requested as devices."""


class DescribedDevice(Protocol):
    """A device as far as a request looks at it."""

    @property
    def kind(self) -> DeviceKind:
        """Its kind."""
        ...

    @property
    def model(self) -> str:
        """Its model; '' if unknown."""
        ...

    @property
    def gone(self) -> bool:
        """True while it is not there."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Devices of a kind: `count` of them, with some thousandths each; parts of a device only with a count of one.

    Without `kind` they are of any kind in `any_of`, all of the same one. `models` are the acceptable ones, empty: all.
    `memory_bytes` is per device; a request without memory (0) is admitted by its thousandths alone. Cores are requested
    by `Request.cpu_milli`.
    """

    kind: DeviceKind | None
    count: int = 1
    thousandths: int = WHOLE
    models: frozenset[str] = frozenset()
    memory_bytes: int = 0
    any_of: frozenset[DeviceKind] = frozenset()

    def __post_init__(self) -> None:
        if (self.kind is None) == (not self.any_of):
            raise HardwareError("devices are requested either of a kind or of any of several")
        if self.count < 1 or not 0 < self.thousandths <= WHOLE or (self.count > 1 and self.thousandths != WHOLE):
            raise HardwareError(f"{self.count} devices of {self.thousandths} thousandths each cannot be requested")
        if self.memory_bytes < 0:
            raise HardwareError(f"{self.memory_bytes} bytes of a device's memory cannot be requested")
        if DeviceKind.CPU in self.kinds:
            raise HardwareError("cores are requested in thousandths of cores, not as devices of kind cpu")

    @property
    def is_open(self) -> bool:
        """True if the kind is still to be chosen."""
        return self.kind is None

    @property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """Acceptable kinds, in the order of `DeviceKind`."""
        return (self.kind,) if self.kind is not None else tuple(kind for kind in DeviceKind if kind in self.any_of)

    def of_kind(self, kind: DeviceKind) -> DeviceRequest:
        """Return the request with its kind chosen."""
        return replace(self, kind=kind, any_of=frozenset())

    def accepts(self, device: DescribedDevice) -> bool:
        """Return whether a device is there, and of an acceptable kind and model."""
        kind = device.kind
        of_kind = kind is self.kind if self.kind is not None else kind in self.any_of
        return of_kind and not device.gone and (not self.models or device.model in self.models)

    def __str__(self) -> str:
        models = f" {'|'.join(sorted(self.models))}" if self.models else ""
        kinds = self.kinds
        return f"{'accelerator' if kinds == ACCELERATORS else '|'.join(kinds)}{models}"


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

    @property
    def is_open(self) -> bool:
        """True if the kind of some device is still to be chosen."""
        return any(wanted.is_open for wanted in self.devices)

    def __add__(self, other: Request) -> Request:
        """Return the combined request to one node."""
        return Request(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes, self.devices + other.devices
        )

    def times(self, count: int) -> Request:
        """Return the combined request of `count` equal requests to one node."""
        return Request(self.cpu_milli * count, self.memory_bytes * count, self.devices * count)
