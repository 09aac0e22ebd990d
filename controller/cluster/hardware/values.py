"""Nodes as schedulers see them, and shares of them: integers throughout, so that sums are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import add, sub
from typing import Final

from controller.cluster.hardware.errors import HardwareError
from controller.cluster.hardware.requests import WHOLE
from dataplane.topology.values import Bus, DeviceKind, MediumKind, MemoryMedium, NumberFormat, PeakRate

_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Device:
    """One physical device, or a part of a divided one (MIG); `number` counts the node's devices from 0.

    `memory_bytes` is None if unknown. One that is `gone` keeps its number, and nothing new is placed on it.
    """

    number: int
    kind: DeviceKind
    model: str = ""
    memory_bytes: int | None = None
    bus: Bus | None = None
    rates: tuple[PeakRate, ...] = ()
    gone: bool = False

    def peak_ops_per_s(self, number_format: NumberFormat) -> int | None:
        """Return the peak operations a second in a number format, None if unknown."""
        return next((rate.ops_per_s for rate in self.rates if rate.format is number_format), None)


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """Share of one device: thousandths and memory."""

    number: int
    thousandths: int
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a node held by one pod or by all; one share per device, none empty, in order of number."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[DeviceShare, ...] = ()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_bytes) < 0:
            raise HardwareError(f"{self.cpu_milli} thousandths of cores and {self.memory_bytes} bytes cannot be held")
        before = -1
        for share in self.devices:
            if share.number <= before:
                raise HardwareError(f"device {share.number}: shares must be one per device, in order of number")
            if not 0 <= share.thousandths <= WHOLE or share.memory_bytes < 0:
                amounts = f"{share.thousandths} thousandths, {share.memory_bytes} bytes"
                raise HardwareError(f"device {share.number}: invalid share of {amounts}")
            if share.thousandths == share.memory_bytes == 0:
                raise HardwareError(f"device {share.number}: an empty share")
            before = share.number

    def __add__(self, other: Shares) -> Shares:
        """Return the sum; raise HardwareError if it exceeds a device."""
        return self._combined(other, add)

    def __sub__(self, other: Shares) -> Shares:
        """Return what is left without `other`; raise HardwareError if it is not contained."""
        return self._combined(other, sub)

    def _combined(self, other: Shares, sign: Callable[[int, int], int]) -> Shares:
        devices = self.devices
        if other.devices:
            by_number = {share.number: share for share in devices}
            for share in other.devices:
                old = by_number.get(share.number, DeviceShare(share.number, 0))
                by_number[share.number] = DeviceShare(
                    share.number,
                    sign(old.thousandths, share.thousandths),
                    sign(old.memory_bytes, share.memory_bytes),
                )
            devices = in_order(by_number.values())
        return Shares(sign(self.cpu_milli, other.cpu_milli), sign(self.memory_bytes, other.memory_bytes), devices)

    def contains(self, other: Shares) -> bool:
        """Return whether all of `other` is contained."""
        return (
            other.cpu_milli <= self.cpu_milli
            and other.memory_bytes <= self.memory_bytes
            and all(
                share.thousandths <= (mine := self.of(share.number)).thousandths
                and share.memory_bytes <= mine.memory_bytes
                for share in other.devices
            )
        )

    def __str__(self) -> str:
        parts = [f"{self.cpu_milli} thousandths of cores", f"{self.memory_bytes} bytes"]
        parts += [
            f"{share.thousandths} thousandths and {share.memory_bytes} bytes of device {share.number}"
            for share in self.devices
        ]
        return ", ".join(parts)

    def of(self, number: int) -> DeviceShare:
        """Return the share of a device."""
        return next((share for share in self.devices if share.number == number), DeviceShare(number, 0))


NOTHING: Final = Shares()


def in_order(shares: Iterable[DeviceShare]) -> tuple[DeviceShare, ...]:
    """Return the non-empty shares, in order of number, as `Shares` requires."""
    kept = (share for share in shares if share.thousandths or share.memory_bytes)
    return tuple(sorted(kept, key=lambda share: share.number))


@dataclass(frozen=True, slots=True)
class Node:
    """A host that can run work, by its name in the topology.

    `devices` are allocated in thousandths, in order of their numbers; `processors` describe the cores, and are not
    allocated as devices. Allocated memory is DRAM (`memory_bytes`); slower media are listed as well.
    """

    name: str
    cpu_milli: int
    memory: tuple[MemoryMedium, ...] = ()
    devices: tuple[Device, ...] = ()
    processors: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS, hash=False)

    def __post_init__(self) -> None:
        if self.cpu_milli < 0:
            raise HardwareError(f"{self.name}: {self.cpu_milli} thousandths of cores")
        if [device.number for device in self.devices] != list(range(len(self.devices))):
            raise HardwareError(f"{self.name}: devices are not numbered from 0")
        if any(device.kind is DeviceKind.CPU for device in self.devices):
            raise HardwareError(f"{self.name}: a processor cannot be allocated as a device")

    @property
    def memory_bytes(self) -> int:
        """Allocatable memory (DRAM)."""
        return sum(medium.capacity_bytes for medium in self.memory if medium.kind is MediumKind.DRAM)

    def check(self, held: Shares) -> None:
        """Raise HardwareError, naming node and resource, if more is held than the node has."""
        for unit, amount, most in (
            ("thousandths of cores", held.cpu_milli, self.cpu_milli),
            ("bytes of memory", held.memory_bytes, self.memory_bytes),
        ):
            if amount > most:
                raise HardwareError(f"{self.name}: {amount} {unit} exceed {most}")
        for share in held.devices:
            if share.number >= len(self.devices):
                raise HardwareError(f"{self.name}: there is no device {share.number}")
            memory_bytes = self.devices[share.number].memory_bytes or 0
            if share.memory_bytes > memory_bytes:
                raise HardwareError(
                    f"{self.name}: device {share.number}: {share.memory_bytes} bytes of memory exceed {memory_bytes}"
                )
