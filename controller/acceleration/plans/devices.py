"""Accelerators to plan for: devices found on machines, or assumed ones, with a calibration's figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.acceleration.calibration import Calibration
from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.devices import completed, of_kind
from controller.acceleration.values import Accelerator
from dataplane.topology.values import Device, DeviceKind


def known_kinds(calibration: Calibration) -> tuple[DeviceKind, ...]:
    """Return the kinds of accelerators for which a calibration has figures."""
    return tuple(kind for kind in DeviceKind if calibration.accelerator_of(kind) is not None)


def assumed(calibration: Calibration, kinds: Iterable[DeviceKind]) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """Return accelerators that no machine need have, by a calibration's figures, and a note that says so.

    Raise AccelerationError for a kind without figures.
    """
    accelerators: list[Accelerator] = []
    for kind in dict.fromkeys(kinds):
        if not (ways := _ways(calibration, kind)):
            known = ", ".join(known_kinds(calibration)) or "none"
            raise AccelerationError(f"{kind}: the calibration has no figures of its bus and parallelism; of: {known}")
        accelerators += ways
    return tuple(accelerators), (f"{_labels(accelerators)}: assumed, {_source(calibration)}",)


def detected(
    calibration: Calibration, devices: Mapping[str, Sequence[Device]], where: str
) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """Return the accelerators that all machines have, by a calibration's figures, and notes on these and all others.

    `devices` are those of each machine by its name, `where` is the source of this knowledge for the notes. Bus and
    memory are those of the slowest and the smallest device, but for a bus that was measured on the same model.
    """
    accelerators: list[Accelerator] = []
    notes: list[str] = []
    for kind in sorted({device.kind for group in devices.values() for device in group} - {DeviceKind.CPU}):
        lacking = next((name for name, group in devices.items() if not of_kind(group, kind)), None)
        if lacking is not None:
            notes.append(f"{kind}: not a choice, machine {lacking} has none")
            continue
        if not (ways := _ways(calibration, kind)):
            notes.append(f"{kind}: {where}, but the calibration has no figures of its bus and parallelism")
            continue
        models = {device.model for group in devices.values() for device in of_kind(group, kind)}
        rates = calibration.rates_of(kind)
        is_measured = rates is not None and bool(rates.model) and models == {rates.model}
        given = frozenset({"bus"} if is_measured else ())
        completes = [completed(way, given, devices) for way in ways]
        named = ", ".join(sorted(filter(None, models)))
        notes.append(f"{_labels(completes)}: {where}{f' ({named})' if named else ''}, {_source(calibration)}")
        accelerators += completes
    return tuple(accelerators), tuple(notes)


def _ways(calibration: Calibration, kind: DeviceKind) -> list[Accelerator]:
    """Return an accelerator without compression and, where it supports it, one with, as a separate choice."""
    accelerator = calibration.accelerator_of(kind)
    if accelerator is None:
        return []
    if accelerator.compression is None:
        return [accelerator]
    return [replace(accelerator, compression=None), replace(accelerator, name=f"{accelerator.label}-packed")]


def _labels(accelerators: Iterable[Accelerator]) -> str:
    return ", ".join(accelerator.label for accelerator in accelerators)


def _source(calibration: Calibration) -> str:
    return f"figures from the calibration ({calibration.machine})"
