"""`millrace balance levers` and `drive`: this machine's levers, and the loop of one unit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.balance.levers.values import Lever
    from controller.balance.running.finding import Host
    from controller.balance.running.loop import Tick

_LEVER_COLUMNS: Final = ("lever", "kind", "at", "low", "high", "note")


def levers(form: FormatOption = Format.TABLE) -> None:
    """Show what this machine can move: quota, clock and power of its CPUs; clocks, power and instances of devices."""
    from collectors.devices.nvml import open_nvml  # noqa: PLC0415
    from collectors.devices.root import Root  # noqa: PLC0415
    from controller.balance.running.finding import Host  # noqa: PLC0415
    from dataplane.clock import MonotonicClock  # noqa: PLC0415

    with open_nvml() as nvml:
        show(_LEVER_COLUMNS, list(_lever_rows(Host(Root(), MonotonicClock(), nvml))), form)


def _lever_rows(host: Host) -> Iterator[Cells]:
    """Yield a row for each possible lever of the machine; for a missing one, the reason."""
    from controller.balance.errors import LeverError  # noqa: PLC0415

    for make in _candidates(host):
        try:
            lever = make()
            standing = lever.read()
        except LeverError as error:
            yield error.lever, "", None, None, None, f"unavailable: {error.problem}"
        else:
            low, high = round(standing.low, 3), round(standing.high, 3)
            steps = f"one of {len(standing.points)} clocks; " if standing.points else ""
            note = f"{steps}{standing.why_not or 'settable where settings have set: true'}"
            yield lever.name, lever.kind.value, round(standing.value, 3), low, high, note
    if isinstance(host.nvml, str):
        yield "clocks, power and instances of NVIDIA GPUs", "", None, None, None, f"unavailable: {host.nvml}"


def _candidates(host: Host) -> Iterator[Callable[[], Lever]]:
    from functools import partial  # noqa: PLC0415

    from collectors.devices.pci import read_pci_devices  # noqa: PLC0415
    from controller.balance.levers.clocks import CpuClocks  # noqa: PLC0415
    from controller.balance.levers.making import IN_SYSFS, device_cap, gpu_clocks  # noqa: PLC0415
    from controller.balance.levers.nvidia import GpuInstances  # noqa: PLC0415
    from controller.balance.levers.power import packages, zone_power  # noqa: PLC0415
    from controller.balance.levers.quota import CpuQuota  # noqa: PLC0415

    yield partial(CpuQuota, _own_group(host), 10, may_set=True, root=host.root)
    yield partial(CpuClocks, may_set=True, root=host.root)
    for zone in packages(host.root):
        yield partial(zone_power, zone, host.root, may_set=True)
    devices = () if isinstance(host.nvml, str) else host.nvml.devices()[0]
    nvidia = tuple(dict.fromkeys(device.part_of or device.address for device in devices))
    others = [device.address for device in read_pci_devices(host.root) if device.driver in IN_SYSFS]
    for address in (*nvidia, *others):
        yield partial(gpu_clocks, host.nvml, address, host.root, may_set=True)
        yield partial(device_cap, host.nvml, address, host.root, low_w=None, may_set=True)
    if not isinstance(host.nvml, str):
        for address in nvidia:
            yield partial(GpuInstances, host.nvml, address, 1, may_set=True)


def _own_group(host: Host) -> str:
    """Return the control group with this process's CPU quota, / at the top."""
    from dataplane.cgroups import group_of  # noqa: PLC0415

    group = group_of(host.root.path)
    folder, top = group.folders.get("cpu"), group.tops.get("cpu")
    return "/" if folder is None or top is None or folder == top else f"/{folder.relative_to(top)}"


def drive(
    settings: SettingsFile,
    turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of turns; default: until Ctrl-C.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no line per turn.")] = False,
) -> None:
    """Run the loop of one unit of this machine: measure bus and cores, decide, move the settable levers."""
    from controller.balance.running import process  # noqa: PLC0415

    shown = (lambda _: None) if quiet else _show
    run_daemon(process.driver(shown, turns), settings)


def _show(tick: Tick) -> None:
    parts = [time.strftime("%H:%M:%S"), tick.watch.value]
    if tick.sample is not None:
        sample = tick.sample
        parts += [f"bus {sample.bus:.2f}", f"load {sample.load:.2f}", f"e {sample.error:+.2f}", f"u {tick.output:+.2f}"]
    for move in tick.moves:
        done = f"{move.moved.done:+g} of {move.asked:+g}" if move.asked else "failed"
        parts.append(f"{move.lever}: {done}{f' ({move.moved.reason})' if move.moved.reason else ''}")
    if tick.problem:
        parts.append(tick.problem)
    typer.echo("  ".join(parts))
