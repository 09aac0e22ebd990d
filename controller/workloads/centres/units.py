"""A machine's resources, divided into units of the types in the settings; pure.

Cores and devices by number are taken first, then each type takes from the rest in the order of the settings. Leftovers
that fit no unit, and wanted units that are missing, are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.settings import UnitSettings
from dataplane.cgroups import parse_cpus
from dataplane.topology.values import DeviceKind

MILLI: Final = 1000
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """A device of the machine; `handle` is its vendor's name for it, which makes it visible to a program."""

    number: int
    kind: DeviceKind
    model: str = ""
    memory_bytes: int = 0
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Resources to divide: cores by number, CPU time in thousandths of a core, memory (None: unknown), devices."""

    cores: tuple[int, ...]
    cpu_milli: int
    memory_bytes: int | None = None
    devices: tuple[FoundDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: the smallest slice that a task gets."""

    cores: tuple[int, ...]
    cpu_milli: int
    memory_bytes: int = 0
    devices: tuple[int, ...] = ()
    device_milli: int = MILLI
    """Thousandths of each of its devices."""


@dataclass(frozen=True, slots=True)
class UnitsOfType:
    """All units of a type."""

    name: str
    units: tuple[Unit, ...]
    request: Request
    """Resources of each unit, in the API's form."""

    def unit_type(self, free: int | None = None) -> UnitType:
        """Return the type in the API's form; operators are not tried yet."""
        return UnitType(name=self.name, count=len(self.units), free=free, unit=self.request)


