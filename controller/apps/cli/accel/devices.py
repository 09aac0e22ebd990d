"""Devices that `millrace accel explain` plans for: of a hardware file, of the machines, or assumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.acceleration.calibration import Calibration
    from controller.acceleration.network.grounds import Ground
    from dataplane.topology.values import Device, DeviceKind

AssumeOption = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="KIND", help="Plan for an accelerator that no machine need have, as gpu."),
]
RootOption = Annotated[
    Path | None,
    typer.Option("--root", metavar="FOLDER", help="Machines are like that of this folder's proc/ and sys/ (recorded)."),
]
_HERE: Final = Path("/")


def with_devices(
    ground: Ground,
    calibration: Calibration,
    *,
    hardware: Path | None,
    assume: Sequence[str],
    root: Path | None,
) -> Ground:
    """Return machines with their accelerators, and notes about these.

    Without a hardware file they are those in the topology, else those of this machine (or of `root`), for which the
    calibration has figures. `assume` replaces them. Raise typer.BadParameter for incompatible options, ConfigError for
    a folder without a machine, and AccelerationError for assumed kinds that the calibration does not have.
    """
    from controller.acceleration.network.grounds import NO_PARALLELISM  # noqa: PLC0415
    from controller.acceleration.plans.devices import assumed, detected, known_kinds  # noqa: PLC0415

    given = {"--hardware": hardware is not None, "--assume": bool(assume), "--root": root is not None}
    if sum(given.values()) > 1:
        raise typer.BadParameter(
            f"{' and '.join(name for name, is_given in given.items() if is_given)} exclude each other"
        )
    if hardware is not None:
        return ground if ground.accelerators else _noted(ground, f"{hardware} lists none that all machines have")
    # Here a calibration gives it.
    ground = replace(ground, notes=tuple(note for note in ground.notes if not note.endswith(NO_PARALLELISM)))
    if assume:
        accelerators, notes = assumed(calibration, map(_kind, assume))
        return replace(ground, accelerators=accelerators, notes=(*ground.notes, *notes))
    hint = " or ".join(f"--assume {kind}" for kind in known_kinds(calibration))
    if ground.devices and root is None:
        accelerators, notes = detected(calibration, ground.devices, "in the topology")
        lacks = "the machines of the topology have none in common"
    elif root is None and not (_HERE / "proc").is_dir():
        return _noted(ground, "this machine's devices are unknown, as it has no /proc", hint)
    else:
        where = "this machine" if root is None else f"the machine in {root}"
        accelerators, notes = detected(calibration, {where: _devices(root or _HERE)}, f"on {where}")
        lacks = f"{where} has none"
    ground = replace(ground, accelerators=accelerators, notes=(*ground.notes, *notes))
    if accelerators:
        return ground
    return _noted(ground, f"{lacks} that the calibration knows" if notes else lacks, hint)


def _noted(ground: Ground, lacks: str, hint: str = "") -> Ground:
    how = f"; {hint} plans for a hypothetical one" if hint else "; a hardware file's `accelerators` state others"
    return replace(ground, notes=(*ground.notes, f"no accelerator: {lacks}, so this plan is for the CPU{how}"))


def _kind(text: str) -> DeviceKind:
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    kinds = [kind for kind in DeviceKind if kind is not DeviceKind.CPU]
    if text not in kinds:
        raise typer.BadParameter(f"--assume {text}: expected one of {', '.join(kinds)}")
    return DeviceKind(text)


def _devices(root: Path) -> Sequence[Device]:
    from collectors.devices.discovery import discover  # noqa: PLC0415
    from collectors.devices.root import Root  # noqa: PLC0415
    from controller.apps.cli.cluster.devices import nvml_of  # noqa: PLC0415

    with nvml_of(root) as nvml:
        return discover(Root(root), nvml).grouped_devices