@dataclass(frozen=True, slots=True)
class Division:
    """Units by type, leftovers of the machine, and missing units, one line each."""

    types: tuple[UnitsOfType, ...]
    spare_cores: tuple[int, ...]
    spare_memory_bytes: int | None
    spare_devices: tuple[int, ...]
    """Devices of which no unit has a part."""
    problems: tuple[str, ...] = ()

    def of(self, name: str) -> UnitsOfType | None:
        """Return the units of a type, None if there is no such type."""
        return next((each for each in self.types if each.name == name), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Leftovers and missing units, one line each."""
        spare = []
        if self.spare_cores:
            spare.append(f"{len(self.spare_cores)} cores ({', '.join(map(str, self.spare_cores))})")
        if self.spare_memory_bytes:
            spare.append(f"{self.spare_memory_bytes / _GIB:.1f} GiB of memory")
        if self.spare_devices:
            spare.append(f"{len(self.spare_devices)} devices ({', '.join(map(str, self.spare_devices))})")
        return ((f"in no unit: {', '.join(spare)}",) if spare else ()) + self.problems


@dataclass(slots=True)
class _Left:
    """Remaining resources while units are made."""

    cores: list[int]
    cpu_milli: int
    memory_bytes: int | None
    devices: list[FoundDevice]
    used_milli: Counter[int]
    """Thousandths of devices that units have."""

    def take(self, settings: UnitSettings, cores: Sequence[int] | None, devices: Sequence[int] | None) -> Unit | str:
        """Take a unit out of it, or return why that is impossible."""
        chosen = list(cores) if cores is not None else self.cores[: settings.cores]
        missing = [core for core in chosen if core not in self.cores]
        if missing:
            return f"core {missing[0]} does not exist"
        if cores is None and len(chosen) < settings.cores:
            return f"needs {settings.cores} cores, {len(chosen)} left"
        milli = min(settings.cpu_milli or len(chosen) * MILLI, len(chosen) * MILLI)
        if milli > self.cpu_milli:
            return f"needs {milli} thousandths of a core, {self.cpu_milli} left"
        if self.memory_bytes is not None and settings.memory_bytes > self.memory_bytes:
            return f"needs {settings.memory_bytes} bytes of memory, {self.memory_bytes} left"
        chosen_devices = self._devices(settings, devices)
        if isinstance(chosen_devices, str):
            return chosen_devices
        self.cores = [core for core in self.cores if core not in chosen]
        self.cpu_milli -= milli
        if self.memory_bytes is not None:
            self.memory_bytes -= settings.memory_bytes
        self.used_milli.update(dict.fromkeys(chosen_devices, settings.device_thousandths))
        return Unit(tuple(chosen), milli, settings.memory_bytes, chosen_devices, settings.device_thousandths)

    def _devices(self, settings: UnitSettings, numbers: Sequence[int] | None) -> tuple[int, ...] | str:
        free = {device.number for device in self.devices if not self.used_milli[device.number]}
        if numbers is not None:
            missing = next((number for number in numbers if number not in free), None)
            return tuple(numbers) if missing is None else f"device {missing} does not exist"
        part = settings.device_thousandths
        fitting = [
            device.number
            for device in self.devices
            if device.kind is settings.device_kind
            and (not settings.device_models or device.model in settings.device_models)
            and self.used_milli[device.number] + part <= MILLI
        ]
        if len(fitting) < settings.devices:
            models = " or ".join((settings.device_kind.value, *settings.device_models)[bool(settings.device_models) :])
            amount = f"{settings.devices} devices" if part == MILLI else f"{part} thousandths of a device"
            return f"needs {amount} ({models}), {len(fitting)} left"
        # Parts come from devices in use already, so that whole ones stay whole.
        fitting.sort(key=lambda number: -self.used_milli[number])
        return tuple(fitting[: settings.devices])


def divide(machine: Found, settings: Sequence[UnitSettings]) -> Division:
    """Return units of each type; raise CentreError if two units claim one core or device by number."""
    _check_numbers(settings)
    left = _Left(sorted(machine.cores), machine.cpu_milli, machine.memory_bytes, list(machine.devices), Counter())
    made: dict[str, list[Unit]] = {each.name: [] for each in settings}
    problems: list[str] = []
    # Numbered ones come first: others would take their cores.
    for each in sorted(settings, key=lambda unit: not (unit.core_numbers or unit.device_numbers)):
        problems += _make(each, left, made[each.name])
    types = tuple(UnitsOfType(each.name, tuple(made[each.name]), _request(each, machine)) for each in settings)
    return Division(
        types,
        tuple(left.cores),
        left.memory_bytes,
        tuple(device.number for device in left.devices if not left.used_milli[device.number]),
        tuple(problems),
    )


def _make(settings: UnitSettings, left: _Left, made: list[Unit]) -> list[str]:
    """Make the units of a type; return the missing ones."""
    wanted, problems = settings.wanted, []
    for index in range(left.cpu_milli + 1 if wanted is None else wanted):
        cores = sorted(parse_cpus(settings.core_numbers[index])) if settings.core_numbers else None
        devices = settings.device_numbers[index] if settings.device_numbers else None
        unit = left.take(settings, cores, devices)
        if isinstance(unit, Unit):
            made.append(unit)
            continue
        if wanted is None:
            if not made:
                problems.append(f"unit type {settings.name}: no unit: {unit}")
            break
        problems.append(f"unit type {settings.name}: unit {index + 1} of {wanted} is missing: {unit}")
        if cores is None and devices is None:
            break
    return problems


def _request(settings: UnitSettings, machine: Found) -> Request:
    """Return the resources of each unit of a type, in the API's form."""
    cores = len(parse_cpus(settings.core_numbers[0])) if settings.core_numbers else settings.cores
    milli = min(settings.cpu_milli or cores * MILLI, cores * MILLI)
    kinds = {device.number: device for device in machine.devices}
    count, kind = settings.devices, settings.device_kind
    if settings.device_numbers and settings.device_numbers[0]:
        count = len(settings.device_numbers[0])
        first = kinds.get(settings.device_numbers[0][0])
        kind = kind if first is None else first.kind
    part, models = settings.device_thousandths, settings.device_models
    need = (DeviceNeed(kind=kind, count=count, thousandths=part, models=models),) if count else ()
    return Request(cpu_milli=milli, memory_bytes=settings.memory_bytes, devices=need)


def _check_numbers(settings: Sequence[UnitSettings]) -> None:
    owner: dict[tuple[str, int], str] = {}
    for each in settings:
        numbers = [("core", core) for text in each.core_numbers for core in sorted(parse_cpus(text))]
        numbers += [("device", number) for device_numbers in each.device_numbers for number in device_numbers]
        for number in numbers:
            if number in owner:
                raise CentreError(f"units: {number[0]} {number[1]} belongs to both {owner[number]} and {each.name}")
            owner[number] = each.name
        if len({len(parse_cpus(text)) for text in each.core_numbers}) > 1:
            raise CentreError(f"units: {each.name}: lists of cores differ in length")
        if len({len(device_numbers) for device_numbers in each.device_numbers}) > 1:
            raise CentreError(f"units: {each.name}: lists of devices differ in length")


def with_stand_in(types: Sequence[UnitType], kind: DeviceKind | None) -> tuple[UnitType, ...]:
    """Return unit types that claim a device of a kind which they lack; as they are without a kind."""
    if kind is None:
        return tuple(types)
    need = DeviceNeed(kind=kind)
    return tuple(
        replace(unit, unit=replace(unit.unit, devices=(*unit.unit.devices, need)))
        if all(each.kind is not kind for each in unit.unit.devices)
        else unit
        for unit in types
    )
